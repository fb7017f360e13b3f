//! What one tenure wrote, for the next holder: how far its caches must have come before it may act on them.
//!
//! Creates and writes to AppWrappers are noted with the version the server answered. Deletes are not: before any phase goes
//! on after one, the reconciler has proof past the cache, and the create that may follow has a later version of the same kind.
//!
//! A write of unknown outcome has no version to wait for. Until a later write of its kind has got a sure answer there is no
//! [`Handover`], and the successor lists anew, as after a crash.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use appwrapper_coordination::shards::Handover;
use tokio::time::Instant;

/// The name for AppWrappers; components go by their type.
pub const WRAPPERS: &str = "AppWrapper";

/// Writes of one tenure. Clones are the same ledger.
#[derive(Clone, Debug)]
pub struct Ledger {
    entries: Arc<Mutex<Entries>>,
    write_bound: Duration,
}

#[derive(Debug, Default)]
struct Entries {
    written: Handover,
    /// By kind, when the last write of unknown outcome has certainly taken effect or never will.
    unknown: BTreeMap<String, Instant>,
}

/// One write that is about to be sent. Dropped without a word, its outcome is unknown.
#[must_use = "a write that is dropped counts as one of unknown outcome"]
#[derive(Debug)]
pub struct Pen {
    ledger: Ledger,
    kind: String,
    sent: Instant,
    settled: bool,
}

impl Ledger {
    /// A ledger that begins with what is known of the writes before: the last holder's word, or what a list has shown.
    pub fn new(known: Handover, write_bound: Duration) -> Self {
        let entries = Entries {
            written: known,
            unknown: BTreeMap::new(),
        };
        Self {
            entries: Arc::new(Mutex::new(entries)),
            write_bound,
        }
    }

    /// A write is about to be sent.
    pub fn writing(&self, kind: &(impl ToString + ?Sized)) -> Pen {
        Pen {
            ledger: self.clone(),
            kind: kind.to_string(),
            sent: Instant::now(),
            settled: false,
        }
    }

    /// An object was found past the cache.
    pub fn found(&self, kind: &(impl ToString + ?Sized), version: &str) {
        self.entries().written.wrote(&kind.to_string(), version);
    }

    /// The word to the next holder; none if a write of unknown outcome could be missed.
    pub fn handover(&self) -> Option<Handover> {
        let entries = self.entries();
        entries.unknown.is_empty().then(|| entries.written.clone())
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pen {
    /// The server accepted the write.
    pub fn wrote(mut self, version: Option<&str>) {
        let Some(version) = version else { return };
        self.settled = true;
        let mut entries = self.ledger.entries();
        entries.written.wrote(&self.kind, version);
        // Sent after the other was over, so its version is the later one.
        if entries.unknown.get(&self.kind).is_some_and(|over| self.sent >= *over) {
            entries.unknown.remove(&self.kind);
        }
    }

    /// The write took no effect.
    pub fn refused(mut self) {
        self.settled = true;
    }

    /// The API server or our own guard refused the write, if that is what the error says.
    pub fn failed(self, error: &kube::Error) {
        let certain = match error {
            kube::Error::Api(status) => !matches!(status.code, 500 | 502 | 504),
            error => appwrapper_coordination::fenced(error).is_some(),
        };
        if certain {
            self.refused();
        }
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        if !self.settled {
            let over = Instant::now() + self.ledger.write_bound;
            self.ledger.entries().unknown.insert(self.kind.clone(), over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn the_word_to_the_next_holder_names_the_last_version_of_each_kind() {
        let mut known = Handover::default();
        known.wrote(WRAPPERS, "5");
        let ledger = Ledger::new(known, BOUND);
        ledger.writing(WRAPPERS).wrote(Some("9"));
        ledger.writing("batch/v1:Job").wrote(Some("7"));
        ledger.writing("batch/v1:Job").refused();
        let handover = ledger.handover().unwrap();
        assert_eq!(
            (handover.version(WRAPPERS), handover.version("batch/v1:Job")),
            (Some(9), Some(7))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_of_unknown_outcome_is_made_good_only_by_a_later_one_of_its_kind() {
        let ledger = Ledger::new(Handover::default(), BOUND);
        drop(ledger.writing("Job"));
        ledger.writing(WRAPPERS).wrote(Some("9"));
        let too_soon = ledger.writing("Job");
        tokio::time::advance(BOUND).await;
        too_soon.wrote(Some("10"));
        assert_eq!(
            ledger.handover(),
            None,
            "it was sent while the other could still take effect"
        );
        ledger.writing("Job").wrote(Some("11"));
        assert_eq!(ledger.handover().unwrap().version("Job"), Some(11));
    }
}
