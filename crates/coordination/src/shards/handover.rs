//! What one holder tells the next: how far its writes went.
//!
//! The releaser writes, in the compare-and-swap that empties the Lease, the last resourceVersion of each kind that it wrote,
//! and its own epoch. The successor whose epoch follows directly waits until its watches have reached those versions
//! ([`Barrier`]) before it acts on its cache. If the epochs do not follow, the note is an old one: the last holder crashed,
//! and there is no telling how far its writes went, so the first look at each object in a transient phase goes past the
//! cache ([`Takeover::Abrupt`]).
//!
//! Versions are comparable since KEP-5504 (GA in 1.35). The last write is itself in the watched stream, so the barrier opens
//! without a bookmark.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::watch;

use crate::{lease::ReleaseNote, tenure::Epoch};

use super::slot::RingNames;

/// Last versions that a holder wrote, by whatever names the caller gives its kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handover(BTreeMap<String, u128>);

/// How a tenure followed on the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Takeover {
    /// The last holder drained and left this.
    Graceful(Handover),
    /// It did not, or there was none.
    Abrupt,
}

/// Opens when the watches have reached the releaser's versions.
#[derive(Debug, Clone)]
pub struct Barrier {
    missing: watch::Sender<BTreeMap<String, u128>>,
}

// === impl Handover ===

impl Handover {
    /// Notes a write that the server has accepted. Versions that are no numbers cannot be waited for and are left out; the
    /// stale-status conflict then takes the barrier's place.
    pub fn wrote(&mut self, kind: &str, version: &str) {
        if let Ok(version) = version.parse::<u128>() {
            let last = self.0.entry(kind.to_owned()).or_default();
            *last = version.max(*last);
        }
    }

    /// The kinds that it names.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The version to reach for a kind.
    pub fn version(&self, kind: &str) -> Option<u128> {
        self.0.get(kind).copied()
    }
}

/// The annotations that go with the release of a tenure. Without a hand-over the successor looks past its cache. That the
/// releaser is on its way out stands here as well as on its own Lease, or a successor that sees this first would think that it
/// should have its shard back.
pub(crate) fn release_note(
    handover: Option<&Handover>,
    names: &RingNames,
    released: &Epoch,
    holder: &str,
    leaving: bool,
) -> ReleaseNote {
    let versions = handover.map(|handover| {
        let versions: BTreeMap<&str, String> = handover
            .0
            .iter()
            .map(|(kind, version)| (kind.as_str(), version.to_string()))
            .collect();
        serde_json::to_string(&versions).unwrap_or_default()
    });
    BTreeMap::from([
        (names.key("handover-rv"), versions),
        (names.key("drained-by"), Some(format!("{released} {holder}"))),
        (names.key("left-by"), leaving.then(|| holder.to_owned())),
    ])
}

// === impl Takeover ===

impl Takeover {
    /// Reads what the last holder left, from the Lease as it is after our claim.
    pub(crate) fn read(lease: &Lease, names: &RingNames, mine: &Epoch) -> Self {
        Self::graceful(lease, names, mine).map_or(Self::Abrupt, Self::Graceful)
    }

    fn graceful(lease: &Lease, names: &RingNames, mine: &Epoch) -> Option<Handover> {
        let annotations = lease.metadata.annotations.as_ref()?;
        let (epoch, _) = annotations.get(&names.key("drained-by"))?.split_once(' ')?;
        let before = Epoch::new(mine.lease_uid().to_owned(), mine.transitions().checked_sub(1)?);
        if epoch != before.to_string() {
            return None;
        }
        let text = annotations.get(&names.key("handover-rv"))?;
        let versions: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let mut handover = Handover::default();
        for (kind, version) in versions {
            handover.0.insert(kind, version.parse().ok()?);
        }
        Some(handover)
    }
}

/// Who drained a Lease last, if it was its last holder.
pub(crate) fn drained_by(lease: &Lease, names: &RingNames) -> Option<String> {
    let text = lease.metadata.annotations.as_ref()?.get(&names.key("drained-by"))?;
    text.split_once(' ').map(|(_, holder)| holder.to_owned())
}

// === impl Barrier ===

impl Barrier {
    /// A barrier for what was left. Open from the start if nothing was.
    pub fn new(handover: &Handover) -> Self {
        Self {
            missing: watch::channel(handover.0.clone()).0,
        }
    }

    /// A watch of `kind` has delivered everything up to this version.
    pub fn reached(&self, kind: &str, version: u128) {
        self.missing.send_if_modified(|missing| {
            let there = missing.get(kind).is_some_and(|wanted| version >= *wanted);
            there && missing.remove(kind).is_some()
        });
    }

    /// Whether the cache is at least as new as the last holder's writes.
    pub fn is_open(&self) -> bool {
        self.missing.borrow().is_empty()
    }

    /// Resolves when it is. Give it a time limit of your own, and read past the cache after that.
    pub async fn opened(&self) {
        // Fails only if the sender is gone, and that is in `self`.
        let _ = self.missing.subscribe().wait_for(BTreeMap::is_empty).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease_after(handover: Option<&Handover>, released: i32) -> Lease {
        let names = RingNames::new("appwrapper", "workload.codeflare.dev");
        let note = release_note(handover, &names, &Epoch::new("u".to_owned(), released), "a_b_c", false);
        let mut lease = Lease::default();
        lease.metadata.annotations = Some(
            note.into_iter()
                .filter_map(|(key, value)| Some((key, value?)))
                .collect(),
        );
        lease
    }

    #[test]
    fn a_note_counts_only_for_the_epoch_that_follows_on_it() {
        let names = RingNames::new("appwrapper", "workload.codeflare.dev");
        let mut handover = Handover::default();
        handover.wrote("AppWrapper", "17");
        handover.wrote("AppWrapper", "12");
        handover.wrote("Job", "not a number");
        let lease = lease_after(Some(&handover), 4);
        let at = |uid: &str, transitions| Takeover::read(&lease, &names, &Epoch::new(uid.to_owned(), transitions));
        assert_eq!(at("u", 5), Takeover::Graceful(handover));
        assert_eq!(at("u", 6), Takeover::Abrupt);
        assert_eq!(at("v", 5), Takeover::Abrupt);
        assert_eq!(
            Takeover::read(&Lease::default(), &names, &Epoch::new("u".to_owned(), 5)),
            Takeover::Abrupt
        );
    }

    #[tokio::test]
    async fn a_barrier_opens_when_every_kind_is_there() {
        let mut handover = Handover::default();
        handover.wrote("AppWrapper", "17");
        handover.wrote("Job", "30");
        let barrier = Barrier::new(&handover);
        barrier.reached("AppWrapper", 16);
        barrier.reached("Job", 99);
        assert!(!barrier.is_open());
        barrier.reached("AppWrapper", 17);
        barrier.opened().await;
        assert!(Barrier::new(&Handover::default()).is_open());
    }
}
