//! Cases of public bug reports that need a real API server, or are stronger on one. The numbers are those of the collection
//! that `tests/README.md` goes through.

use std::time::Duration;

use appwrapper_testkit::api_server::Verb;
use appwrapper_tests::World;
use appwrapper_tests::components::{FAIL, HOLD, component, config_map, deployment, job, jobs, pod, service};
use appwrapper_tests::team::{condition, is_true, phase, retries, wrapper};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::Instant;

fn healthy(wrapper: &Value) -> bool {
    phase(wrapper) == "Running" && is_true(wrapper, "PodsReady") && !is_true(wrapper, "Unhealthy")
}

/// R07: a pod that is lost after everything was ready has a grace of its own, counted from the loss.
pub async fn r07_a_lost_pod_is_replaced_in_its_own_grace(world: &World) {
    let team = world.team("r07").await;
    let annotations = [("failureGracePeriodDuration", "40s"), ("retryLimit", "1")];
    team.submit_with("a", &[jobs("a", 2, 2, 6, &[HOLD])], &annotations)
        .await;
    team.until("a", "ready", healthy).await;
    // The graces of the beginning are over from here on, and would allow nothing.
    let over = json!({
        "workload.codeflare.dev.appwrapper/warmupGracePeriodDuration": "0s",
        "workload.codeflare.dev.appwrapper/admissionGracePeriodDuration": "0s",
    });
    team.change("a", &json!({"metadata": {"annotations": over}})).await;
    let deployed = condition(&team.get("a").await, "ResourcesDeployed")["lastTransitionTime"].clone();
    let pods = team.pods("a").await;
    // The Job controller makes a new one after ten seconds.
    team.delete("v1", "Pod", pods[0]["metadata"]["name"].as_str().unwrap(), "background")
        .await;
    team.until("a", "the loss is seen", |wrapper| !is_true(wrapper, "PodsReady"))
        .await;
    let again = team.until("a", "ready again", healthy).await;
    assert_eq!(retries(&again), 0);
    assert_eq!(condition(&again, "ResourcesDeployed")["lastTransitionTime"], deployed);
    team.remove("a").await;
}

/// R10: a list of terminal exit codes with a space in it, and the code of a real pod status.
pub async fn r10_a_terminal_exit_code_is_not_retried(world: &World) {
    let team = world.team("r10").await;
    let annotations = [
        ("terminalExitCodes", "3, 42"),
        ("failureGracePeriodDuration", "0s"),
        ("retryPausePeriodDuration", "1s"),
        ("retryLimit", "3"),
    ];
    team.submit_with(
        "terminal",
        &[jobs("terminal", 1, 1, 6, &[("exit-code", "42")])],
        &annotations,
    )
    .await;
    team.submit_with(
        "other",
        &[jobs("other", 1, 1, 6, &[("exit-code", "137")])],
        &annotations,
    )
    .await;
    let failed = team.reaches("terminal", "Failed").await;
    assert_eq!(retries(&failed), 0);
    assert_eq!(condition(&failed, "Unhealthy")["reason"], "FoundFailedPods");
    team.until("other", "a retry", |wrapper| retries(wrapper) == 1).await;
    team.remove("terminal").await;
    team.remove("other").await;
}

/// R12: a pod that is collected after the Job has counted it is not lost.
pub async fn r12_a_succeeded_pod_that_is_collected_early(world: &World) {
    let team = world.team("r12").await;
    team.submit("a", &[jobs("a", 2, 2, 0, &[HOLD])]).await;
    team.until("a", "ready", healthy).await;
    let pods = team.pods("a").await;
    team.play(&pods[0], HOLD.0, None).await;
    let counted = |found: Option<&Value>| found.is_some_and(|job| job["status"]["succeeded"] == 1);
    team.until_object("batch/v1", "Job", "a", "one is counted", counted)
        .await;
    let first = pods[0]["metadata"]["name"].as_str().unwrap();
    team.delete("v1", "Pod", first, "background").await;
    team.until_gone("v1", "Pod", first).await;
    team.stays("a", "healthy", Duration::from_secs(2), healthy).await;
    team.play(&pods[1], HOLD.0, None).await;
    let succeeded = team.reaches("a", "Succeeded").await;
    assert_eq!(retries(&succeeded), 0);
    team.remove("a").await;
}

