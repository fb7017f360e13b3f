//! What can be asked of a cluster. The defaults serve a functional test: four nodes, two of them with GPUs, no audit.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Component;
use crate::programs::controlplane_dir;

/// How a cluster is to be; built by [`ClusterOptions::named`] or [`ClusterOptions::unique`].
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub(super) name: String,
    pub(super) keep: bool,
    pub(super) nodes: u32,
    pub(super) gpu_nodes: u32,
    pub(super) audit_policy: Option<PathBuf>,
    pub(super) extra_args: Vec<(Component, String, String)>,
}

impl ClusterOptions {
    /// A cluster with this name, of which there is one on the machine.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            keep: false,
            nodes: 4,
            gpu_nodes: 2,
            audit_policy: None,
            extra_args: Vec::new(),
        }
    }

    /// A cluster of this test's own: the name gets an ending that no other running test has.
    pub fn unique(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self::named(format!(
            "{name}-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ))
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Leaves the cluster running until someone stops it by name.
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    /// How many nodes, `node-0` and on, and how many of them, the last ones, have eight `nvidia.com/gpu` each.
    #[must_use]
    pub fn nodes(mut self, nodes: u32, gpu_nodes: u32) -> Self {
        self.nodes = nodes;
        self.gpu_nodes = gpu_nodes;
        self
    }

    /// Writes an audit log by the policy in `tests/controlplane/audit-policy.yaml`.
    #[must_use]
    pub fn audited(self) -> Self {
        self.audited_by(controlplane_dir().join("audit-policy.yaml"))
    }

    /// Writes an audit log by a policy of the caller.
    #[must_use]
    pub fn audited_by(mut self, policy: PathBuf) -> Self {
        self.audit_policy = Some(policy);
        self
    }

    /// One more command-line argument `--key=value` for a component.
    #[must_use]
    pub fn extra_arg(mut self, component: Component, key: &str, value: &str) -> Self {
        self.extra_args.push((component, key.to_owned(), value.to_owned()));
        self
    }
}
