//! What one process remembers of an AppWrapper between passes. Losing it costs requests, never correctness: whatever a
//! deadline or a verdict rests on is in the status.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use appwrapper_api::{ANNOTATION_PREFIX, Annotations, AppWrapper, Phase, Rv};
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::until,
    observation::{Event, Observation},
    observed::RecentDeletes,
    policy::{Defaults, Policy},
};

/// How long a change of messages alone is held back at most.
const HOLD: SignedDuration = SignedDuration::from_secs(5);
/// Bound on remembered events of one phase; beyond it the oldest knowledge is dropped at once.
const TOLD_LIMIT: usize = 64;

/// What is remembered of one AppWrapper.
#[derive(Debug, Default)]
pub struct Memory {
    /// The newest copy that this process has seen or written; the watch may not have delivered it yet.
    latest: Option<Arc<AppWrapper>>,
    /// That copy, or one before it, is known to have been the live one: the copies that follow are no older.
    is_live: bool,
    policy: Option<(BTreeMap<String, String>, Arc<Policy>)>,
    told: HashSet<(&'static str, String)>,
    /// Since when a change of messages alone waits to be written.
    held_since: Option<Timestamp>,
    /// Deletes that were sent a moment ago.
    pub(crate) deletes: RecentDeletes,
    /// Confirmations of missing components.
    pub(crate) confirmations: Confirmations,
    /// A create that was refused: position, what was said, and when to try again.
    pub(crate) refused: Option<(usize, String, Timestamp)>,
    /// Answers in a row that proved nothing.
    doubts: u32,
}

impl Memory {
    /// The newer of the watch's copy and our own.
    pub fn newest(&mut self, watched: Arc<AppWrapper>) -> Arc<AppWrapper> {
        let version = |wrapper: &AppWrapper| wrapper.metadata.resource_version.as_deref().and_then(Rv::parse);
        if let Some(own) = &self.latest {
            let is_newer = own.metadata.uid == watched.metadata.uid && version(own) > version(&watched);
            if is_newer {
                return Arc::clone(own);
            }
            // Another incarnation: nothing of what was known holds of it.
            self.is_live &= own.metadata.uid == watched.metadata.uid;
        }
        // Kept although the watch has caught up: a stale event must not lead back to an older copy.
        self.latest = Some(Arc::clone(&watched));
        watched
    }

    /// The version of the object as this process last saw or wrote it.
    pub fn written(&self) -> Option<&str> {
        self.latest.as_deref()?.metadata.resource_version.as_deref()
    }

    /// Remembers what was written.
    pub(crate) fn wrote(&mut self, wrapper: &Arc<AppWrapper>) {
        self.latest = Some(Arc::clone(wrapper));
        self.is_live = true;
    }

    /// The API server was asked and has the copy that this process has.
    pub(crate) fn found_live(&mut self) {
        self.is_live = true;
    }

    /// Whether effects may rest on the copy that is known.
    pub(crate) fn is_live(&self) -> bool {
        self.is_live
    }

    /// How much longer a change waits that is one of messages alone.
    pub(crate) fn hold_back(&mut self, is_text: bool, now: Timestamp) -> Option<SignedDuration> {
        let since = is_text.then(|| *self.held_since.get_or_insert(now));
        let left = since.and_then(|since| until(since.checked_add(HOLD).unwrap_or(now), now));
        if left.is_none() {
            self.held_since = None;
        }
        left
    }

    /// The limits of the AppWrapper, read anew only if its annotations have changed, and what to tell the user about
    /// them. Faults of annotations that were there before this process saw the AppWrapper have been told before.
    pub(crate) fn policy(&mut self, defaults: &Defaults, wrapper: &AppWrapper) -> (Arc<Policy>, Vec<Event>) {
        let annotations: BTreeMap<String, String> = wrapper
            .metadata
            .annotations
            .iter()
            .flatten()
            .filter(|(name, _)| name.starts_with(ANNOTATION_PREFIX))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if let Some((known, policy)) = &self.policy
            && *known == annotations
        {
            return (Arc::clone(policy), Vec::new());
        }
        let is_news = self.policy.is_some() || wrapper.status.phase() == Some(Phase::Empty);
        let (parsed, mut faults) = Annotations::parse(&annotations);
        let (policy, more) = defaults.resolve(&parsed);
        faults.extend(more);
        let policy = Arc::new(policy);
        self.policy = Some((annotations, Arc::clone(&policy)));
        let events = if is_news {
            faults.iter().map(Event::of_fault).collect()
        } else {
            Vec::new()
        };
        (policy, events)
    }

