//! The empty phase: the AppWrapper is seen for the first time.
//!
//! The status of its components is published complete or not at all, because Kueue derives its pod sets from it. An
//! AppWrapper whose pod sets cannot be told waits for a change of its spec and says why.

use appwrapper_api::{ConditionStatus, ConditionType, Phase, conditions};
use jiff::{SignedDuration, Timestamp};

use crate::{
    decide::after,
    decision::Step,
    observation::Event,
    observed::Observed,
    status::{init_components, set_condition},
};

/// Nothing but a change of the spec can help, and that wakes the AppWrapper; this is only the net.
const NET: SignedDuration = SignedDuration::from_mins(10);
const REASON: &str = "InvalidComponent";

pub(crate) fn decide(observed: &Observed<'_>, now: Timestamp) -> Step {
    let mut step = Step::new(observed.status.clone());
    match init_components(observed.wrapper, &mut step.status) {
        Ok(_) => {
            let refused_before = conditions::find(&step.status.conditions, ConditionType::Unhealthy)
                .is_some_and(|condition| condition.reason == REASON);
            if refused_before {
                step.status
                    .conditions
                    .retain(|condition| condition.type_ != ConditionType::Unhealthy.as_str());
            }
            step.enter(Phase::Suspended)
        }
        Err((position, error)) => {
            let message = format!("spec.components[{position}]: {error}");
            set_condition(
                &mut step.status,
                ConditionType::Unhealthy,
                ConditionStatus::True,
                REASON,
                &message,
                now,
            );
            step.event(Event::warning(REASON, message)).then(after(NET))
        }
    }
}
