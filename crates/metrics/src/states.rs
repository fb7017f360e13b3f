//! What became of AppWrappers: phases, retries, failures, operations on components.
//!
//! [`States::observe`] is told the phase of an AppWrapper and since when it has it; the rest follows: gauges, ages, time spent
//! in the phase that was left. Since the times come from the object's conditions, a restarted controller reports the same
//! ages.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use prometheus::{GaugeVec, Histogram, HistogramVec, IntCounterVec, IntGaugeVec};

use crate::capped::Capped;
use crate::confirm::unix_seconds;
use crate::labels::{CappedMetric, Forced, Foreign, Operation, OperationResult, Phase, Reason, Resource};
use crate::registry::Registry;
use crate::table;

/// States of AppWrappers, and what was done for them.
#[derive(Clone)]
pub struct States {
    entered: Capped,
    failures: Capped,
    retries: IntCounterVec,
    operations: IntCounterVec,
    forced: IntCounterVec,
    foreign: IntCounterVec,
    phase_duration: HistogramVec,
    to_running: Histogram,
    allowance: GaugeVec,
    known: Arc<Mutex<HashMap<String, State>>>,
    owned: Arc<Mutex<BTreeSet<u32>>>,
}

#[derive(Clone, Copy)]
struct State {
    shard: u32,
    phase: Phase,
    since: SystemTime,
}

impl States {
    pub(crate) fn new(registry: &Registry, folded: &IntGaugeVec, cap: usize) -> Self {
        let fold = |metric: CappedMetric| folded.with_label_values(&[metric.as_str()]);
        let this = Self {
            entered: Capped::new(registry.counters(&table::PHASE_TOTAL), fold(CappedMetric::Phase), cap),
            failures: Capped::new(registry.counters(&table::FAILURES), fold(CappedMetric::Failures), cap),
            retries: registry.counters(&table::RETRIES),
            operations: registry.counters(&table::OPERATIONS),
            forced: registry.counters(&table::FORCED_DELETIONS),
            foreign: registry.counters(&table::FOREIGN),
            phase_duration: registry.histograms(&table::PHASE_DURATION),
            to_running: registry.histogram(&table::SUBMIT_TO_RUNNING),
            allowance: registry.float_gauges(&table::PHASE_ALLOWANCE),
            known: Arc::default(),
            owned: Arc::default(),
        };
        let by_phase = registry.gauges(&table::APPWRAPPERS);
        let oldest = registry.float_gauges(&table::PHASE_OLDEST);
        let by_shard = registry.gauges(&table::SHARD_APPWRAPPERS);
        let states = this.clone();
        registry.before_scrape(move || states.measure(&by_phase, &oldest, &by_shard));
        this
    }

    /// A status patch moved an AppWrapper of `namespace` into `phase`. As upstream counts it: neither the empty phase nor
    /// `Terminating` is a transition.
    pub fn entered(&self, namespace: &str, phase: Phase) {
        if !matches!(phase, Phase::Empty | Phase::Terminating) {
            self.entered.inc(namespace, phase.as_str(), false);
        }
    }