    /// Whether an observation is news: one event per fact and stay in a phase. The event of a transition comes before the
    /// entry into the phase, so the same one is news again in the next attempt.
    pub(crate) fn is_news(&mut self, observation: &Observation) -> bool {
        if matches!(observation, Observation::Entered(_)) || self.told.len() >= TOLD_LIMIT {
            self.told.clear();
        }
        match observation {
            Observation::Event(event) => self.told.insert((event.reason, event.note.clone())),
            Observation::Forced => self.told.insert(("Forced", String::new())),
            _ => true,
        }
    }

    /// Delay after one more answer that proves nothing: 1 s doubling to 30 s.
    pub(crate) fn doubted(&mut self) -> SignedDuration {
        let delay = SignedDuration::from_secs(1 << self.doubts.min(5)).min(SignedDuration::from_secs(30));
        self.doubts = self.doubts.saturating_add(1);
        delay
    }

    /// The API server has answered.
    pub(crate) fn answered(&mut self) {
        self.doubts = 0;
    }
}

/// Bounds the confirmations of one AppWrapper. A component that a cache never sees, because its label was stripped, keeps
/// its AppWrapper alive at one confirmation per [`Confirmations::INTERVAL`]; news in the cache are asked about at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confirmations {
    last: Option<(Vec<(usize, u64)>, Timestamp)>,
}

impl Confirmations {
    /// Time between two confirmations of the same suspicion.
    pub(crate) const INTERVAL: SignedDuration = SignedDuration::from_secs(10);

    /// When this suspicion may be confirmed, if not now.
    pub(crate) fn not_before(&self, changes: &[(usize, u64)], now: Timestamp) -> Option<Timestamp> {
        let (known, at) = self.last.as_ref()?;
        if known != changes {
            return None;
        }
        let next = at.checked_add(Self::INTERVAL).unwrap_or(now);
        (now < next).then_some(next)
    }

    /// All components were found present.
    pub(crate) fn found_present(&mut self, changes: Vec<(usize, u64)>, now: Timestamp) {
        self.last = Some((changes, now));
    }
}

#[cfg(test)]
mod tests {
    use appwrapper_api::config::AppWrapperConfig;
    use serde_json::json;

    use super::*;

    fn wrapper(version: &str, uid: &str, limit: &str, phase: &str) -> Arc<AppWrapper> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": version,
                    "annotations": {"workload.codeflare.dev.appwrapper/retryLimit": limit}},
                "status": {"phase": phase},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn our_own_copy_counts_until_the_watch_has_caught_up() {
        let mut memory = Memory::default();
        memory.wrote(&wrapper("10", "u", "1", "Running"));
        assert_eq!(
            memory
                .newest(wrapper("9", "u", "1", ""))
                .metadata
                .resource_version
                .as_deref(),
            Some("10")
        );
        assert_eq!(
            memory
                .newest(wrapper("11", "u", "1", ""))
                .metadata
                .resource_version
                .as_deref(),
            Some("11")
        );
        memory.wrote(&wrapper("20", "u", "1", ""));
        let recreated = memory.newest(wrapper("12", "v", "1", ""));
        assert_eq!(recreated.metadata.uid.as_deref(), Some("v"));
    }

    #[test]
    fn a_malformed_annotation_is_told_once_per_change() {
        let defaults = Defaults::new(&AppWrapperConfig::default());
        let mut memory = Memory::default();
        assert_eq!(memory.policy(&defaults, &wrapper("1", "u", "abc", "")).1.len(), 1);
        assert_eq!(
            memory.policy(&defaults, &wrapper("2", "u", "abc", "Running")).1.len(),
            0
        );
        assert_eq!(
            memory.policy(&defaults, &wrapper("3", "u", "xyz", "Running")).1.len(),
            1
        );
        let mut restarted = Memory::default();
        assert_eq!(
            restarted
                .policy(&defaults, &wrapper("4", "u", "xyz", "Running"))
                .1
                .len(),
            0
        );
    }

    #[test]
    fn the_same_suspicion_is_confirmed_at_a_bounded_rate_and_news_at_once() {
        let mut confirmations = Confirmations::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(confirmations.not_before(&[(0, 0)], at(0)), None);
        confirmations.found_present(vec![(0, 0)], at(0));
        assert_eq!(confirmations.not_before(&[(0, 0)], at(1)), Some(at(10)));
        assert_eq!(
            confirmations.not_before(&[(0, 7)], at(1)),
            None,
            "news of the component"
        );
        assert_eq!(confirmations.not_before(&[(1, 0)], at(1)), None, "another component");
        assert_eq!(confirmations.not_before(&[(0, 0)], at(10)), None);
    }
}
