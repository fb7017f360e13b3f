//! What the caches hold and how far they are behind.

use std::time::{Duration, SystemTime};

use prometheus::{GaugeVec, Histogram, IntCounterVec, IntGaugeVec};

use crate::confirm::{Confirm, unix_seconds};
use crate::labels::{Resource, WatchEvent, WatchRestart};
use crate::lag::Lag;
use crate::registry::Registry;
use crate::table;

/// Watches and caches.
#[derive(Clone)]
pub struct Cache {
    synced: IntGaugeVec,
    objects: IntGaugeVec,
    last_event: GaugeVec,
    version: GaugeVec,
    events: IntCounterVec,
    restarts: IntCounterVec,
    list: Histogram,
    own_writes: Lag,
    confirm: Confirm,
}

impl Cache {
    pub(crate) fn new(registry: &Registry, confirm: Confirm) -> Self {
        Self {
            synced: registry.gauges(&table::CACHE_SYNCED),
            objects: registry.gauges(&table::CACHE_OBJECTS),
            last_event: registry.float_gauges(&table::CACHE_LAST_EVENT),
            version: registry.float_gauges(&table::CACHE_VERSION),
            events: registry.counters(&table::WATCH_EVENTS),
            restarts: registry.counters(&table::WATCH_RESTARTS),
            list: registry.histogram(&table::WATCH_LIST),
            own_writes: Lag::new(registry.histograms(&table::WRITE_TO_WATCH)),
            confirm,
        }
    }

    /// A watch delivered something; also its sign of life. `objects` is what the cache holds now.
    pub fn event(&self, resource: Resource, event: WatchEvent, objects: usize) {
        self.events
            .with_label_values(&[resource.as_str(), event.as_str()])
            .inc();
        self.objects(resource, objects);
        self.alive(resource);
    }

    /// What the caches hold now.
    pub fn objects(&self, resource: Resource, objects: usize) {
        self.objects
            .with_label_values(&[resource.as_str()])
            .set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// A sign of life without an event.
    pub fn alive(&self, resource: Resource) {
        self.last_event
            .with_label_values(&[resource.as_str()])
            .set(unix_seconds(SystemTime::now()));
    }

    /// A watch began anew: a sign of life unless it failed, since a closed or expired watch is how an idle one goes on.
    pub fn restart(&self, resource: Resource, reason: WatchRestart) {
        self.restarts
            .with_label_values(&[resource.as_str(), reason.as_str()])
            .inc();
        if matches!(reason, WatchRestart::Closed | WatchRestart::Expired) {
            self.alive(resource);
        }
    }

    /// The cache has its first complete list (`took` for it), or has lost it.
    pub fn synced(&self, resource: Resource, took: Duration) {
        self.synced.with_label_values(&[resource.as_str()]).set(1);
        self.list.observe(took.as_secs_f64());
    }

    /// The cache has no complete list (yet, or again).
    pub fn unsynced(&self, resource: Resource) {
        self.synced.with_label_values(&[resource.as_str()]).set(0);
    }

    /// The watch was ended on purpose: its gauges go, so that nobody is warned of a cache that is not run.
    pub fn retired(&self, resource: Resource) {
        let values = &[resource.as_str()];
        // Errors say that the series was not there.
        drop(self.synced.remove_label_values(values));
        drop(self.objects.remove_label_values(values));
        drop(self.last_event.remove_label_values(values));
        drop(self.version.remove_label_values(values));
    }

    /// Highest resource version seen. Exact up to 2^53, as all numbers of Prometheus.
    #[expect(clippy::cast_precision_loss, reason = "the exposition has no other numbers")]
    pub fn version(&self, resource: Resource, version: u64) {
        self.version.with_label_values(&[resource.as_str()]).set(version as f64);
    }

    /// Wraps a create of the component `namespace/name`: `let write = cache.writing(…)`, send, then [`Write::answered`] if
    /// it was created. Dropped without, there is no lag to measure.
    pub fn writing(&self, resource: Resource, component: &str) -> Write {
        let resource = resource.component();
        self.own_writes.sent(resource, component);
        Write {
            own_writes: self.own_writes.clone(),
            resource,
            component: component.to_owned(),
            answered: false,
        }
    }

    /// The watch delivered the component `namespace/name`: ends the measurement of lag and of catching up.
    pub fn delivered(&self, resource: Resource, component: &str) {
        let resource = resource.component();
        self.own_writes.shown(resource, component);
        self.confirm.shown(resource, component);
    }

    /// The component was deleted, by us or as the watch tells: nothing is waited for.
    pub fn gone(&self, resource: Resource, component: &str) {
        self.own_writes.forget(resource.component(), component);
        self.confirm.gone(resource, component);
    }
}

/// A create on its way to the API server.
#[must_use]
pub struct Write {
    own_writes: Lag,
    resource: Resource,
    component: String,
    answered: bool,
}

impl Write {
    /// The API server created the object: from here the watch has to deliver it.
    pub fn answered(mut self) {
        self.answered = true;
        self.own_writes.answered(self.resource, &self.component);
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if !self.answered {
            self.own_writes.forget(self.resource, &self.component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::IntGauge;

    fn cache() -> (Registry, Cache) {
        let registry = Registry::new(1);
        let confirm = Confirm::new(&registry, IntGauge::new("g", "g").unwrap(), 10, Duration::ZERO);
        let cache = Cache::new(&registry, confirm);
        (registry, cache)
    }

    #[test]
    fn only_an_answered_create_that_is_delivered_is_a_lag() {
        let (registry, cache) = cache();
        drop(cache.writing(Resource::Jobs, "a/refused"));
        cache.delivered(Resource::Jobs, "a/refused");
        cache.writing(Resource::Jobs, "a/created").answered();
        cache.delivered(Resource::Jobs, "a/created");
        let page = registry.encode().unwrap();
        assert!(page.contains("appwrapper_write_to_watch_seconds_count{resource=\"jobs.batch\"} 1\n"));
    }

    #[test]
    fn a_retired_cache_leaves_no_gauge_that_grows_old() {
        let (registry, cache) = cache();
        cache.synced(Resource::RayJobs, Duration::from_secs(1));
        cache.event(Resource::RayJobs, WatchEvent::Applied, 3);
        assert!(
            registry
                .encode()
                .unwrap()
                .contains("appwrapper_cache_objects{resource=\"rayjobs.ray.io\"} 3\n")
        );
        cache.retired(Resource::RayJobs);
        let page = registry.encode().unwrap();
        assert!(!page.contains("appwrapper_cache_last_event_timestamp_seconds{"));
        assert!(!page.contains("appwrapper_cache_synced{"));
    }
}
