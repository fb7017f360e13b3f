//! A Kubernetes API server inside the test process.
//!
//! [`ApiServer`] keeps objects of any registered kind as JSON and answers `kube::Client` through a tower service: no
//! socket, no etcd, no sleep of its own, and the same answers in every run, so it works under tokio's paused clock. It
//! speaks the protocol that clients depend on: versions, optimistic locking, status subresources, deletion with
//! finalizers and propagation, selectors, pages, watches, discovery, and real `Status` bodies. It validates no schema,
//! converts no versions and asks nobody for permission.
//!
//! Where to look: `write.rs` and `remove.rs` for what a write does, `collect.rs` for the garbage collector, `read.rs` and
//! `watch.rs` for what clients see, `service.rs` for a request's way, `faults.rs` for spoiled answers, `direct.rs` for
//! what a test does without HTTP, `jobs.rs` for a small Job controller and a kubelet's part. [`crate::gate`] holds back
//! watches.

mod collect;
mod direct;
mod discovery;
mod error;
mod faults;
mod jobs;
mod kinds;
mod object;
mod read;
mod remove;
mod request;
mod selector;
mod service;
pub(crate) mod store;
pub(crate) mod watch;
mod write;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Bytes;
use jiff::Timestamp;
use tokio::sync::watch as signal;
use tower::BoxError;

pub use self::faults::{Effect, Fault, Faults, Match, Moment, Verdict, WriteCall};
pub use self::kinds::ResourceKind;
pub use self::request::{ApiRequest, Verb};
pub use self::service::ApiService;
pub use self::store::Change;
use self::store::State;
use self::watch::Wire;
use crate::gate::Gate;

/// The body of every answer.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// The fake server. Clones are handles to the same server.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// Counts changes of any sort; watches and `wait_until` wake on it.
    changed: signal::Sender<u64>,
    faults: Faults,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl ApiServer {
    /// An empty server with the usual kinds. Its clock starts at the wall clock's time and follows tokio's clock.
    pub fn new() -> Self {
        let inner = Inner {
            state: Mutex::new(State::new()),
            changed: signal::Sender::new(0),
            faults: Faults::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A client that is logged under its User-Agent header, if it sends one.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// A client that is logged under this name.
    pub fn client_as(&self, author: &str) -> kube::Client {
        kube::Client::new(self.service().named(author), "default")
    }

    /// The tower service, to put layers in front of.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.clone())
    }

    /// The rules that spoil answers, and the hooks around writes.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// The gate of a resource, named by id, plural or kind.
    pub fn gate(&self, resource: &str) -> Gate {
        Gate::new(self.clone(), self.kind(resource).id())
    }

    /// Serves one more kind.
    pub fn register(&self, kind: ResourceKind) {
        self.write(|state| state.kinds.add(kind));
    }

    /// Stops serving a kind and ends its watches. Its objects are kept, out of reach, until it is registered again.
    pub fn unregister(&self, resource: &str) {
        let kind = self.kind(resource);
        self.write(|state| {
            state.kinds.remove(&kind.id());
            let open = state.watches.values_mut().filter(|watch| watch.kind == kind);
            open.for_each(|watch| watch.pending.push_back(Wire::End));
        });
    }

    /// The kind of that id, plural or name. Panics if it is not served.
    pub fn kind(&self, resource: &str) -> Arc<ResourceKind> {
        let found = self.read(|state| state.kinds.find(resource));
        found.unwrap_or_else(|| panic!("{resource} is not served"))
    }

    /// The requests since the last reset, in order of arrival.
    pub fn requests(&self) -> Vec<ApiRequest> {
        self.read(|state| state.requests.clone())
    }

    /// How many requests since the last reset match.
    pub fn count(&self, matching: &Match) -> usize {
        self.read(|state| state.requests.iter().filter(|r| matching.holds(r)).count())
    }

    /// Forgets the requests, and lets hooks count writes from 1 again.
    pub fn reset_requests(&self) {
        self.write(|state| state.requests.clear());
        self.inner.faults.reset_writes();
    }

    /// Every change of every object since the server started, by whomever.
    pub fn history(&self) -> Vec<Change> {
        self.read(|state| state.changes.clone())
    }

    /// The version of the last change.
    pub fn revision(&self) -> u64 {
        self.read(|state| state.revision)
    }

    /// Forgets old versions: earlier watches and continue tokens are answered with 410 from now on. Watches that are
    /// open go on.
    pub fn compact(&self) {
        self.write(|state| {
            state.compacted = state.revision;
            state.pages.expire();
        });
    }

    /// Server time.
    pub fn now(&self) -> Timestamp {
        self.read(State::now)
    }

    /// Sets the server's clock, which goes on from there.
    pub fn set_clock(&self, now: Timestamp) {
        self.write(|state| state.set_clock(now));
    }

    /// Whether the garbage collector runs after every change (the default) or only when called.
    pub fn set_auto_collect(&self, on: bool) {
        self.write_quietly(|state| state.auto_collect = on);
    }

    /// Whether a namespace must exist before something is created in it. Off by default.
    pub fn require_namespaces(&self, on: bool) {
        self.write_quietly(|state| state.require_namespaces = on);
    }

    /// Runs the garbage collector until nothing is left to do; returns how many changes it made.
    pub fn collect_garbage(&self) -> usize {
        self.write(State::collect_garbage)
    }

    /// Breaks all watch connections of one client.
    pub fn cut_watches_of(&self, author: &str) {
        self.write(|state| {
            let open = state.watches.values_mut().filter(|watch| watch.author == author);
            open.for_each(|watch| watch.pending.push_back(Wire::Cut));
        });
    }

    /// Waits until something holds that can only change by a request or a change of the server's state. An error if it
    /// does not hold in time; `what` is for its message.
    pub async fn wait_until(
        &self,
        what: &str,
        within: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> anyhow::Result<()> {
        let mut changed = self.changed();
        let waiting = async {
            loop {
                changed.borrow_and_update();
                if holds(self) {
                    return;
                }
                // The sender lives as long as `self`.
                let _ = changed.changed().await;
            }
        };
        let waited = tokio::time::timeout(within, waiting).await;
        waited.map_err(|_| anyhow::anyhow!("not within {within:?}: {what}"))
    }

    pub(crate) fn changed(&self) -> signal::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    pub(crate) fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.lock())
    }

    /// Changes the state and wakes everyone who waits for a change.
    pub(crate) fn write<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let result = {
            let mut state = self.lock();
            let before = state.changes.len();
            let result = f(&mut state);
            if state.auto_collect {
                state.collect_after(before);
            }
            result
        };
        self.inner.changed.send_modify(|count| *count = count.wrapping_add(1));
        result
    }

    /// Changes the state in a way that nobody waits for.
    pub(crate) fn write_quietly<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
