//! One kind's watch, feeding its index.
//!
//! kube's watcher lists, watches, resumes. This adds what a cache must know of itself: when it may be read, when it no
//! longer may, and what vanished in a relist. Each informer has its own task and its own back-off, so a kind that is
//! forbidden or not served stalls no other.
//!
//! An error has one of three consequences. A broken connection is resumed from the last version, nothing is lost. Where
//! kube would resume without end although the version is gone, the watch begins anew with a list, and the old facts
//! are read meanwhile. After a refusal (403, 404), an answer that cannot be decoded, or a minute of errors, the index is
//! not synced until a list has succeeded.

use std::{
    fmt::Debug,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use appwrapper_api::Rv;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use kube::{
    Api, Client, Resource,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    backoff::Backoff,
    feed::{Feed, State},
    index::{Facts, ObjectName, Sequence, Wake},
    lock::lock,
    observer::{Change, Delivery, Observer, Reason},
    triggers::Triggers,
};

/// How patient an informer is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Limit of one page of a list.
    pub(crate) list: Duration,
    /// How long errors may last until the index is no longer read.
    pub(crate) blind: Duration,
}

/// The task behind a [`Feed`].
pub(crate) struct Informer<F> {
    pub(crate) feed: Arc<Feed<F>>,
    pub(crate) triggers: Triggers,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) sequence: Arc<Sequence>,
    pub(crate) patience: Patience,
    pub(crate) backoff: Mutex<Backoff>,
    /// For its requests; see [`guard`](crate::guard).
    pub(crate) client: Client,
}

/// Opens a watch and lives it until it has to begin anew.
pub(crate) type Life<F> = Box<dyn Fn(Arc<Informer<F>>) -> BoxFuture<'static, Failure> + Send + Sync>;

/// The end of a watch.
#[derive(Debug)]
pub(crate) struct Failure {
    reason: Reason,
    message: String,
    blind: bool,
}

impl Failure {
    /// A failure after which the index may not be read.
    pub(crate) fn blind(reason: Reason, message: String) -> Self {
        Self {
            reason,
            message,
            blind: true,
        }
    }
}

