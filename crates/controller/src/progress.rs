//! How far the watches of a shard have come, by kind: what a hand-over is compared with.
//!
//! A watch delivers a kind in the order of versions, so what has delivered a version has delivered everything before it.
//! Told of an event only after the cache can be read, so an open barrier means a cache that is new enough.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use appwrapper_coordination::shards::{Barrier, Handover};

/// The highest versions delivered.
#[derive(Debug, Default)]
pub struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    high: BTreeMap<String, u128>,
    barrier: Option<Barrier>,
}

impl Progress {
    /// A watch has delivered an object of this version.
    pub fn delivered(&self, kind: &(impl ToString + ?Sized), version: Option<&str>) {
        let Some(version) = version.and_then(|version| version.parse().ok()) else {
            return;
        };
        let kind = kind.to_string();
        let mut state = self.state();
        if let Some(barrier) = &state.barrier {
            barrier.reached(&kind, version);
        }
        let high = state.high.entry(kind).or_default();
        *high = version.max(*high);
    }

    /// Everything delivered so far, as a word to the next holder.
    pub fn as_handover(&self) -> Handover {
        let mut handover = Handover::default();
        for (kind, version) in &self.state().high {
            handover.wrote(kind, &version.to_string());
        }
        handover
    }

    /// A barrier for what the last holder left. A kind that is not `watched` yet holds nothing up: its first list is yet to
    /// come, and shows everything written before.
    pub fn barrier(&self, left: &Handover, watched: impl Fn(&str) -> bool) -> Barrier {
        let barrier = Barrier::new(left);
        let mut state = self.state();
        for kind in left.kinds() {
            let high = state.high.get(kind).copied().unwrap_or_default();
            barrier.reached(kind, if watched(kind) { high } else { u128::MAX });
        }
        state.barrier = Some(barrier.clone());
        barrier
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_barrier_counts_what_was_delivered_before_it_and_after() {
        let mut left = Handover::default();
        for (kind, version) in [("AppWrapper", "10"), ("Job", "12"), ("Pod", "3")] {
            left.wrote(kind, version);
        }
        let progress = Progress::default();
        progress.delivered("AppWrapper", Some("11"));
        progress.delivered("Job", Some("11"));
        let barrier = progress.barrier(&left, |kind| kind != "Pod");
        assert!(!barrier.is_open());
        progress.delivered("Job", Some("not a number"));
        progress.delivered("Job", Some("12"));
        assert!(barrier.is_open());
        assert_eq!(progress.as_handover().version("Job"), Some(12));
    }
}
