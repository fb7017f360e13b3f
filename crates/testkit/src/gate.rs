//! Hold back what watches deliver, and what cached reads see: the blind cache.
//!
//! A gate belongs to one resource, and to all clients or to one of them. While it is held, every watch of that resource
//! stays silent about later changes; reads go on. A release delivers what was held, all at once, one change at a time, or
//! in an order of the test's choosing. Watches opened while a gate is held are held too.
//!
//! A list made while a gate is held sees the present, so a relist cures the blindness. `freeze_lists` prevents that: lists
//! then answer from the moment of the freeze. `freeze_cached_reads` does it only for reads with a `resourceVersion`, the
//! ones that a real server may answer from its cache. A get without one is always exact.
//!
//! A gate also injects what goes wrong on a connection: a 410 in the stream, half a line, a broken connection, events
//! told twice. These act on the watches that are open, and panic if none is, since the test would then show nothing:
//! await `watched` first. A 410 as HTTP status, or a watch that never answers, is a fault (`crate::api_server::Effect`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::Value;

use crate::api_server::ApiServer;
use crate::api_server::store::{Change, ObjectKey, State};
use crate::api_server::watch::{Watch, Wire, expired_line, line};

/// How long `Gate::watched` waits, in tokio's time.
const WATCHED: Duration = Duration::from_secs(60);

/// A resource, and the one client the gate is for, or all.
type GateKey = (String, Option<String>);

/// The state of all gates.
#[derive(Default)]
pub(crate) struct Gates {
    gates: BTreeMap<GateKey, GateState>,
}

#[derive(Default)]
struct GateState {
    /// Changes after this version are held back.
    limit: Option<u64>,
    duplicate: bool,
    frozen: Option<Frozen>,
}

struct Frozen {
    snapshot: Snapshot,
    cached_reads_only: bool,
}

/// A resource as it was.
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: BTreeMap<ObjectKey, Arc<Value>>,
}

impl Gates {
    fn of<'a>(&'a self, resource: &str, author: &str) -> impl Iterator<Item = &'a GateState> {
        // The keys cost an allocation each; most tests have no gate.
        if self.gates.is_empty() {
            return [None, None].into_iter().flatten();
        }
        let all = (resource.to_owned(), None);
        let one = (resource.to_owned(), Some(author.to_owned()));
        [self.gates.get(&all), self.gates.get(&one)].into_iter().flatten()
    }

    pub(crate) fn passes(&self, resource: &str, author: &str, revision: u64) -> bool {
        self.of(resource, author)
            .all(|gate| gate.limit.is_none_or(|limit| revision <= limit))
    }

    pub(crate) fn duplicates(&self, resource: &str, author: &str) -> bool {
        self.of(resource, author).any(|gate| gate.duplicate)
    }

    /// What a list sees, if that is not the present.
    pub(crate) fn snapshot(&self, resource: &str, author: &str, from_cache: bool) -> Option<&Snapshot> {
        let frozen = self.of(resource, author).filter_map(|gate| gate.frozen.as_ref());
        frozen
            .filter(|f| from_cache || !f.cached_reads_only)
            .map(|f| &f.snapshot)
            .next()
    }
}

/// The gate of one resource.
#[derive(Clone)]
pub struct Gate {
    server: ApiServer,
    key: GateKey,
}

impl Gate {
    pub(crate) fn new(server: ApiServer, resource: String) -> Self {
        Self {
            server,
            key: (resource, None),
        }
    }

    /// The gate for this client alone (`ApiServer::client_as`). Independent of the gate for all.
    #[must_use]
    pub fn for_client(mut self, author: &str) -> Self {
        self.key.1 = Some(author.to_owned());
        self
    }

    /// Holds back every change from now on. Held already: the mark stays where it was.
    pub fn hold(&self) {
        self.change(|gate, revision| _ = gate.limit.get_or_insert(revision));
    }

    /// Delivers what is held, in order, and lets the rest pass.
    pub fn release(&self) {
        self.change(|gate, _| gate.limit = None);
    }

    /// Delivers the oldest held change and holds the rest. False if nothing was held.
    pub fn release_one(&self) -> bool {
        self.server.write(|state| {
            let next = self.held_changes(state).next().map(|change| change.revision);
            if let Some(revision) = next {
                state.gates.gates.entry(self.key.clone()).or_default().limit = Some(revision);
            }
            next.is_some()
        })
    }

    /// Delivers the held changes in this order and goes on holding. `order` gives positions among the held changes, as
    /// in `held`; a position named twice is delivered twice, one left out is lost. A real server does neither within
    /// one watch, so this is for showing that a cache does not depend on it.
    pub fn release_in_order(&self, order: &[usize]) {
        self.for_watches(|watch, changes, limit| {
            let (passed, held) = changes.split_at(changes.partition_point(|change| change.revision <= limit));
            let held: Vec<&Change> = held.iter().filter(|change| change.resource == self.key.0).collect();
            // What the gate let pass and the watch has not sent yet comes first.
            let due = passed.get(watch.position..).unwrap_or_default().iter();
            let chosen = order.iter().filter_map(|at| held.get(*at).copied());
            let lines: Vec<Wire> = due
                .chain(chosen)
                .filter_map(|change| watch.line(change))
                .map(Wire::Bytes)
                .collect();
            watch.pending.extend(lines);
            watch.position = changes.len();
        });
        self.change(|gate, revision| gate.limit = Some(revision));
    }