/// R13: ends are seen when they come, and not at the next look.
pub async fn r13_ends_are_seen_at_once(world: &World) {
    let team = world.team("r13").await;
    let names: Vec<String> = (0..30).map(|index| format!("a-{index}")).collect();
    for name in &names {
        team.submit(name, &[job(name, &[HOLD])]).await;
    }
    join_all(names.iter().map(async |name| team.until(name, "ready", healthy).await)).await;
    let ends = names.iter().map(async |name| {
        team.play(&team.pods(name).await[0], HOLD.0, None).await;
        let complete = |found: Option<&Value>| found.is_some_and(|job| !job["status"]["completionTime"].is_null());
        team.until_object("batch/v1", "Job", name, "complete", complete).await;
        let completed = Instant::now();
        team.reaches(name, "Succeeded").await;
        completed.elapsed()
    });
    let mut delays = join_all(ends).await;
    delays.sort();
    println!("from Complete to Succeeded: {:?} at most", delays.last());
    // Far less than the minute of the net, on a machine that does a dozen other tests.
    assert!(delays[delays.len() - 2] < Duration::from_secs(5), "{delays:?}");

    let grace = [("failureGracePeriodDuration", "1h")];
    team.submit_with("failing", &[jobs("failing", 1, 1, 6, &[HOLD, FAIL])], &grace)
        .await;
    team.until("failing", "ready", healthy).await;
    let pod = &team.pods("failing").await[0];
    team.play(pod, HOLD.0, None).await;
    team.until_object(
        "v1",
        "Pod",
        pod["metadata"]["name"].as_str().unwrap(),
        "failed",
        |found| found.is_some_and(|pod| pod["status"]["phase"] == "Failed"),
    )
    .await;
    let failed = Instant::now();
    team.until("failing", "Unhealthy", |wrapper| is_true(wrapper, "Unhealthy"))
        .await;
    assert!(failed.elapsed() < Duration::from_secs(5), "{:?}", failed.elapsed());
    join_all(names.iter().map(async |name| team.remove(name).await)).await;
    team.remove("failing").await;
}

/// R14: suspension to and fro, at moments that fall as they fall.
pub async fn r14_flips_of_suspend_leak_nothing(world: &World) {
    let team = world.team("r14").await;
    let components = [job("a", &[HOLD]), service("a"), deployment("a", 1)];
    team.submit("a", &components).await;
    for flip in 0..10 {
        // Suspending runs to its end, so a flip waits for nothing but what it needs to fall into another phase.
        team.until("a", "a phase", |wrapper| {
            let phase = phase(wrapper);
            match flip % 3 {
                0 => phase == "Resuming" || phase == "Running",
                1 => phase == "Running",
                _ => phase == "Running" && is_true(wrapper, "PodsReady"),
            }
        })
        .await;
        team.suspend("a", true).await;
        if flip % 2 == 0 {
            team.reaches("a", "Suspended").await;
        }
        team.suspend("a", false).await;
    }
    let last = team
        .until("a", "running since the last flip", |wrapper| {
            healthy(wrapper) && wrapper["spec"]["suspend"] == false
        })
        .await;
    assert!(is_true(&last, "QuotaReserved"));
    let resumed = condition(&last, "ResourcesDeployed")["lastTransitionTime"]
        .as_str()
        .unwrap()
        .to_owned();
    for (api_version, kind) in [("batch/v1", "Job"), ("v1", "Service"), ("apps/v1", "Deployment")] {
        let found = team.list(api_version, kind, "").await;
        assert_eq!(found.len(), 1, "{kind}");
        assert!(
            found[0]["metadata"]["creationTimestamp"].as_str().unwrap() >= resumed.as_str(),
            "{kind}"
        );
    }
    assert_eq!(team.pods("a").await.len(), 2);
    team.remove("a").await;
}

/// R17: a pod that somebody else's finalizer holds.
pub async fn r17_a_foreign_finalizer_is_named_and_waited_for(world: &World) {
    let team = world.team("r17").await;
    let grace = [("forcefulDeletionGracePeriodDuration", "3s")];
    team.submit_with("a", &[job("a", &[HOLD])], &grace).await;
    team.until("a", "ready", healthy).await;
    let name = team.pods("a").await[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let finalizers = |all: Value| json!({"metadata": {"finalizers": all}});
    team.patch("v1", "Pod", &name, &finalizers(json!(["example.com/mine"])))
        .await;
    team.delete("workload.codeflare.dev/v1beta2", "AppWrapper", "a", "foreground")
        .await;
    let note = team.until_event("a", "DeletionForced", &name).await["note"].clone();
    assert!(note.as_str().unwrap().contains("example.com/mine"), "{note}");
    let forced = || {
        let log = world.proxy.records().log();
        let is_one = |request: &&appwrapper_testkit::api_server::ApiRequest| {
            request.verb == Verb::Delete && request.plural == "pods" && request.name.as_ref() == Some(&name)
        };
        log.iter().filter(is_one).count()
    };
    let (before, since) = (forced(), Instant::now());
    let held = |wrapper: &Value| phase(wrapper) == "Terminating" && !wrapper["metadata"]["finalizers"].is_null();
    team.stays("a", "waiting for the finalizer", Duration::from_secs(8), held)
        .await;
    let bound = usize::try_from(since.elapsed().as_secs() / 5 + 1).unwrap();
    assert!(
        (1..=bound).contains(&(forced() - before)),
        "{} forced deletes",
        forced() - before
    );
    team.patch("v1", "Pod", &name, &finalizers(Value::Null)).await;
    team.until_gone("workload.codeflare.dev/v1beta2", "AppWrapper", "a")
        .await;
}

/// R18: deleting a Job leaves none of its pods.
pub async fn r18_no_pod_outlives_its_job(world: &World) {
    let team = world.team("r18").await;
    team.submit("a", &[jobs("a", 3, 3, 0, &[HOLD])]).await;
    team.until("a", "ready", healthy).await;
    team.suspend("a", true).await;
    team.reaches("a", "Suspended").await;
    assert_eq!(team.list("v1", "Pod", "").await, Vec::<Value>::new());
    team.until_gone("batch/v1", "Job", "a").await;
    team.remove("a").await;
}

/// R19: a namespace that is deleted goes, also while a component cannot be created.
pub async fn r19_a_namespace_that_is_deleted_goes(world: &World) {
    let team = world.team("r19").await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"count/services": "0"}}});
    team.create(&quota).await;
    // Until the quota is in force it refuses everything, or nothing.
    let in_force = |found: Option<&Value>| found.is_some_and(|quota| !quota["status"]["used"].is_null());
    team.until_object("v1", "ResourceQuota", "none", "in force", in_force)
        .await;
    let mut suspended = wrapper("suspended", &[service("never")], &[]);
    suspended["spec"]["suspend"] = json!(true);
    team.create(&suspended).await;
    team.reaches("suspended", "Suspended").await;
    team.submit("refused", &[config_map("first"), service("second")]).await;
    // C11: the reason is told at once, and once.
    team.until_event("refused", "CreateFailed", "exceeded quota").await;
    let refused = team.get("refused").await;
    assert_eq!(phase(&refused), "Resuming");
    let namespaces: Api<Namespace> = Api::all(world.client());
    let deleted = Instant::now();
    namespaces
        .delete(&team.namespace, &DeleteParams::default())
        .await
        .unwrap();
    team.until_object("v1", "Namespace", &team.namespace, "is gone", |found| found.is_none())
        .await;
    println!("the namespace was gone after {:?}", deleted.elapsed());
}

