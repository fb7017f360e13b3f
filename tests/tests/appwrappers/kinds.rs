//! Kinds of components, those of operators played by the tests.

use std::time::Duration;

use appwrapper_tests::components::{
    HOLD, RAY_HEAD, RAY_JOB_HEAD, WORKERS, config_map, deployment, generated, job, job_set, pod, pytorch_job,
    ray_cluster, ray_job, service, stateful_set,
};
use appwrapper_tests::team::{condition, controlled_by, is_true, phase, retries};
use appwrapper_tests::{Team, World};
use futures::future::join_all;
use serde_json::{Value, json};

async fn ready(team: &Team<'_>, name: &str) -> Value {
    let ready = |wrapper: &Value| phase(wrapper) == "Running" && is_true(wrapper, "PodsReady");
    team.until(name, "running and ready", ready).await
}

/// Numbers 60 to 62, and 74.
pub async fn built_in_kinds_get_ready_and_stay_running(world: &World) {
    let team = world.team("built-in").await;
    let all = [
        pod("all", &[]),
        deployment("all", 2),
        stateful_set("all", 2),
        service("all"),
        config_map("all"),
        job("all", &[HOLD]),
    ];
    team.submit("pods", &[pod("one", &[]), pod("two", &[])]).await;
    team.submit("deployment", &[deployment("deployment", 2)]).await;
    team.submit("stateful-set", &[stateful_set("stateful-set", 2)]).await;
    team.submit("job", &[generated(job("job-", &[HOLD]))]).await;
    team.submit("all", &all).await;
    let names = ["pods", "deployment", "stateful-set", "job", "all"];
    for name in names {
        ready(&team, name).await;
    }
    let name = team.get("job").await["status"]["componentStatus"][0]["name"].clone();
    assert!(name.as_str().unwrap().starts_with("job-"), "{name}");
    let five = Duration::from_secs(5);
    let stay = names.map(async |name| {
        team.stays(name, "Running", five, |wrapper| phase(wrapper) == "Running")
            .await;
    });
    join_all(stay).await;
    join_all(names.map(async |name| team.remove(name).await)).await;
    for (api_version, kind) in [
        ("batch/v1", "Job"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("v1", "Service"),
    ] {
        assert_eq!(team.list(api_version, kind, "").await, Vec::<Value>::new());
    }
}

/// Numbers 63 and 70: located through the status, deleted, and Failed.
pub async fn a_pytorch_job_that_is_deleted_while_it_runs(world: &World) {
    let team = world.team("pytorch").await;
    team.submit("a", &[pytorch_job("train", 2)]).await;
    team.operate("kubeflow.org/v1", "PyTorchJob", "train", WORKERS, 2).await;
    let found = ready(&team, "a").await["status"]["componentStatus"][0].take();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    team.delete(&text("apiVersion"), &text("kind"), &text("name"), "background")
        .await;
    let failed = team.reaches("a", "Failed").await;
    assert_eq!(condition(&failed, "Unhealthy")["reason"], "MissingComponent");
    team.remove("a").await;
}

/// Number 65.
pub async fn a_job_set_with_a_generated_name(world: &World) {
    let team = world.team("job-set").await;
    team.submit("a", &[generated(job_set("set-"))]).await;
    let running = team.reaches("a", "Running").await;
    let name = running["status"]["componentStatus"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(name.starts_with("set-"), "{name}");
    let set = team.find("jobset.x-k8s.io/v1alpha2", "JobSet", &name).await.unwrap();
    // Its operator makes a Job, and the Job a pod: the pod belongs to the AppWrapper over two owners.
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "set-w-0"}});
    job["metadata"]["ownerReferences"] = controlled_by(&set);
    job["spec"] = set["spec"]["replicatedJobs"][0]["template"]["spec"].clone();
    team.create(&job).await;
    ready(&team, "a").await;
    team.remove("a").await;
    team.until_gone("batch/v1", "Job", "set-w-0").await;
}

