//! A cluster with our controller on it, as a process with the rights of its ServiceAccount, behind a proxy.

use std::collections::BTreeSet;
use std::time::Duration;

use appwrapper_testkit::audit::{AuditEvent, AuditLog};
use appwrapper_testkit::cluster::apply::apply_yaml;
use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use appwrapper_testkit::controller::{self, Controller, ControllerOptions, program, shipped_config};
use appwrapper_testkit::proxy::{Proxy, RequestKind};
use kube::Client;

use crate::Team;

/// Long enough for whatever waits for nothing but machines, also on a busy one.
pub const SOON: Duration = Duration::from_secs(60);

/// Kinds of operators that are not installed here. Tests play the operators.
const KINDS: [(&str, &str, &str, &str); 5] = [
    ("example.com", "v1", "Widget", "widgets"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    ("ray.io", "v1", "RayCluster", "rayclusters"),
    ("ray.io", "v1", "RayJob", "rayjobs"),
];

/// What an administrator adds for a kind that the shipped roles do not name.
const FURTHER_KINDS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: tests-further-kinds
  labels: {workload.codeflare.dev/aggregate-to-manager: 'true'}
rules:
- {apiGroups: [example.com], resources: ['*'], verbs: [create, delete, get, list, watch]}
";

/// And what the administrator lets be wrapped. What tests wrap to see it fail for another reason is here as well.
const ALLOWED_KINDS: &str = "
appwrapper:
  admission:
    allowedKinds: [ConfigMap, Gadget, PersistentVolume, Pod, Secret, Service, apps/*, batch/Job, example.com/*,
      jobset.x-k8s.io/*, kubeflow.org/*, nobody.example.org/*, ray.io/*]
";

/// A running cluster and controller.
pub struct World {
    controller: Option<Controller>,
    /// Between controller and API server, and nobody else.
    pub proxy: Proxy,
    /// The cluster; its own client has all rights.
    pub cluster: Cluster,
}

impl World {
    /// Starts a cluster with the controller that `cargo xtask test` has built.
    pub async fn start(name: &str) -> Self {
        Self::start_with(name, ControllerOptions::default()).await
    }

    /// Starts a cluster with the controller whose uncached reads are answered from the cache.
    pub async fn start_inverted(name: &str) -> Self {
        let inverted = program("inverted/appwrapper-controller");
        assert!(
            inverted.is_file(),
            "{} is not there; `cargo xtask test --tier 2` builds it",
            inverted.display()
        );
        Self::start_with(name, ControllerOptions::default().program(inverted)).await
    }

    async fn start_with(name: &str, options: ControllerOptions) -> Self {
        let cluster = Cluster::start(ClusterOptions::unique(name).audited()).await.unwrap();
        let proxy = Proxy::in_front_of(&cluster).await.unwrap();
        controller::install(&cluster).await.unwrap();
        for (group, version, kind, plural) in KINDS {
            apply_yaml(&cluster.client(), &definition(group, version, kind, plural))
                .await
                .unwrap();
        }
        apply_yaml(&cluster.client(), FURTHER_KINDS).await.unwrap();
        let options = allowing_further_kinds(&cluster, options);
        let controller = Controller::start(&cluster, options.through(&proxy)).await.unwrap();
        Self {
            controller: Some(controller),
            proxy,
            cluster,
        }
    }

    /// A client with all rights, past the proxy.
    pub fn client(&self) -> Client {
        self.cluster.client()
    }

    /// The controller.
    pub fn controller(&self) -> &Controller {
        self.controller.as_ref().expect("a controller runs")
    }

    /// Kills the controller as a node that fails does, and starts another one under another name.
    pub async fn replace_controller(&mut self, name: &str) {
        self.controller.take().expect("a controller runs").kill().unwrap();
        let options = ControllerOptions::default().named(name).through(&self.proxy);
        let options = allowing_further_kinds(&self.cluster, options);
        self.controller = Some(Controller::start(&self.cluster, options).await.unwrap());
    }

    /// A new namespace.
    pub async fn team(&self, name: &str) -> Team<'_> {
        Team::new(self, name).await
    }

    /// A namespace that was made before.
    pub fn existing_team(&self, name: &str) -> Team<'_> {
        Team::existing(self, name)
    }

    /// The value of a counter of the controller.
    pub async fn count(&self, metric: &str, labels: &[(&str, &str)]) -> u64 {
        self.controller().metrics().await.unwrap().count(metric, labels)
    }

    /// How many requests of the controller there were so far for which this holds.
    pub fn requests(&self, which: impl Fn(&RequestKind) -> bool) -> u64 {
        self.proxy.records().count(which)
    }

    /// What the API server refused to the controller for want of rights, as verb and resource.
    pub fn refused(&self) -> BTreeSet<String> {
        let events = AuditLog::from_start(&self.cluster).unwrap().read().unwrap();
        let ours: Vec<&AuditEvent> = events.iter().filter(|event| event.is_of_the_controller()).collect();
        assert!(!ours.is_empty(), "the controller asked for nothing");
        let refused = ours.into_iter().filter(|event| event.is_forbidden());
        refused.map(AuditEvent::kind).collect()
    }

    /// Ends everything, in order.
    pub async fn end(mut self) {
        if let Some(controller) = self.controller.take() {
            controller.stop().await.unwrap();
        }
        self.cluster.stop().await.unwrap();
    }
}

/// With the shipped configuration but for the kinds that may be wrapped.
fn allowing_further_kinds(cluster: &Cluster, options: ControllerOptions) -> ControllerOptions {
    let shipped = std::fs::read_to_string(shipped_config()).unwrap();
    let path = cluster.dir().join("controller.yaml");
    std::fs::write(&path, shipped + ALLOWED_KINDS).unwrap();
    options.config(path)
}

/// The definition of a kind, of which nothing but its names is said.
pub fn definition(group: &str, version: &str, kind: &str, plural: &str) -> String {
    let schema = "{type: object, x-kubernetes-preserve-unknown-fields: true}";
    format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}}}
  versions:
  - name: {version}
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema: {{openAPIV3Schema: {schema}}}
"
    )
}
