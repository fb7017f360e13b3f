//! Starts the watch of a kind when it is first needed, and stops it when it no longer is.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use appwrapper_api::{
    AppWrapperKey, TypeRef,
    kinds::{StatusHead, is_pod},
};
use futures::FutureExt;
use kube::{Api, Client, runtime::watcher};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::Backoff,
    component::{Component, Declaring, Depth, NoStatus, StatusRules, StatusWire, Wire},
    discovery::{KindError, Kinds},
    feed::Feed,
    freshness::Notes,
    guard::{Started, guarded},
    index::{Facts, Sequence},
    informer::{Failure, Informer, Life, Patience},
    lineage::Lineages,
    lock::{lock, read, write},
    observer::{KindStatus, Observer, Reason},
    pod::{Pod, PodWire},
    settings::{Selector, Settings},
    triggers::Triggers,
    view::{Cache, View},
};

/// The watches of one shard. Dropping it stops them, and its views know nothing from then on.
pub struct Registry {
    cache: Arc<Cache>,
    lineages: Arc<Lineages>,
    client: Client,
    kinds: Arc<Kinds>,
    selector: Selector,
    triggers: Triggers,
    observer: Arc<dyn Observer>,
    settings: Settings,
    running: Mutex<Running>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Running {
    pods: bool,
    kinds: HashMap<TypeRef, Use>,
}

struct Use {
    depth: Depth,
    stop: CancellationToken,
    idle_since: Option<Instant>,
}

impl Registry {
    /// Watches nothing yet. Keys of AppWrappers that should be looked at go to `triggers`; its receiver must be
    /// drained or dropped, since a full channel slows the watches.
    pub fn new(
        client: Client,
        selector: Selector,
        triggers: mpsc::Sender<AppWrapperKey>,
        observer: Arc<dyn Observer>,
        settings: Settings,
    ) -> Self {
        let kinds = Arc::new(Kinds::new(client.clone(), &settings));
        Self::with_kinds(client, kinds, selector, triggers, observer, settings)
    }

    /// The same, sharing what other registries know of kinds.
    pub fn with_kinds(
        client: Client,
        kinds: Arc<Kinds>,
        selector: Selector,
        triggers: mpsc::Sender<AppWrapperKey>,
        observer: Arc<dyn Observer>,
        settings: Settings,
    ) -> Self {
        let sequence = Arc::new(Sequence::default());
        let pods = Feed::new(TypeRef::new("v1", "Pod"), Arc::clone(&sequence), settings.tombstones);
        let cache = Arc::new(Cache {
            kinds: RwLock::default(),
            pods: Arc::new(pods),
            notes: Mutex::new(Notes::default()),
            sequence,
        });
        let triggers = Triggers::new(triggers);
        let stop = CancellationToken::new();
        let lineages = Arc::new(Lineages::new(
            Arc::clone(&cache),
            client.clone(),
            Arc::clone(&kinds),
            triggers.clone(),
            Arc::clone(&observer),
            stop.clone(),
            &settings,
        ));
        let running = Mutex::default();
        Self {
            cache,
            lineages,
            client,
            kinds,
            selector,
            triggers,
            observer,
            settings,
            running,
            stop,
        }
    }

    /// What is read of the caches.
    pub fn view(&self) -> View {
        View::new(Arc::clone(&self.cache), Arc::clone(&self.lineages))
    }

    /// How kinds are served.
    pub fn kinds(&self) -> &Arc<Kinds> {
        &self.kinds
    }

    /// Sends triggers to another channel from now on: that of the next tenure.
    pub fn route(&self, triggers: mpsc::Sender<AppWrapperKey>) {
        self.triggers.route(triggers);
    }

    /// Starts the watch of pods, once. It is never stopped by [`retain`](Self::retain).
    pub fn start_pods(&self) {
        if std::mem::replace(&mut lock(&self.running).pods, true) {
            return;
        }
        let config = self.config(self.settings.page_size);
        let lineages = Arc::clone(&self.lineages);
        let life: Life<Arc<Pod>> = Box::new(move |informer| {
            let (api, config) = (Api::<PodWire>::all(informer.client.clone()), config.clone());
            let lineages = Arc::clone(&lineages);
            async move {
                let project = move |wire: PodWire| {
                    let (name, pod) = wire.project()?;
                    // Learnt here, the way to the AppWrapper stays known when a link is deleted before the pod.
                    lineages.recall(&name.namespace, &pod);
                    Some((name, Arc::new(pod)))
                };
                informer.live(api, config, project).await
            }
            .boxed()
        });
        self.spawn(Arc::clone(&self.cache.pods), self.stop.child_token(), life);
    }

    /// Has a kind watched, and waits up to `limit` until that is synced. Says whether it is.
    ///
    /// A kind whose watch fails is not waited for: it is tried again in the background for ever, and a pass over an
    /// AppWrapper has better things to do. Pods are, since nothing can be done without them. A cluster-scoped kind is
    /// not watched, since no component is of such a kind.
    ///
    /// # Errors
    /// As [`Kinds::resolve`], if the kind is not watched already.
    pub async fn ensure(&self, type_ref: &TypeRef, limit: Duration) -> Result<bool, KindError> {
        self.ensure_declaring(type_ref, false, limit).await
    }

