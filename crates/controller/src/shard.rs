//! One shard: the watches of its AppWrappers, components and pods, warm whether or not it is held, and the work on it while
//! it is.
//!
//! The watches outlive tenures, so that a replica that gets the Lease can act at once. A tenure brings the write guard, from
//! which the verbs of the reconciler are made, and a queue of its own; both end with it. What decides which shards there are
//! in this process, and whether their caches are new enough to act on, is [`keeper`](crate::keeper).

use std::{collections::HashSet, sync::Arc, time::Duration};

use appwrapper_api::{AppWrapper, SLOT_LABEL, TypeRef};
use appwrapper_cache_management::{Kinds, Registry, Selector, Settings};
use appwrapper_coordination::{
    Tenure, guarded_client,
    shards::{Handover, ShardId},
};
use appwrapper_metrics::Metrics;
use appwrapper_reconciler::Defaults;
use futures::future::BoxFuture;
use kube::{
    Client,
    runtime::reflector::{self, Store},
};
use tokio::{
    sync::{Mutex, Notify, Semaphore, mpsc, watch},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::KubeCluster,
    ledger::{Ledger, WRAPPERS},
    limiter::Limiter,
    memories::Memories,
    nodes,
    observer::{CacheObserver, Totals},
    progress::Progress,
    queue::{self, Work},
    teller::{Publisher, Teller, teller},
    wrappers::{self, Feed, Route},
};

/// Triggers that may wait to be taken in.
const TRIGGERS: usize = 4_096;
/// How long passes under way may take to end once the shard is to be given up. Nobody works on it meanwhile.
const DRAIN: Duration = Duration::from_secs(3);
/// How long the watches may take to come to where the last holder's writes ended, before it is better to list anew.
const BARRIER: Duration = Duration::from_secs(2);
/// How long the caches of components may take at first. One that fails holds nobody up.
const KINDS: Duration = Duration::from_secs(2);
/// How often kinds that nobody uses are looked for.
const RETIRE: Duration = Duration::from_secs(60);
/// How often, at most, it is looked for kinds that are new.
const TEND: Duration = Duration::from_secs(1);

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
    /// Bounds the AppWrappers that are worked on at once, of all shards.
    pub permits: Arc<Semaphore>,
    /// How kinds are served.
    pub kinds: Arc<Kinds>,
    /// What all caches hold together.
    pub totals: Totals,
    /// Name of this replica, for events.
    pub replica: String,
    /// Times and limits of the caches.
    pub settings: Settings,
    /// The wall clock: deadlines come from times that the API server stores.
    pub clock: Clock,
}

/// Tells the time of day.
pub type Clock = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// Which objects belong to a shard.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its number.
    pub number: u32,
    /// Selector of its AppWrappers; none for all.
    pub wrappers: Option<String>,
    /// Selector of their components and pods.
    pub objects: Selector,
}

/// One tenure, and what goes with it.
pub struct Term {
    /// The right to act.
    pub tenure: Tenure,
    /// What is written under it.
    pub ledger: Ledger,
    /// When the Lease was gained.
    pub gained: Instant,
}

/// One shard.
pub struct Shard {
    environment: Environment,
    progress: Arc<Progress>,
    registry: Arc<Registry>,
    store: Store<AppWrapper>,
    route: Route,
    memories: Arc<Memories>,
    teller: Teller,
    publisher: Mutex<Publisher>,
}

impl Scope {
    /// The only shard there is. It needs no slots, so a controller without a webhook writes none.
    pub fn everything() -> Self {
        Self {
            number: 0,
            wrappers: None,
            objects: Selector::all(),
        }
    }

    /// One of several. AppWrappers get a slot before they are worked on. Components and pods that another controller made
    /// have none: each shard sees those, and the reconciler counts only what an AppWrapper of its own controls.
    pub fn of(shard: ShardId) -> Self {
        match shard.lenient_selector(SLOT_LABEL) {
            None => Self::everything(),
            Some(objects) => Self {
                number: shard.index().into(),
                wrappers: Some(shard.selector(SLOT_LABEL)),
                objects: Selector::all().and(&objects),
            },
        }
    }
}

