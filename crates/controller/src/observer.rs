//! What the caches tell about themselves, as metrics and log lines.

use std::{sync::Arc, time::Duration};

use appwrapper_api::TypeRef;
use appwrapper_cache_management::{Change, Delivery, LookupOutcome, Observer, Reason};
use appwrapper_metrics::{
    Metrics,
    labels::{Resource, WatchEvent, WatchRestart},
};

/// Feeds the metrics of the caches.
pub struct CacheObserver(pub Arc<Metrics>);

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
        self.0.cache.restart(resource(kind), restart);
        if restart != WatchRestart::Closed {
            tracing::warn!(%kind, reason = reason.as_str(), "a watch failed and is tried again");
        }
    }

    fn watch_started(&self, kind: &TypeRef) {
        self.0.cache.alive(resource(kind));
    }

    fn relisted(&self, kind: &TypeRef, objects: usize, took: Duration) {
        self.0.cache.synced(resource(kind), took);
        tracing::debug!(%kind, objects, ?took, "listed");
    }

    fn synced(&self, kind: &TypeRef, synced: bool) {
        if !synced {
            self.0.cache.unsynced(resource(kind));
            tracing::warn!(%kind, "the cache of this kind is not to be relied on for now");
        }
    }

    fn retired(&self, kind: &TypeRef) {
        self.0.cache.retired(resource(kind));
    }

    fn delivered(&self, kind: &TypeRef, delivery: &Delivery<'_>, objects: usize) {
        let resource = resource(kind);
        let name = format!("{}/{}", delivery.namespace, delivery.name);
        let event = match delivery.change {
            Change::Listed => WatchEvent::Listed,
            Change::Applied => WatchEvent::Applied,
            Change::Deleted => WatchEvent::Deleted,
        };
        self.0.cache.event(resource, event, objects);
        if delivery.change == Change::Deleted {
            self.0.cache.gone(resource, &name);
            self.0.confirm.gone(resource, &name);
        } else {
            self.0.cache.delivered(resource, &name);
        }
        if let Some(version) = delivery.version.and_then(|version| version.as_str().parse().ok()) {
            self.0.cache.version(resource, version);
        }
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
