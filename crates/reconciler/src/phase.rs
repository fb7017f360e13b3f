//! The phases, one file each, and what several of them share.

pub mod deletion;
pub mod empty;
pub mod failed;
pub mod resetting;
pub mod resuming;
pub mod running;
pub mod succeeded;
pub mod suspended;
pub mod suspending;
pub mod terminating;

use appwrapper_api::Phase;

use crate::{
    decision::Step,
    observation::{Event, Observation},
    policy::Policy,
};

/// Suspends because somebody asked for it.
pub(crate) fn suspend(step: Step, during: Phase) -> Step {
    step.event(Event::normal(
        "Suspending",
        format!("Externally suspended while in the {during} phase"),
    ))
    .enter(Phase::Suspending)
}

/// Retries if the limit allows it and nothing forbids it, else fails for good.
///
/// `increment` is what the retry counts: 0 for a node that had to be left, which is not the workload's fault.
pub(crate) fn reset_or_fail(
    mut step: Step,
    policy: &Policy,
    reason: &'static str,
    increment: i32,
    terminal: bool,
) -> Step {
    if !terminal && step.status.resetting_count < policy.retry_limit {
        step.status.resetting_count = step.status.resetting_count.saturating_add(increment);
        return step.tell(Observation::Retry(reason)).enter(Phase::Resetting);
    }
    step.tell(Observation::Failed(reason)).enter(Phase::Failed)
}
