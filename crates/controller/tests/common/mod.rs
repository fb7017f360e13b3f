//! One shard of the real controller on the fake API server, under paused time.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::needless_pass_by_value,
    missing_docs,
    reason = "tests"
)]

pub mod ring;

use std::{sync::Arc, time::Duration};

use appwrapper_api::config::{AutopilotConfig, Config};
use appwrapper_cache_management::{Kinds, Settings};
use appwrapper_controller::{
    ledger::Ledger,
    limiter::Limiter,
    nodes,
    observer::Totals,
    shard::{Environment, Scope, Shard, Term},
};
use appwrapper_coordination::{Tenure, shards::Handover, testing::TokioClock};
use appwrapper_metrics::{Build, Metrics};
use appwrapper_reconciler::Defaults;
use appwrapper_testkit::api_server::{ApiServer, Match, Verb};
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Long enough for anything that does not wait for a grace period.
pub const SOON: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "team";
const EVERY_KIND: &str = "appwrapper:\n  admission:\n    allowedKinds: [\"*\"]\n";

/// A controller at work.
pub struct Controller {
    pub shard: Arc<Shard>,
    pub metrics: Arc<Metrics>,
    pub tenure: Tenure,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// The fake API server and the controller on it.
pub struct World {
    pub server: ApiServer,
    pub controller: Controller,
}

impl Controller {
    /// Starts a controller and waits until its caches are listed.
    pub async fn start(server: &ApiServer) -> Self {
        let metrics = Metrics::new(&Build {
            version: "test".into(),
            revision: "test".into(),
            rustc: "test".into(),
            config_hash: "test".into(),
            api_host: "fake".into(),
            shards: 1,
            namespace_cap: 10,
            divergence_limit: Duration::from_secs(60),
        });
        let clock = server.clone();
        let (node_sender, node_changes) = watch::channel(());
        let faults = nodes::Faults::default();
        let monitor = nodes::watch(
            server.client_as("nodes"),
            AutopilotConfig::default(),
            faults.clone(),
            node_sender,
            Arc::clone(&metrics),
        );
        let monitor = tokio::spawn(monitor);
        let environment = Environment {
            client: server.client_as("controller"),
            metrics: Arc::clone(&metrics),
            defaults: Defaults::new(&Config::from_yaml(EVERY_KIND).unwrap().appwrapper),
            nodes: faults,
            node_changes,
            limiter: Arc::new(Limiter::new(50.0, 100.0)),
            permits: Arc::new(Semaphore::new(16)),
            kinds: Arc::new(Kinds::new(server.client_as("controller"), &Settings::default())),
            totals: Totals::default(),
            replica: "controller".into(),
            settings: Settings::default(),
            clock: Arc::new(move || clock.now()),
        };
        let (shard, watching) = Shard::new(environment, Scope::everything());
        let watching = tokio::spawn(watching);
        shard.synced().await;
        let lasts = Duration::from_secs(3600 * 24 * 365);
        let boot_clock = Arc::new(TokioClock::new(Duration::ZERO, 0));
        let tenure = Tenure::for_testing("shard", lasts, Duration::from_secs(3), boot_clock);
        let stop = CancellationToken::new();
        let holding = {
            let (shard, tenure, stop) = (Arc::clone(&shard), tenure.clone(), stop.clone());
            let term = Term {
                ledger: Ledger::new(Handover::default(), tenure.write_bound()),
                gained: tokio::time::Instant::now(),
                tenure,
            };
            tokio::spawn(async move { shard.hold(&term, &stop).await })
        };
        Self {
            shard,
            metrics,
            tenure,
            stop,
            tasks: vec![watching, holding, monitor],
        }
    }

