//! What was seen of an object, in few words.
//!
//! The caches keep these facts instead of objects, and the decision reads nothing else of a component or a pod. Every
//! type here is plain data: it carries no client and no opinion. `Presence`-like verdicts (present, absent, not synced)
//! are made of facts by the reconciler, see its `evidence` module.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// Namespace and name of an AppWrapper: the only key that is passed around. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AppWrapperKey {
    /// Namespace of the AppWrapper and of everything it owns.
    pub namespace: Arc<str>,
    /// Name of the AppWrapper.
    pub name: Arc<str>,
}

impl AppWrapperKey {
    /// The key of `namespace/name`.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for AppWrapperKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// `metadata.uid`: the identity of one incarnation of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(Arc<str>);

impl Uid {
    /// The uid as the API server wrote it.
    pub fn new(uid: impl Into<Arc<str>>) -> Self {
        Self(uid.into())
    }

    /// The uid as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A `resourceVersion` that is well formed, so that two of one resource type can be compared.
///
/// Versions are decimal integers of unbounded length without leading zeros (KEP-5504, `k8s.io/apimachinery`
/// `pkg/util/resourceversion`); comparing across resource types means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rv(Arc<str>);

impl Rv {
    /// The version in `text`, or `None` if it is empty, `0`, has a leading zero or anything but digits.
    pub fn parse(text: &str) -> Option<Self> {
        let well_formed = !text.is_empty() && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        well_formed.then(|| Self(text.into()))
    }

    /// The version as text, for a precondition.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Ord for Rv {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Rv {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Rv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An apiVersion and a kind, as an object writes them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeRef {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: Arc<str>,
    /// The kind, in upper camel case.
    pub kind: Arc<str>,
}

impl TypeRef {
    /// The type `kind` of `api_version`.
    pub fn new(api_version: impl Into<Arc<str>>, kind: impl Into<Arc<str>>) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
        }
    }

    /// The API group, empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// The version within the group.
    pub fn version(&self) -> &str {
        self.api_version
            .rsplit_once('/')
            .map_or(&*self.api_version, |(_, version)| version)
    }
}

impl fmt::Display for TypeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.api_version, self.kind)
    }
}

/// One component of an AppWrapper: which object it is, and its place in `spec.components`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ComponentRef {
    /// Position in `spec.components`.
    pub position: usize,
    /// Type of the object, from the spec (status is only a hint).
    pub type_ref: TypeRef,
    /// Name of the object.
    pub name: Arc<str>,
}

impl fmt::Display for ComponentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.type_ref.kind, self.name)
    }
}

/// The controller reference of an object (`ownerReferences[]` with `controller: true`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerRef {
    /// Type of the controller.
    pub type_ref: TypeRef,
    /// Name of the controller, in the same namespace.
    pub name: Arc<str>,
    /// Identity of the controller.
    pub uid: Uid,
}

/// How a component says of itself that it has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Completion {
    /// It says nothing, or that it is still at work.
    #[default]
    Active,
    /// It has ended well.
    Complete,
    /// It has failed.
    Failed,
}

/// What was seen of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentFacts {
    /// Identity of the object.
    pub uid: Uid,
    /// Its controller, if it has one.
    pub controller: Option<ControllerRef>,
    /// Version of the object that was read. `None` if the server's version cannot be compared.
    pub version: Option<Rv>,
    /// It carries a `deletionTimestamp`.
    pub terminating: bool,
    /// Finalizers that keep it, told to the user when a deletion takes too long.
    pub finalizers: Vec<String>,
    /// What its own status says.
    pub completion: Completion,
    /// What it counts itself.
    pub counts: OwnCounts,
}

/// What a component counts itself, where its kind does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnCounts {
    /// Pods that have succeeded (a Job's `status.succeeded`): such pods may be collected before they were seen.
    pub succeeded_pods: Option<i32>,
    /// Workers that it wants just now (a RayCluster's `status.desiredWorkerReplicas`): those that its autoscaler has taken
    /// away are not missing.
    pub desired_workers: Option<i32>,
}

impl ComponentFacts {
    /// Whether the AppWrapper with this uid controls the object.
    pub fn is_controlled_by(&self, owner: &Uid) -> bool {
        self.controller
            .as_ref()
            .is_some_and(|controller| controller.uid == *owner)
    }
}

/// `status.phase` of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PodPhase {
    /// Accepted, not yet running.
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended with exit code 0.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// The node does not answer, or the field is empty or new to us.
    #[default]
    Unknown,
}

impl PodPhase {
    /// The phase named `text`; anything else is `Unknown`.
    pub fn parse(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }
}

/// Where the controller references of a pod lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lineage {
    /// The chain leads through a component to an AppWrapper.
    Component {
        /// Identity of the component: the last link before the AppWrapper, or the pod itself.
        component: Uid,
        /// Identity of the AppWrapper.
        owner: Uid,
    },
    /// The pod has no controller, or the chain ends at something that is no AppWrapper.
    Foreign,
    /// A link of the chain no longer exists, so where it led cannot be told. The garbage collector is about to
    /// delete such a pod.
    Broken,
    /// A link has not been looked up yet, or the look-up failed for a reason that says nothing.
    Unresolved,
}

/// What was seen of one pod that carries the label of an AppWrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Name of the pod.
    pub name: Arc<str>,
    /// Identity of the pod.
    pub uid: Uid,
    /// Version of the pod that was seen. `None` if the server's version cannot be compared.
    pub version: Option<Rv>,
    /// Where its controller references lead.
    pub lineage: Lineage,
    /// Its phase.
    pub phase: PodPhase,
    /// It carries a `deletionTimestamp`.
    pub terminating: bool,
    /// Finalizers that keep it.
    pub finalizers: Vec<String>,
    /// Node it runs on.
    pub node: Option<Arc<str>>,
    /// Exit codes other than 0 of its containers and init containers that have ended.
    pub exit_codes: Vec<i32>,
    /// Extended resources (names with a `/`) that a regular container asks for in a quantity other than 0.
    pub resources: Vec<Arc<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_of_any_length() {
        let version = |text| Rv::parse(text).unwrap();
        assert!(version("9") < version("10"));
        assert!(version("18446744073709551616") > version("18446744073709551615"));
        assert_eq!(version("7").cmp(&version("7")), Ordering::Equal);
    }

    #[test]
    fn a_version_that_cannot_be_compared_is_none() {
        for text in ["", "0", "01", "1a", "-1", " 1"] {
            assert_eq!(Rv::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_core_type_has_an_empty_group() {
        assert_eq!(TypeRef::new("v1", "Pod").group(), "");
        assert_eq!(TypeRef::new("batch/v1", "Job").group(), "batch");
        assert_eq!(TypeRef::new("batch/v1", "Job").version(), "v1");
    }
}
