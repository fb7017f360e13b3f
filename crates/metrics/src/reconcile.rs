//! Reconciles and the wait for a permit, under the names that controller-runtime and client-go use.
//!
//! A key waits in [`Waiting`] and runs in [`Running`]; both count by being dropped, so a cancelled run cannot leave a gauge
//! behind. A [`Running`] that is dropped without a result while its thread unwinds is a panic.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use prometheus::{Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::labels::{Controller, ReconcileResult};
use crate::registry::Registry;
use crate::table;

/// Reconcile and queue metrics of all controllers of the process.
#[derive(Clone)]
pub struct Reconcile {
    app_wrapper: Arc<Families>,
    node_monitor: Arc<Families>,
    stale: IntCounter,
    conflicts: IntCounter,
}

/// The metrics of one controller, labels bound.
struct Families {
    results: BTreeMap<ReconcileResult, IntCounter>,
    errors: IntCounter,
    panics: IntCounter,
    time: Histogram,
    active: IntGauge,
    max: IntGauge,
    depth: IntGauge,
    adds: IntCounter,
    wait: Histogram,
    work: Histogram,
    unfinished: Gauge,
    longest: Gauge,
    retries: IntCounter,
    started: Mutex<Started>,
}

/// When each run that has not ended began; the two age gauges are computed from it at a scrape.
#[derive(Default)]
struct Started {
    next: u64,
    at: BTreeMap<u64, Instant>,
}

struct Vecs {
    results: IntCounterVec,
    errors: IntCounterVec,
    panics: IntCounterVec,
    time: HistogramVec,
    active: IntGaugeVec,
    max: IntGaugeVec,
    depth: IntGaugeVec,
    adds: IntCounterVec,
    wait: HistogramVec,
    work: HistogramVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
    retries: IntCounterVec,
}

impl Vecs {
    fn bind(&self, controller: Controller) -> Arc<Families> {
        let one = &[controller.as_str()];
        // The queue has its controller's name; other pairs do not exist, hence `Start::Possible` in the table.
        let pair = &[controller.as_str(), controller.as_str()];
        Arc::new(Families {
            results: ReconcileResult::ALL
                .iter()
                .map(|&result| {
                    (
                        result,
                        self.results.with_label_values(&[controller.as_str(), result.as_str()]),
                    )
                })
                .collect(),
            errors: self.errors.with_label_values(one),
            panics: self.panics.with_label_values(one),
            time: self.time.with_label_values(one),
            active: self.active.with_label_values(one),
            max: self.max.with_label_values(one),
            depth: self.depth.with_label_values(pair),
            adds: self.adds.with_label_values(pair),
            wait: self.wait.with_label_values(pair),
            work: self.work.with_label_values(pair),
            unfinished: self.unfinished.with_label_values(pair),
            longest: self.longest.with_label_values(pair),
            retries: self.retries.with_label_values(pair),
            started: Mutex::default(),
        })
    }
}

impl Reconcile {
    pub(crate) fn new(registry: &Registry) -> Self {
        let vecs = Vecs {
            results: registry.counters(&table::RECONCILES),
            errors: registry.counters(&table::RECONCILE_ERRORS),
            panics: registry.counters(&table::RECONCILE_PANICS),
            time: registry.histograms(&table::RECONCILE_TIME),
            active: registry.gauges(&table::ACTIVE_WORKERS),
            max: registry.gauges(&table::MAX_WORKERS),
            depth: registry.gauges(&table::QUEUE_DEPTH),
            adds: registry.counters(&table::QUEUE_ADDS),
            wait: registry.histograms(&table::QUEUE_DURATION),
            work: registry.histograms(&table::QUEUE_WORK),
            unfinished: registry.float_gauges(&table::QUEUE_UNFINISHED),
            longest: registry.float_gauges(&table::QUEUE_LONGEST),
            retries: registry.counters(&table::QUEUE_RETRIES),
        };
        // Stays at 0: every error of ours is tried again.
        registry.counters(&table::RECONCILE_TERMINAL);
        let this = Self {
            app_wrapper: vecs.bind(Controller::AppWrapper),
            node_monitor: vecs.bind(Controller::NodeMonitor),
            stale: registry.counter(&table::STALE_RUNS),
            conflicts: registry.counter(&table::CONFLICTS),
        };
        let families = [this.app_wrapper.clone(), this.node_monitor.clone()];
        registry.before_scrape(move || families.iter().for_each(|families| families.measure_ages()));
        this
    }

    fn of(&self, controller: Controller) -> &Arc<Families> {
        match controller {
            Controller::AppWrapper => &self.app_wrapper,
            Controller::NodeMonitor => &self.node_monitor,
        }
    }

