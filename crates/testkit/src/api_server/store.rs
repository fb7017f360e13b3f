//! The state of the fake server: objects, their versions, and the log of every change.
//!
//! The log of changes is the one source for watches (a watch is a position in it), for the write history that tests
//! read, and for `revision`. Every stored change takes the next revision, across all kinds, as with etcd. All mutation
//! goes through `State::commit`, so nothing can change without a version, a log entry and a watch event.
//!
//! The state sits behind one mutex and holds no futures. Waiting and waking is done in `service.rs` and `watch.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::kinds::Kinds;
use super::object;
use super::read::Pages;
use super::request::{ApiRequest, Verb};
use super::watch::Watch;
use crate::gate::Gates;

/// Where an object is stored. Orders by resource, namespace and name, the order of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// One stored change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The version the change made.
    pub revision: u64,
    /// `plural.group`.
    pub resource: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// What was asked for. A `Delete` that only marks the object, and an `Update` or `Patch` that removes it by taking
    /// the last finalizer, keep the verb of the request.
    pub verb: Verb,
    /// `status` for a write to the subresource.
    pub subresource: Option<String>,
    /// Who wrote: a client's name, or `test`, `garbage-collector`, `job-controller`.
    pub author: String,
    /// `ApiRequest::seq` of the request, if it came by HTTP.
    pub request: Option<u64>,
    /// Server time.
    pub at: Timestamp,
    /// The object before, none if it was made.
    pub before: Option<Arc<Value>>,
    /// The object after, none if it is gone.
    pub after: Option<Arc<Value>>,
}

/// On whose behalf something is written.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) author: String,
    pub(crate) verb: Verb,
    pub(crate) subresource: Option<String>,
    pub(crate) request: Option<u64>,
    pub(crate) dry_run: bool,
}

impl Actor {
    /// Somebody inside the fake cluster.
    pub(crate) fn internal(author: &str, verb: Verb) -> Self {
        Self {
            author: author.to_owned(),
            verb,
            subresource: None,
            request: None,
            dry_run: false,
        }
    }

    pub(crate) fn of(request: &ApiRequest) -> Self {
        Self {
            author: request.author.clone(),
            verb: request.verb,
            subresource: request.subresource.clone(),
            request: Some(request.seq),
            dry_run: request.dry_run(),
        }
    }
}

/// Everything the server knows.
pub(crate) struct State {
    pub(crate) kinds: Kinds,
    pub(crate) objects: BTreeMap<ObjectKey, Arc<Value>>,
    pub(crate) changes: Vec<Change>,
    pub(crate) revision: u64,
    /// Watches and continue tokens from before this version are refused with 410.
    pub(crate) compacted: u64,
    pub(crate) requests: Vec<ApiRequest>,
    pub(crate) last_request: u64,
    pub(crate) watches: BTreeMap<u64, Watch>,
    pub(crate) last_watch: u64,
    pub(crate) gates: Gates,
    pub(crate) pages: Pages,
    pub(crate) auto_collect: bool,
    pub(crate) require_namespaces: bool,
    epoch: (Timestamp, tokio::time::Instant),
    ids: u64,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            kinds: Kinds::default(),
            objects: BTreeMap::new(),
            changes: Vec::new(),
            // A server never answers with version 0, which has a meaning of its own in requests.
            revision: 1000,
            compacted: 0,
            requests: Vec::new(),
            last_request: 0,
            watches: BTreeMap::new(),
            last_watch: 0,
            gates: Gates::default(),
            pages: Pages::default(),
            auto_collect: true,
            require_namespaces: false,
            epoch: (Timestamp::now(), tokio::time::Instant::now()),
            ids: 0,
        }
    }

    /// The server's clock: the epoch plus tokio's time since then, so that it follows a paused clock.
    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.epoch.1.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch
            .0
            .checked_add(elapsed)
            .expect("a test does not outlive the calendar")
    }

    pub(crate) fn set_clock(&mut self, now: Timestamp) {
        self.epoch = (now, tokio::time::Instant::now());
    }

    /// Now plus some seconds, to the second, as object metadata has it.
    pub(crate) fn stamp(&self, seconds: i64) -> Value {
        let at = self.now().as_second().saturating_add(seconds);
        Timestamp::from_second(at)
            .expect("a test does not outlive the calendar")
            .to_string()
            .into()
    }

    pub(crate) fn next_uid(&mut self) -> String {
        self.ids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.ids)
    }

    /// Five characters as the server appends to `generateName`: no vowels, no 0, 1 and 3. The sequence is fixed.
    pub(crate) fn next_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        self.ids += 1;
        // SplitMix64: neighbouring counters give unrelated names.
        let mut bits = self.ids.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let count = LETTERS.len() as u64;
        (0..5)
            .map(|_| {
                let letter = LETTERS[usize::try_from(bits % count).unwrap_or_default()];
                bits /= count;
                char::from(letter)
            })
            .collect()
    }

    /// Stores a change under the next version and returns the object as stored; for a removal, as it last was.
    pub(crate) fn commit(&mut self, by: &Actor, key: &ObjectKey, after: Option<Value>) -> Arc<Value> {
        let before = self.objects.get(key).cloned();
        if by.dry_run {
            return after.map(Arc::new).or(before).unwrap_or_default();
        }
        self.revision += 1;
        let after = after.map(|object| Arc::new(object::at_version(&object, self.revision)));
        match &after {
            Some(object) => self.objects.insert(key.clone(), Arc::clone(object)),
            None => self.objects.remove(key),
        };
        self.changes.push(Change {
            revision: self.revision,
            resource: key.resource.clone(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            verb: by.verb,
            subresource: by.subresource.clone(),
            author: by.author.clone(),
            request: by.request,
            at: self.now(),
            before: before.clone(),
            after: after.clone(),
        });
        after.or(before).unwrap_or_default()
    }

    /// All objects of a resource, of one namespace or all, in list order.
    pub(crate) fn stored<'a>(
        &'a self,
        resource: &'a str,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<Value>)> {
        let first = ObjectKey {
            resource: resource.to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: String::new(),
        };
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.resource == resource && namespace.is_none_or(|ns| key.namespace == ns))
    }
}
