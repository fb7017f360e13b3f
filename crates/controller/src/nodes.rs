//! The node monitor: which resources of which nodes Autopilot has marked `NoExecute` (spec/config-metrics-deploy.md section 3).
//!
//! Marks are node labels. Only metadata is watched and only marked nodes are remembered. Upstream's second map, of what a
//! node cannot schedule, served to lower the lending limit of a ClusterQueue. That went with 1.1, and with it every right
//! on ClusterQueues, so the map is read by nobody and is left out; pods are kept off such nodes by their affinity and the
//! scheduler.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use appwrapper_api::config::{AutopilotConfig, TaintEffect};
use appwrapper_metrics::{
    Metrics,
    labels::{Controller, ReconcileResult},
};
use appwrapper_reconciler::observed::NodeFaults;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;

/// The marked nodes at present. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<RwLock<Arc<NodeFaults>>>);

impl Faults {
    /// The marked nodes at present.
    pub fn current(&self) -> Arc<NodeFaults> {
        Arc::clone(&self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn set(&self, marked: &HashMap<Arc<str>, Vec<Arc<str>>>) {
        let faults = marked
            .iter()
            .map(|(node, resources)| (Arc::clone(node), resources.clone()))
            .collect();
        *self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(faults);
    }
}

/// Watches nodes until the future is dropped; `changed` is told when a mark comes or goes.
pub async fn watch(
    client: Client,
    config: AutopilotConfig,
    faults: Faults,
    changed: watch::Sender<()>,
    metrics: Arc<Metrics>,
) {
    let api: Api<PartialObjectMeta<Node>> = Api::all(client);
    let mut stream = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let mut marked: HashMap<Arc<str>, Vec<Arc<str>>> = HashMap::new();
    let mut listed: HashMap<Arc<str>, Vec<Arc<str>>> = HashMap::new();
    while let Some(event) = stream.next().await {
        let running = metrics.reconcile.timer(Controller::NodeMonitor);
        let before = marked.clone();
        let mut result = ReconcileResult::Success;
        match event {
            Ok(watcher::Event::Apply(node)) => {
                let (name, resources) = marks(&node, &config);
                set(&mut marked, name, resources);
            }
            Ok(watcher::Event::Delete(node)) => {
                marked.remove(node.name_any().as_str());
            }
            Ok(watcher::Event::Init) => listed.clear(),
            Ok(watcher::Event::InitApply(node)) => {
                let (name, resources) = marks(&node, &config);
                set(&mut listed, name, resources);
            }
            Ok(watcher::Event::InitDone) => marked = std::mem::take(&mut listed),
            Err(error) => {
                tracing::warn!(%error, "the watch of nodes failed and is tried again");
                result = ReconcileResult::Error;
            }
        }
        if marked != before {
            tracing::info!(nodes = marked.len(), "nodes with resources marked NoExecute");
            faults.set(&marked);
            changed.send_replace(());
        }
        running.done(result);
    }
}

fn set(nodes: &mut HashMap<Arc<str>, Vec<Arc<str>>>, name: Arc<str>, resources: Vec<Arc<str>>) {
    if resources.is_empty() {
        nodes.remove(&name);
    } else {
        nodes.insert(name, resources);
    }
}

/// The resources of a node that its labels mark. A node that is being deleted has none.
fn marks(node: &PartialObjectMeta<Node>, config: &AutopilotConfig) -> (Arc<str>, Vec<Arc<str>>) {
    let is_marked = |taint: &appwrapper_api::config::ResourceTaint| {
        taint.effect == TaintEffect::NoExecute && node.labels().get(&taint.key) == Some(&taint.value)
    };
    let resources = config
        .resource_taints
        .iter()
        .filter(|(_, taints)| node.metadata.deletion_timestamp.is_none() && taints.iter().any(is_marked))
        .map(|(resource, _)| resource.as_str().into())
        .collect();
    (node.name_any().into(), resources)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(health: &str) -> PartialObjectMeta<Node> {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "n", "labels": {"autopilot.ibm.com/gpuhealth": health}},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_no_execute_mark_counts() {
        let config = AutopilotConfig::default();
        assert_eq!(marks(&node("EVICT"), &config).1, ["nvidia.com/gpu".into()]);
        for health in ["WARN", "TESTING", "PASS"] {
            assert!(marks(&node(health), &config).1.is_empty(), "{health}");
        }
    }
}