/// R21: what somebody else manages is not touched at all.
pub async fn r21_an_appwrapper_that_somebody_else_manages(world: &World) {
    let team = world.team("r21").await;
    for (name, manager) in [
        ("theirs", "kueue.x-k8s.io/multikueue"),
        ("ours", "workload.codeflare.dev/appwrapper-controller"),
    ] {
        let mut object = wrapper(name, &[config_map(name), job(name, &[HOLD])], &[]);
        object["spec"]["managedBy"] = json!(manager);
        team.create(&object).await;
    }
    team.until("ours", "ready", healthy).await;
    let theirs = team.get("theirs").await;
    assert!(theirs["status"].is_null(), "{theirs}");
    assert!(theirs["metadata"]["finalizers"].is_null());
    assert_eq!(team.find("v1", "ConfigMap", "theirs").await, None);
    assert_eq!(team.events("theirs").await, Vec::<Value>::new());
    team.remove("theirs").await;
    team.remove("ours").await;
}

/// R28, C11: a kind that the controller's roles do not name is told of at once, by the name of what is missing.
pub async fn r28_a_kind_outside_the_roles_is_named_at_once(world: &World) {
    let team = world.team("r28").await;
    let annotations = [("admissionGracePeriodDuration", "4s"), ("retryLimit", "0")];
    let secret = component("v1", "Secret", "a", &json!({}));
    team.submit_with("a", &[service("beside"), secret], &annotations).await;
    let submitted = Instant::now();
    team.until_event("a", "CreateFailed", "cannot create resource \"secrets\"")
        .await;
    assert!(
        submitted.elapsed() < Duration::from_secs(10),
        "{:?}",
        submitted.elapsed()
    );
    let failed = team.reaches("a", "Failed").await;
    let message = condition(&failed, "Unhealthy")["message"].as_str().unwrap().to_owned();
    assert!(message.contains("cannot create resource \"secrets\""), "{message}");
    team.until_gone("v1", "Service", "beside").await;
    team.remove("a").await;
}

/// C02: a user's own pod with the label is nobody's.
pub async fn c02_a_strangers_pod_with_the_label_counts_for_nothing(world: &World) {
    let team = world.team("c02").await;
    let annotations = [("failureGracePeriodDuration", "0s"), ("retryLimit", "0")];
    team.submit_with("a", &[job("a", &[HOLD])], &annotations).await;
    let mut stranger = pod("stranger", &[FAIL])["template"].take();
    stranger["metadata"]["labels"] = json!({"workload.codeflare.dev/appwrapper": "a"});
    team.create(&stranger).await;
    team.until_object("v1", "Pod", "stranger", "failed", |found| {
        found.is_some_and(|pod| pod["status"]["phase"] == "Failed")
    })
    .await;
    team.until("a", "ready", healthy).await;
    team.stays("a", "healthy", Duration::from_secs(2), healthy).await;
    team.suspend("a", true).await;
    team.reaches("a", "Suspended").await;
    assert!(
        team.find("v1", "Pod", "stranger").await.is_some(),
        "a stranger's pod was deleted"
    );
    team.delete("v1", "Pod", "stranger", "background").await;
    team.remove("a").await;
}

/// C08: a workload without pods has nothing to wait for.
pub async fn c08_a_job_of_no_completions_succeeds(world: &World) {
    let team = world.team("c08").await;
    team.submit("a", &[jobs("a", 1, 0, 0, &[])]).await;
    team.reaches("a", "Succeeded").await;
    team.remove("a").await;
}
