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

use appwrapper_api::{ConditionStatus, ConditionType, Phase, conditions};
use jiff::Timestamp;

use crate::{
    deadline,
    decide::{after, until},
    decision::{Action, Effect, Step},
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

/// Deletes an AppWrapper that has ended and whose time is over; before that, comes back for it. What its phase still has to
/// do goes first, but for waiting.
pub(crate) fn expire(step: Step, policy: &Policy, now: Timestamp) -> Step {
    let Some(expiry) = deadline::expiry(&step.status, policy) else {
        return step;
    };
    match (until(expiry, now), &step.action) {
        (_, Action::Confirm(_) | Action::Do(_) | Action::Again) => step,
        (Some(left), Action::After(delay)) => {
            let delay = left.min(*delay);
            step.then(after(delay))
        }
        (Some(left), Action::Wait) => step.then(after(left)),
        (None, _) => {
            let ttl = policy.finished_ttl.unwrap_or_default();
            let note = format!("Deleted because its time to live after its end, {ttl}, is over");
            step.event(Event::normal("Expired", note))
                .then(Action::Do(Effect::Expire))
        }
    }
}

/// The end of an attempt.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Why, in upper camel case.
    pub(crate) reason: &'static str,
    /// What a person wants to know of it after the next attempt has begun.
    pub(crate) detail: String,
    /// What a retry counts: 0 for a node that had to be left, which is not the workload's fault.
    pub(crate) increment: i32,
    /// Another attempt would end in the same way.
    pub(crate) terminal: bool,
}

impl Failure {
    /// One that costs a retry.
    pub(crate) fn of(reason: &'static str, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            increment: 1,
            terminal: false,
        }
    }
}

/// Retries if the limit allows it and nothing forbids it, else fails for good.
pub(crate) fn reset_or_fail(mut step: Step, policy: &Policy, failure: &Failure, now: Timestamp) -> Step {
    if failure.terminal || step.status.resetting_count >= policy.retry_limit {
        return fail(step, failure, now);
    }
    remember(&mut step, failure, now);
    step.status.resetting_count = step.status.resetting_count.saturating_add(failure.increment);
    step.tell(Observation::Retry(failure.reason)).enter(Phase::Resetting)
}

/// Fails for good.
pub(crate) fn fail(mut step: Step, failure: &Failure, now: Timestamp) -> Step {
    remember(&mut step, failure, now);
    step.tell(Observation::Failed(failure.reason)).enter(Phase::Failed)
}

/// Writes the failure down in a condition that no later attempt clears.
fn remember(step: &mut Step, failure: &Failure, now: Timestamp) {
    let all = &mut step.status.conditions;
    let type_ = ConditionType::LastFailure;
    conditions::set(all, type_, ConditionStatus::True, failure.reason, &failure.detail, now);
    conditions::restart(all, type_, now);
}
