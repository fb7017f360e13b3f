//! The AppWrapper is being deleted: its components go first, then the finalizer (spec/lifecycle.md section 6).
//!
//! Without our finalizer nothing was ever deployed, or somebody took it away; the garbage collector does the rest.

use appwrapper_api::{ConditionStatus, ConditionType, FINALIZER, Phase, conditions};
use jiff::Timestamp;

use super::deletion::{Deletion, delete_components};
use crate::{
    decision::{Action, Effect, Step},
    observation::Observation,
    observed::Observed,
    policy::Policy,
    status::{is_deployed, set_condition},
};

pub(crate) fn decide(observed: &Observed<'_>, policy: &Policy, now: Timestamp) -> Step {
    const REASON: &str = "Terminating";
    let mut step = Step::new(observed.status.clone());
    let finalizers = observed.wrapper.metadata.finalizers.as_deref().unwrap_or_default();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        return step;
    }
    if is_deployed(&step.status) {
        match delete_components(observed, policy, now) {
            Deletion::Step(mut step) => {
                if step.status.phase() != Some(Phase::Terminating) {
                    step.status.set_phase(Phase::Terminating);
                    step.told.push(Observation::Entered(Phase::Terminating));
                }
                return *step;
            }
            Deletion::Finished(status) => step.status = *status,
        }
        let type_ = ConditionType::ResourcesDeployed;
        let message = "Resources successfully deleted";
        set_condition(&mut step.status, type_, ConditionStatus::False, REASON, message, now);
    }
    if conditions::is_true(&step.status.conditions, ConditionType::QuotaReserved) {
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
    step.then(Action::Do(Effect::RemoveFinalizer))
}
