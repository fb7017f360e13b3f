//! Suspending: components are deleted and the quota is given back. Runs to its end even if `suspend` is cleared meanwhile.

use appwrapper_api::{ConditionStatus, ConditionType, Phase};
use jiff::Timestamp;

use super::deletion::{Deletion, delete_components};
use crate::{
    decision::Step,
    observed::Observed,
    policy::Policy,
    status::{clear_condition, is_deployed, set_condition},
};

pub(crate) fn decide(observed: &Observed<'_>, policy: &Policy, now: Timestamp) -> Step {
    const REASON: &str = "Suspended";
    let mut step = Step::new(observed.status.clone());
    if is_deployed(&step.status) {
        match delete_components(observed, policy, now) {
            Deletion::Step(step) => return *step,
            Deletion::Finished(status) => step.status = *status,
        }
    }
    for type_ in [ConditionType::ResourcesDeployed, ConditionType::QuotaReserved] {
        set_condition(
            &mut step.status,
            type_,
            ConditionStatus::False,
            REASON,
            "Suspend is true",
            now,
        );
    }
    for type_ in [ConditionType::PodsReady, ConditionType::Unhealthy] {
        clear_condition(&mut step.status, type_, REASON, "", now);
    }
    step.enter(Phase::Suspended)
}
