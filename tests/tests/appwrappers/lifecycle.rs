//! The lifecycle, by the checklist of what the Go controller's own tests assert (`tests/README.md` has its numbers).

use std::time::Duration;

use appwrapper_tests::World;
use appwrapper_tests::components::{COMPLETE, FAIL, HOLD, STUCK, jobs, pod, pod_template};
use appwrapper_tests::team::{condition, is_true, phase, retries};
use futures::future::join_all;
use serde_json::{Value, json};

const LABEL: &str = "workload.codeflare.dev/appwrapper";

fn count(pods: &[Value], wanted: &str) -> usize {
    pods.iter().filter(|pod| pod["status"]["phase"] == wanted).count()
}

/// What Kueue injects. The gate lets a test decide when each pod starts.
fn placement() -> Value {
    json!([{
        "annotations": {"testing.example.com/annotation": "a"},
        "labels": {"testing.example.com/label": "l"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "testing.example.com", "operator": "Exists", "effect": "NoSchedule"}],
        "schedulingGates": [{"name": "testing.example.com/gate"}],
    }])
}

/// Two pods, the pod set of one declared and that of the other inferred.
fn two_pods() -> [Value; 2] {
    let mut declared = pod("one", &[]);
    declared["podSets"] = json!([{"path": "template", "replicas": 1}]);
    [declared, pod("two", &[])]
}

/// Numbers 1 to 8, 15 to 17.
pub async fn from_suspended_to_succeeded_and_after(world: &World) {
    let team = world.team("suspended-to-succeeded").await;
    let ttl = [("successTTLDuration", "3s")];
    let mut wrapper = appwrapper_tests::team::wrapper("a", &two_pods(), &ttl);
    wrapper["spec"]["suspend"] = json!(true);
    team.create(&wrapper).await;
    let suspended = team.reaches("a", "Suspended").await;
    assert!(suspended["metadata"]["finalizers"].is_null());
    assert!(suspended["status"]["conditions"].is_null());
    let kueues = |mut component: Value| {
        component["podSetInfos"] = placement();
        component
    };
    let components = two_pods().map(kueues);
    team.change("a", &json!({"spec": {"suspend": false, "components": components}}))
        .await;

    let running = team.reaches("a", "Running").await;
    assert_eq!(
        running["metadata"]["finalizers"],
        json!(["workload.codeflare.dev/finalizer"])
    );
    assert_eq!(running["spec"]["suspend"], false);
    assert!(is_true(&running, "ResourcesDeployed") && is_true(&running, "QuotaReserved"));
    assert!(!is_true(&running, "PodsReady"));
    let pods = team
        .until_pods("a", "two are pending", |pods| count(pods, "Pending") == 2)
        .await;
    for pod in &pods {
        let metadata = &pod["metadata"];
        assert_eq!(metadata["labels"][LABEL], "a");
        assert_eq!(metadata["labels"]["testing.example.com/label"], "l");
        assert_eq!(metadata["annotations"]["testing.example.com/annotation"], "a");
        assert_eq!(pod["spec"]["nodeSelector"]["kubernetes.io/os"], "linux");
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
        assert!(tolerations.iter().any(|one| one["key"] == "testing.example.com"));
        assert_eq!(
            pod["spec"]["schedulingGates"],
            json!([{"name": "testing.example.com/gate"}])
        );
        assert!(pod["spec"]["affinity"].is_null());
    }

    let let_start = async |name: &str| {
        team.patch("v1", "Pod", name, &json!({"spec": {"schedulingGates": null}}))
            .await;
    };
    let_start("one").await;
    team.until_pods("a", "one runs", |pods| {
        count(pods, "Running") == 1 && count(pods, "Pending") == 1
    })
    .await;
    let half = |wrapper: &Value| phase(wrapper) == "Running" && !is_true(wrapper, "PodsReady");
    team.stays("a", "running and not ready", Duration::from_secs(1), half)
        .await;
    let_start("two").await;
    let ready = team.until("a", "ready", |wrapper| is_true(wrapper, "PodsReady")).await;
    assert_eq!(phase(&ready), "Running");

    let let_end = async |name: &str| {
        team.play(&json!({"metadata": {"name": name}}), COMPLETE.0, Some(COMPLETE.1))
            .await;
    };
    let_end("one").await;
    team.until_pods("a", "one has ended", |pods| count(pods, "Succeeded") == 1)
        .await;
    let running = |wrapper: &Value| {
        phase(wrapper) == "Running" && is_true(wrapper, "PodsReady") && is_true(wrapper, "ResourcesDeployed")
    };
    team.stays("a", "running and ready", Duration::from_secs(2), running)
        .await;
    let_end("two").await;
    let succeeded = team.reaches("a", "Succeeded").await;
    assert!(is_true(&succeeded, "ResourcesDeployed"));
    assert_eq!(condition(&succeeded, "QuotaReserved")["status"], "False");
    assert_eq!(team.pods("a").await.len(), 2, "its pods stay for a while");
    team.until("a", "resources are gone", |wrapper| {
        !is_true(wrapper, "ResourcesDeployed")
    })
    .await;
    assert_eq!(team.pods("a").await, Vec::<Value>::new());
    assert_eq!(phase(&team.get("a").await), "Succeeded");
    team.remove("a").await;
}

