//! The decision: one pure function from what is observed to the next step.
//!
//! No client, no clock, no log. Time is an argument and deadlines are data: they come from times stored in the status, so
//! that a restart loses none. Deletion of the AppWrapper goes before its phase; each phase has a file of its own.

use appwrapper_api::Phase;
use jiff::{SignedDuration, Timestamp};

use crate::{
    decision::{Action, Step},
    observed::Observed,
    phase,
    policy::Policy,
};

/// Decides the next step of an AppWrapper.
pub fn decide(observed: &Observed<'_>, policy: &Policy, now: Timestamp) -> Step {
    let wrapper = observed.wrapper;
    let unchanged = || Step::new(observed.status.clone());
    if !wrapper.is_ours() {
        return unchanged();
    }
    if wrapper.metadata.deletion_timestamp.is_some() {
        return phase::terminating::decide(observed, policy, now);
    }
    match observed.status.phase() {
        Some(Phase::Empty) => phase::empty::decide(observed, now),
        Some(Phase::Suspended) => phase::suspended::decide(observed, now),
        Some(Phase::Resuming) => phase::resuming::decide(observed, policy, now),
        Some(Phase::Running) => phase::running::decide(observed, policy, now),
        Some(Phase::Suspending) => phase::suspending::decide(observed, policy, now),
        Some(Phase::Resetting) => phase::resetting::decide(observed, policy, now),
        Some(Phase::Failed) => phase::expire(phase::failed::decide(observed, policy, now), policy, now),
        Some(Phase::Succeeded) => phase::expire(phase::succeeded::decide(observed, policy, now), policy, now),
        // Terminating without a deletion timestamp, or a name that nobody writes, can only have been put there by hand.
        Some(Phase::Terminating) | None => unchanged(),
    }
}

/// Time from `now` to a deadline, or `None` if that has passed.
pub(crate) fn until(deadline: Timestamp, now: Timestamp) -> Option<SignedDuration> {
    (now < deadline).then(|| deadline.duration_since(now))
}

/// Comes back after `delay`, at least a moment, so that rounding cannot make a pass spin.
pub(crate) fn after(delay: SignedDuration) -> Action {
    Action::After(delay.max(SignedDuration::from_millis(50)))
}
