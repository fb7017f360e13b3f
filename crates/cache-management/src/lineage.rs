//! To whom a pod belongs: its chain of controllers, followed to the AppWrapper.
//!
//! The label on a pod can be written by anyone; a controller reference with a uid cannot be won by chance. Links that
//! are components come from the component index, and the AppWrapper is recognised by group and kind, so the pod of a
//! Job costs no request. Any other link (a ReplicaSet, the Job of a JobSet) is read once as metadata and remembered: an
//! object has one controller for life.
//!
//! Only an answer about that very name says that a link is gone. Doubt (403, 5xx, time-out, kind not served) leaves the
//! lineage unresolved and is tried again, ever more rarely.

use std::{
    collections::{HashMap, HashSet, hash_map},
    hash::Hash,
    sync::{Arc, Mutex},
    time::Duration,
};

use appwrapper_api::{AppWrapperKey, ControllerRef, Lineage, Uid};
use kube::{Api, Client};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    component::{NoStatus, Wire},
    discovery::Kinds,
    index::{Found, ObjectName},
    lock::lock,
    metadata::is_appwrapper,
    observer::{LookupOutcome, Observer, Reason},
    pod::{Pod, Root},
    settings::Settings,
    triggers::Triggers,
    view::Cache,
};

/// Longer chains are not followed and pass for foreign. The longest in use has four links (LeaderWorkerSet, StatefulSet and their kind).
const DEPTH: usize = 6;
/// Attempts of one look-up before it waits to be asked for again.
const ATTEMPTS: u32 = 6;
/// Longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Look-ups under way or waiting for their turn. More are not begun; reading the pods asks again.
const PENDING: usize = 4096;

/// An object between a pod and its AppWrapper.
#[derive(Clone, Debug)]
enum Link {
    /// It is controlled by this one.
    Controlled(ControllerRef),
    /// It has no controller.
    Top,
    /// It does not exist, and its uid will not come back.
    Gone,
}

enum Walk {
    Ends(Lineage),
    /// This link has to be looked up.
    Needs(ControllerRef),
}

/// Follows chains of controllers and remembers their links.
pub(crate) struct Lineages {
    pub(crate) cache: Arc<Cache>,
    pub(crate) client: Client,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) triggers: Triggers,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) stop: CancellationToken,
    pub(crate) permits: Semaphore,
    pub(crate) limit: Duration,
    /// How long a link of a watched kind may still come through the watch.
    pub(crate) grace: Duration,
    memory: Mutex<Memory>,
}

struct Memory {
    links: Recent<LinkKey, Link>,
    doubts: Recent<LinkKey, Doubt>,
    /// Who waits for a look-up.
    pending: HashMap<LinkKey, HashSet<AppWrapperKey>>,
}

/// A link as some object refers to it. The uid alone would not do: a pod that gives a real uid under a wrong name would
/// have it looked up, not found, and remembered as gone for all others.
type LinkKey = (Arc<str>, ControllerRef);

/// How often a look-up came to nothing, and when it may be tried again.
#[derive(Clone, Copy)]
struct Doubt {
    attempts: u32,
    until: Instant,
}

impl Lineages {
    #[allow(clippy::too_many_arguments)] // wiring, called once
    pub(crate) fn new(
        cache: Arc<Cache>,
        client: Client,
        kinds: Arc<Kinds>,
        triggers: Triggers,
        observer: Arc<dyn Observer>,
        stop: CancellationToken,
        settings: &Settings,
    ) -> Self {
        Self {
            cache,
            client,
            kinds,
            triggers,
            observer,
            stop,
            permits: Semaphore::new(settings.lookups),
            limit: settings.lookup_limit,
            grace: settings.lookup_grace,
            memory: Mutex::new(Memory {
                links: Recent::new(settings.links),
                doubts: Recent::new(settings.links),
                pending: HashMap::new(),
            }),
        }
    }

    /// The lineage of a pod as far as it is known without asking.
    pub(crate) fn recall(&self, namespace: &Arc<str>, pod: &Pod) -> Lineage {
        match self.walk_from_pod(namespace, pod) {
            Walk::Ends(lineage) => lineage,
            Walk::Needs(_) => Lineage::Unresolved,
        }
    }