/// Numbers 9 and 10. One pod does not go at once, so Suspending can be seen.
pub async fn suspending_a_running_workload(world: &World) {
    let team = world.team("suspending").await;
    let components = [pod("quick", &[]), pod("slow", &[STUCK])];
    team.submit("a", &components).await;
    team.until("a", "ready", |wrapper| is_true(wrapper, "PodsReady")).await;
    team.suspend("a", true).await;
    let suspending = team.reaches("a", "Suspending").await;
    assert!(is_true(&suspending, "ResourcesDeployed") && is_true(&suspending, "QuotaReserved"));
    team.until_gone("v1", "Pod", "quick").await;
    let holds = |wrapper: &Value| phase(wrapper) == "Suspending" && is_true(wrapper, "QuotaReserved");
    team.stays("a", "waiting for a pod", Duration::from_secs(2), holds)
        .await;
    team.play(&json!({"metadata": {"name": "slow"}}), STUCK.0, None).await;
    let suspended = team.reaches("a", "Suspended").await;
    assert_eq!(condition(&suspended, "ResourcesDeployed")["status"], "False");
    assert_eq!(condition(&suspended, "QuotaReserved")["status"], "False");
    assert_eq!(team.pods("a").await, Vec::<Value>::new());

    // And back again.
    team.suspend("a", false).await;
    team.until("a", "ready again", |wrapper| {
        phase(wrapper) == "Running" && is_true(wrapper, "PodsReady")
    })
    .await;
    team.play(&json!({"metadata": {"name": "slow"}}), STUCK.0, None).await;
    team.remove("a").await;
}

/// Numbers 11 and 12.
pub async fn a_failed_pod_without_grace_and_retries(world: &World) {
    let team = world.team("failed-pod").await;
    let none = [("failureGracePeriodDuration", "0s"), ("retryLimit", "0")];
    team.submit_with("a", &[pod("good", &[]), pod("bad", &[FAIL])], &none)
        .await;
    let failed = team.reaches("a", "Failed").await;
    assert!(is_true(&failed, "ResourcesDeployed") && is_true(&failed, "QuotaReserved"));
    assert_eq!(condition(&failed, "Unhealthy")["reason"], "FoundFailedPods");
    let ended = team
        .until("a", "the quota is given back", |wrapper| {
            !is_true(wrapper, "QuotaReserved")
        })
        .await;
    assert_eq!(phase(&ended), "Failed");
    assert!(!is_true(&ended, "ResourcesDeployed"));
    team.until_event("a", "Unhealthy", "FoundFailedPods").await;
    team.remove("a").await;
}

/// Number 13: what the API server calls invalid is never tried again.
pub async fn a_component_that_is_invalid_fails_without_a_retry(world: &World) {
    let team = world.team("invalid").await;
    let mut invalid = pod("invalid", &[]);
    invalid["template"]["spec"]["containers"] = json!([{"name": "work"}]);
    let annotations = [("deletionOnFailureGracePeriodDuration", "5m"), ("retryLimit", "3")];
    team.submit_with("a", &[pod("first", &[]), invalid], &annotations).await;
    let failed = team.reaches("a", "Failed").await;
    assert!(is_true(&failed, "ResourcesDeployed") && is_true(&failed, "QuotaReserved"));
    assert!(!is_true(&failed, "PodsReady"));
    assert_eq!(retries(&failed), 0);
    let unhealthy = condition(&failed, "Unhealthy");
    assert_eq!(unhealthy["reason"], "CreateFailed");
    assert!(unhealthy["message"].as_str().unwrap().contains("image"), "{unhealthy}");
    assert_eq!(team.pods("a").await.len(), 1, "what was made is kept to be looked at");
    // Suspending it ends the delay.
    team.suspend("a", true).await;
    let ended = team
        .until("a", "resources are gone", |wrapper| {
            !is_true(wrapper, "ResourcesDeployed")
        })
        .await;
    assert_eq!(phase(&ended), "Failed");
    assert_eq!(team.pods("a").await, Vec::<Value>::new());
    team.remove("a").await;
}

