//! What the decision answers with.

use appwrapper_api::{AppWrapperStatus, Phase, PodFacts, Uid};
use jiff::SignedDuration;

use crate::{
    cluster::Grace,
    evidence::Suspicion,
    observation::{Event, Observation},
};

/// One step: the status as it should be, what to tell once that is written, and what to do next.
#[derive(Debug)]
pub struct Step {
    /// The status as it should be.
    pub status: AppWrapperStatus,
    /// What to tell once the status is written.
    pub told: Vec<Observation>,
    /// What to do next.
    pub action: Action,
}

/// What to do next.
#[derive(Debug)]
pub enum Action {
    /// Ask the API server itself, then decide again.
    Confirm(Question),
    /// Perform an effect, then decide again.
    Do(Effect),
    /// Decide again: a transition.
    Again,
    /// Write the status and come back after this time at the latest.
    After(SignedDuration),
    /// Write the status and wait for a change.
    Wait,
}

/// What to ask the API server.
#[derive(Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether components that a cache misses in Running really are missing.
    Missing(Suspicion),
    /// Whether components are gone that are being deleted.
    Deleted,
    /// Whether pods are left.
    PodsLeft,
}

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Add our finalizer.
    AddFinalizer,
    /// Remove our finalizer.
    RemoveFinalizer,
    /// Create the component at this position.
    Deploy(usize),
    /// Delete the component at this position, if it has this uid.
    Delete {
        /// Position in `spec.components`.
        position: usize,
        /// Identity that the object must have.
        uid: Uid,
        /// How.
        grace: Grace,
    },
    /// Delete these pods at once.
    ForcePods(Vec<PodFacts>),
    /// Delete the AppWrapper itself.
    Expire,
}

impl Step {
    /// A step that begins with this status.
    pub fn new(status: AppWrapperStatus) -> Self {
        Self {
            status,
            told: Vec::new(),
            action: Action::Wait,
        }
    }

    /// Tells an event.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.told.push(Observation::Event(event));
        self
    }

    /// Tells something.
    #[must_use]
    pub fn tell(mut self, observation: Observation) -> Self {
        self.told.push(observation);
        self
    }

    /// Enters a phase, in which the decision goes on at once.
    #[must_use]
    pub fn enter(mut self, phase: Phase) -> Self {
        self.status.set_phase(phase);
        self.told.push(Observation::Entered(phase));
        self.then(Action::Again)
    }

    /// Goes on like this.
    #[must_use]
    pub fn then(mut self, action: Action) -> Self {
        self.action = action;
        self
    }
}