    /// The AppWrapper `key` (`namespace/name`) of `shard` is in `phase` since `since`. Say so at each reconcile; a change of
    /// phase observes the time spent in the one before.
    pub fn observe(&self, key: &str, shard: u32, phase: Phase, since: SystemTime) {
        let now = State { shard, phase, since };
        let before = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            match known.get_mut(key) {
                Some(state) => Some(std::mem::replace(state, now)),
                None => known.insert(key.to_owned(), now),
            }
        };
        if let Some(before) = before.filter(|before| before.phase != phase) {
            self.left(before, since);
        }
    }

    /// The AppWrapper is gone from the cluster.
    pub fn forget(&self, key: &str) {
        let before = self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(before) = before {
            self.left(before, SystemTime::now());
        }
    }

    /// This replica reports the AppWrappers of `shard` from now on, even if there are none.
    pub fn own_shard(&self, shard: u32) {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner).insert(shard);
    }

    /// The shard is another replica's now, which reports its AppWrappers.
    pub fn forget_shard(&self, shard: u32) {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner).remove(&shard);
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|_, state| state.shard != shard);
    }

    /// An AppWrapper runs for the first time, this long after its creation.
    pub fn first_running(&self, after: Duration) {
        self.to_running.observe(after.as_secs_f64());
    }

    /// An AppWrapper is reset and will be tried again.
    pub fn retry(&self, reason: Reason) {
        self.retries.with_label_values(&[reason.as_str()]).inc();
    }

    /// An AppWrapper of `namespace` ended in `Failed`.
    pub fn failure(&self, namespace: &str, reason: Reason) {
        self.failures.inc(namespace, reason.as_str(), true);
    }

    /// A create or delete of a component ended.
    pub fn operation(&self, operation: Operation, resource: Resource, result: OperationResult) {
        let resource = resource.component();
        self.operations
            .with_label_values(&[operation.as_str(), resource.as_str(), result.as_str()])
            .inc();
    }

    /// An object was deleted without grace.
    pub fn forced_deletion(&self, kind: Forced) {
        self.forced.with_label_values(&[kind.as_str()]).inc();
    }

    /// An object claimed to belong to an AppWrapper and does not.
    pub fn foreign(&self, reason: Foreign) {
        self.foreign.with_label_values(&[reason.as_str()]).inc();
    }

    /// Sets how long an AppWrapper may stay in `phase`, which the alert on stuck phases adds its margin to.
    pub fn set_allowance(&self, phase: Phase, allowance: Duration) {
        self.allowance
            .with_label_values(&[phase.as_str()])
            .set(allowance.as_secs_f64());
    }

    fn left(&self, before: State, at: SystemTime) {
        // Clocks differ and conditions have whole seconds: a time before the entry is no time at all.
        let spent = at.duration_since(before.since).unwrap_or_default();
        self.phase_duration
            .with_label_values(&[before.phase.as_str()])
            .observe(spent.as_secs_f64());
    }

    fn measure(&self, by_phase: &IntGaugeVec, oldest: &GaugeVec, by_shard: &IntGaugeVec) {
        let mut phases: HashMap<Phase, (i64, SystemTime)> = HashMap::new();
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut shards: HashMap<u32, i64> = owned.into_iter().map(|shard| (shard, 0)).collect();
        for state in self.known.lock().unwrap_or_else(PoisonError::into_inner).values() {
            let (count, first) = phases.entry(state.phase).or_insert((0, state.since));
            *count += 1;
            *first = state.since.min(*first);
            *shards.entry(state.shard).or_default() += 1;
        }
        for phase in Phase::ALL {
            let found = phases.get(phase);
            by_phase
                .with_label_values(&[phase.as_str()])
                .set(found.map_or(0, |(count, _)| *count));
            match found {
                Some((_, first)) => oldest.with_label_values(&[phase.as_str()]).set(unix_seconds(*first)),
                // An age of something that does not exist would be decades.
                None => drop(oldest.remove_label_values(&[phase.as_str()])),
            }
        }
        by_shard.reset();
        for (shard, count) in shards {
            by_shard.with_label_values(&[shard.to_string()]).set(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> (Registry, States) {
        let registry = Registry::new(4);
        let folded = registry.gauges(&table::FOLDED);
        let states = States::new(&registry, &folded, 10);
        (registry, states)
    }

    #[test]
    fn a_change_of_phase_observes_the_one_that_was_left() {
        let (registry, states) = states();
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        states.observe("a/b", 1, Phase::Resuming, start);
        states.observe("a/b", 1, Phase::Resuming, start);
        states.observe("a/b", 1, Phase::Running, start + Duration::from_secs(7));
        let page = registry.encode().unwrap();
        assert!(page.contains("appwrapper_phase_duration_seconds_sum{phase=\"Resuming\"} 7\n"));
        assert!(page.contains("appwrapper_phase_duration_seconds_count{phase=\"Resuming\"} 1\n"));
        assert!(page.contains("appwrapper_appwrappers{phase=\"Running\"} 1\n"));
        assert!(page.contains("appwrapper_phase_oldest_entry_timestamp_seconds{phase=\"Running\"} 1007\n"));
        assert!(!page.contains("appwrapper_phase_oldest_entry_timestamp_seconds{phase=\"Resuming\"}"));
        assert!(page.contains("appwrapper_shard_appwrappers{shard=\"1\"} 1\n"));
    }

    #[test]
    fn a_lost_shard_takes_its_appwrappers_along_without_an_observation() {
        let (registry, states) = states();
        states.observe("a/b", 1, Phase::Running, SystemTime::now());
        states.own_shard(2);
        states.forget_shard(1);
        let page = registry.encode().unwrap();
        assert!(page.contains("appwrapper_appwrappers{phase=\"Running\"} 0\n"));
        assert!(page.contains("appwrapper_shard_appwrappers{shard=\"2\"} 0\n"));
        assert!(!page.contains("appwrapper_shard_appwrappers{shard=\"1\"}"));
        assert!(page.contains("appwrapper_phase_duration_seconds_count{phase=\"Running\"} 0\n"));
    }

    #[test]
    fn terminating_is_no_transition() {
        let (registry, states) = states();
        states.entered("a", Phase::Terminating);
        states.entered("a", Phase::Suspended);
        let page = registry.encode().unwrap();
        assert!(page.contains("appwrapper_phase_total{namespace=\"a\",phase=\"Suspended\"} 1\n"));
        assert!(!page.contains("phase_total{namespace=\"a\",phase=\"Terminating\"}"));
    }
}
