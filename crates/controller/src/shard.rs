//! One shard: the watches of its AppWrappers, components and pods, warm whether or not it is held, and the work on it while
//! it is.
//!
//! The watches outlive tenures, so that a replica that gets the Lease can act at once. A tenure brings the write guard, from
//! which the verbs of the reconciler are made, and a queue of its own; both end with it.

use std::{sync::Arc, time::Duration};

use appwrapper_api::{AppWrapper, TypeRef};
use appwrapper_cache_management::{Registry, Selector, Settings};
use appwrapper_coordination::{Tenure, guarded_client};
use appwrapper_metrics::Metrics;
use appwrapper_reconciler::Defaults;
use futures::future::BoxFuture;
use kube::{
    Client,
    runtime::reflector::{self, Store},
};
use tokio::sync::{Mutex, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::KubeCluster,
    limiter::Limiter,
    memories::Memories,
    nodes,
    observer::CacheObserver,
    queue::{self, Work},
    teller::{Publisher, Teller, teller},
    wrappers::{self, Route},
};

/// Triggers that may wait to be taken in.
const TRIGGERS: usize = 4_096;
/// How long passes under way may take to end once the shard is to be given up. The pod's grace period is longer.
const DRAIN: Duration = Duration::from_secs(8);
/// How often kinds that nobody uses are looked for.
const RETIRE: Duration = Duration::from_secs(60);

/// The one shard that there is so far.
const NUMBER: u32 = 0;

/// What a shard needs from its process.
#[derive(Clone)]
pub struct Environment {
    /// The API server.
    pub client: Client,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Configured limits.
    pub defaults: Defaults,
    /// Nodes to be left, and the news of them.
    pub nodes: nodes::Faults,
    /// Told when a mark of a node comes or goes.
    pub node_changes: watch::Receiver<()>,
    /// The limit on confirmations of the whole process.
    pub limiter: Arc<Limiter>,
    /// AppWrappers that are worked on at once.
    pub concurrency: usize,
    /// Name of this replica, for events.
    pub replica: String,
    /// Times and limits of the caches.
    pub settings: Settings,
    /// The wall clock: deadlines come from times that the API server stores.
    pub clock: Clock,
}

/// Tells the time of day.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// One shard.
pub struct Shard {
    environment: Environment,
    registry: Arc<Registry>,
    store: Store<AppWrapper>,
    route: Route,
    memories: Arc<Memories>,
    teller: Teller,
    publisher: Mutex<Publisher>,
}

impl Shard {
    /// Makes the shard, and the task that feeds it. The task never ends by itself.
    pub fn new(environment: Environment, selector: Selector) -> (Arc<Self>, BoxFuture<'static, ()>) {
        let (teller, publisher) = teller(Arc::clone(&environment.metrics), NUMBER);
        let (nowhere, _) = mpsc::channel(1);
        let observer = Arc::new(CacheObserver(Arc::clone(&environment.metrics)));
        let registry = Registry::new(
            environment.client.clone(),
            selector,
            nowhere,
            observer,
            environment.settings.clone(),
        );
        registry.start_pods();
        let (store, writer) = reflector::store();
        let shard = Arc::new(Self {
            registry: Arc::new(registry),
            store,
            route: Route::default(),
            memories: Arc::default(),
            teller,
            publisher: Mutex::new(publisher),
            environment,
        });
        let watching = wrappers::watch(
            shard.environment.client.clone(),
            writer,
            shard.route.clone(),
            Arc::clone(&shard.memories),
            shard.registry.view(),
            shard.teller.clone(),
        );
        let retiring = retire(shard.store.clone(), Arc::clone(&shard.registry));
        (
            shard,
            Box::pin(async move {
                tokio::select! { () = watching => {}, () = retiring => {} }
            }),
        )
    }

    /// The caches.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Waits until AppWrappers and pods are listed.
    pub async fn synced(&self) {
        // False means that the watch has ended, and the process with it.
        wrappers::listed(&self.store).await;
        let pods = TypeRef::new("v1", "Pod");
        while !matches!(self.registry.ensure(&pods, Duration::from_secs(1)).await, Ok(true)) {}
    }

    /// Works on the shard until the tenure ends or `stop` is cancelled; then lets passes under way come to their end.
    pub async fn hold(&self, tenure: &Tenure, stop: &CancellationToken) {
        self.teller.held();
        let (sender, triggers) = mpsc::channel(TRIGGERS);
        // First the route, then everything that is known: a change in between is looked at twice, not missed.
        self.route.open(sender.clone());
        self.registry.route(sender.clone());
        let work = Arc::new(self.work(tenure));
        let events = guarded_client(&self.environment.client, tenure.write_guard());
        let mut publisher = self.publisher.lock().await;
        tokio::select! {
            () = queue::run(work, triggers, stop.clone()) => {}
            () = self.feed(sender) => {}
            () = publisher.run(events, &self.environment.replica) => {}
            () = async { stop.cancelled().await; tokio::time::sleep(DRAIN).await } => {
                tracing::warn!("passes under way did not end in time and are cut off");
            }
        }
        self.route.close();
        // From here on others write, and what we know would mislead.
        self.memories.clear();
        self.registry.view().forget_all();
        self.teller.given_up(!stop.is_cancelled());
    }

    fn work(&self, tenure: &Tenure) -> Work {
        let cluster = KubeCluster::new(
            &self.environment.client,
            tenure.write_guard(),
            Arc::clone(&self.registry),
            Arc::clone(&self.environment.limiter),
            self.teller.clone(),
            Arc::clone(&self.environment.clock),
        );
        Work {
            cluster,
            store: self.store.clone(),
            memories: Arc::clone(&self.memories),
            defaults: self.environment.defaults.clone(),
            nodes: self.environment.nodes.clone(),
            teller: self.teller.clone(),
            permits: Semaphore::new(self.environment.concurrency),
            tenure: tenure.clone(),
            clock: Arc::clone(&self.environment.clock),
        }
    }

    /// Looks at every AppWrapper once, and again whenever a mark of a node comes or goes.
    async fn feed(&self, sender: mpsc::Sender<appwrapper_api::AppWrapperKey>) {
        let mut node_changes = self.environment.node_changes.clone();
        while wrappers::listed(&self.store).await {
            for wrapper in self.store.state() {
                let _ = sender.send(wrapper.key()).await;
            }
            if node_changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Stops the watches of kinds that no AppWrapper uses any more.
async fn retire(store: Store<AppWrapper>, registry: Arc<Registry>) {
    let mut tick = tokio::time::interval(RETIRE);
    loop {
        tick.tick().await;
        if wrappers::listed(&store).await {
            registry.retain(&wrappers::kinds_in_use(&store));
        }
    }
}