    /// Sets how many reconciles of `controller` may run at once.
    pub fn set_max_concurrent(&self, controller: Controller, max: usize) {
        self.of(controller).max.set(i64::try_from(max).unwrap_or(i64::MAX));
    }

    /// A key of the AppWrapper controller begins to wait for a permit.
    pub fn waiting(&self) -> Waiting {
        Waiting::new(self.of(Controller::AppWrapper).clone())
    }

    /// A run begins without a wait before it.
    pub fn timer(&self, controller: Controller) -> Running {
        Running::new(self.of(controller).clone())
    }

    /// A run went on with our own last copy, because the cached AppWrapper is older than our own last write.
    pub fn stale(&self) {
        self.stale.inc();
    }

    /// A status patch was refused because the AppWrapper had changed.
    pub fn conflict(&self) {
        self.conflicts.inc();
    }
}

/// A key that waits for a permit. Dropped without [`Waiting::start`], it gave up waiting.
#[must_use]
pub struct Waiting {
    families: Arc<Families>,
    since: Instant,
}

impl Waiting {
    fn new(families: Arc<Families>) -> Self {
        families.adds.inc();
        families.depth.inc();
        Self {
            families,
            since: Instant::now(),
        }
    }

    /// The permit is there: the wait is observed and the run begins.
    pub fn start(self) -> Running {
        self.families.wait.observe(self.since.elapsed().as_secs_f64());
        Running::new(self.families.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.families.depth.dec();
    }
}

/// A run that has not ended yet. Dropped without a result it is cancelled (nothing but its end is counted) or, when the
/// thread unwinds, a panic.
#[must_use]
pub struct Running {
    families: Arc<Families>,
    id: u64,
    since: Instant,
    ended: bool,
}

impl Running {
    fn new(families: Arc<Families>) -> Self {
        let since = Instant::now();
        let id = {
            let mut started = families.started.lock().unwrap_or_else(PoisonError::into_inner);
            started.next += 1;
            let id = started.next;
            started.at.insert(id, since);
            id
        };
        families.active.inc();
        Self {
            families,
            id,
            since,
            ended: false,
        }
    }

    /// The run ended with `result`; an error also counts as an error and as a retry of its key.
    pub fn done(mut self, result: ReconcileResult) {
        self.end(result);
        if result == ReconcileResult::Error {
            self.families.errors.inc();
            self.families.retries.inc();
        }
    }

    /// The run panicked, and the panic was caught.
    pub fn panicked(&self) {
        self.families.panics.inc();
    }

    fn end(&mut self, result: ReconcileResult) {
        self.ended = true;
        let seconds = self.since.elapsed().as_secs_f64();
        self.families.time.observe(seconds);
        self.families.work.observe(seconds);
        if let Some(counter) = self.families.results.get(&result) {
            counter.inc();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.families.active.dec();
        self.families
            .started
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .at
            .remove(&self.id);
        if !self.ended && std::thread::panicking() {
            self.families.panics.inc();
            self.end(ReconcileResult::Error);
        }
    }
}

impl Families {
    fn measure_ages(&self) {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        let ages = started.at.values().map(|since| since.elapsed().as_secs_f64());
        let (sum, longest) = ages.fold((0.0, 0.0), |(sum, longest): (f64, f64), age| {
            (sum + age, longest.max(age))
        });
        self.unfinished.set(sum);
        self.longest.set(longest);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_run_leaves_no_gauge_behind_however_it_ends() {
        let reconcile = Reconcile::new(&Registry::new(1));
        let families = &reconcile.app_wrapper;
        drop(reconcile.waiting());
        drop(reconcile.waiting().start());
        reconcile.waiting().start().done(ReconcileResult::Error);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _running = reconcile.timer(Controller::AppWrapper);
            panic!("the reconcile panics");
        }));
        assert!(panicked.is_err());
        assert_eq!((families.depth.get(), families.active.get()), (0, 0));
        assert_eq!(families.adds.get(), 3);
        assert_eq!(families.wait.get_sample_count(), 2);
        assert_eq!(families.panics.get(), 1);
        assert_eq!(families.errors.get(), 1);
        assert!(families.started.lock().unwrap().at.is_empty());
    }

    #[test]
    fn the_age_of_the_longest_run_grows_until_it_ends() {
        let registry = Registry::new(1);
        let reconcile = Reconcile::new(&registry);
        let running = reconcile.timer(Controller::AppWrapper);
        reconcile
            .app_wrapper
            .started
            .lock()
            .unwrap()
            .at
            .insert(running.id, Instant::now().checked_sub(Duration::from_secs(3)).unwrap());
        registry.encode().unwrap();
        assert!(reconcile.app_wrapper.longest.get() >= 3.0);
        running.done(ReconcileResult::Success);
        registry.encode().unwrap();
        assert!(reconcile.app_wrapper.longest.get() < 0.1);
    }
}
