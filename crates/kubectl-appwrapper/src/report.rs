//! What is known of one AppWrapper: plain data, printed by [`crate::tree`] or as JSON.

use jiff::Timestamp;
use serde::Serialize;

/// An AppWrapper as a person wants to see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Phase; empty if no controller has looked at it yet.
    pub phase: String,
    /// When it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// `spec.suspend`.
    pub suspend: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// Another controller that is in charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    /// The condition that says most about how it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Why the last attempt failed, if one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Reason>,
    /// Retries used.
    pub retries: i32,
    /// Retries allowed.
    pub retry_limit: i32,
    /// What happens next of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
    /// Enough pods run or have succeeded.
    pub pods_ready: bool,
    /// Who looks after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// The queue it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What Kueue makes of it.
    pub kueue: Kueue,
    /// Its components, in the order of the spec.
    pub components: Vec<Component>,
    /// Pods that carry its label but belong to none of its components.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_pods: Vec<Pod>,
    /// Events about it, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// Kinds that the controller may not create, as far as could be asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forbidden_kinds: Vec<String>,
    /// What could not be read, and so is not in this report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// A condition in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// Reason of the condition.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when it has held.
    pub since: Timestamp,
}

/// The next deadline.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Next {
    /// When.
    pub at: Timestamp,
    /// Seconds until then; negative if it is overdue.
    pub in_seconds: i64,
    /// What happens then.
    pub what: &'static str,
}

/// Who looks after an AppWrapper.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Its slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The shard that has the slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The replica that holds the shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Seconds since that replica has said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_seconds_ago: Option<i64>,
    /// It has not said so for longer than its Lease lasts.
    pub overdue: bool,
}

/// What Kueue makes of an AppWrapper.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum Kueue {
    /// It was not asked, or the answer was refused.
    #[default]
    Unknown,
    /// The cluster has no Kueue.
    Absent,
    /// It has no Workload for the AppWrapper.
    NoWorkload,
    /// It has this one.
    Workload(Workload),
}

/// A Workload of Kueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Name.
    pub name: String,
    /// It holds quota.
    pub quota_reserved: bool,
    /// It may run.
    pub admitted: bool,
    /// Somebody has deactivated it.
    pub inactive: bool,
    /// The ClusterQueue that admitted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_queue: Option<String>,
    /// Why it waits or was evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Reason>,
    /// Admission checks that have not passed: name, state and message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
}

/// A component.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Kind.
    pub kind: String,
    /// Name; empty if it is not known yet.
    pub name: String,
    /// How it stands.
    pub state: State,
    /// Pods it should have.
    pub expected_pods: i64,
    /// Pods it has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Pod>,
}

/// How a component stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum State {
    /// It was not created yet, or is deleted again.
    #[default]
    NotCreated,
    /// It exists.
    Active,
    /// It exists and is suspended by its own spec, so it makes no pods.
    Suspended,
    /// It has ended well by its own word.
    Complete,
    /// It has failed by its own word.
    Failed,
    /// It is being deleted.
    Deleting,
    /// It was created, and does not exist.
    Missing,
    /// It may not be read.
    Unreadable,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Name.
    pub name: String,
    /// Phase, or `Terminating`.
    pub phase: String,
    /// Node it runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why it is not running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Exit codes other than 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exit_codes: Vec<i32>,
    /// Restarts of its containers.
    pub restarts: i32,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// When it was last told.
    pub at: Timestamp,
    /// It is a warning.
    pub warning: bool,
    /// Reason.
    pub reason: String,
    /// Text.
    pub note: String,
}

impl State {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotCreated => "NotCreated",
            Self::Active => "Active",
            Self::Suspended => "Suspended",
            Self::Complete => "Complete",
            Self::Failed => "Failed",
            Self::Deleting => "Deleting",
            Self::Missing => "Missing",
            Self::Unreadable => "Unreadable",
        }
    }
}
