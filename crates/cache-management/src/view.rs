//! The side of the caches that is read, and told of our own writes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, RwLock},
};

use appwrapper_api::{AppWrapperKey, ComponentFacts, ComponentRef, PodFacts, Rv, TypeRef, Uid, kinds::is_pod};
use jiff::Timestamp;

use crate::{
    component::Component,
    feed::Feed,
    freshness::{Notes, Pending, Trust},
    index::{Facts, Found, Index, ObjectName, Sequence},
    lineage::Lineages,
    lock::{lock, read},
    pod::{Pod, PodWire},
};

/// What a cache says about a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedRead {
    /// It is there.
    Present(Arc<ComponentFacts>),
    /// It is not, as far as the watch has told.
    Absent {
        /// Number of the last change under this name: the same number means that nothing new was learnt.
        changed: u64,
        /// What was last seen under the name, unless it is known not to be what we last made.
        last: Option<Arc<ComponentFacts>>,
    },
    /// The cache does not know. Only the API server does.
    NotSynced(NotSynced),
}

/// Why a cache does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSynced {
    /// The kind is not watched, has not been listed yet, or its watch is failing.
    Kind,
    /// The cache has not yet seen what we wrote.
    BehindOwnWrite {
        /// When we wrote it.
        since: Timestamp,
    },
}

/// All that is cached; shared by the registry, which feeds it, and the views.
pub(crate) struct Cache {
    pub(crate) kinds: RwLock<HashMap<TypeRef, Arc<Feed<Component>>>>,
    pub(crate) pods: Arc<Feed<Arc<Pod>>>,
    pub(crate) notes: Mutex<Notes>,
    pub(crate) sequence: Arc<Sequence>,
}

impl Cache {
    /// The feed of a kind that is watched.
    pub(crate) fn feed(&self, type_ref: &TypeRef) -> Option<Arc<Feed<Component>>> {
        read(&self.kinds).get(type_ref).map(Arc::clone)
    }
}

/// What the caches know. Cheap to clone; never waits and never asks the API server.
#[derive(Clone)]
pub struct View {
    cache: Arc<Cache>,
    lineages: Arc<Lineages>,
}

impl View {
    pub(crate) fn new(cache: Arc<Cache>, lineages: Arc<Lineages>) -> Self {
        Self { cache, lineages }
    }

    /// What the cache says about a component of `key`.
    ///
    /// Absent is never said of a kind that is not synced, or while the cache is behind a create of ours.
    pub fn component(&self, key: &AppWrapperKey, component: &ComponentRef) -> CachedRead {
        let read = if is_pod(&component.type_ref) {
            let facts = |pod: &Arc<Pod>| Arc::new(pod.component());
            self.cache.pods.read(|index| self.answer(index, key, component, facts))
        } else {
            let facts = |component: &Component| Arc::clone(&component.facts);
            let feed = self.cache.feed(&component.type_ref);
            feed.and_then(|feed| feed.read(|index| self.answer(index, key, component, facts)))
        };
        read.unwrap_or(CachedRead::NotSynced(NotSynced::Kind))
    }

    fn answer<F: Facts>(
        &self,
        index: &Index<F>,
        key: &AppWrapperKey,
        component: &ComponentRef,
        facts: impl Fn(&F) -> Arc<ComponentFacts>,
    ) -> CachedRead {
        let name = ObjectName {
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&component.name),
        };
        let found = index.find(&name);
        let trust = lock(&self.cache.notes).trust(key, component, found.uid(), index.progress());
        match (trust, found) {
            (Trust::Behind(since), _) => CachedRead::NotSynced(NotSynced::BehindOwnWrite { since }),
            (_, Found::Entry(entry)) => CachedRead::Present(facts(entry)),
            (Trust::Full, Found::Gone { changed, last }) => CachedRead::Absent {
                changed,
                last: last.map(facts),
            },
            (Trust::NotOfThePast, Found::Gone { changed, .. }) => CachedRead::Absent { changed, last: None },
        }
    }

    /// The pods that carry the label of `key`, in the order of their names; `None` if the pod cache is not synced.
    ///
    /// Links of their chains that are unknown are looked up in the background, and `key` is triggered when that is
    /// done. Have the kinds of the components watched first ([`Registry::ensure`](crate::Registry::ensure)), so that
    /// they are not looked up one by one.
    pub fn pods(&self, key: &AppWrapperKey) -> Option<Vec<PodFacts>> {
        let pods: Vec<Arc<Pod>> = self.cache.pods.read(|index| {
            let ghosts = lock(&self.cache.notes).ghosts_until(key, index.progress());
            let alive = |pod: &&Arc<Pod>| ghosts.is_none() || pod.version() > ghosts.as_ref();
            index.group(key).filter(alive).map(Arc::clone).collect()
        })?;
        Some(pods.iter().map(|pod| pod.facts(self.lineages.of(key, pod))).collect())
    }

    /// The same facts of pods that were listed past the cache.
    pub fn pod_facts(&self, key: &AppWrapperKey, listed: impl IntoIterator<Item = PodWire>) -> Vec<PodFacts> {
        let pods = listed.into_iter().filter_map(PodWire::project);
        pods.map(|(_, pod)| pod.facts(self.lineages.of(key, &pod))).collect()
    }

    /// The uid that was noted for a component and not deleted by us since.
    ///
    /// A uid that the cache has merely seen is not reported: after a hand-over it may be that of an earlier attempt,
    /// which another replica has deleted and made anew, and taking the new object for a stranger would fail a healthy
    /// AppWrapper.
    pub fn known_uid(&self, key: &AppWrapperKey, component: &ComponentRef) -> Option<Uid> {
        lock(&self.cache.notes).uid(key, component).cloned()
    }

    /// Notes that a component was created, or was found by an uncached read to be there and ours.
    ///
    /// Call it with what the API server returned, and before the cache is read again. `now` is reported back as
    /// [`NotSynced::BehindOwnWrite`].
    pub fn note_created(
        &self,
        key: &AppWrapperKey,
        component: &ComponentRef,
        uid: Uid,
        version: Option<Rv>,
        now: Timestamp,
    ) {
        let pending = Pending {
            version,
            since: now,
            number: self.cache.sequence.next(),
        };
        lock(&self.cache.notes).created(key, component, uid, pending);
    }

    /// Notes that a component was deleted by us: from here on, another uid under its name is no surprise.
    pub fn note_deleted(&self, key: &AppWrapperKey, component: &ComponentRef) {
        lock(&self.cache.notes).deleted(key, component);
    }

    /// Notes that an uncached list of version `list_version` found no pods: what the cache still holds up to that
    /// version are ghosts of an earlier attempt, and is not returned any more.
    pub fn note_pods_gone(&self, key: &AppWrapperKey, list_version: Rv) {
        lock(&self.cache.notes).pods_gone(key, list_version);
    }

    /// Forgets what was noted about an AppWrapper that is gone, or no longer ours to look after.
    pub fn forget(&self, key: &AppWrapperKey) {
        lock(&self.cache.notes).forget(key);
    }

    /// Forgets every note. Call it at the end of a tenure: afterwards others write, and what we know would mislead.
    pub fn forget_all(&self) {
        lock(&self.cache.notes).forget_all();
    }
}