    /// The changes that are held, oldest first.
    pub fn held(&self) -> Vec<Change> {
        self.server.read(|state| self.held_changes(state).cloned().collect())
    }

    /// Tells every event twice, until switched off.
    pub fn duplicate(&self, on: bool) {
        self.change(|gate, _| gate.duplicate = on);
    }

    /// Tells the last `count` delivered changes once more: events that are stale by now.
    pub fn redeliver(&self, count: usize) {
        self.for_watches(|watch, changes, _| {
            let told = changes[..watch.position].iter().rev();
            let mut lines: Vec<Wire> = told
                .filter_map(|c| watch.line(c))
                .map(Wire::Bytes)
                .take(count)
                .collect();
            lines.reverse();
            watch.pending.extend(lines);
        });
    }

    /// Lets every list answer from this moment, as well as gets that name a version. Gets without one stay exact.
    pub fn freeze_lists(&self) {
        self.freeze(false);
    }

    /// Lets reads with a `resourceVersion` answer from this moment; lists without one stay exact, as on a real server.
    pub fn freeze_cached_reads(&self) {
        self.freeze(true);
    }

    /// Ends either kind of freeze.
    pub fn thaw(&self) {
        self.change(|gate, _| gate.frozen = None);
    }

    /// Ends the open watches with a 410 as an ERROR event.
    pub fn expire_watches(&self) {
        self.send(&[Wire::Bytes(expired_line()), Wire::End]);
    }

    /// Ends the open watches in the middle of a line.
    pub fn truncate_watches(&self) {
        self.send(&[
            Wire::Bytes(Bytes::from_static(br#"{"type":"MODIFIED","object":{"metad"#)),
            Wire::End,
        ]);
    }

    /// Breaks the connections of the open watches.
    pub fn cut_watches(&self) {
        self.send(&[Wire::Cut]);
    }

    /// Ends the open watches as a server does that is asked to stop.
    pub fn end_watches(&self) {
        self.send(&[Wire::End]);
    }

    /// Sends a made-up event (`ADDED`, `MODIFIED`, `DELETED`, `ERROR`) on the open watches.
    pub fn inject(&self, event: &str, object: &Value) {
        self.send(&[Wire::Bytes(line(event, object))]);
    }

    /// Sends a bookmark on the open watches that asked for bookmarks and have nothing outstanding.
    pub fn bookmark(&self) {
        self.server.write(|state| {
            for id in self.watch_ids(state) {
                if let Some(bookmark) = state.bookmark(id) {
                    state
                        .watches
                        .get_mut(&id)
                        .into_iter()
                        .for_each(|w| w.pending.push_back(bookmark.clone()));
                }
            }
        });
    }

    /// Waits until a watch of the resource is open. A watcher opens its watch when it is polled after its list.
    pub async fn watched(&self) {
        let open = self
            .server
            .wait_until("an open watch", WATCHED, |_| self.open_watches() > 0)
            .await;
        open.unwrap_or_else(|error| panic!("{}: {error}", self.key.0));
    }

    /// How many watches of the resource are open.
    pub fn open_watches(&self) -> usize {
        self.server.read(|state| self.watch_ids(state).len())
    }

    fn freeze(&self, cached_reads_only: bool) {
        self.server.write(|state| {
            let objects = state
                .stored(&self.key.0, None)
                .map(|(key, object)| (key.clone(), Arc::clone(object)))
                .collect();
            let snapshot = Snapshot {
                revision: state.revision,
                objects,
            };
            let gate = state.gates.gates.entry(self.key.clone()).or_default();
            gate.frozen = Some(Frozen {
                snapshot,
                cached_reads_only,
            });
        });
    }

    fn held_changes<'a>(&'a self, state: &'a State) -> impl Iterator<Item = &'a Change> {
        let limit = state.gates.gates.get(&self.key).and_then(|gate| gate.limit);
        let held = limit.map_or(&[][..], |limit| &state.changes[state.after(limit)..]);
        held.iter().filter(|change| change.resource == self.key.0)
    }

    fn watch_ids(&self, state: &State) -> Vec<u64> {
        let ours = |author: &String| self.key.1.as_ref().is_none_or(|a| a == author);
        let open = state
            .watches
            .iter()
            .filter(|(_, watch)| watch.resource == self.key.0 && ours(&watch.author));
        open.map(|(id, _)| *id).collect()
    }

    /// Queues these on the open watches before any change, the gate notwithstanding.
    fn send(&self, wires: &[Wire]) {
        self.for_watches(|watch, _, _| watch.pending.extend(wires.iter().cloned()));
    }

    /// Does something to every open watch, given all changes and the version after which they are held.
    fn for_watches(&self, mut act: impl FnMut(&mut Watch, &[Change], u64)) {
        let open = self.server.write(|state| {
            let ids = self.watch_ids(state);
            let limit = state
                .gates
                .gates
                .get(&self.key)
                .and_then(|gate| gate.limit)
                .unwrap_or(state.revision);
            for id in &ids {
                state
                    .watches
                    .get_mut(id)
                    .into_iter()
                    .for_each(|watch| act(watch, &state.changes, limit));
            }
            ids.len()
        });
        assert!(open > 0, "no watch of {} is open", self.key.0);
    }

    fn change(&self, edit: impl FnOnce(&mut GateState, u64)) {
        self.server
            .write(|state| edit(state.gates.gates.entry(self.key.clone()).or_default(), state.revision));
    }
}
