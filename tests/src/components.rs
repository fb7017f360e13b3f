//! What AppWrappers of tests wrap. The annotations are those by which kwok plays the pods
//! (`tests/controlplane/stages/pods.yaml`), without their prefix.

use serde_json::{Map, Value, json};

/// An annotation of a pod.
pub type Play = (&'static str, &'static str);

/// The pod runs until it is let go.
pub const HOLD: Play = ("hold", "true");
/// The pod never starts.
pub const PENDING: Play = ("hold", "pending");
/// The pod ends well although no Job owns it.
pub const COMPLETE: Play = ("complete", "true");
/// The pod fails.
pub const FAIL: Play = ("exit-code", "1");
/// The pod stays when it is deleted, until it is deleted by force.
pub const STUCK: Play = ("stuck", "true");

/// A pod template.
pub fn pod_template(plays: &[Play]) -> Value {
    let annotations: Map<String, Value> = plays
        .iter()
        .map(|(name, value)| (format!("appwrapper.test/{name}"), json!(value)))
        .collect();
    json!({
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": "busybox:1.37"}]},
    })
}

fn long_running(plays: &[Play]) -> Value {
    let mut template = pod_template(plays);
    template["spec"]["restartPolicy"] = json!("Always");
    template
}

/// A component of a kind that is not one of the others.
pub fn component(api_version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({"template": {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}})
}

/// A Job of one pod, which fails as soon as that does.
pub fn job(name: &str, plays: &[Play]) -> Value {
    jobs(name, 1, 1, 0, plays)
}

/// A Job with this parallelism, completions and limit of failures.
pub fn jobs(name: &str, parallelism: u32, completions: u32, failures: u32, plays: &[Play]) -> Value {
    let spec = json!({"parallelism": parallelism, "completions": completions, "backoffLimit": failures,
        "template": pod_template(plays)});
    component("batch/v1", "Job", name, &spec)
}

/// Gives a component a name that is made by its prefix.
pub fn generated(mut component: Value) -> Value {
    let metadata = &mut component["template"]["metadata"];
    let prefix = metadata["name"].take();
    *metadata = json!({"generateName": prefix});
    component
}

/// A bare pod.
pub fn pod(name: &str, plays: &[Play]) -> Value {
    let template = pod_template(plays);
    let mut component = component("v1", "Pod", name, &template["spec"]);
    component["template"]["metadata"]["annotations"] = template["metadata"]["annotations"].clone();
    component
}

/// A Deployment.
pub fn deployment(name: &str, replicas: u32) -> Value {
    replicated("Deployment", name, replicas, &json!({}))
}

/// A StatefulSet.
pub fn stateful_set(name: &str, replicas: u32) -> Value {
    replicated("StatefulSet", name, replicas, &json!({"serviceName": name}))
}

fn replicated(kind: &str, name: &str, replicas: u32, more: &Value) -> Value {
    let mut template = long_running(&[]);
    template["metadata"]["labels"] = json!({"app": name});
    let mut spec = more.clone();
    spec["replicas"] = json!(replicas);
    spec["selector"] = json!({"matchLabels": {"app": name}});
    spec["template"] = template;
    component("apps/v1", kind, name, &spec)
}

/// A headless Service.
pub fn service(name: &str) -> Value {
    component("v1", "Service", name, &json!({"clusterIP": "None", "selector": {"app": name}}))
}

/// A ConfigMap.
pub fn config_map(name: &str) -> Value {
    json!({"template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}})
}

/// A PyTorchJob with workers only. [`WORKERS`] is where an operator finds their template.
pub fn pytorch_job(name: &str, workers: u32) -> Value {
    let spec = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": pod_template(&[HOLD])}}});
    component("kubeflow.org/v1", "PyTorchJob", name, &spec)
}

/// Where the pod template of a [`pytorch_job`] is.
pub const WORKERS: &str = "/spec/pytorchReplicaSpecs/Worker/template";

/// A JobSet with one replicated Job of one pod.
pub fn job_set(name: &str) -> Value {
    let spec = json!({"replicatedJobs": [{"name": "w", "template": {"spec": {"template": pod_template(&[HOLD])}}}]});
    component("jobset.x-k8s.io/v1alpha2", "JobSet", name, &spec)
}

/// A RayCluster with a head and no workers. [`RAY_HEAD`] is where its pod template is.
pub fn ray_cluster(name: &str) -> Value {
    let spec = json!({"headGroupSpec": {"template": pod_template(&[HOLD])}});
    component("ray.io/v1", "RayCluster", name, &spec)
}

/// Where the pod template of a [`ray_cluster`] is.
pub const RAY_HEAD: &str = "/spec/headGroupSpec/template";

/// A RayJob whose cluster has a head and no workers.
pub fn ray_job(name: &str) -> Value {
    let spec = json!({"rayClusterSpec": {"headGroupSpec": {"template": pod_template(&[HOLD])}}});
    component("ray.io/v1", "RayJob", name, &spec)
}

/// Where the pod template of a [`ray_job`] is.
pub const RAY_JOB_HEAD: &str = "/spec/rayClusterSpec/headGroupSpec/template";

/// A kind that nobody coded, with a declared pod set of one pod.
pub fn widget(name: &str) -> Value {
    let mut widget = component("example.com/v1", "Widget", name, &json!({"pod": pod_template(&[HOLD])}));
    widget["podSets"] = json!([{"path": "template.spec.pod"}]);
    widget
}

/// Where the pod template of a [`widget`] is.
pub const WIDGET_POD: &str = "/spec/pod";
