//! Deleting: what has to be gone before the quota is given back, and what a delete carries.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use appwrapper_testkit::api_server::{Effect, Match, Verb};
use common::{World, job, service};
use serde_json::{Value, json};

const PREFIX: &str = "workload.codeflare.dev.appwrapper/";

fn annotations(entries: &[(&str, &str)]) -> Value {
    entries
        .iter()
        .map(|(name, value)| (format!("{PREFIX}{name}"), Value::from(*value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn parallel_job(name: &str, pods: i64) -> Value {
    let mut component = job(name);
    component["template"]["spec"]["parallelism"] = pods.into();
    component["template"]["spec"]["completions"] = pods.into();
    component
}

/// A Job with running pods on a node that nobody looks after, so that they terminate only when the test says so.
async fn with_stuck_pods(world: &World, name: &str, pods: i64, tuning: Value) -> Vec<String> {
    world.submit_with(name, json!([parallel_job(name, pods)]), tuning);
    world.wait_phase(name, "Running").await;
    world.server.step_jobs();
    let pods = world
        .server
        .list("pods", "team", &format!("workload.codeflare.dev/appwrapper={name}"));
    let names: Vec<String> = pods
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    for pod in &names {
        world.server.schedule_pod("team", pod, "node");
        world.server.set_pod_phase("team", pod, "Running");
    }
    world
        .wait("pods are ready", |world| {
            world.condition(name, "PodsReady")["status"] == "True"
        })
        .await;
    names
}

fn holds_quota(world: &World, name: &str) -> bool {
    world.condition(name, "QuotaReserved")["status"] == "True"
}

#[tokio::test(start_paused = true)]
async fn the_quota_is_kept_until_the_api_server_itself_lists_no_pod() {
    let world = World::start().await;
    let gate = world.server.gate("pods");
    gate.watched().await;
    world.submit("blind", json!([parallel_job("blind", 2)]));
    world.wait_phase("blind", "Running").await;
    // The cache never sees these pods.
    gate.hold();
    world.server.step_jobs();
    let pods = world.server.list("pods", "team", "");
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        world
            .server
            .schedule_pod("team", pod["metadata"]["name"].as_str().unwrap(), "node");
    }
    world
        .server
        .patch("appwrappers", "team", "blind", &json!({"spec": {"suspend": true}}));
    world
        .wait("the Job goes", |world| world.get("jobs", "blind").is_none())
        .await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.phase("blind"), "Suspending");
    assert!(
        holds_quota(&world, "blind"),
        "pods are left, and the quota was given away"
    );
    for pod in &pods {
        world
            .server
            .finish_pod("team", pod["metadata"]["name"].as_str().unwrap());
    }
    world.wait_phase("blind", "Suspended").await;
    assert!(!holds_quota(&world, "blind"));
}

#[tokio::test(start_paused = true)]
async fn no_object_of_the_next_attempt_exists_before_the_last_pod_of_this_one_is_gone() {
    let world = World::start().await;
    let tuning = annotations(&[("failureGracePeriodDuration", "0s"), ("retryPausePeriodDuration", "0s")]);
    let pods = with_stuck_pods(&world, "retry", 2, tuning).await;
    world.server.set_pod_exit("team", &pods[0], 1);
    world.wait_phase("retry", "Resetting").await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.phase("retry"), "Resetting");
    assert!(world.get("jobs", "retry").is_none());
    // A pod that has ended needs no kubelet to go; the other one waits for it.
    assert!(world.get("pods", &pods[0]).is_none());
    world.server.finish_pod("team", &pods[1]);
    world.wait_phase("retry", "Running").await;
    assert_eq!(world.wrapper("retry")["status"]["resettingCount"], 1);
    // The pods of the first attempt do not count in the second, even where a cache still shows them.
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(world.phase("retry"), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_pod_is_forced_at_a_bounded_rate_and_named() {
    let world = World::start().await;
    let tuning = annotations(&[("forcefulDeletionGracePeriodDuration", "10s")]);
    let pods = with_stuck_pods(&world, "stuck", 1, tuning).await;
    let finalizer = json!({"metadata": {"finalizers": ["example.com/foreign"]}});
    world.server.patch("pods", "team", &pods[0], &finalizer);
    world.server.reset_requests();
    world.server.delete("appwrappers", "team", "stuck", "Background");
    world.wait_phase("stuck", "Terminating").await;
    world.pass(Duration::from_secs(70)).await;
    let forced: Vec<_> = world
        .server
        .requests()
        .into_iter()
        .filter(|request| request.verb == Verb::Delete && request.is_for("pods"))
        .collect();
    assert!(
        (1..=13).contains(&forced.len()),
        "{} forced deletes in a minute",
        forced.len()
    );
    assert!(forced.iter().all(|request| request.grace_period() == Some(0)));
    assert!(
        world.get("appwrappers", "stuck").is_some(),
        "the finalizer stays while the pod does"
    );
    let told = world.server.list("events.events.k8s.io", "team", "");
    let told = told
        .iter()
        .filter_map(|event| event["note"].as_str())
        .any(|note| note.contains(&pods[0]) && note.contains("example.com/foreign"));
    assert!(told, "nobody is told which pod and which finalizer");
    world
        .server
        .patch("pods", "team", &pods[0], &json!({"metadata": {"finalizers": null}}));
    world
        .wait("the AppWrapper goes", |world| {
            world.get("appwrappers", "stuck").is_none()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn every_delete_carries_a_uid_and_a_propagation_policy_that_does_not_orphan() {
    let world = World::start().await;
    let tuning = annotations(&[("forcefulDeletionGracePeriodDuration", "1s")]);
    let pods = with_stuck_pods(&world, "audit", 3, tuning).await;
    world.server.reset_requests();
    world.server.delete("appwrappers", "team", "audit", "Background");
    world
        .wait("the AppWrapper goes", |world| {
            world.get("appwrappers", "audit").is_none()
        })
        .await;
    let deletes: Vec<_> = world
        .server
        .requests()
        .into_iter()
        .filter(|request| request.verb == Verb::Delete && request.author == "controller")
        .collect();
    assert!(deletes.iter().any(|request| request.is_for("jobs")));
    for request in &deletes {
        assert!(request.uid_precondition().is_some(), "{}", request.path);
        assert!(
            matches!(request.propagation(), Some(policy) if policy != "Orphan"),
            "{}",
            request.path
        );
    }
    for pod in pods {
        assert!(world.get("pods", &pod).is_none(), "pod {pod} survives");
    }
}

#[tokio::test(start_paused = true)]
async fn a_strangers_pod_with_our_label_is_neither_counted_nor_deleted() {
    let world = World::start().await;
    let tuning = annotations(&[
        ("failureGracePeriodDuration", "0s"),
        ("forcefulDeletionGracePeriodDuration", "1s"),
    ]);
    let pods = with_stuck_pods(&world, "mine", 1, tuning).await;
    world.server.create(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bystander", "namespace": "team",
        "labels": {"workload.codeflare.dev/appwrapper": "mine"}}, "spec": {"containers": []}}),
    );
    world.server.set_pod_exit("team", "bystander", 1);
    world.pass(Duration::from_secs(90)).await;
    assert_eq!(world.phase("mine"), "Running");
    world.server.delete("appwrappers", "team", "mine", "Background");
    world
        .wait("our pod terminates", |world| {
            world
                .get("pods", &pods[0])
                .is_none_or(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
    if world.get("pods", &pods[0]).is_some() {
        world.server.finish_pod("team", &pods[0]);
    }
    world
        .wait("the AppWrapper goes", |world| {
            world.get("appwrappers", "mine").is_none()
        })
        .await;
    assert!(world.get("pods", "bystander").is_some());
}

#[tokio::test(start_paused = true)]
async fn no_create_is_tried_once_the_appwrapper_is_being_deleted() {
    let world = World::start().await;
    let quota = Effect::forbidden();
    world
        .server
        .faults()
        .add(Match::verb(Verb::Create).resource("services"), quota);
    world.submit("refused", json!([job("refused"), service("refused")]));
    world
        .wait("the Job", |world| world.get("jobs", "refused").is_some())
        .await;
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.phase("refused"), "Resuming");
    world.server.delete("appwrappers", "team", "refused", "Background");
    world.server.reset_requests();
    world
        .wait("the AppWrapper goes", |world| {
            world.get("appwrappers", "refused").is_none()
        })
        .await;
    assert_eq!(world.server.count(&Match::verb(Verb::Create).resource("services")), 0);
    assert!(world.get("jobs", "refused").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_create_that_is_refused_for_long_costs_few_requests_and_one_event() {
    let world = World::start().await;
    world
        .server
        .faults()
        .add(Match::verb(Verb::Create).resource("jobs"), Effect::forbidden());
    let tuning = annotations(&[("admissionGracePeriodDuration", "10m"), ("retryLimit", "0")]);
    world.submit_with("quota", json!([job("quota")]), tuning);
    world.pass(Duration::from_secs(60)).await;
    world.server.reset_requests();
    world.pass(Duration::from_secs(9 * 60)).await;
    let writes = world.server.count(&Match::writes().author("controller"));
    assert!(writes <= 20, "{writes} writes in nine minutes");
    world.wait_phase("quota", "Failed").await;
    let unhealthy = world.condition("quota", "Unhealthy");
    assert_eq!(
        (&unhealthy["status"], &unhealthy["reason"]),
        (&json!("True"), &json!("CreateFailed"))
    );
    let events = world.server.list("events.events.k8s.io", "team", "");
    let mut reasons: Vec<&str> = events.iter().filter_map(|event| event["reason"].as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["CreateFailed", "Unhealthy"]);
    assert!(events.iter().all(|event| event["type"] == "Warning"));
}

#[tokio::test(start_paused = true)]
async fn an_appwrapper_that_somebody_else_manages_is_not_touched() {
    let world = World::start().await;
    world.server.create(
        json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": "theirs", "namespace": "team"},
        "spec": {"managedBy": "kueue.x-k8s.io/multikueue", "components": [job("theirs")]}}),
    );
    world.server.reset_requests();
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(world.server.count(&Match::writes().author("controller")), 0);
    world.server.delete("appwrappers", "team", "theirs", "Background");
    assert!(world.get("appwrappers", "theirs").is_none());
}

#[tokio::test(start_paused = true)]
async fn deadlines_survive_a_controller_that_was_away() {
    let world = World::start().await;
    let tuning = annotations(&[("successTTLDuration", "20s")]);
    world.submit_with("ttl", json!([job("ttl")]), tuning);
    world.wait_phase("ttl", "Running").await;
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    world.server.patch_status("jobs", "team", "ttl", &complete);
    world.wait_phase("ttl", "Succeeded").await;
    let World { server, controller } = world;
    controller.kill();
    tokio::time::sleep(Duration::from_secs(40)).await;
    let started = tokio::time::Instant::now();
    let controller = common::Controller::start(&server).await;
    let world = World { server, controller };
    world
        .wait("the components go", |world| world.get("jobs", "ttl").is_none())
        .await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    world
        .wait("it is written down", |world| {
            world.condition("ttl", "ResourcesDeployed")["status"] == "False"
        })
        .await;
    assert_eq!(world.phase("ttl"), "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn what_happens_beside_a_refused_create_does_not_try_it_again() {
    let world = World::start().await;
    world
        .server
        .faults()
        .add(Match::verb(Verb::Create).resource("services"), Effect::forbidden());
    let tuning = annotations(&[("admissionGracePeriodDuration", "10m")]);
    world.submit_with("noisy", json!([parallel_job("noisy", 20), service("noisy")]), tuning);
    world
        .wait("the Job", |world| world.get("jobs", "noisy").is_some())
        .await;
    world.pass(Duration::from_secs(100)).await;
    world.server.reset_requests();
    world.server.step_jobs();
    for pod in world.server.list("pods", "team", "") {
        world
            .server
            .set_pod_phase("team", pod["metadata"]["name"].as_str().unwrap(), "Running");
        world.pass(Duration::from_millis(100)).await;
    }
    world.pass(Duration::from_secs(20)).await;
    let tries = world
        .server
        .count(&Match::verb(Verb::Create).resource("services").author("controller"));
    assert!(tries <= 2, "{tries} tries");
}
