//! Suspended: nothing is deployed until `spec.suspend` becomes false.

use appwrapper_api::{ConditionStatus, ConditionType, FINALIZER, Phase};
use jiff::Timestamp;

use crate::{
    decision::{Action, Effect, Step},
    observed::Observed,
    status::{Recorded, recorded, set_condition},
};

pub(crate) fn decide(observed: &Observed<'_>, now: Timestamp) -> Step {
    let mut step = Step::new(observed.status.clone());
    if observed.wrapper.spec.suspend {
        return step;
    }
    let has_finalizer = observed
        .wrapper
        .metadata
        .finalizers
        .as_ref()
        .is_some_and(|all| all.iter().any(|name| name == FINALIZER));
    if !has_finalizer {
        return step.then(Action::Do(Effect::AddFinalizer));
    }
    for (type_, status) in [
        (ConditionType::QuotaReserved, ConditionStatus::True),
        (ConditionType::ResourcesDeployed, ConditionStatus::True),
        (ConditionType::PodsReady, ConditionStatus::False),
        (ConditionType::Unhealthy, ConditionStatus::False),
    ] {
        set_condition(&mut step.status, type_, status, "Resuming", "Suspend is false", now);
    }
    forget_creations(&mut step);
    step.enter(Phase::Resuming)
}

/// Nothing is deployed now, whatever a restored or edited status says of single components.
fn forget_creations(step: &mut Step) {
    for component in &mut step.status.component_status {
        if recorded(component) != Recorded::Absent {
            component.conditions.clear();
        }
    }
}
