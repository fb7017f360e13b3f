//! The table of component kinds: where their pod templates lie, how many pods they make, how they end.
//!
//! A kind is a row here and nothing elsewhere. Kinds without a row are wrapped through declared pod sets; their existence is
//! watched and their pods are counted (spec/components.md section 3, design/decisions.md 13).

mod counts;
mod table;

use serde::Deserialize;

use self::counts::{ActiveServiceHead, RayClusterHead};
pub use self::{
    counts::{Counting, RayStatus},
    table::KINDS,
};
use crate::facts::{Completion, TypeRef};

/// One row: everything the project knows of a kind of component.
#[derive(Debug)]
pub struct Kind {
    /// `apiVersion`, exact.
    pub api_version: &'static str,
    /// Kind, exact.
    pub kind: &'static str,
    /// Pod templates, in the order of the inferred pod sets.
    pub pod_sets: &'static [PodSetRule],
    /// The Go controller infers no pod sets of this kind, so its users have declared them, in their own way.
    pub is_ours: bool,
    /// How the kind says that it has ended.
    pub completion: CompletionRule,
    /// What becomes of it when all its pods have succeeded.
    pub ending: Ending,
    /// What it counts itself.
    pub counting: Counting,
}

impl Kind {
    /// Whether the pod template at this path of a component is that of a group of Ray workers.
    pub fn makes_workers(&self, path: &str) -> bool {
        let groups = self
            .pod_sets
            .iter()
            .filter(|rule| rule.replicas == ReplicaRule::RayWorkers);
        let below = |path: &str, base| path.strip_prefix(base).is_some_and(|rest| rest.starts_with('['));
        let Some(path) = path.strip_prefix("template.") else {
            return false;
        };
        groups.map(|rule| rule.base).any(|base| below(path, base))
    }
}

/// Where pod sets lie in a template.
#[derive(Debug)]
pub struct PodSetRule {
    /// Path below `template` to the object or list that holds one entry per pod set; `""` is the template itself.
    pub base: &'static str,
    /// Whether `base` is a list with one pod set per element.
    pub each: bool,
    /// Path from the entry to the pod template; `""` is the entry itself.
    pub template: &'static str,
    /// How many pods the entry makes.
    pub replicas: ReplicaRule,
    /// A missing template is an error, not an absent pod set.
    pub required: bool,
    /// Hints for topology-aware scheduling.
    pub topology: Topology,
}

/// How the number of pods of a pod set is computed from its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaRule {
    /// Always one.
    One,
    /// The integer at this path; absent or null is one; anything else is an error.
    Strict(&'static str),
    /// The same, where absent or null is none: MPIJob's workers.
    OrNone(&'static str),
    /// `replicas` times `numOfHosts` of a group of Ray workers, as KubeRay's own `GetWorkerGroupDesiredReplicas`; none while
    /// the group is suspended. The Go controller counts `replicas` alone.
    RayWorkers,
    /// One pod that submits a RayJob, if KubeRay makes it; else there is no such pod set. The Go controller knows none.
    RaySubmitter,
    /// The pods of all groups of a LeaderWorkerSet that are made of its worker template: where it has a template for
    /// leaders, one less in each group.
    GroupWorkers,
    /// `completions` if given and smaller than `parallelism`, else `parallelism`; whatever is no integer is not given.
    Job(&'static str),
    /// `replicas` of the entry (default one) times the rule of the job at this path.
    JobTimesReplicas(&'static str),
}

/// Which topology annotations an inferred pod set carries (spec/api.md section 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// None.
    None,
    /// This pod label holds the rank of a pod.
    PodIndex(&'static str),
    /// This pod label holds the rank, this one the index of the sub-group; the count is the entry's `replicas`.
    SubGroups {
        /// Label with the rank of a pod.
        pod_index: &'static str,
        /// Label with the index of the sub-group.
        sub_group_index: &'static str,
    },
}

/// How a kind tells its end by its own status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionRule {
    /// It does not: pods are counted.
    Pods,
    /// Conditions of these types with status `True`.
    Conditions {
        /// Type of the condition that means success.
        complete: &'static str,
        /// Type of the condition that means failure.
        failed: &'static str,
    },
    /// `jobDeploymentStatus` and `jobStatus` of a RayJob; the first decides, because the second may lag or be lost.
    RayJob,
}

/// What the end of all pods means for a kind that does not tell its end itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The component is finished when its pods are.
    WithPods,
    /// The component runs until it is deleted: a pod that succeeds while it is being deleted is no success.
    Never,
}

impl CompletionRule {
    /// Whether the kind tells its own end, so that pods prove neither success nor failure of it.
    pub fn is_own(self) -> bool {
        self != Self::Pods
    }

    /// What `status` says.
    pub fn judge(self, status: &StatusHead) -> Completion {
        match self {
            Self::Pods => Completion::Active,
            Self::Conditions { complete, failed } => {
                if status.is_true(failed) {
                    Completion::Failed
                } else if status.is_true(complete) {
                    Completion::Complete
                } else {
                    Completion::Active
                }
            }
            Self::RayJob => match (status.job_deployment_status.as_deref(), status.job_status.as_deref()) {
                (Some("Failed" | "ValidationFailed"), _) | (Some("Complete"), Some("FAILED" | "STOPPED")) => {
                    Completion::Failed
                }
                (Some("Complete"), _) => Completion::Complete,
                _ => Completion::Active,
            },
        }
    }
}

/// The few fields of a component's status that any [`CompletionRule`] or [`Counting`] reads. Whatever is oddly typed reads as
/// absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusHead {
    #[serde(deserialize_with = "lenient")]
    conditions: Vec<ConditionHead>,
    #[serde(deserialize_with = "lenient")]
    job_status: Option<String>,
    #[serde(deserialize_with = "lenient")]
    job_deployment_status: Option<String>,
    #[serde(deserialize_with = "lenient")]
    succeeded: Option<i32>,
    #[serde(deserialize_with = "lenient")]
    desired_worker_replicas: Option<i32>,
    #[serde(deserialize_with = "lenient")]
    observed_generation: Option<i64>,
    #[serde(deserialize_with = "counts::object")]
    ray_cluster_status: RayClusterHead,
    #[serde(deserialize_with = "counts::object")]
    active_service_status: ActiveServiceHead,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ConditionHead {
    #[serde(rename = "type", deserialize_with = "lenient")]
    type_: String,
    #[serde(deserialize_with = "lenient")]
    status: String,
}

impl StatusHead {
    fn is_true(&self, type_: &str) -> bool {
        self.conditions
            .iter()
            .any(|condition| condition.type_ == type_ && condition.status == "True")
    }
}

/// A value of the wrong type is as good as none: a component's author owns its status, and a bad one may not stop ours.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::de::DeserializeOwned + Default,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// The row of a type, if it has one. Group, version and kind are compared exactly.
pub fn lookup(type_ref: &TypeRef) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|row| row.api_version == &*type_ref.api_version && row.kind == &*type_ref.kind)
}

