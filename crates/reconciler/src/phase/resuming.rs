//! Resuming: components are created in the order of the spec.
//!
//! Before the first create, the intent to create every component is written down with its final name, in one patch that
//! carries the version the decision rests on. So a crash at any point leaves a record of whatever may exist, a retry
//! creates the same names, and a stale copy of the AppWrapper creates nothing (spec/lifecycle.md 9, rows 15 to 17).

use appwrapper_api::{
    AppWrapper, AppWrapperStatus, ConditionStatus, ConditionType, Phase, conditions::truncate, rules,
};
use jiff::{SignedDuration, Timestamp};

use super::{Failure, reset_or_fail, suspend};
use crate::{
    deadline,
    decide::{after, until},
    decision::{Action, Effect, Step},
    names::generate_name,
    observation::Event,
    observed::{CreateOutcome, Observed},
    policy::Policy,
    status::{Recorded, attempt_start, component_reason, init_components, record, recorded, repair, unhealthy},
};

/// The first retry of a refused create comes after this time; later ones after half the time that has passed, so that a
/// create that is refused for long costs few requests.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(1);
const SLOWEST_RETRY: SignedDuration = SignedDuration::from_secs(60);
/// Longest text of the API server that is passed on.
const ERROR_LIMIT: usize = 2_000;
const REASON: &str = "CreateFailed";

pub(crate) fn decide(observed: &Observed<'_>, policy: &Policy, now: Timestamp) -> Step {
    let mut step = Step::new(observed.status.clone());
    if observed.wrapper.spec.suspend {
        return suspend(step, Phase::Resuming);
    }
    repair(&mut step.status, now);
    if let Err((position, error)) = init_components(observed.wrapper, &mut step.status) {
        return failed(
            step,
            policy,
            &format!("spec.components[{position}]: {error}"),
            true,
            now,
        );
    }
    if step
        .status
        .component_status
        .iter()
        .any(|component| recorded(component) == Recorded::Absent)
    {
        if let Err(violation) = rules::check(observed.wrapper, &policy.admission) {
            return failed(step, policy, &violation.to_string(), true, now);
        }
        record_intents(observed.wrapper, &mut step.status, now);
        return step.then(Action::Again);
    }
    for position in 0..step.status.component_status.len() {
        let Some(component) = step.status.component_status.get_mut(position) else {
            continue;
        };
        if recorded(component) == Recorded::Created {
            continue;
        }
        match observed.outcomes.created.get(&position) {
            None => return step.then(Action::Do(Effect::Deploy(position))),
            Some(CreateOutcome::Created) => {
                record(component, ConditionStatus::True, component_reason::CREATED, now);
            }
            Some(CreateOutcome::Fatal(error)) => {
                record(component, ConditionStatus::False, component_reason::ERRORED, now);
                return failed(step, policy, error, true, now);
            }
            Some(CreateOutcome::Uncertain(error)) => return try_again(step, policy, error, now),
        }
    }
    step.enter(Phase::Running)
}

/// Writes down the name of every component that is not recorded as created, before any of them is.
fn record_intents(wrapper: &AppWrapper, status: &mut AppWrapperStatus, now: Timestamp) {
    let start = attempt_start(status, now);
    let attempt = status.resetting_count;
    let uid = wrapper.metadata.uid.as_deref().unwrap_or_default();
    for (position, (component, recorded_status)) in wrapper
        .spec
        .components
        .iter()
        .zip(&mut status.component_status)
        .enumerate()
    {
        if recorded(recorded_status) != Recorded::Absent {
            continue;
        }
        let Ok(head) = component.template.head() else { continue };
        recorded_status.name = match (&head.name, &head.generate_name) {
            (Some(name), _) => name.to_string(),
            (None, Some(prefix)) => generate_name(prefix, &(uid, position, attempt, start)),
            (None, None) => String::new(),
        };
        recorded_status.kind = head.type_ref.kind.to_string();
        recorded_status.api_version = head.type_ref.api_version.to_string();
        record(
            recorded_status,
            ConditionStatus::Unknown,
            component_reason::INITIATED,
            now,
        );
    }
}

/// A create that may succeed later: tries again within the admission grace, then costs a retry.
fn try_again(step: Step, policy: &Policy, error: &str, now: Timestamp) -> Step {
    let start = attempt_start(&step.status, now);
    if let Some(left) = until(deadline::creation(&step.status, policy, now), now) {
        let passed = now.duration_since(start).max(SignedDuration::ZERO);
        let delay = (passed / 2).clamp(FIRST_RETRY, SLOWEST_RETRY).min(left);
        let note = format!(
            "error creating components: {}; trying again for {}",
            truncate(error, ERROR_LIMIT),
            policy.admission_grace
        );
        return step.event(Event::warning(REASON, note)).then(after(delay));
    }
    // Whatever may exist stays recorded as such, so that the deletion that follows looks for it.
    failed(step, policy, error, false, now)
}

fn failed(mut step: Step, policy: &Policy, error: &str, fatal: bool, now: Timestamp) -> Step {
    let message = format!("error creating components: {}", truncate(error, ERROR_LIMIT));
    unhealthy(&mut step.status, REASON, &message, now);
    step = step.event(Event::warning(
        ConditionType::Unhealthy.as_str(),
        format!("{REASON}: {message}"),
    ));
    let failure = Failure {
        terminal: fatal,
        ..Failure::of(REASON, message)
    };
    reset_or_fail(step, policy, &failure, now)
}
