//! Failed: components are deleted, at once or after a delay in which they can be looked at. Never left again.

use appwrapper_api::{ConditionStatus, ConditionType, GoDuration, conditions};
use jiff::Timestamp;

use super::deletion::{Deletion, delete_components, wait};
use crate::{
    deadline,
    decide::until,
    decision::Step,
    observed::Observed,
    policy::Policy,
    status::{is_deployed, set_condition},
};

const REASON: &str = "Failed";
const PAUSED: &str = "DeletionPaused";

pub(crate) fn decide(observed: &Observed<'_>, policy: &Policy, now: Timestamp) -> Step {
    let mut step = Step::new(observed.status.clone());
    let delay = policy.deletion_on_failure_grace;
    let suspended = observed.wrapper.spec.suspend;
    if is_deployed(&step.status) {
        // The delay is over for good once deletion has begun.
        let has_begun = conditions::find(&step.status.conditions, ConditionType::DeletingResources)
            .is_some_and(|condition| condition.status == "True");
        if delay > GoDuration::ZERO && !suspended && !has_begun {
            pause(&mut step, delay, now);
            if let Some(left) = until(deadline::failed_components(&step.status, policy, now), now) {
                return wait(step, left);
            }
        }
        let paused = Observed {
            status: &step.status,
            ..*observed
        };
        match delete_components(&paused, policy, now) {
            Deletion::Step(step) => return *step,
            Deletion::Finished(status) => step.status = *status,
        }
        let message = if delay > GoDuration::ZERO && suspended {
            "Kueue forced resource deletion by suspending AppWrapper"
        } else {
            "Resources deleted for failed AppWrapper"
        };
        let type_ = ConditionType::ResourcesDeployed;
        set_condition(&mut step.status, type_, ConditionStatus::False, REASON, message, now);
    }
    if conditions::is_true(&step.status.conditions, ConditionType::QuotaReserved)
        || conditions::find(&step.status.conditions, ConditionType::QuotaReserved).is_none()
    {
        let type_ = ConditionType::QuotaReserved;
        set_condition(
            &mut step.status,
            type_,
            ConditionStatus::False,
            REASON,
            "No resources deployed",
            now,
        );
    }
    step
}

/// Says that deletion waits, and since when: from the entry into this phase, whatever an earlier retry has left there.
fn pause(step: &mut Step, delay: GoDuration, now: Timestamp) {
    let type_ = ConditionType::DeletingResources;
    let was_paused =
        conditions::find(&step.status.conditions, type_).is_some_and(|condition| condition.reason == PAUSED);
    let message = format!("workload.codeflare.dev.appwrapper/deletionOnFailureGracePeriodDuration has value {delay}");
    set_condition(&mut step.status, type_, ConditionStatus::False, PAUSED, &message, now);
    if !was_paused {
        conditions::restart(&mut step.status.conditions, type_, now);
    }
}
