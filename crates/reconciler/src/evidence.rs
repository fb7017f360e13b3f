//! What is known of the components, and how well.
//!
//! A [`Survey`] holds one [`Presence`] per component. Its type parameter says where the presences come from: the caches or
//! the API server itself. Only a `Survey<Uncached>` yields a [`ConfirmedAbsent`], which the transition to Failed for a
//! missing component asks for, and only the [`confirm`] module can make a `Survey<Uncached>`. So the defect that this
//! project exists for, failing a workload because a cache lags, does not compile:
//!
//! ```compile_fail
//! use appwrapper_reconciler::evidence::{Cached, Survey};
//! fn fail(survey: &Survey<Cached>) {
//!     let proof = survey.confirmed_absent(); // a cached survey proves no absence
//! }
//! ```
//!
//! ```
//! use appwrapper_reconciler::evidence::{Survey, Uncached};
//! fn fail(survey: &Survey<Uncached>) {
//!     let proof = survey.confirmed_absent();
//! }
//! ```
//!
//! Nor can the proof be made up:
//!
//! ```compile_fail
//! let proof = appwrapper_reconciler::evidence::ConfirmedAbsent { found: 0, expected: 1 };
//! ```

pub mod confirm;

use std::{marker::PhantomData, sync::Arc};

use appwrapper_api::{Completion, ComponentFacts, ComponentRef, Uid};
use jiff::Timestamp;

/// Marks what was read from the caches.
#[derive(Debug)]
pub enum Cached {}

/// Marks what was read from the API server, past every cache.
#[derive(Debug)]
pub enum Uncached {}

/// Why a cache has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSynced {
    /// The kind is not watched yet, or its watch has failed since.
    Kind,
    /// The cache has not yet seen what this controller itself wrote at this time.
    BehindOwnWrite {
        /// When the write was made.
        since: Timestamp,
    },
}

/// What a cache says of a component.
#[derive(Clone, Debug)]
pub enum CachedRead {
    /// It was there when the watch last told of it.
    Present(Arc<ComponentFacts>),
    /// It is not in the cache, which may mean that it is not there.
    Absent {
        /// Sequence number of the last change that the cache saw of this name; 0 if it never saw it.
        changed: u64,
        /// What was last seen of it.
        last: Option<Arc<ComponentFacts>>,
    },
    /// The cache cannot answer.
    NotSynced(NotSynced),
}

/// What the API server says of a component, asked directly.
#[derive(Clone, Debug)]
pub enum UncachedRead {
    /// It is there.
    Present(Arc<ComponentFacts>),
    /// The server answered that no object of this very kind, namespace and name exists.
    Absent,
    /// The server's discovery answered that it does not serve the kind at all.
    NotServed,
    /// The answer says nothing about the object.
    Doubt(Doubt),
}

/// An answer that neither shows nor disproves that an object exists: refused, throttled, failed, late, not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Doubt {
    /// Closed set for metrics: `forbidden`, `throttled`, `timeout`, `server_error`, `malformed`, `not_served`, `transport`.
    pub reason: &'static str,
    /// What was answered, shortened.
    pub message: String,
}

/// What is known of one component.
#[derive(Clone, Debug)]
pub enum Presence {
    /// It exists and is ours.
    Present(Arc<ComponentFacts>),
    /// It said of itself that it had ended well; whether it still exists does not matter any more.
    Finished(Option<Arc<ComponentFacts>>),
    /// It exists, is ours and is being deleted.
    Terminating(Arc<ComponentFacts>),
    /// Another object has its name: not controlled by this AppWrapper, or not the one that was created.
    Replaced(Arc<ComponentFacts>),
    /// It is not there.
    Absent {
        /// Sequence number of the cache's last change of this name; 0 in an uncached survey.
        changed: u64,
    },
    /// The cache cannot answer.
    NotSynced(NotSynced),
    /// The kind is not served by the API server, so no object of it can be read.
    NotServed,
}

/// Presences of all components, in the order of the spec; `S` says where they come from.
#[derive(Debug)]
pub struct Survey<S> {
    presences: Vec<Presence>,
    /// Identity of the object that each component is now, as far as it is known.
    uids: Vec<Option<Uid>>,
    source: PhantomData<S>,
}

/// Proof that components are gone, from answers of the API server itself.
#[derive(Debug)]
pub struct ConfirmedAbsent {
    found: usize,
    expected: usize,
}

/// Proof that no pod of the AppWrapper is left, from an answer of the API server itself.
#[derive(Debug)]
pub struct NoPodsLeft {
    _sealed: (),
}

/// What is expected of a component by this AppWrapper.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The component.
    pub component: ComponentRef,
    /// Identity of the object that was created, as far as this process knows.
    pub uid: Option<Uid>,
    /// It has said of itself that it ended well, and that was written down.
    pub finished: bool,
    /// Nothing says that it was ever created, or that it is not deleted yet.
    pub unproven: bool,
}