    /// The lineage of a pod. If a link is unknown it is looked up, and `key` is triggered when the answer is there.
    pub(crate) fn of(self: &Arc<Self>, key: &AppWrapperKey, pod: &Pod) -> Lineage {
        match self.walk_from_pod(&key.namespace, pod) {
            Walk::Ends(lineage) => {
                if lineage == Lineage::Foreign && pod.is_new_stranger() {
                    self.observer.stranger(key);
                }
                lineage
            }
            Walk::Needs(link) => {
                self.ask(&key.namespace, link, HashSet::from([key.clone()]));
                Lineage::Unresolved
            }
        }
    }

    fn walk_from_pod(&self, namespace: &Arc<str>, pod: &Pod) -> Walk {
        if let Some(Root { component, owner }) = pod.root().cloned() {
            return Walk::Ends(Lineage::Component { component, owner });
        }
        let Some(controller) = pod.controller() else {
            return Walk::Ends(Lineage::Foreign);
        };
        let walk = self.walk(namespace, pod.uid().clone(), controller.clone());
        if let Walk::Ends(Lineage::Component { component, owner }) = &walk {
            pod.learn_root(Root {
                component: component.clone(),
                owner: owner.clone(),
            });
        }
        walk
    }

    /// Follows the chain from `link`, which controls the object with the uid `below`.
    fn walk(&self, namespace: &Arc<str>, mut below: Uid, mut link: ControllerRef) -> Walk {
        for _ in 0..DEPTH {
            if is_appwrapper(&link) {
                return Walk::Ends(Lineage::Component {
                    component: below,
                    owner: link.uid,
                });
            }
            match self.recall_link(namespace, &link) {
                Some(Link::Controlled(next)) => below = std::mem::replace(&mut link, next).uid,
                Some(Link::Top) => return Walk::Ends(Lineage::Foreign),
                Some(Link::Gone) => return Walk::Ends(Lineage::Broken),
                None => return Walk::Needs(link),
            }
        }
        Walk::Ends(Lineage::Foreign)
    }

    fn recall_link(&self, namespace: &Arc<str>, link: &ControllerRef) -> Option<Link> {
        let key = (Arc::clone(namespace), link.clone());
        if let Some(known) = lock(&self.memory).links.get(&key) {
            return Some(known);
        }
        let name = ObjectName {
            namespace: Arc::clone(namespace),
            name: Arc::clone(&link.name),
        };
        let feed = self.cache.feed(&link.type_ref)?;
        // Another uid under the name may only mean that the index is behind; that is for a look-up to say.
        let found = feed.read(|index| match index.find(&name) {
            Found::Entry(component) if component.facts.uid == link.uid => Some(match component.controller() {
                Some(next) => Link::Controlled(next.clone()),
                None => Link::Top,
            }),
            _ => None,
        })??;
        lock(&self.memory).links.put(key, found.clone());
        Some(found)
    }

