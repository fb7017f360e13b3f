//! Small steps on a status that several phases share.

use appwrapper_api::{
    AppWrapper, AppWrapperStatus, ComponentStatus, ConditionStatus, ConditionType, Phase,
    conditions::{self, clear, set},
    podsets::{self, PodSetError},
};
use jiff::Timestamp;

/// Reasons of a component's `ResourcesDeployed` condition (spec/api.md section 5).
pub mod component_reason {
    /// A create is about to be sent, or was sent and its outcome is not known.
    pub const INITIATED: &str = "ComponentCreationInitiated";
    /// The create failed.
    pub const ERRORED: &str = "ComponentCreationErrored";
    /// It exists.
    pub const CREATED: &str = "ComponentCreatedSuccessfully";
    /// It ended well by its own word; ours, written down so that its removal afterwards is no failure.
    pub const SUCCEEDED: &str = "ComponentSucceeded";
    /// It is gone. The spelling is upstream's and is compared by others.
    pub const DELETED: &str = "CompononetDeleted";
}

/// What is written down of a component's creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Nothing, or that it does not exist.
    Absent,
    /// That it may exist.
    Initiated,
    /// That it exists.
    Created,
}

/// What is written down of a component.
pub fn recorded(component: &ComponentStatus) -> Recorded {
    match conditions::find(&component.conditions, ConditionType::ResourcesDeployed).map(|found| found.status.as_str()) {
        Some("True") => Recorded::Created,
        Some("Unknown") if !component.name.is_empty() => Recorded::Initiated,
        _ => Recorded::Absent,
    }
}

/// Whether it is written down that the component ended well.
pub fn is_component_finished(component: &ComponentStatus) -> bool {
    conditions::find(&component.conditions, ConditionType::ResourcesDeployed)
        .is_some_and(|condition| condition.status == "True" && condition.reason == component_reason::SUCCEEDED)
}

/// Writes down what became of a component.
pub fn record(component: &mut ComponentStatus, status: ConditionStatus, reason: &str, now: Timestamp) {
    set(
        &mut component.conditions,
        ConditionType::ResourcesDeployed,
        status,
        reason,
        "",
        now,
    );
}

/// Makes one entry per component with its pod sets, unless the number is right already: what was inferred once stays, so
/// that a later change of the spec cannot disturb it.
pub fn init_components(wrapper: &AppWrapper, status: &mut AppWrapperStatus) -> Result<bool, (usize, PodSetError)> {
    if status.component_status.len() == wrapper.spec.components.len() {
        return Ok(false);
    }
    status.component_status = wrapper
        .spec
        .components
        .iter()
        .enumerate()
        .map(|(position, component)| {
            let pod_sets = podsets::resolve(component).map_err(|error| (position, error))?;
            Ok(ComponentStatus {
                pod_sets,
                ..ComponentStatus::default()
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(true)
}

/// Whether components may exist. A status that was restored or edited may lack the condition; then the phase decides.
pub fn is_deployed(status: &AppWrapperStatus) -> bool {
    match conditions::find(&status.conditions, ConditionType::ResourcesDeployed) {
        Some(condition) => condition.status == "True",
        None => !matches!(status.phase(), Some(Phase::Empty | Phase::Suspended)),
    }
}

/// When the present attempt began, which is when its deployment did.
pub fn attempt_start(status: &AppWrapperStatus, now: Timestamp) -> Timestamp {
    conditions::since(&status.conditions, ConditionType::ResourcesDeployed).unwrap_or(now)
}

/// Puts back the conditions that every phase after Resuming relies on, if a restored or edited status lacks them.
pub fn repair(status: &mut AppWrapperStatus, now: Timestamp) {
    for type_ in [ConditionType::QuotaReserved, ConditionType::ResourcesDeployed] {
        if conditions::find(&status.conditions, type_).is_none() {
            set(
                &mut status.conditions,
                type_,
                ConditionStatus::True,
                "Resuming",
                "Suspend is false",
                now,
            );
        }
    }
}

/// Marks the AppWrapper unhealthy. The time starts anew if the cause is another one, or was last seen before the present
/// attempt: a grace period must not be over before it has begun. Says whether the cause is news.
pub fn unhealthy(status: &mut AppWrapperStatus, reason: &str, message: &str, now: Timestamp) -> bool {
    let start = attempt_start(status, now);
    let is_known = conditions::find(&status.conditions, ConditionType::Unhealthy).is_some_and(|condition| {
        condition.status == "True" && condition.reason == reason && condition.last_transition_time.0 >= start
    });
    set(
        &mut status.conditions,
        ConditionType::Unhealthy,
        ConditionStatus::True,
        reason,
        message,
        now,
    );
    if !is_known {
        conditions::restart(&mut status.conditions, ConditionType::Unhealthy, now);
    }
    !is_known
}

/// Whether two statuses say the same but for the messages of conditions.
pub fn is_same_but_for_messages(one: &AppWrapperStatus, other: &AppWrapperStatus) -> bool {
    let silent = |status: &AppWrapperStatus| {
        let mut status = status.clone();
        for condition in &mut status.conditions {
            condition.message.clear();
        }
        status
    };
    silent(one) == silent(other)
}

/// Clears a condition that holds.
pub fn clear_condition(
    status: &mut AppWrapperStatus,
    type_: ConditionType,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    clear(&mut status.conditions, type_, reason, message, now);
}

/// Sets a condition of the AppWrapper.
pub fn set_condition(
    status: &mut AppWrapperStatus,
    type_: ConditionType,
    value: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    set(&mut status.conditions, type_, value, reason, message, now);
}