    /// The same, where `declares_end` says that an object of the kind declares how it ends, so that metadata is not
    /// enough: a watch of metadata alone is begun anew, and until it is listed the kind is not synced.
    ///
    /// # Errors
    /// As [`ensure`](Self::ensure).
    pub async fn ensure_declaring(
        &self,
        type_ref: &TypeRef,
        declares_end: bool,
        limit: Duration,
    ) -> Result<bool, KindError> {
        if is_pod(type_ref) {
            self.start_pods();
            return Ok(timeout(limit, self.cache.pods.synced()).await.unwrap_or(false));
        }
        let depth = Depth::of(StatusRules::of(type_ref), declares_end);
        let feed = match self.touch(type_ref, depth) {
            Some(feed) => feed,
            None if self.kinds.resolve(type_ref).await?.namespaced => self.start(type_ref, depth),
            None => return Ok(false),
        };
        Ok(timeout(limit, feed.settled()).await.unwrap_or(false))
    }

    /// Stops kinds that have not been in use for a while. Call it every minute or so.
    pub fn retain(&self, in_use: &HashSet<TypeRef>) {
        let now = Instant::now();
        let mut running = lock(&self.running);
        running.kinds.retain(|type_ref, used| {
            if in_use.contains(type_ref) {
                used.idle_since = None;
                return true;
            }
            let since = *used.idle_since.get_or_insert(now);
            if now.duration_since(since) < self.settings.idle {
                return true;
            }
            self.end(type_ref, used);
            self.observer.retired(type_ref);
            false
        });
    }

    /// How every cache is doing, pods first.
    pub fn status(&self) -> Vec<KindStatus> {
        let mut kinds: Vec<_> = read(&self.cache.kinds).values().map(|feed| feed.status()).collect();
        kinds.sort_by(|a, b| a.type_ref.cmp(&b.type_ref));
        kinds.insert(0, self.cache.pods.status());
        kinds
    }

    fn end(&self, type_ref: &TypeRef, used: &Use) {
        // First nothing is read any more, then nothing is fed any more.
        if let Some(feed) = write(&self.cache.kinds).remove(type_ref) {
            feed.retire();
        }
        used.stop.cancel();
    }

    /// The feed of a kind that is watched deep enough.
    fn touch(&self, type_ref: &TypeRef, depth: Depth) -> Option<Arc<Feed<Component>>> {
        let mut running = lock(&self.running);
        let used = running.kinds.get_mut(type_ref).filter(|used| used.depth >= depth)?;
        used.idle_since = None;
        self.cache.feed(type_ref)
    }

    fn start(&self, type_ref: &TypeRef, depth: Depth) -> Arc<Feed<Component>> {
        let mut running = lock(&self.running);
        match running.kinds.get(type_ref) {
            Some(used) if used.depth < depth => self.end(type_ref, used),
            _ => {
                if let Some(feed) = self.cache.feed(type_ref) {
                    return feed;
                }
            }
        }
        let sequence = Arc::clone(&self.cache.sequence);
        let feed = Arc::new(Feed::new(type_ref.clone(), sequence, self.settings.tombstones));
        write(&self.cache.kinds).insert(type_ref.clone(), Arc::clone(&feed));
        let stop = self.stop.child_token();
        running.kinds.insert(
            type_ref.clone(),
            Use {
                depth,
                stop: stop.clone(),
                idle_since: None,
            },
        );
        self.spawn(Arc::clone(&feed), stop, self.component_life(type_ref, depth));
        feed
    }

    fn component_life(&self, type_ref: &TypeRef, depth: Depth) -> Life<Component> {
        match depth {
            Depth::Metadata => self.life::<NoStatus>(type_ref),
            Depth::Declared => self.life::<Declaring>(type_ref),
            Depth::Known => self.life::<StatusHead>(type_ref),
        }
    }

    fn life<S: StatusWire>(&self, type_ref: &TypeRef) -> Life<Component> {
        let rules = StatusRules::of(type_ref);
        let page_size = if S::METADATA_ONLY {
            self.settings.metadata_page_size
        } else {
            self.settings.page_size
        };
        let config = self.config(page_size);
        let (kinds, type_ref) = (Arc::clone(&self.kinds), type_ref.clone());
        Box::new(move |informer| {
            let (kinds, type_ref) = (Arc::clone(&kinds), type_ref.clone());
            let config = config.clone();
            async move {
                // Anew each time: the kind may have come back under another plural, or not at all.
                let resource = match kinds.resolve(&type_ref).await {
                    Ok(kind) => kind.resource,
                    Err(error) => return Failure::blind(Reason::of_discovery(&error), error.to_string()),
                };
                let api = Api::<Wire<S>>::all_with(informer.client.clone(), &resource);
                let failure = informer.live(api, config, |wire| wire.project(rules)).await;
                kinds.forget(&type_ref);
                failure
            }
            .boxed()
        })
    }

    fn config(&self, page_size: u32) -> watcher::Config {
        let timeout = self.settings.watch_timeout.as_secs().try_into().unwrap_or(u32::MAX);
        watcher::Config::default()
            .labels(self.selector.as_str())
            .timeout(timeout)
            .page_size(page_size)
    }

    fn spawn<F: Facts + Send + Sync + 'static>(&self, feed: Arc<Feed<F>>, stop: CancellationToken, life: Life<F>) {
        let started: Started = {
            let (feed, observer) = (Arc::clone(&feed), Arc::clone(&self.observer));
            Arc::new(move || {
                feed.alive();
                observer.watch_started(feed.type_ref());
            })
        };
        let informer = Arc::new(Informer {
            client: guarded(self.client.clone(), self.settings.watch_start, started),
            feed,
            triggers: self.triggers.clone(),
            observer: Arc::clone(&self.observer),
            sequence: Arc::clone(&self.cache.sequence),
            patience: Patience {
                list: self.settings.list_limit,
                blind: self.settings.blind_after,
            },
            backoff: Mutex::new(Backoff::for_watches()),
        });
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = informer.run(life) => {}
            }
        });
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.cache.pods.retire();
        for (_, feed) in write(&self.cache.kinds).drain() {
            feed.retire();
        }
        self.stop.cancel();
    }
}
