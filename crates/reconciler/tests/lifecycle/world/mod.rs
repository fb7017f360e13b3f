//! What the API server holds, what the caches know of it, what goes wrong, and what was asked.
//!
//! Nothing moves by itself: time, delivery by the watches, the Job controller, the kubelet and the garbage collector are
//! verbs of a test. The caches follow the contract of `crates/cache-management`: a cache that has not seen our own create
//! says so, what it last saw of another incarnation is not told, and pods that a list has shown to be gone are ghosts.

mod api;
mod deeds;
mod environment;
mod faults;
mod feed;
mod rules;
mod store;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use appwrapper_api::{AppWrapper, ComponentFacts, PodFacts, TypeRef, Uid};
use appwrapper_reconciler::observation::Observation;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use self::faults::Faults;
pub use self::{deeds::Deed, faults::Fault, feed::Feed, rules::Rules};

pub const NAMESPACE: &str = "ns";
pub const NAME: &str = "aw";

/// The beginning of time.
pub fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A component as the API server holds it.
#[derive(Clone, Debug)]
pub struct Object {
    pub type_ref: TypeRef,
    pub name: String,
    pub position: usize,
    pub facts: ComponentFacts,
    /// It carries our label, so that the watch sees it.
    pub labelled: bool,
    /// As it was created.
    pub body: Value,
}

pub type ObjectKey = (TypeRef, String);

/// What this process wrote of a component, as `crates/cache-management` keeps it.
#[derive(Clone, Debug)]
pub enum Note {
    Created {
        uid: Uid,
        pending: Option<(u64, Timestamp)>,
    },
    Deleted,
}

/// Ways in which the world may lie, so that each rule is seen to break.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one lie, told alone")]
pub struct Lies {
    /// The inversion of the seed: `read_uncached` answers from the cache.
    pub reads_from_cache: bool,
    /// `list_pods_uncached` answers from the cache.
    pub pods_from_cache: bool,
    /// Writes are accepted whatever version they were decided on.
    pub unconditional: bool,
    /// And the answer does not show that the AppWrapper is being deleted.
    pub hides_deletion: bool,
    /// A name can be given twice.
    pub same_name_twice: bool,
    /// That an object does not exist is never admitted.
    pub denies_absence: bool,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct State {
    pub now: Timestamp,
    revision: u64,
    pub wrapper: Option<AppWrapper>,
    pub objects: BTreeMap<ObjectKey, Object>,
    pub pods: BTreeMap<String, PodFacts>,
    pub wrappers: Feed<Arc<AppWrapper>>,
    pub kinds: BTreeMap<TypeRef, Feed<Arc<ComponentFacts>>>,
    pub cached_pods: Feed<PodFacts>,
    pub notes: BTreeMap<ObjectKey, Note>,
    pub pods_gone: u64,
    pub faults: Faults,
    pub calls: Vec<String>,
    pub told: Vec<Observation>,
    pub rules: Rules,
    pub lies: Lies,
    /// Every copy of the AppWrapper that ever was.
    pub history: Vec<Arc<AppWrapper>>,
}

/// The world: state behind a lock, because `Cluster` is shared.
#[derive(Debug)]
pub struct World(Mutex<State>);

impl World {
    pub fn new() -> Self {
        let mut state = State {
            now: start(),
            revision: 100,
            wrapper: None,
            objects: BTreeMap::new(),
            pods: BTreeMap::new(),
            wrappers: Feed::default(),
            kinds: BTreeMap::new(),
            cached_pods: Feed::default(),
            notes: BTreeMap::new(),
            pods_gone: 0,
            faults: Faults::default(),
            calls: Vec::new(),
            told: Vec::new(),
            rules: Rules::default(),
            lies: Lies::default(),
            history: Vec::new(),
        };
        state.wrappers.synced = true;
        state.cached_pods.synced = true;
        Self(Mutex::new(state))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn advance(&self, duration: SignedDuration) {
        let mut state = self.state();
        state.now = state.now.checked_add(duration).unwrap();
    }
}

impl State {
    pub fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub fn next_uid(&mut self, what: &str) -> Uid {
        Uid::new(format!("uid-{what}-{}", self.next_revision()))
    }

    /// A new version of the AppWrapper is stored, or it is gone.
    pub fn store_wrapper(&mut self, wrapper: Option<AppWrapper>) {
        let revision = self.next_revision();
        let wrapper = wrapper.map(|mut wrapper| {
            wrapper.metadata.resource_version = Some(revision.to_string());
            wrapper
        });
        let shared = wrapper.clone().map(Arc::new);
        self.history.extend(shared.clone());
        self.wrappers.push(revision, NAME, shared);
        self.wrapper = wrapper;
    }

    /// A component has changed, or is gone.
    pub fn publish(&mut self, key: &ObjectKey) {
        let revision = self.next_revision();
        let facts = self.objects.get_mut(key).and_then(|object| {
            object.facts.version = appwrapper_api::Rv::parse(&revision.to_string());
            object.labelled.then(|| Arc::new(object.facts.clone()))
        });
        self.kinds
            .entry(key.0.clone())
            .or_default()
            .push(revision, &key.1, facts);
    }

    /// A pod has changed, or is gone.
    pub fn publish_pod(&mut self, name: &str) {
        let revision = self.next_revision();
        let pod = self.pods.get_mut(name).map(|pod| {
            pod.version = appwrapper_api::Rv::parse(&revision.to_string());
            pod.clone()
        });
        self.cached_pods.push(revision, name, pod);
    }

    /// Lists a kind and begins to watch it.
    pub fn list_kind(&mut self, type_ref: &TypeRef) {
        let listed: Vec<_> = self
            .objects
            .values()
            .filter(|object| object.type_ref == *type_ref && object.labelled)
            .map(|object| (object.name.clone(), Arc::new(object.facts.clone())))
            .collect();
        let revision = self.revision;
        self.kinds
            .entry(type_ref.clone())
            .or_default()
            .list(revision, listed.into_iter());
    }

    /// Lists everything anew.
    pub fn list_all(&mut self) {
        for type_ref in self.kinds.keys().cloned().collect::<Vec<_>>() {
            self.list_kind(&type_ref);
        }
        let revision = self.revision;
        let wrapper = self.wrapper.clone().map(|wrapper| (NAME.to_owned(), Arc::new(wrapper)));
        self.wrappers.list(revision, wrapper.into_iter());
        let pods = self.pods.clone();
        self.cached_pods.list(revision, pods.into_iter());
    }

    /// Delivers whatever is not held back. Answers whether anything was, the AppWrapper apart.
    pub fn flow(&mut self) -> bool {
        self.wrappers.flow();
        let mut moved = self.cached_pods.flow();
        for feed in self.kinds.values_mut() {
            moved |= feed.flow();
        }
        moved
    }

    /// Holds back, or lets go, the watches of all components.
    pub fn hold_components(&mut self, held: bool) {
        for feed in self.kinds.values_mut() {
            feed.held = held;
        }
    }
}
