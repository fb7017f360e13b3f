//! Conditions, with Kubernetes' own rule for their time.
//!
//! `lastTransitionTime` moves only when `status` changes; a change of reason or message keeps it (API conventions,
//! "Typical status properties"). Deadlines of the lifecycle are computed from these times, so one rule for all writers
//! matters. Times are whole seconds.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Condition types of an AppWrapper and of its components (spec/api.md section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionType {
    /// Kueue's quota is held.
    QuotaReserved,
    /// Components may exist in the cluster.
    ResourcesDeployed,
    /// Enough pods run or have succeeded.
    PodsReady,
    /// Something is wrong with the workload.
    Unhealthy,
    /// Components are being deleted.
    DeletingResources,
    /// Why the last attempt failed; ours. `Unhealthy` is cleared by the next one, and this stays.
    LastFailure,
}

impl ConditionType {
    /// The type as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QuotaReserved => "QuotaReserved",
            Self::ResourcesDeployed => "ResourcesDeployed",
            Self::PodsReady => "PodsReady",
            Self::Unhealthy => "Unhealthy",
            Self::DeletingResources => "DeletingResources",
            Self::LastFailure => "LastFailure",
        }
    }
}

/// `status` of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl ConditionStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Longest message a condition may carry (metav1.Condition).
pub const MESSAGE_LIMIT: usize = 32_768;

/// `text` cut to `limit` bytes at a character boundary, with a mark where it was cut.
pub fn truncate(text: &str, limit: usize) -> String {
    const MARK: &str = " ... (cut)";
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", text.get(..end).unwrap_or_default())
}

/// The condition of a type.
pub fn find(conditions: &[Condition], type_: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// Whether the condition exists and is `True`.
pub fn is_true(conditions: &[Condition], type_: ConditionType) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// When the condition last changed its status, if it exists.
pub fn since(conditions: &[Condition], type_: ConditionType) -> Option<Timestamp> {
    find(conditions, type_).map(|condition| condition.last_transition_time.0)
}

/// Sets the condition; its time moves only if its status changes.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: ConditionType,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let message = truncate(message, MESSAGE_LIMIT);
    if let Some(existing) = conditions
        .iter_mut()
        .find(|condition| condition.type_ == type_.as_str())
    {
        if existing.status != status.as_str() {
            status.as_str().clone_into(&mut existing.status);
            existing.last_transition_time = whole_seconds(now);
        }
        reason.clone_into(&mut existing.reason);
        existing.message = message;
        return;
    }
    conditions.push(Condition {
        type_: type_.as_str().to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: whole_seconds(now),
        observed_generation: None,
    });
}

/// Sets the condition to `False` if it is `True`; otherwise leaves it entirely alone.
pub fn clear(conditions: &mut Vec<Condition>, type_: ConditionType, reason: &str, message: &str, now: Timestamp) {
    if is_true(conditions, type_) {
        set(conditions, type_, ConditionStatus::False, reason, message, now);
    }
}

/// Restarts the time of a condition, for a fact that is new although the status is not (spec/lifecycle.md 9, rows 21, 23).
pub fn restart(conditions: &mut [Condition], type_: ConditionType, now: Timestamp) {
    if let Some(existing) = conditions
        .iter_mut()
        .find(|condition| condition.type_ == type_.as_str())
    {
        existing.last_transition_time = whole_seconds(now);
    }
}

fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn time_moves_only_when_the_status_changes() {
        let mut conditions = Vec::new();
        let type_ = ConditionType::Unhealthy;
        set(&mut conditions, type_, ConditionStatus::True, "A", "one", at(10));
        set(&mut conditions, type_, ConditionStatus::True, "B", "two", at(20));
        assert_eq!(since(&conditions, type_), Some(at(10)));
        assert_eq!(find(&conditions, type_).unwrap().reason, "B");
        set(&mut conditions, type_, ConditionStatus::False, "C", "", at(30));
        assert_eq!(since(&conditions, type_), Some(at(30)));
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn clear_leaves_what_is_not_true_alone() {
        let mut conditions = Vec::new();
        clear(&mut conditions, ConditionType::PodsReady, "X", "", at(1));
        assert!(conditions.is_empty());
        set(
            &mut conditions,
            ConditionType::PodsReady,
            ConditionStatus::False,
            "First",
            "kept",
            at(1),
        );
        clear(&mut conditions, ConditionType::PodsReady, "X", "", at(2));
        assert_eq!(find(&conditions, ConditionType::PodsReady).unwrap().reason, "First");
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let text = "\u{e4}".repeat(50_000);
        let cut = truncate(&text, MESSAGE_LIMIT);
        assert!(cut.len() <= MESSAGE_LIMIT);
        assert!(cut.ends_with("(cut)"));
    }
}
