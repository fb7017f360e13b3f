//! A counter with a namespace label, bounded.
//!
//! Namespaces are the only label values that users choose. Each counter accepts a fixed number of them (or of namespace and
//! further labels together); what comes later is counted under [`OVERFLOW`], so that sums stay right, and a gauge tells how
//! many namespaces were folded.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{IntCounterVec, IntGauge};

/// Value of the namespace label beyond the cap. No namespace can have this name: an underscore is not allowed there.
pub const OVERFLOW: &str = "_overflow";

/// How many folded namespaces are told apart; beyond that the gauge stays where it is.
const FOLDED_LIMIT: usize = 10_000;

/// A counter family whose first label is a namespace.
#[derive(Clone)]
pub(crate) struct Capped {
    counters: IntCounterVec,
    folded: IntGauge,
    cap: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    admitted: HashSet<String>,
    /// Hashes only: a user who makes namespaces without end must not fill our memory.
    folded: HashSet<u64>,
    hasher: RandomState,
}

impl Capped {
    /// `cap` bounds the distinct values of what [`Self::inc`] is given as `key`.
    pub(crate) fn new(counters: IntCounterVec, folded: IntGauge, cap: usize) -> Self {
        Self {
            counters,
            folded,
            cap,
            state: Arc::default(),
        }
    }

    /// Counts one event. `per_series` makes the cap apply to namespace and `rest` together, for labels with many values.
    pub(crate) fn inc(&self, namespace: &str, rest: &str, per_series: bool) {
        let namespace = if self.admit(namespace, if per_series { rest } else { "" }) {
            namespace
        } else {
            OVERFLOW
        };
        self.counters.with_label_values(&[namespace, rest]).inc();
    }

    fn admit(&self, namespace: &str, rest: &str) -> bool {
        let mut key = String::with_capacity(namespace.len() + rest.len() + 1);
        key.push_str(namespace);
        key.push('/');
        key.push_str(rest);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.admitted.contains(&key) {
            return true;
        }
        if state.admitted.len() < self.cap {
            state.admitted.insert(key);
            return true;
        }
        let hash = state.hasher.hash_one(namespace);
        if state.folded.len() < FOLDED_LIMIT && state.folded.insert(hash) {
            self.folded.set(i64::try_from(state.folded.len()).unwrap_or(i64::MAX));
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Opts;

    fn capped(cap: usize) -> Capped {
        let counters = IntCounterVec::new(Opts::new("c", "c"), &["namespace", "reason"]).unwrap();
        Capped::new(counters, IntGauge::new("g", "g").unwrap(), cap)
    }

    #[test]
    fn namespaces_beyond_the_cap_are_folded_and_counted() {
        let capped = capped(2);
        for namespace in ["a", "b", "c", "d", "a", "c"] {
            capped.inc(namespace, "x", false);
        }
        assert_eq!(capped.counters.with_label_values(&["a", "x"]).get(), 2);
        assert_eq!(capped.counters.with_label_values(&["b", "x"]).get(), 1);
        assert_eq!(capped.counters.with_label_values(&[OVERFLOW, "x"]).get(), 3);
        assert_eq!(capped.folded.get(), 2);
    }

    #[test]
    fn a_cap_per_series_counts_every_combination() {
        let capped = capped(2);
        for reason in ["x", "y", "z"] {
            capped.inc("a", reason, true);
        }
        assert_eq!(capped.counters.with_label_values(&["a", "y"]).get(), 1);
        assert_eq!(capped.counters.with_label_values(&[OVERFLOW, "z"]).get(), 1);
    }

    #[test]
    fn an_admitted_namespace_keeps_its_series_with_new_values() {
        let capped = capped(1);
        capped.inc("a", "x", false);
        capped.inc("a", "y", false);
        assert_eq!(capped.counters.with_label_values(&["a", "y"]).get(), 1);
        assert_eq!(capped.folded.get(), 0);
    }
}
