//! What the caches tell about themselves, as metrics and log lines.
//!
//! A replica has caches of several shards, and a metric of a kind is about all of them: objects are added up, and the kind is
//! synced when it is so everywhere.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use appwrapper_api::{AppWrapperKey, TypeRef};
use appwrapper_cache_management::{Change, Delivery, LookupOutcome, Observer, Reason};
use appwrapper_metrics::{
    Metrics,
    labels::{Foreign, Resource, WatchEvent, WatchRestart},
};

use crate::progress::Progress;

/// The caches of all shards of the process, for what is told of them together. Clones are the same.
#[derive(Clone, Default)]
pub struct Totals {
    shares: Arc<Mutex<HashMap<Resource, Shares>>>,
    last: Arc<AtomicU64>,
}

/// What each cache holds, by its observer and the kind; several kinds share the label of those that have none.
#[derive(Default)]
struct Shares {
    caches: HashMap<(u64, TypeRef), Share>,
    version: u64,
}

#[derive(Default)]
struct Share {
    objects: usize,
    unsynced: bool,
}

/// Feeds the metrics of one shard's caches.
pub struct CacheObserver {
    metrics: Arc<Metrics>,
    totals: Totals,
    number: u64,
    progress: Arc<Progress>,
}

impl CacheObserver {
    /// For the caches of one shard. How far they have come is noted in `progress`.
    pub fn new(metrics: Arc<Metrics>, totals: Totals, progress: Arc<Progress>) -> Self {
        let number = totals.last.fetch_add(1, Ordering::SeqCst);
        Self {
            metrics,
            totals,
            number,
            progress,
        }
    }

    fn totals<R>(&self, resource: Resource, f: impl FnOnce(&mut Shares) -> R) -> R {
        let mut shares = self.totals.shares.lock().unwrap_or_else(PoisonError::into_inner);
        f(shares.entry(resource).or_default())
    }

    fn share<R>(&self, kind: &TypeRef, f: impl FnOnce(&mut Share) -> R) -> R {
        self.totals(resource(kind), |shares| {
            f(shares.caches.entry((self.number, kind.clone())).or_default())
        })
    }

    fn objects(&self, resource: Resource) -> usize {
        self.totals(resource, |shares| {
            shares.caches.values().map(|share| share.objects).sum()
        })
    }
}

impl Drop for CacheObserver {
    /// The shard is no longer cached here.
    fn drop(&mut self) {
        let mut all = self.totals.shares.lock().unwrap_or_else(PoisonError::into_inner);
        for (resource, shares) in all.iter_mut() {
            let before = shares.caches.len();
            shares.caches.retain(|(number, _), _| *number != self.number);
            if shares.caches.len() == before {
                continue;
            }
            if shares.caches.is_empty() {
                self.metrics.cache.retired(*resource);
            } else {
                let objects = shares.caches.values().map(|share| share.objects).sum();
                self.metrics.cache.objects(*resource, objects);
            }
        }
    }
}

fn resource(kind: &TypeRef) -> Resource {
    Resource::of_type(&kind.api_version, &kind.kind)
}

impl Observer for CacheObserver {
    fn watch_error(&self, kind: &TypeRef, reason: Reason) {
        let restart = match reason {
            Reason::Expired => WatchRestart::Expired,
            Reason::Timeout => WatchRestart::Timeout,
            Reason::Connection => WatchRestart::Closed,
            _ => WatchRestart::Error,
        };
        self.metrics.cache.restart(resource(kind), restart);
        if restart != WatchRestart::Closed {
            tracing::warn!(%kind, reason = reason.as_str(), "a watch failed and is tried again");
        }
    }

    fn watch_started(&self, kind: &TypeRef) {
        self.metrics.cache.alive(resource(kind));
    }

    fn relisted(&self, kind: &TypeRef, objects: usize, took: Duration) {
        let resource = resource(kind);
        self.share(kind, |share| {
            share.objects = objects;
            share.unsynced = false;
        });
        self.metrics.cache.synced(resource, took);
        self.metrics.cache.objects(resource, self.objects(resource));
        if self.totals(resource, |shares| shares.caches.values().any(|share| share.unsynced)) {
            self.metrics.cache.unsynced(resource);
        }
        tracing::debug!(%kind, objects, ?took, "listed");
    }

    fn synced(&self, kind: &TypeRef, synced: bool) {
        self.share(kind, |share| share.unsynced = !synced);
        if !synced {
            self.metrics.cache.unsynced(resource(kind));
            tracing::warn!(%kind, "the cache of this kind is not to be relied on for now");
        }
    }

    fn retired(&self, kind: &TypeRef) {
        let resource = resource(kind);
        let left = self.totals(resource, |shares| {
            shares.caches.remove(&(self.number, kind.clone()));
            !shares.caches.is_empty()
        });
        if left {
            self.metrics.cache.objects(resource, self.objects(resource));
        } else {
            self.metrics.cache.retired(resource);
        }
    }

    fn delivered(&self, kind: &TypeRef, delivery: &Delivery<'_>, objects: usize) {
        let resource = resource(kind);
        let name = format!("{}/{}", delivery.namespace, delivery.name);
        let event = match delivery.change {
            Change::Listed => WatchEvent::Listed,
            Change::Applied => WatchEvent::Applied,
            Change::Deleted => WatchEvent::Deleted,
        };
        self.share(kind, |share| share.objects = objects);
        self.metrics.cache.event(resource, event, self.objects(resource));
        self.progress
            .delivered(kind, delivery.version.map(appwrapper_api::Rv::as_str));
        if delivery.change == Change::Deleted {
            self.metrics.cache.gone(resource, &name);
            self.metrics.confirm.gone(resource, &name);
        } else {
            self.metrics.cache.delivered(resource, &name);
        }
        if let Some(version) = delivery.version.and_then(|version| version.as_str().parse().ok()) {
            let highest = self.totals(resource, |shares| {
                shares.version = shares.version.max(version);
                shares.version
            });
            self.metrics.cache.version(resource, highest);
        }
    }

    fn stranger(&self, key: &AppWrapperKey) {
        tracing::warn!(appwrapper = %key, "a pod bears the label of an AppWrapper that it does not belong to");
        self.metrics.states.foreign(Foreign::LabelClaim);
    }

    fn lookup(&self, kind: &TypeRef, outcome: LookupOutcome) {
        if let LookupOutcome::Doubt(reason) = outcome {
            let hint = if reason == Reason::Forbidden {
                "; grant the controller get on this kind"
            } else {
                ""
            };
            tracing::warn!(%kind, reason = reason.as_str(), "the owner of a pod cannot be looked up{hint}");
        }
    }
}