    /// Looks a link up unless that is under way or has just failed.
    fn ask(self: &Arc<Self>, namespace: &Arc<str>, link: ControllerRef, waiting: HashSet<AppWrapperKey>) {
        let mut memory = lock(&self.memory);
        let Memory { doubts, pending, .. } = &mut *memory;
        let key = (Arc::clone(namespace), link);
        let doubt = doubts.get(&key);
        let full = pending.len() >= PENDING;
        match pending.entry(key.clone()) {
            hash_map::Entry::Occupied(mut entry) => entry.get_mut().extend(waiting),
            hash_map::Entry::Vacant(_) if full || doubt.is_some_and(|doubt| doubt.until > Instant::now()) => {}
            hash_map::Entry::Vacant(entry) => {
                entry.insert(waiting);
                let lineages = Arc::clone(self);
                let attempts = doubt.map_or(0, |doubt| doubt.attempts);
                tokio::spawn(async move {
                    let stop = lineages.stop.clone();
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = lineages.look_up(key, attempts) => {}
                    }
                });
            }
        }
    }

    async fn look_up(self: Arc<Self>, key: LinkKey, mut attempts: u32) {
        let (namespace, link) = &key;
        if self.cache.feed(&link.type_ref).is_some() {
            sleep(self.grace).await;
        }
        loop {
            if self.recall_link(namespace, link).is_some() {
                break;
            }
            let outcome = {
                let _permit = self.permits.acquire().await;
                timeout(self.limit, self.get(namespace, link))
                    .await
                    .unwrap_or(Err(Reason::Timeout))
            };
            match outcome {
                Ok(found) => {
                    let gone = matches!(found, Link::Gone);
                    lock(&self.memory).links.put(key.clone(), found);
                    self.observer.lookup(
                        &link.type_ref,
                        if gone {
                            LookupOutcome::Gone
                        } else {
                            LookupOutcome::Found
                        },
                    );
                    break;
                }
                Err(reason) => {
                    self.observer.lookup(&link.type_ref, LookupOutcome::Doubt(reason));
                    let pause = LONGEST_PAUSE.min(Duration::from_secs(1 << attempts.min(16)));
                    attempts += 1;
                    if attempts >= ATTEMPTS {
                        let mut memory = lock(&self.memory);
                        memory.doubts.put(
                            key.clone(),
                            Doubt {
                                attempts,
                                until: Instant::now() + pause,
                            },
                        );
                        memory.pending.remove(&key);
                        return;
                    }
                    sleep(pause).await;
                }
            }
        }
        let waiting = lock(&self.memory).pending.remove(&key).unwrap_or_default();
        match self.walk(namespace, link.uid.clone(), link.clone()) {
            Walk::Needs(next) => self.ask(namespace, next, waiting),
            Walk::Ends(_) => self.triggers.send(waiting).await,
        }
    }

    async fn get(&self, namespace: &str, link: &ControllerRef) -> Result<Link, Reason> {
        let kind = self
            .kinds
            .resolve(&link.type_ref)
            .await
            .map_err(|error| Reason::of_discovery(&error))?;
        let api: Api<Wire<NoStatus>> = if kind.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        };
        match api.get(&link.name).await {
            Ok(object) => {
                let identity = object.metadata.into_identity().ok_or(Reason::Malformed)?;
                Ok(match identity.controller {
                    _ if identity.uid != link.uid => Link::Gone,
                    Some(next) => Link::Controlled(next),
                    None => Link::Top,
                })
            }
            Err(kube::Error::Api(status)) if is_gone(&status, &link.name) => Ok(Link::Gone),
            Err(error) => Err(Reason::of_client(&error)),
        }
    }
}

/// Whether a refusal says that there is no object of this name. A plain 404 says nothing of the kind: it may come from
/// a proxy, or from an API server that does not serve the resource.
fn is_gone(status: &kube::core::Status, name: &str) -> bool {
    status.code == 404
        && status.reason == "NotFound"
        && status.details.as_ref().is_some_and(|details| details.name == name)
}

/// A map that forgets what was used least recently: two generations, the older one dropped when the younger is full.
struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Clone + Eq + Hash, V: Clone> Recent<K, V> {
    fn new(limit: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            half: (limit / 2).max(1),
        }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.put(key.clone(), value.clone());
        Some(value)
    }

    fn put(&mut self, key: K, value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_not_found_of_the_very_name_says_that_a_link_is_gone() {
        let gone = |status: Value| is_gone(&serde_json::from_value(status).unwrap(), "j");
        assert!(gone(
            json!({"code": 404, "reason": "NotFound", "details": {"name": "j", "kind": "jobs"}})
        ));
        assert!(!gone(
            json!({"code": 404, "reason": "NotFound", "details": {"name": "k", "kind": "jobs"}})
        ));
        assert!(!gone(json!({"code": 404, "reason": "NotFound"})));
        assert!(!gone(
            json!({"code": 404, "reason": "Failed to parse error data", "details": {"name": "j"}})
        ));
        assert!(!gone(
            json!({"code": 403, "reason": "NotFound", "details": {"name": "j"}})
        ));
    }

    #[test]
    fn what_was_used_last_is_kept() {
        let mut recent = Recent::new(4);
        for key in 0..100 {
            recent.put(key, key);
            assert_eq!(recent.get(&0), Some(0));
            assert!(recent.young.len() + recent.old.len() <= 4);
        }
        assert_eq!(recent.get(&50), None);
        assert_eq!(recent.get(&99), Some(99));
    }
}