impl Presence {
    /// Judges facts of an object that exists.
    fn of_facts(facts: Arc<ComponentFacts>, owner: &Uid, expected: &Expectation) -> Self {
        let other_object = expected.uid.as_ref().is_some_and(|uid| *uid != facts.uid);
        if !facts.is_controlled_by(owner) || other_object {
            return if expected.finished {
                Self::Finished(None)
            } else {
                Self::Replaced(facts)
            };
        }
        if expected.finished || facts.completion == Completion::Complete {
            return Self::Finished(Some(facts));
        }
        if facts.terminating {
            Self::Terminating(facts)
        } else {
            Self::Present(facts)
        }
    }

    /// What is known of the object, if one of ours is known.
    pub fn facts(&self) -> Option<&Arc<ComponentFacts>> {
        match self {
            Self::Present(facts) | Self::Terminating(facts) | Self::Finished(Some(facts)) => Some(facts),
            _ => None,
        }
    }

    fn is_deployed(&self) -> bool {
        matches!(self, Self::Present(_) | Self::Finished(_))
    }
}

impl Survey<Cached> {
    /// Judges what the caches say.
    pub fn from_cache(owner: &Uid, reads: impl IntoIterator<Item = (Expectation, CachedRead)>) -> Self {
        let (expected, reads): (Vec<_>, Vec<_>) = reads.into_iter().unzip();
        let presences = expected
            .iter()
            .zip(reads)
            .map(|(expected, read)| match read {
                CachedRead::Present(facts) => Presence::of_facts(facts, owner, expected),
                _ if expected.finished => Presence::Finished(None),
                CachedRead::Absent { changed, last } => match last {
                    // It ended well and was then removed, by its own time to live or by a person.
                    Some(last) if last.completion == Completion::Complete && last.is_controlled_by(owner) => {
                        Presence::Finished(Some(last))
                    }
                    _ => Presence::Absent { changed },
                },
                CachedRead::NotSynced(why) => Presence::NotSynced(why),
            })
            .collect();
        Self::new(presences, &expected)
    }

    /// Whether a component may be missing, so that the API server must be asked. A cache that is only behind our own
    /// recent write is given until `patience` after that write to catch up.
    pub fn doubt(&self, now: Timestamp, patience: jiff::SignedDuration) -> Option<Suspicion> {
        let mut suspicion = Suspicion::default();
        for (position, presence) in self.presences.iter().enumerate() {
            match presence {
                Presence::NotSynced(NotSynced::BehindOwnWrite { since }) if now.duration_since(*since) < patience => {
                    let end = since.checked_add(patience).unwrap_or(now);
                    suspicion.settled_at = Some(suspicion.settled_at.map_or(end, |other| other.min(end)));
                }
                Presence::Present(_) | Presence::Finished(_) => {}
                Presence::Absent { changed } => suspicion.changes.push((position, *changed)),
                // The cache tells of a deletion: news, whatever was found out before.
                Presence::Terminating(_) => suspicion.changes.push((position, u64::MAX)),
                Presence::Replaced(_) => suspicion.changes.push((position, u64::MAX - 1)),
                Presence::NotSynced(_) | Presence::NotServed => suspicion.changes.push((position, 0)),
            }
        }
        (!suspicion.changes.is_empty() || suspicion.settled_at.is_some()).then_some(suspicion)
    }
}

/// What a cached survey cannot answer for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspicion {
    /// Position of each component that may be missing, and a number for what the cache says of it. If nothing in the
    /// caches has changed since a confirmation found them present, these are the same, and there is no new reason to ask.
    pub changes: Vec<(usize, u64)>,
    /// When patience with a cache that is behind our own write ends, if only that is the matter.
    pub settled_at: Option<Timestamp>,
}

impl<S> Survey<S> {
    fn new(presences: Vec<Presence>, expected: &[Expectation]) -> Self {
        let uids = presences
            .iter()
            .zip(expected)
            .map(|(presence, expected)| {
                let facts = presence.facts().map(|facts| facts.uid.clone());
                facts.or_else(|| expected.uid.clone())
            })
            .collect();
        Self {
            presences,
            uids,
            source: PhantomData,
        }
    }

    /// Identity of the object that each component is now, in the order of the spec; `None` where it is not known.
    pub fn uids(&self) -> &[Option<Uid>] {
        &self.uids
    }

    /// The presence of each component, in the order of the spec.
    pub fn presences(&self) -> &[Presence] {
        &self.presences
    }

    /// How many components exist.
    pub fn found(&self) -> usize {
        self.presences.iter().filter(|presence| presence.is_deployed()).count()
    }

    /// How many components say of themselves that they have failed.
    pub fn failed(&self) -> usize {
        let failed = |presence: &&Presence| matches!(presence, Presence::Present(facts) if facts.completion == Completion::Failed);
        self.presences.iter().filter(failed).count()
    }
}

impl Survey<Uncached> {
    /// The proof that at least one component is gone, if one is.
    pub fn confirmed_absent(&self) -> Option<ConfirmedAbsent> {
        let (found, expected) = (self.found(), self.presences.len());
        (found < expected).then_some(ConfirmedAbsent { found, expected })
    }
}

impl ConfirmedAbsent {
    /// How many components were found.
    pub fn found(&self) -> usize {
        self.found
    }

    /// How many there should be.
    pub fn expected(&self) -> usize {
        self.expected
    }
}
