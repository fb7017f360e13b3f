//! The fake server seen through the real kube client and watcher.

mod cluster;
mod faults;
mod objects;
mod watches;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{Api, Error, ResourceExt};
use serde_json::{Value, json};

use super::ApiServer;

fn pods(server: &ApiServer) -> Api<Pod> {
    Api::namespaced(server.client_as("tester"), "default")
}

fn config_maps(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(server.client_as("tester"), "default")
}

fn pod(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    })
}

fn job(name: &str, parallelism: u64) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"parallelism": parallelism, "completions": parallelism, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
        }},
    })
}

fn typed<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// Code and reason of a refusal.
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> (u16, String) {
    match result {
        Err(Error::Api(status)) => (status.code, status.reason),
        other => panic!("not a refusal: {other:?}"),
    }
}

fn names<K: ResourceExt>(objects: impl IntoIterator<Item = K>) -> Vec<String> {
    objects.into_iter().map(|object| object.name_any()).collect()
}