    /// Ends it as a SIGKILL would.
    pub fn kill(self) {
        self.tenure.lose_for_testing();
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl World {
    pub async fn start() -> Self {
        let server = ApiServer::new();
        let controller = Controller::start(&server).await;
        Self { server, controller }
    }

    /// Kills the controller and starts another.
    pub async fn restart(self) -> Self {
        self.controller.kill();
        let controller = Controller::start(&self.server).await;
        Self {
            server: self.server,
            controller,
        }
    }

    pub fn submit(&self, name: &str, components: Value) {
        self.submit_with(name, components, json!({}));
    }

    pub fn submit_with(&self, name: &str, components: Value, annotations: Value) {
        self.server.create(json!({
            "apiVersion": "workload.codeflare.dev/v1beta2",
            "kind": "AppWrapper",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"components": components},
        }));
    }

    pub fn wrapper(&self, name: &str) -> Arc<Value> {
        self.server
            .get("appwrappers", NAMESPACE, name)
            .unwrap_or_else(|| panic!("AppWrapper {name} is gone"))
    }

    pub fn get(&self, resource: &str, name: &str) -> Option<Arc<Value>> {
        self.server.get(resource, NAMESPACE, name)
    }

    pub fn phase(&self, name: &str) -> String {
        self.wrapper(name)["status"]["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub fn condition(&self, name: &str, type_: &str) -> Value {
        let wrapper = self.wrapper(name);
        let conditions = wrapper["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions
            .into_iter()
            .find(|condition| condition["type"] == type_)
            .unwrap_or_default()
    }

    pub async fn wait_phase(&self, name: &str, phase: &str) {
        self.wait(&format!("phase {phase} of {name}"), |world| world.phase(name) == phase)
            .await;
    }

    pub async fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        self.server
            .wait_until(what, SOON, |_| holds(self))
            .await
            .unwrap_or_else(|error| panic!("{error:?}; {:#?}", self.server.list("appwrappers", NAMESPACE, "")));
    }

    /// Lets everything that is due happen, for this long.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Uncached reads of a resource by the controller since the last reset.
    pub fn gets(&self, resource: &str) -> usize {
        self.server
            .count(&Match::verb(Verb::Get).resource(resource).author("controller"))
    }

    /// The value of a metric line that begins with `line`.
    pub fn metric(&self, line: &str) -> f64 {
        let text = self.controller.metrics.registry().encode().unwrap();
        text.lines()
            .filter(|found| found.starts_with(line))
            .filter_map(|found| found.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

/// A component of a kind, without its pod sets where they are inferred.
pub struct Case {
    pub resource: &'static str,
    pub component: fn(&str) -> Value,
}

fn pod_template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}})
}

pub fn job(name: &str) -> Value {
    json!({"template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": pod_template()}}})
}

pub fn jobset(name: &str) -> Value {
    json!({"template": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": {"template": pod_template()}}}]}}})
}

pub fn pytorch_job(name: &str) -> Value {
    json!({"template": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": pod_template()}}}}})
}

pub fn ray_cluster(name: &str) -> Value {
    json!({"template": {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name},
        "spec": {"headGroupSpec": {"template": pod_template()}}}})
}

pub fn deployment(name: &str) -> Value {
    json!({"template": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "template": pod_template()}}})
}

pub fn pod(name: &str) -> Value {
    json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_template()["spec"]}})
}

pub fn widget(name: &str) -> Value {
    json!({"podSets": [{"path": "template.spec.pod"}],
        "template": {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
            "spec": {"pod": pod_template()}}})
}

pub fn service(name: &str) -> Value {
    json!({"template": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"clusterIP": "None"}}})
}

/// Job, a kind whose status is typed, kinds read as metadata only, a bare pod, a kind that nobody coded.
pub const CASES: &[Case] = &[
    Case {
        resource: "jobs",
        component: job,
    },
    Case {
        resource: "pytorchjobs",
        component: pytorch_job,
    },
    Case {
        resource: "jobsets",
        component: jobset,
    },
    Case {
        resource: "rayclusters",
        component: ray_cluster,
    },
    Case {
        resource: "deployments",
        component: deployment,
    },
    Case {
        resource: "pods",
        component: pod,
    },
    Case {
        resource: "widgets",
        component: widget,
    },
];
