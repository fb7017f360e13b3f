//! Resetting: components are deleted, and after a pause created again. The quota stays held.

use appwrapper_api::{ConditionStatus, ConditionType, Phase};
use jiff::Timestamp;

use super::{
    deletion::{Deletion, delete_components, wait},
    suspend,
};
use crate::{
    deadline,
    decide::until,
    decision::Step,
    observed::Observed,
    policy::Policy,
    status::{clear_condition, is_deployed, set_condition},
};

pub(crate) fn decide(observed: &Observed<'_>, policy: &Policy, now: Timestamp) -> Step {
    const REASON: &str = "Resetting";
    let mut step = Step::new(observed.status.clone());
    if observed.wrapper.spec.suspend {
        return suspend(step, Phase::Resetting);
    }
    let deployed = ConditionType::ResourcesDeployed;
    if is_deployed(&step.status) {
        match delete_components(observed, policy, now) {
            Deletion::Step(mut step) => {
                clear_condition(&mut step.status, ConditionType::PodsReady, REASON, "", now);
                return *step;
            }
            Deletion::Finished(status) => step.status = *status,
        }
        let message = "Resources deleted for resetting AppWrapper";
        set_condition(&mut step.status, deployed, ConditionStatus::False, REASON, message, now);
    }
    clear_condition(&mut step.status, ConditionType::PodsReady, REASON, "", now);
    if let Some(left) = until(deadline::retry(&step.status, policy, now), now) {
        return wait(step, left);
    }
    // PodsReady too, so that a loss in the last attempt is not taken for one in this.
    for (type_, status) in [
        (deployed, ConditionStatus::True),
        (ConditionType::PodsReady, ConditionStatus::False),
    ] {
        set_condition(
            &mut step.status,
            type_,
            status,
            "Resuming",
            "Reset complete; resuming",
            now,
        );
    }
    step.enter(Phase::Resuming)
}