/// Cases R08, R09 and C16: a kind that tells its own end is believed, whatever its pods do.
pub async fn operators_tell_the_end_of_their_kinds(world: &World) {
    let team = world.team("own-words").await;
    let set = "jobset.x-k8s.io/v1alpha2";
    let done = |type_: &str| json!({"conditions": [{"type": type_, "status": "True"}]});
    let none = [("retryLimit", "0")];

    // Complete while a pod still runs (a success policy), or with its pods cleaned up.
    team.submit("set", &[job_set("set")]).await;
    let pods = "/spec/replicatedJobs/0/template/spec/template";
    team.operate(set, "JobSet", "set", pods, 1).await;
    team.submit("torch", &[pytorch_job("torch", 2)]).await;
    team.operate("kubeflow.org/v1", "PyTorchJob", "torch", WORKERS, 2).await;
    team.submit("ray-job", &[ray_job("ray-job")]).await;
    team.operate("ray.io/v1", "RayJob", "ray-job", RAY_JOB_HEAD, 1).await;
    for name in ["set", "torch", "ray-job"] {
        ready(&team, name).await;
    }
    team.patch_status(set, "JobSet", "set", &done("Completed")).await;
    // The operator says so first and cleans up then.
    team.patch_status("kubeflow.org/v1", "PyTorchJob", "torch", &done("Succeeded"))
        .await;
    team.delete("v1", "Pod", "torch-0", "background").await;
    let ended = json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"});
    team.patch_status("ray.io/v1", "RayJob", "ray-job", &ended).await;
    team.delete("v1", "Pod", "ray-job-0", "background").await;
    for name in ["set", "torch", "ray-job"] {
        let succeeded = team.reaches(name, "Succeeded").await;
        assert_eq!(retries(&succeeded), 0, "{name}");
        team.remove(name).await;
    }

    // Failed.
    team.submit_with("set", &[job_set("set")], &none).await;
    team.submit_with("ray-job", &[ray_job("ray-job")], &none).await;
    team.reaches("set", "Running").await;
    team.reaches("ray-job", "Running").await;
    team.patch_status(set, "JobSet", "set", &done("Failed")).await;
    let failed = json!({"jobDeploymentStatus": "Failed", "jobStatus": "RUNNING"});
    team.patch_status("ray.io/v1", "RayJob", "ray-job", &failed).await;
    for name in ["set", "ray-job"] {
        let failed = team.reaches(name, "Failed").await;
        assert_eq!(condition(&failed, "Unhealthy")["reason"], "FailedComponent", "{name}");
        team.remove(name).await;
    }

    // A RayCluster says "failed" for a moment before it is ready, and nobody may act on that.
    team.submit_with("ray", &[ray_cluster("ray")], &none).await;
    team.operate("ray.io/v1", "RayCluster", "ray", RAY_HEAD, 1).await;
    ready(&team, "ray").await;
    team.patch_status("ray.io/v1", "RayCluster", "ray", &json!({"state": "failed"}))
        .await;
    let running = |wrapper: &Value| phase(wrapper) == "Running" && condition(wrapper, "Unhealthy")["status"] == "False";
    team.stays("ray", "healthy", Duration::from_secs(3), running).await;
    team.remove("ray").await;
}

/// Case C15: the autoscaler of a RayCluster takes a worker away, and KubeRay says so.
pub async fn a_ray_cluster_that_is_made_smaller(world: &World) {
    let team = world.team("ray-smaller").await;
    let mut cluster = ray_cluster("ray");
    let group = cluster["spec"]["headGroupSpec"].clone();
    cluster["spec"]["workerGroupSpecs"] = json!([{"replicas": 2, "template": group["template"]}]);
    team.submit_with(
        "ray",
        &[cluster],
        &[("failureGracePeriodDuration", "0s"), ("retryLimit", "0")],
    )
    .await;
    team.operate("ray.io/v1", "RayCluster", "ray", RAY_HEAD, 3).await;
    ready(&team, "ray").await;
    // No worker at all: KubeRay leaves the zero out.
    let status = json!({"desiredWorkerReplicas": null, "observedGeneration": 2, "state": "ready"});
    team.patch_status("ray.io/v1", "RayCluster", "ray", &status).await;
    for pod in ["ray-1", "ray-2"] {
        team.delete("v1", "Pod", pod, "background").await;
        team.until_gone("v1", "Pod", pod).await;
    }
    let running = |wrapper: &Value| phase(wrapper) == "Running" && condition(wrapper, "PodsReady")["status"] == "True";
    team.stays("ray", "ready", Duration::from_secs(3), running).await;
    team.remove("ray").await;
}
