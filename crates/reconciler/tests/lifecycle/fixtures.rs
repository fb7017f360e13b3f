//! Components and AppWrappers to try.

use appwrapper_api::AppWrapper;
use serde_json::{Value, json};

use crate::world::{NAME, NAMESPACE};

pub fn pod_template() -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}})
}

pub fn job(name: &str) -> Value {
    jobs(name, 1)
}

/// A Job of several pods.
pub fn jobs(name: &str, pods: i32) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": pods, "completions": pods, "template": pod_template()},
    })
}

pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_template()["spec"]})
}

pub fn deployment(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "template": pod_template()},
    })
}

pub fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}})
}

pub fn jobset(name: &str) -> Value {
    let replicated = |jobs: i32, pods: i32| json!({"name": "r", "replicas": jobs, "template": {"spec": {"parallelism": pods, "template": pod_template()}}});
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
        "spec": {"replicatedJobs": [replicated(2, 3), replicated(1, 1)]},
    })
}

pub fn pytorch(name: &str) -> Value {
    let replica = json!({"replicas": 1, "template": pod_template()});
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Worker": replica}},
    })
}

pub fn rayjob(name: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name},
        "spec": {"rayClusterSpec": {"headGroupSpec": {"template": pod_template()}}},
    })
}

pub fn raycluster(name: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name},
        "spec": {"headGroupSpec": {"template": pod_template()}},
    })
}

/// A kind without a row in the table; its pods are declared.
pub fn widget(name: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
        "spec": {"list": [{"tpl": pod_template()}, {"tpl": pod_template()}]},
    })
}

pub fn component(template: &Value) -> Value {
    match template["kind"].as_str() {
        Some("Widget") => {
            json!({"template": template, "podSets": [{"path": "template.spec.list[0].tpl", "replicas": 1}]})
        }
        _ => json!({"template": template}),
    }
}

/// An AppWrapper with these templates, as the API server would have stored it.
pub fn wrapper(templates: impl IntoIterator<Item = Value>) -> AppWrapper {
    let components: Vec<Value> = templates.into_iter().map(|template| component(&template)).collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": NAMESPACE, "name": NAME, "uid": "uid-aw", "resourceVersion": "1"},
        "spec": {"components": components},
    }))
    .unwrap()
}

/// The same with an annotation, by the end of its name.
pub fn annotated(mut wrapper: AppWrapper, annotations: &[(&str, &str)]) -> AppWrapper {
    let all = wrapper.metadata.annotations.get_or_insert_default();
    for (suffix, value) in annotations {
        all.insert(
            format!("{}{suffix}", appwrapper_api::ANNOTATION_PREFIX),
            (*value).to_owned(),
        );
    }
    wrapper
}
