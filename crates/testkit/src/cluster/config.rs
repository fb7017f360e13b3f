//! The files kwokctl reads: its configuration, and the stages by which kwok plays nodes and pods.
//!
//! All programs are given by path, so that nothing is downloaded, and all listen on loopback only. The limits that
//! Kubernetes puts on its own clients are raised: with the defaults 300 plain Jobs take a minute and a half, and a
//! benchmark would measure the limiter.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::{Value, json};

use super::place::Place;
use super::ports::Ports;
use super::{ClusterOptions, Component};
use crate::programs::{
    ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER, KUBECTL, KWOK, Programs, controlplane_dir,
};

/// Arguments every cluster gets.
const ARGS: [(Component, &str, &str); 10] = [
    (Component::Etcd, "unsafe-no-fsync", "true"),
    (Component::KubeApiserver, "max-requests-inflight", "2000"),
    (Component::KubeApiserver, "max-mutating-requests-inflight", "1000"),
    // Published as the address of the `kubernetes` Service, which may not be loopback. Without it a machine that is
    // offline cannot start; from the range for documentation, and nothing in such a cluster uses it.
    (Component::KubeApiserver, "advertise-address", "192.0.2.1"),
    (Component::KubeApiserver, "service-cluster-ip-range", "10.96.0.0/16"),
    (Component::KubeControllerManager, "kube-api-qps", "1000"),
    (Component::KubeControllerManager, "kube-api-burst", "2000"),
    (Component::KubeControllerManager, "concurrent-job-syncs", "50"),
    (Component::KubeScheduler, "kube-api-qps", "1000"),
    (Component::KubeScheduler, "kube-api-burst", "2000"),
];

/// Writes kwokctl's configuration into the cluster's folder; returns all files that kwokctl is to read.
pub fn write(place: &Place, programs: &Programs, ports: &Ports, options: &ClusterOptions) -> Result<Vec<PathBuf>> {
    let configuration = json!({
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "bindAddress": "127.0.0.1",
            "kubeApiserverCertSANs": ["127.0.0.1", "localhost"],
            "kubeAuditPolicy": options.audit_policy,
            "etcdBinary": programs.path(ETCD)?,
            "kubeApiserverBinary": programs.path(KUBE_APISERVER)?,
            "kubeControllerManagerBinary": programs.path(KUBE_CONTROLLER_MANAGER)?,
            "kubeSchedulerBinary": programs.path(KUBE_SCHEDULER)?,
            "kubectlBinary": programs.path(KUBECTL)?,
            "kwokControllerBinary": programs.path(KWOK)?,
            "etcdPort": ports.etcd(),
            "etcdPeerPort": ports.etcd_peer(),
            "kubeApiserverPort": ports.kube_apiserver(),
            "kubeControllerManagerPort": ports.kube_controller_manager(),
            "kubeSchedulerPort": ports.kube_scheduler(),
            "kwokControllerPort": ports.kwok_controller(),
        },
        "componentsPatches": Component::ALL.map(|component| patch(component, options)),
    });
    let path = place.dir().join("kwokctl.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&configuration)?)?;
    let stages = controlplane_dir().join("stages");
    Ok(vec![path, stages.join("nodes.yaml"), stages.join("pods.yaml")])
}

/// The arguments of one component. Of two with the same key the later one, the caller's, holds.
fn patch(component: Component, options: &ClusterOptions) -> Value {
    let ours = ARGS
        .iter()
        .filter(|(of, ..)| *of == component)
        .map(|(_, key, value)| (*key, *value));
    let theirs = options.extra_args.iter().filter(|(of, ..)| *of == component);
    let theirs = theirs.map(|(_, key, value)| (key.as_str(), value.as_str()));
    let args: Vec<Value> = ours
        .chain(theirs)
        .map(|(key, value)| json!({ "key": key, "value": value }))
        .collect();
    json!({ "name": component.name(), "extraArgs": args })
}
