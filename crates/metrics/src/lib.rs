//! Names, labels and exposition of metrics; probes; logs and traces. What both binaries serve and tell.
//!
//! Begin with [`table`]: every metric is a row there, and everything else follows from the rows. [`Metrics`] is what the
//! controller holds, one struct per area; [`WebhookMetrics`] is the webhook's. [`serve`] answers scrapes and probes,
//! [`telemetry`] sets up logs and traces.
//!
//! Guarantees: no label value comes from a user except a capped namespace; a counter with a closed set of label values
//! exists at 0 from the start; nothing here blocks or fails a reconcile.

pub mod api_client;
pub mod cache;
pub mod capped;
pub mod confirm;
pub mod descriptor;
mod document;
pub mod health;
pub mod labels;
mod lag;
pub mod lease;
pub mod process;
pub mod reconcile;
pub mod registry;
pub mod serve;
pub mod states;
pub mod table;
pub mod telemetry;
pub mod webhook;

use std::sync::Arc;
use std::time::Duration;

pub use api_client::ApiClient;
pub use cache::Cache;
pub use confirm::Confirm;
pub use health::Health;
pub use lease::Lease;
pub use process::Process;
pub use reconcile::Reconcile;
pub use registry::Registry;
pub use states::States;
pub use webhook::Admission;

use labels::{CappedMetric, Phase};

/// What does not change while the process runs.
#[derive(Clone, Debug)]
pub struct Build {
    /// Version of the program.
    pub version: String,
    /// Revision of its source.
    pub revision: String,
    /// Compiler.
    pub rustc: String,
    /// Hash of the configuration in force.
    pub config_hash: String,
    /// Host and port of the API server, as client-go labels its requests.
    pub api_host: String,
    /// Configured number of shards.
    pub shards: u32,
    /// How many namespaces each metric with a namespace tells apart.
    pub namespace_cap: usize,
    /// How long a live component may stay out of the cache before it counts as divergent.
    pub divergence_limit: Duration,
}

impl Default for Build {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: "unknown".to_owned(),
            rustc: "unknown".to_owned(),
            config_hash: "none".to_owned(),
            api_host: "unknown".to_owned(),
            shards: 8,
            namespace_cap: 500,
            divergence_limit: Duration::from_secs(60),
        }
    }
}

/// Metrics of the controller.
#[derive(Clone)]
pub struct Metrics {
    /// Reconciles and the wait for a permit.
    pub reconcile: Reconcile,
    /// Phases, retries, failures, operations on components.
    pub states: States,
    /// Confirmations of missing components.
    pub confirm: Confirm,
    /// Watches and caches.
    pub cache: Cache,
    /// Requests to the API server.
    pub client: ApiClient,
    /// Shards and Leases.
    pub lease: Lease,
    /// The process.
    pub process: Process,
    registry: Registry,
}

impl Metrics {
    /// Registers all metrics of the controller. Inside a tokio runtime, that runtime is measured too.
    pub fn new(build: &Build) -> Arc<Self> {
        let registry = Registry::new(build.shards);
        let folded = registry.gauges(&table::FOLDED);
        let folded_verdicts = folded.with_label_values(&[CappedMetric::Verdicts.as_str()]);
        let confirm = Confirm::new(&registry, folded_verdicts, build.namespace_cap, build.divergence_limit);
        Arc::new(Self {
            reconcile: Reconcile::new(&registry),
            states: States::new(&registry, &folded, build.namespace_cap),
            cache: Cache::new(&registry, confirm.clone()),
            confirm,
            client: ApiClient::new(&registry, &build.api_host),
            lease: Lease::new(&registry, build.shards),
            process: Process::new(&registry, build),
            registry,
        })
    }

    /// An AppWrapper of `namespace` was moved into `phase`.
    pub fn phase(&self, namespace: &str, phase: Phase) {
        self.states.entered(namespace, phase);
    }

    /// What to serve.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// Metrics of the webhook.
#[derive(Clone)]
pub struct WebhookMetrics {
    /// Admission.
    pub admission: Admission,
    /// Requests to the API server.
    pub client: ApiClient,
    /// The process.
    pub process: Process,
    registry: Registry,
}

impl WebhookMetrics {
    /// Registers all metrics of the webhook. Inside a tokio runtime, that runtime is measured too.
    pub fn new(build: &Build) -> Arc<Self> {
        let registry = Registry::new(build.shards);
        Arc::new(Self {
            admission: Admission::new(&registry),
            client: ApiClient::new(&registry, &build.api_host),
            process: Process::new(&registry, build),
            registry,
        })
    }

    /// What to serve.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
