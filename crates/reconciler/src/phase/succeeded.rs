//! Succeeded: components are deleted once their time to live, counted from success, is over. `suspend` has no say here.

use appwrapper_api::{ConditionStatus, ConditionType, conditions};
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

pub(crate) fn decide(observed: &Observed<'_>, policy: &Policy, now: Timestamp) -> Step {
    const REASON: &str = "Succeeded";
    let mut step = Step::new(observed.status.clone());
    if !is_deployed(&step.status) {
        return step;
    }
    // The quota is given back at the moment of success; a status without that condition was edited.
    if conditions::find(&step.status.conditions, ConditionType::QuotaReserved).is_none() {
        let type_ = ConditionType::QuotaReserved;
        set_condition(&mut step.status, type_, ConditionStatus::False, REASON, "", now);
    }
    if let Some(left) = until(deadline::succeeded_components(&step.status, policy, now), now) {
        return wait(step, left);
    }
    match delete_components(observed, policy, now) {
        Deletion::Step(step) => return *step,
        Deletion::Finished(status) => step.status = *status,
    }
    let message = format!("Time to live after success of {} expired", policy.success_ttl);
    let type_ = ConditionType::ResourcesDeployed;
    set_condition(&mut step.status, type_, ConditionStatus::False, REASON, &message, now);
    step
}
