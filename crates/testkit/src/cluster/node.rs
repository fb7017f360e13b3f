//! The nodes that kwok plays: large, so that only a test that means to run out of room does.

use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use super::ClusterOptions;

/// Creates the nodes; the last ones have GPUs.
pub async fn create(client: &Client, options: &ClusterOptions) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for index in 0..options.nodes {
        let has_gpus = index >= options.nodes.saturating_sub(options.gpu_nodes);
        nodes.create(&PostParams::default(), &node(index, has_gpus)?).await?;
    }
    Ok(())
}

fn node(index: u32, has_gpus: bool) -> anyhow::Result<Node> {
    let name = format!("node-{index}");
    let mut room = json!({ "cpu": "1000", "memory": "4Ti", "ephemeral-storage": "4Ti", "pods": "10000" });
    let mut labels = json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    });
    if has_gpus {
        room["nvidia.com/gpu"] = json!("8");
        labels["nvidia.com/gpu.present"] = json!("true");
    }
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": labels, "annotations": { "kwok.x-k8s.io/node": "fake" } },
        // A range per node, or kwok runs out of addresses for pods.
        "spec": { "podCIDR": format!("10.{}.0.0/16", 128 + index % 100) },
        "status": { "capacity": room, "allocatable": room },
    }))?)
}