impl<F: Facts + Send + Sync + 'static> Informer<F> {
    /// Watches for ever.
    pub(crate) async fn run(self: Arc<Self>, life: Life<F>) {
        loop {
            // A panic must not leave an index behind that nobody feeds and everybody believes.
            let lived = AssertUnwindSafe(life(Arc::clone(&self))).catch_unwind().await;
            let failure =
                lived.unwrap_or_else(|_| Failure::blind(Reason::Panicked, "the informer panicked".to_owned()));
            if failure.blind && self.feed.turn(State::Failing) {
                self.observer.synced(self.feed.type_ref(), false);
            }
            self.tell(failure.reason, failure.message);
            self.pause().await;
        }
    }

    /// Lists and watches through `api` until something happens that kube's watcher does not recover from.
    pub(crate) async fn live<K>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        project: impl Fn(K) -> Option<(ObjectName, F)> + Send,
    ) -> Failure
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let mut events = pin!(watcher::watcher(api, config));
        // Pages of a list, held back until it is complete, as facts: the objects themselves are dropped at once.
        let mut pages = None;
        let mut begun = (0, Instant::now());
        let mut trouble = Trouble::default();
        loop {
            let next = match &pages {
                Some(_) => timeout(self.patience.list, events.next()).await,
                // Here kube waits for events, with limits of its own and those of `guard`.
                None => Ok(events.next().await),
            };
            let Ok(next) = next else {
                return self.transient(Reason::Timeout, "the list took too long".to_owned(), &mut trouble);
            };
            let Some(event) = next else {
                return Failure::blind(Reason::Connection, "the watch ended".to_owned());
            };
            // `Init` only says that a list is about to be tried.
            if !matches!(event, Ok(Event::Init) | Err(_)) {
                trouble = Trouble::default();
            }
            let wake = match event {
                Ok(Event::Init) => {
                    begun = (self.sequence.next(), Instant::now());
                    pages = Some(Vec::new());
                    continue;
                }
                Ok(Event::InitApply(object)) => {
                    pages.get_or_insert_default().extend(project(object));
                    continue;
                }
                Ok(Event::InitDone) => self.listed(pages.take().unwrap_or_default(), begun),
                Ok(Event::Apply(object)) => self.delivered(Change::Applied, project(object)),
                Ok(Event::Delete(object)) => self.delivered(Change::Deleted, project(object)),
                Err(error) => {
                    pages = None;
                    let (reason, message) = (Reason::of_watch(&error), error.to_string());
                    let consequence = consequence(&error, reason);
                    if consequence == Consequence::Blind {
                        return Failure::blind(reason, message);
                    }
                    let failure = self.transient(reason, message, &mut trouble);
                    if failure.blind || consequence == Consequence::Relist {
                        return failure;
                    }
                    self.tell(failure.reason, failure.message);
                    self.pause().await;
                    continue;
                }
            };
            // Outside every lock, and after the index can be read: whoever is woken finds what woke it.
            self.triggers.send(wake).await;
        }
    }

    fn delivered(&self, change: Change, object: Option<(ObjectName, F)>) -> Wake {
        let Some((name, facts)) = object else {
            return Wake::new();
        };
        let version = facts.version().cloned();
        let mut objects = 0;
        let wake = self.feed.change(|index| {
            let wake = match change {
                Change::Deleted => index.delete(&name, facts),
                _ => index.apply(name.clone(), facts),
            };
            objects = index.len();
            wake
        });
        self.tell_delivery(change, &name, version.as_ref(), objects);
        wake
    }

    fn listed(&self, objects: Vec<(ObjectName, F)>, (begun, started): (u64, Instant)) -> Wake {
        let count = objects.len();
        let delivered: Vec<_> = objects
            .iter()
            .map(|(name, facts)| (name.clone(), facts.version().cloned()))
            .collect();
        let mut turned = false;
        let wake = self.feed.change(|index| {
            let wake = index.reset(objects, begun);
            turned = self.feed.turn_locked(State::Synced);
            wake
        });
        self.observer.relisted(self.feed.type_ref(), count, started.elapsed());
        for (name, version) in &delivered {
            self.tell_delivery(Change::Listed, name, version.as_ref(), count);
        }
        if turned {
            self.observer.synced(self.feed.type_ref(), true);
        }
        wake
    }

    /// An error that may pass: the facts stay readable, unless it has lasted or there never were any.
    fn transient(&self, reason: Reason, message: String, trouble: &mut Trouble) -> Failure {
        let blind = trouble.lasts() >= self.patience.blind;
        let never_read = self.feed.state() != State::Synced;
        if (blind || never_read) && self.feed.turn(State::Failing) {
            self.observer.synced(self.feed.type_ref(), false);
        }
        Failure { reason, message, blind }
    }

    fn tell_delivery(&self, change: Change, name: &ObjectName, version: Option<&Rv>, objects: usize) {
        let delivery = Delivery {
            change,
            namespace: &name.namespace,
            name: &name.name,
            version,
        };
        self.observer.delivered(self.feed.type_ref(), &delivery, objects);
    }

    fn tell(&self, reason: Reason, message: String) {
        tracing::debug!(kind = %self.feed.type_ref(), reason = reason.as_str(), message, "watch failed");
        self.observer.watch_error(self.feed.type_ref(), reason);
        self.feed.failed(reason, message);
    }

    async fn pause(&self) {
        let pause = lock(&self.backoff).pause();
        sleep(pause).await;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Consequence {
    /// kube's watcher goes on from where it was, or lists again by itself.
    Resume,
    /// Begin with a list; the facts at hand are still good.
    Relist,
    /// Begin with a list, and read nothing until then.
    Blind,
}

fn consequence(error: &watcher::Error, reason: Reason) -> Consequence {
    match (error, reason) {
        // An event that could not be decoded is lost, and the watcher would go on as if nothing had happened.
        (_, Reason::Forbidden | Reason::NotServed | Reason::Malformed) => Consequence::Blind,
        // kube knows 410 in the stream and lists again by itself. As an HTTP status kube 4 does not recognise it and
        // would ask for the same version for ever. Any other status in the stream ends the watch in client-go, too.
        (watcher::Error::WatchError(_), reason) if reason != Reason::Expired => Consequence::Relist,
        (watcher::Error::WatchStartFailed(_) | watcher::Error::WatchFailed(_), Reason::Expired) => Consequence::Relist,
        _ => Consequence::Resume,
    }
}

/// A run of errors without an event in between.
#[derive(Debug, Default)]
struct Trouble {
    run: Option<(Instant, Instant)>,
}

/// Errors further apart than this are not one run: a quiet watch that works gives no sign of it.
const APART: Duration = Duration::from_secs(45);

impl Trouble {
    /// Counts an error and says for how long they have been coming.
    fn lasts(&mut self) -> Duration {
        let now = Instant::now();
        let first = match self.run {
            Some((first, last)) if now.duration_since(last) <= APART => first,
            _ => now,
        };
        self.run = Some((first, now));
        now.duration_since(first)
    }
}
