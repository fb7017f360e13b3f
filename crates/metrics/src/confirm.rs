//! Was it really missing? The figures of the uncached confirmation.
//!
//! [`Confirm::outcome`] counts reads, not objects: one AppWrapper can survive several races. [`Confirm::unconfirmed`] is the
//! tripwire: it is called where a verdict without a confirming read would pass, and must never be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus::{Gauge, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::capped::Capped;
use crate::labels::{Cached, Outcome, Resource};
use crate::lag::Lag;
use crate::registry::Registry;
use crate::table;

/// Confirmations of missing components.
#[derive(Clone)]
pub struct Confirm {
    cached_reads: IntCounterVec,
    outcomes: IntCounterVec,
    duration: HistogramVec,
    verdicts: Capped,
    unconfirmed: IntCounter,
    catch_up: Lag,
    /// AppWrapper (`namespace/name`) to the time its verdict was opened.
    open: Arc<Mutex<HashMap<String, SystemTime>>>,
}

impl Confirm {
    pub(crate) fn new(registry: &Registry, folded: IntGauge, cap: usize, divergence: Duration) -> Self {
        let this = Self {
            cached_reads: registry.counters(&table::CACHED_READS),
            outcomes: registry.counters(&table::CONFIRMATIONS),
            duration: registry.histograms(&table::CONFIRMATION_DURATION),
            verdicts: Capped::new(registry.counters(&table::VERDICTS), folded, cap),
            unconfirmed: registry.counter(&table::UNCONFIRMED_VERDICTS),
            catch_up: Lag::new(registry.histograms(&table::CACHE_CATCHUP)),
            open: Arc::default(),
        };
        let pending = registry.gauge(&table::CONFIRMATIONS_PENDING);
        let oldest = registry.float_gauge(&table::CONFIRMATION_OLDEST);
        let divergent = registry.gauges(&table::DIVERGENT);
        let confirm = this.clone();
        registry.before_scrape(move || confirm.measure(&pending, &oldest, &divergent, divergence));
        this
    }

    /// A cached read of one component.
    pub fn cached_read(&self, resource: Resource, result: Cached) {
        self.cached_reads
            .with_label_values(&[resource.component().as_str(), result.as_str()])
            .inc();
    }

    /// An uncached read of one component ended; for [`Outcome::Deferred`] the duration is not observed, as there was none.
    pub fn outcome(&self, resource: Resource, outcome: Outcome, duration: Duration) {
        self.outcomes
            .with_label_values(&[resource.component().as_str(), outcome.as_str()])
            .inc();
        if outcome != Outcome::Deferred {
            self.duration
                .with_label_values(&[outcome.as_str()])
                .observe(duration.as_secs_f64());
        }
    }

    /// A race was survived: the component `namespace/name` is live, and the cache has to show it. Call it in addition to
    /// [`Self::outcome`].
    pub fn live(&self, resource: Resource, component: &str) {
        self.catch_up.known(resource.component(), component);
    }

    /// The cache shows the component.
    pub(crate) fn shown(&self, resource: Resource, component: &str) {
        self.catch_up.shown(resource.component(), component);
    }

    /// The component was deleted: the cache need not catch up any more.
    pub fn gone(&self, resource: Resource, component: &str) {
        self.catch_up.forget(resource.component(), component);
    }

    /// The verdict on an AppWrapper (`namespace/name`) waits for uncached reads. Idempotent: the first time counts.
    pub fn open(&self, app_wrapper: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.entry(app_wrapper.to_owned()).or_insert_with(SystemTime::now);
    }

    /// The verdict is there, or the AppWrapper is gone. A call for one that is not open does nothing.
    pub fn close(&self, app_wrapper: &str) {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(app_wrapper);
    }

    /// Closes all open verdicts except those that `keep` names: at the end of a tenure they are another replica's.
    pub fn retain(&self, mut keep: impl FnMut(&str) -> bool) {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|key, _| keep(key));
    }

    /// An AppWrapper of `namespace` was found unhealthy, because uncached reads agreed that a component of `resource` is gone.
    pub fn verdict(&self, namespace: &str, resource: Resource) {
        self.verdicts.inc(namespace, resource.component().as_str(), true);
    }

    /// The tripwire: an attempt at such a verdict without an uncached read.
    pub fn unconfirmed(&self) {
        self.unconfirmed.inc();
    }

    fn measure(&self, pending: &IntGauge, oldest: &Gauge, divergent: &IntGaugeVec, limit: Duration) {
        {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            pending.set(i64::try_from(open.len()).unwrap_or(i64::MAX));
            oldest.set(open.values().min().map_or(0.0, |since| unix_seconds(*since)));
        }
        let overdue = self.catch_up.overdue(limit);
        for resource in Resource::ALL
            .iter()
            .filter(|resource| resource.component() == **resource)
        {
            let count = overdue.get(resource).copied().unwrap_or_default();
            divergent.with_label_values(&[resource.as_str()]).set(count);
        }
    }
}

pub(crate) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confirm() -> (Registry, Confirm) {
        let registry = Registry::new(1);
        let confirm = Confirm::new(&registry, IntGauge::new("g", "g").unwrap(), 10, Duration::ZERO);
        (registry, confirm)
    }

    fn value(registry: &Registry, series: &str) -> f64 {
        let page = registry.encode().unwrap();
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{series} ")))
            .expect(series);
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn a_verdict_is_pending_from_the_first_question_to_the_answer() {
        let (registry, confirm) = confirm();
        let oldest = "appwrapper_component_confirmation_oldest_pending_timestamp_seconds";
        assert!(value(&registry, oldest) < 1.0);
        confirm.open("a/b");
        let first = value(&registry, oldest);
        confirm.open("a/b");
        assert!((value(&registry, oldest) - first).abs() < f64::EPSILON);
        confirm.open("a/c");
        assert!((value(&registry, "appwrapper_component_confirmations_pending") - 2.0).abs() < f64::EPSILON);
        confirm.close("a/b");
        confirm.retain(|_| false);
        assert!(value(&registry, "appwrapper_component_confirmations_pending") < 1.0);
        assert!(value(&registry, oldest) < 1.0);
    }

    #[test]
    fn a_live_component_that_stays_out_of_the_cache_is_divergent() {
        let (registry, confirm) = confirm();
        let series = "appwrapper_cache_divergent_components{resource=\"jobs.batch\"}";
        confirm.live(Resource::Jobs, "a/b");
        assert!((value(&registry, series) - 1.0).abs() < f64::EPSILON);
        confirm.shown(Resource::Jobs, "a/b");
        assert!(value(&registry, series) < 1.0);
        assert!(
            (value(
                &registry,
                "appwrapper_cache_catchup_seconds_count{resource=\"jobs.batch\"}"
            ) - 1.0)
                .abs()
                < 0.1
        );
    }

    #[test]
    fn a_deferred_read_has_no_duration() {
        let (registry, confirm) = confirm();
        confirm.outcome(Resource::Jobs, Outcome::Deferred, Duration::from_secs(1));
        let count = "appwrapper_component_confirmation_duration_seconds_count{outcome=\"deferred\"}";
        assert!(value(&registry, count) < 1.0);
    }
}