impl Shard {
    /// Makes the shard, and the task that feeds it. The task never ends by itself.
    pub fn new(environment: Environment, scope: Scope) -> (Arc<Self>, BoxFuture<'static, ()>) {
        let (teller, publisher) = teller(Arc::clone(&environment.metrics), scope.number);
        let (nowhere, _) = mpsc::channel(1);
        let progress = Arc::new(Progress::default());
        let observer = CacheObserver::new(
            Arc::clone(&environment.metrics),
            environment.totals.clone(),
            Arc::clone(&progress),
        );
        let registry = Registry::with_kinds(
            environment.client.clone(),
            Arc::clone(&environment.kinds),
            scope.objects,
            nowhere,
            Arc::new(observer),
            environment.settings.clone(),
        );
        registry.start_pods();
        let (store, writer) = reflector::store();
        let shard = Arc::new(Self {
            registry: Arc::new(registry),
            store,
            progress,
            route: Route::default(),
            memories: Arc::default(),
            teller,
            publisher: Mutex::new(publisher),
            environment,
        });
        let changed = Arc::new(Notify::new());
        let feed = Feed {
            client: shard.environment.client.clone(),
            labels: scope.wrappers,
            route: shard.route.clone(),
            memories: Arc::clone(&shard.memories),
            view: shard.registry.view(),
            teller: shard.teller.clone(),
            progress: Arc::clone(&shard.progress),
            changed: Arc::clone(&changed),
        };
        let tending = tend(shard.store.clone(), Arc::clone(&shard.registry), changed);
        (
            shard,
            Box::pin(async move {
                tokio::select! { () = feed.run(writer) => {}, () = tending => {} }
            }),
        )
    }

    /// The caches.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Waits until AppWrappers, pods and the components in use are listed.
    pub async fn synced(&self) {
        // False means that the watch has ended, and the process with it.
        wrappers::listed(&self.store).await;
        let pods = TypeRef::new("v1", "Pod");
        while !matches!(self.registry.ensure(&pods, Duration::from_secs(1)).await, Ok(true)) {}
        let kinds = wrappers::kinds_in_use(&self.store);
        let listed = kinds
            .iter()
            .map(|(kind, declares_end)| self.registry.ensure_declaring(kind, *declares_end, KINDS));
        futures::future::join_all(listed).await;
    }

    /// Waits until the caches are as new as what the last holder wrote. False if that takes too long.
    pub async fn caught_up(&self, left: &Handover) -> bool {
        let watched: Vec<String> = self
            .registry
            .status()
            .iter()
            .map(|kind| kind.type_ref.to_string())
            .collect();
        let watched = |kind: &str| kind == WRAPPERS || watched.iter().any(|known| known == kind);
        let barrier = self.progress.barrier(left, watched);
        timeout(BARRIER, barrier.opened()).await.is_ok()
    }

    /// What the caches have been told so far.
    pub fn seen(&self) -> Handover {
        self.progress.as_handover()
    }

    /// Works on the shard until the tenure ends or `stop` is cancelled; then lets passes under way come to their end.
    pub async fn hold(&self, term: &Term, stop: &CancellationToken) {
        let tenure = &term.tenure;
        self.teller.held();
        let (sender, triggers) = mpsc::channel(TRIGGERS);
        // First the route, then everything that is known: a change in between is looked at twice, not missed.
        self.route.open(sender.clone());
        self.registry.route(sender.clone());
        let work = Arc::new(self.work(term));
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
        let mine: HashSet<String> = self
            .store
            .state()
            .iter()
            .map(|wrapper| wrapper.key().to_string())
            .collect();
        self.teller.given_up(!stop.is_cancelled(), |key| mine.contains(key));
    }

    fn work(&self, term: &Term) -> Work {
        let Term { tenure, ledger, gained } = term;
        let cluster = KubeCluster::new(
            &self.environment.client,
            tenure.write_guard(),
            Arc::clone(&self.registry),
            Arc::clone(&self.environment.limiter),
            self.teller.clone(),
            ledger.clone(),
            Arc::clone(&self.environment.clock),
        );
        Work {
            cluster,
            store: self.store.clone(),
            memories: Arc::clone(&self.memories),
            defaults: self.environment.defaults.clone(),
            nodes: self.environment.nodes.clone(),
            teller: self.teller.clone(),
            permits: Arc::clone(&self.environment.permits),
            tenure: tenure.clone(),
            // An empty shard is taken over by waiting for an AppWrapper, which says nothing.
            gained: std::sync::Mutex::new((!self.store.is_empty()).then_some(*gained)),
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

/// Watches the kinds that AppWrappers use, also on a standby, and stops the watches of those that none uses any more.
async fn tend(store: Store<AppWrapper>, registry: Arc<Registry>, changed: Arc<Notify>) {
    let mut retire = tokio::time::interval(RETIRE);
    while wrappers::listed(&store).await {
        let kinds = wrappers::kinds_in_use(&store);
        for (kind, declares_end) in &kinds {
            // Failures are told by the watch, and where the kind is needed.
            let _ = registry.ensure_declaring(kind, *declares_end, Duration::ZERO).await;
        }
        tokio::select! {
            () = changed.notified() => tokio::time::sleep(TEND).await,
            _ = retire.tick() => registry.retain(&wrappers::kinds_in_use(&store).into_keys().collect()),
        }
    }
    std::future::pending::<()>().await;
}
