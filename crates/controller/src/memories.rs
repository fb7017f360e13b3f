//! What this process remembers of each AppWrapper between passes, and how often a pass failed in a row.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use appwrapper_api::{AppWrapperKey, Rv};
use appwrapper_reconciler::Memory;

/// Memories of all AppWrappers of a tenure.
#[derive(Debug, Default)]
pub struct Memories(Mutex<HashMap<AppWrapperKey, Entry>>);

#[derive(Debug, Default)]
struct Entry {
    /// Taken while a pass is under way; the queue never runs two passes over one key.
    memory: Memory,
    written: Option<Rv>,
    failures: u32,
}

impl Memories {
    fn entries(&self) -> MutexGuard<'_, HashMap<AppWrapperKey, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the memory of an AppWrapper for the time of a pass.
    pub fn take(&self, key: &AppWrapperKey) -> Memory {
        std::mem::take(&mut self.entries().entry(key.clone()).or_default().memory)
    }

    /// Puts it back.
    pub fn put(&self, key: &AppWrapperKey, memory: Memory) {
        let mut entries = self.entries();
        let entry = entries.entry(key.clone()).or_default();
        entry.written = memory.written().and_then(Rv::parse);
        entry.memory = memory;
    }

    /// Whether a version that a watch delivers is one that we have seen already, because we wrote it or a later one.
    pub fn is_own_echo(&self, key: &AppWrapperKey, version: Option<&str>) -> bool {
        let delivered = version.and_then(Rv::parse);
        let entries = self.entries();
        let Some(written) = entries.get(key).and_then(|entry| entry.written.as_ref()) else {
            return false;
        };
        delivered.is_some_and(|delivered| delivered <= *written)
    }

    /// A pass has come to its end.
    pub fn succeeded(&self, key: &AppWrapperKey) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.failures = 0;
        }
    }

    /// A pass has failed: how long to wait before the next, 100 ms doubling to 30 s.
    pub fn failed(&self, key: &AppWrapperKey) -> Duration {
        let mut entries = self.entries();
        let entry = entries.entry(key.clone()).or_default();
        let delay = Duration::from_millis(100 << entry.failures.min(9)).min(Duration::from_secs(30));
        entry.failures = entry.failures.saturating_add(1);
        delay
    }

    /// The AppWrapper is gone.
    pub fn forget(&self, key: &AppWrapperKey) {
        self.entries().remove(key);
    }

    /// The tenure is over: from here others write, and what we know would mislead.
    pub fn clear(&self) {
        self.entries().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_back_off_to_half_a_minute_and_are_forgotten_by_a_success() {
        let (memories, key) = (Memories::default(), AppWrapperKey::new("n", "a"));
        assert_eq!(memories.failed(&key), Duration::from_millis(100));
        for _ in 0..20 {
            memories.failed(&key);
        }
        assert_eq!(memories.failed(&key), Duration::from_secs(30));
        memories.succeeded(&key);
        assert_eq!(memories.failed(&key), Duration::from_millis(100));
    }

    #[test]
    fn nothing_is_an_echo_of_what_was_never_written() {
        assert!(!Memories::default().is_own_echo(&AppWrapperKey::new("n", "a"), Some("1")));
    }
}