/// `v1 Pod`, whose objects are pods themselves.
pub fn is_pod(type_ref: &TypeRef) -> bool {
    &*type_ref.kind == "Pod" && &*type_ref.api_version == "v1"
}

/// What a type counts itself; a type without a row counts nothing.
pub fn counting(type_ref: &TypeRef) -> Counting {
    lookup(type_ref).map_or(Counting::None, |row| row.counting)
}

/// How a type tells its end; a type without a row does not.
pub fn completion_rule(type_ref: &TypeRef) -> CompletionRule {
    lookup(type_ref).map_or(CompletionRule::Pods, |row| row.completion)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn judge(api_version: &str, kind: &str, status: serde_json::Value) -> Completion {
        completion_rule(&TypeRef::new(api_version, kind)).judge(&serde_json::from_value(status).unwrap())
    }

    #[rstest]
    #[case::no_condition("batch/v1", "Job", json!({}), Completion::Active)]
    #[case::between_waves("batch/v1", "Job", json!({"succeeded": 2, "active": 0}), Completion::Active)]
    #[case::not_true("batch/v1", "Job", json!({"conditions": [{"type": "Failed", "status": "False"}]}), Completion::Active)]
    #[case::failed("batch/v1", "Job", json!({"conditions": [{"type": "Failed", "status": "True"}]}), Completion::Failed)]
    #[case::complete("batch/v1", "Job", json!({"conditions": [{"type": "Complete", "status": "True"}]}), Completion::Complete)]
    #[case::success_criteria_is_not_yet_the_end("batch/v1", "Job", json!({"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}), Completion::Active)]
    #[case::jobset("jobset.x-k8s.io/v1alpha2", "JobSet", json!({"conditions": [{"type": "Completed", "status": "True"}]}), Completion::Complete)]
    #[case::pytorch("kubeflow.org/v1", "PyTorchJob", json!({"conditions": [{"type": "Succeeded", "status": "True"}]}), Completion::Complete)]
    #[case::odd_types("kubeflow.org/v1", "PyTorchJob", json!({"conditions": {"type": 1}}), Completion::Active)]
    #[case::odd_condition("kubeflow.org/v1", "PyTorchJob", json!({"conditions": [{"type": 1}]}), Completion::Active)]
    #[case::rayjob("ray.io/v1", "RayJob", json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}), Completion::Complete)]
    #[case::rayjob_disagrees("ray.io/v1", "RayJob", json!({"jobDeploymentStatus": "Running", "jobStatus": "FAILED"}), Completion::Active)]
    #[case::rayjob_failed("ray.io/v1", "RayJob", json!({"jobDeploymentStatus": "Failed"}), Completion::Failed)]
    #[case::raycluster_never("ray.io/v1", "RayCluster", json!({"state": "failed"}), Completion::Active)]
    #[case::mpi("kubeflow.org/v2beta1", "MPIJob", json!({"conditions": [{"type": "Succeeded", "status": "True"}]}), Completion::Complete)]
    #[case::mpi_of_the_training_operator("kubeflow.org/v1", "MPIJob", json!({"conditions": [{"type": "Failed", "status": "True"}]}), Completion::Failed)]
    #[case::train("trainer.kubeflow.org/v1alpha1", "TrainJob", json!({"conditions": [{"type": "Complete", "status": "True"}]}), Completion::Complete)]
    #[case::train_suspended("trainer.kubeflow.org/v1alpha1", "TrainJob", json!({"conditions": [{"type": "Suspended", "status": "True"}]}), Completion::Active)]
    #[case::job_suspended("batch/v1", "Job", json!({"conditions": [{"type": "Suspended", "status": "True"}]}), Completion::Active)]
    #[case::leader_worker_set_never("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", json!({"conditions": [{"type": "Available", "status": "True"}]}), Completion::Active)]
    #[case::rayservice_never("ray.io/v1", "RayService", json!({"serviceStatus": "Running"}), Completion::Active)]
    #[case::unknown_kind("example.com/v1", "Widget", json!({"conditions": [{"type": "Failed", "status": "True"}]}), Completion::Active)]
    fn a_kind_ends_by_its_own_status(
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] status: serde_json::Value,
        #[case] expected: Completion,
    ) {
        assert_eq!(judge(api_version, kind, status), expected);
    }
}
