//! How long until a cache shows what is known to exist.
//!
//! Two uses: from the answer to our own create (`cache.rs`), and from an uncached read that found what the cache did not
//! (`confirm.rs`). Keys are `namespace/name`. The map is bounded: an object that never shows up must not cost memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::HistogramVec;

use crate::labels::Resource;

/// Objects waited for at once; more are not measured.
const LIMIT: usize = 20_000;

/// Objects that a cache has yet to show.
#[derive(Clone)]
pub(crate) struct Lag {
    observed: HistogramVec,
    open: Arc<Mutex<HashMap<(Resource, String), Since>>>,
}

#[derive(Clone, Copy)]
enum Since {
    /// The create is on its way: if the watch is quicker than the answer, the lag is 0.
    Sent,
    Known(Instant),
}

impl Lag {
    pub(crate) fn new(observed: HistogramVec) -> Self {
        Self {
            observed,
            open: Arc::default(),
        }
    }

    /// The create is about to be sent.
    pub(crate) fn sent(&self, resource: Resource, key: &str) {
        self.put(resource, key, Since::Sent);
    }

    /// The object exists from now on. Keeps the earlier time if it was known before.
    pub(crate) fn known(&self, resource: Resource, key: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&(resource, key.to_owned())) {
            Some(Since::Known(_)) => {}
            Some(since) => *since = Since::Known(Instant::now()),
            None => {
                drop(open);
                self.put(resource, key, Since::Known(Instant::now()));
            }
        }
    }

    /// The answer to a create arrived. Nothing is left to wait for if the watch was quicker.
    pub(crate) fn answered(&self, resource: Resource, key: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since @ Since::Sent) = open.get_mut(&(resource, key.to_owned())) {
            *since = Since::Known(Instant::now());
        }
    }

    /// The cache shows the object.
    pub(crate) fn shown(&self, resource: Resource, key: &str) {
        let Some(since) = self.take(resource, key) else { return };
        let lag = match since {
            Since::Sent => Duration::ZERO,
            Since::Known(since) => since.elapsed(),
        };
        self.observed
            .with_label_values(&[resource.as_str()])
            .observe(lag.as_secs_f64());
    }

    /// The object is gone, or was never made: nothing to wait for.
    pub(crate) fn forget(&self, resource: Resource, key: &str) {
        self.take(resource, key);
    }

    /// How many objects of each resource have been waited for longer than `limit`.
    pub(crate) fn overdue(&self, limit: Duration) -> HashMap<Resource, i64> {
        let mut overdue = HashMap::new();
        for ((resource, _), since) in self.open.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if matches!(since, Since::Known(since) if since.elapsed() > limit) {
                *overdue.entry(*resource).or_default() += 1;
            }
        }
        overdue
    }

    fn put(&self, resource: Resource, key: &str, since: Since) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() < LIMIT {
            open.insert((resource, key.to_owned()), since);
        }
    }

    fn take(&self, resource: Resource, key: &str) -> Option<Since> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Most events find nothing waited for: spare them the key.
        if open.is_empty() {
            None
        } else {
            open.remove(&(resource, key.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::HistogramOpts;

    fn lag() -> Lag {
        Lag::new(HistogramVec::new(HistogramOpts::new("h", "h"), &["resource"]).unwrap())
    }

    fn observed(lag: &Lag) -> (u64, f64) {
        let histogram = lag.observed.with_label_values(&[Resource::Jobs.as_str()]);
        (histogram.get_sample_count(), histogram.get_sample_sum())
    }

    #[test]
    fn a_watch_that_is_quicker_than_the_answer_has_no_lag() {
        let lag = lag();
        lag.sent(Resource::Jobs, "a/b");
        lag.shown(Resource::Jobs, "a/b");
        lag.answered(Resource::Jobs, "a/b");
        let (count, sum) = observed(&lag);
        assert_eq!(count, 1);
        assert!(sum < f64::EPSILON);
        assert!(lag.open.lock().unwrap().is_empty());
    }

    #[test]
    fn an_object_is_overdue_until_it_shows_or_goes() {
        let lag = lag();
        lag.known(Resource::Jobs, "a/b");
        lag.known(Resource::Jobs, "a/c");
        assert_eq!(lag.overdue(Duration::ZERO).get(&Resource::Jobs), Some(&2));
        assert!(lag.overdue(Duration::from_secs(60)).is_empty());
        lag.shown(Resource::Jobs, "a/b");
        lag.forget(Resource::Jobs, "a/c");
        assert!(lag.overdue(Duration::ZERO).is_empty());
        assert_eq!(observed(&lag).0, 1);
    }

    #[test]
    fn events_of_others_are_no_observation() {
        let lag = lag();
        lag.known(Resource::Pods, "a/b");
        lag.shown(Resource::Jobs, "a/b");
        assert_eq!(observed(&lag).0, 0);
    }
}