/// Number 68, with numbers 14 and 74: in the foreground the Jobs are seen being deleted before they go.
pub async fn jobs_that_end_well(world: &World) {
    let team = world.team("ends-well").await;
    let names: Vec<String> = (0..8).map(|index| format!("a-{index}")).collect();
    for name in &names {
        team.submit(name, &[jobs(name, 2, 2, 0, &[("run-seconds", "1")])]).await;
    }
    for name in &names {
        team.reaches(name, "Succeeded").await;
    }
    join_all(names.iter().map(async |name| team.remove(name).await)).await;
    assert_eq!(team.list("batch/v1", "Job", "").await, Vec::<Value>::new());
}

/// Number 69.
pub async fn a_failing_job_is_retried_to_its_limit(world: &World) {
    let team = world.team("retried").await;
    let annotations = [
        ("failureGracePeriodDuration", "0s"),
        ("retryLimit", "2"),
        ("retryPausePeriodDuration", "2s"),
    ];
    team.submit_with("a", &[jobs("a", 1, 1, 0, &[FAIL])], &annotations)
        .await;
    let resetting = team.reaches("a", "Resetting").await;
    assert_eq!(retries(&resetting), 1);
    assert!(is_true(&resetting, "QuotaReserved"));
    let failed = team.reaches("a", "Failed").await;
    assert_eq!(retries(&failed), 2);
    team.remove("a").await;
}

/// Number 72.
pub async fn a_job_that_never_starts_is_retried_after_its_warmup(world: &World) {
    let team = world.team("never-starts").await;
    let annotations = [
        ("warmupGracePeriodDuration", "4s"),
        ("admissionGracePeriodDuration", "4s"),
        ("retryLimit", "1"),
        ("retryPausePeriodDuration", "1s"),
    ];
    let stuck = appwrapper_tests::components::PENDING;
    team.submit_with("a", &[jobs("a", 1, 1, 0, &[stuck])], &annotations)
        .await;
    team.reaches("a", "Running").await;
    let resetting = team.reaches("a", "Resetting").await;
    assert_eq!(condition(&resetting, "Unhealthy")["reason"], "InsufficientPodsReady");
    let failed = team.reaches("a", "Failed").await;
    assert_eq!(retries(&failed), 1);
    team.remove("a").await;
}

/// Number 71: anti-affinity moves the workload to another node.
pub async fn a_workload_leaves_a_node_that_is_marked(world: &World) {
    let team = world.team("marked-node").await;
    let mut template = pod_template(&[HOLD]);
    template["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": "1"}});
    let spec = json!({"template": template});
    let job = appwrapper_tests::components::component("batch/v1", "Job", "a", &spec);
    let annotations = [("retryPausePeriodDuration", "1s"), ("retryLimit", "3")];
    team.submit_with("a", &[job], &annotations).await;
    team.until("a", "ready", |wrapper| is_true(wrapper, "PodsReady")).await;
    let node_of = async || team.pods("a").await[0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    let node = node_of().await;
    let mark = |value: Value| json!({"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": value}}});
    let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(world.client());
    let label = async |value: Value| {
        let change = kube::api::Patch::Merge(mark(value));
        nodes
            .patch(&node, &kube::api::PatchParams::default(), &change)
            .await
            .unwrap();
    };
    label(json!("EVICT")).await;
    let resetting = team.reaches("a", "Resetting").await;
    assert_eq!(condition(&resetting, "Unhealthy")["reason"], "AutopilotNoExecute");
    let again = team
        .until("a", "ready again", |wrapper| {
            phase(wrapper) == "Running" && is_true(wrapper, "PodsReady")
        })
        .await;
    assert_eq!(retries(&again), 0, "it costs no retry");
    assert_ne!(node_of().await, node);
    let affinity = &team.pods("a").await[0]["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    assert_eq!(terms.as_array().unwrap().len(), 1);
    label(Value::Null).await;
    team.remove("a").await;
}
