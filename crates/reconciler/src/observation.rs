//! What the driver tells the world about its work; the controller turns it into events, log lines and metrics.

use appwrapper_api::{AnnotationFault, ComponentRef, Phase, Rv, TypeRef};

use crate::evidence::Doubt;

/// One fact worth telling.
#[derive(Clone, Debug)]
pub enum Observation {
    /// A phase was entered and written.
    Entered(Phase),
    /// An event for the user.
    Event(Event),
    /// The cache was asked for a component of this kind.
    CachedRead(TypeRef, CachedResult),
    /// A confirmation begins.
    ConfirmationStarted,
    /// A confirmation ended.
    Confirmed {
        /// Kinds of the components that it was about.
        suspects: Vec<TypeRef>,
        /// What it came to.
        result: ConfirmationResult,
    },
    /// A component was found by the API server although the cache had said that it is missing: the race that the
    /// confirmation exists for.
    RaceSurvived {
        /// The component.
        component: ComponentRef,
        /// The version that the cache knew, if any.
        cached: Option<Rv>,
        /// The version that the API server has.
        live: Option<Rv>,
    },
    /// A component is gone by the API server's own word.
    ConfirmedMissing {
        /// The component.
        component: ComponentRef,
        /// How it is gone.
        how: Missing,
    },
    /// A retry was decided for this reason.
    Retry(&'static str),
    /// The AppWrapper failed for this reason.
    Failed(&'static str),
    /// An object of that name exists already, and it is not ours.
    NameTaken(ComponentRef),
    /// A status patch met a newer version.
    Conflict,
    /// Deletion is being forced.
    Forced,
}

/// What the cache says of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedResult {
    /// It is there, or has ended well.
    Present,
    /// The cache cannot tell yet.
    Behind,
    /// It is being deleted.
    Terminating,
    /// It may be missing.
    Missing,
}

/// What a confirmation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfirmationResult {
    /// All components exist: a race was survived.
    Live,
    /// At least one does not.
    Missing,
    /// The answers prove nothing.
    Doubt(Doubt),
    /// Our copy of the AppWrapper was old.
    Outdated,
    /// It was put off: nothing new since the last one, or too many at once.
    Deferred,
}

/// How a component is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The API server knows no object of that name.
    Absent,
    /// It is being deleted.
    Terminating,
    /// Another object has its name.
    Replaced,
}

/// An event on the AppWrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Failures are warnings.
    pub warning: bool,
    /// `reason`, in upper camel case.
    pub reason: &'static str,
    /// `note`, in words.
    pub note: String,
}

impl Event {
    /// Something a person should look at.
    pub fn warning(reason: &'static str, note: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason,
            note: note.into(),
        }
    }

    /// Something that happened as asked.
    pub fn normal(reason: &'static str, note: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            note: note.into(),
        }
    }

    /// An annotation that could not be used as written.
    pub fn of_fault(fault: &AnnotationFault) -> Self {
        Self::warning("InvalidAnnotation", fault.to_string())
    }
}
