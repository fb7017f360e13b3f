//! What a kind counts itself, read from its status.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

use super::{StatusHead, lenient};
use crate::facts::OwnCounts;

/// What a kind counts in its own status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// Nothing that would be needed.
    None,
    /// `succeeded`, as a Job does. A RayJob has a field of this name, too, but counts attempts.
    Succeeded,
    /// `desiredWorkerReplicas` of a RayCluster: the workers that it wants just now, which its autoscaler moves.
    RayWorkers(RayStatus),
}

/// Where the status of a RayCluster lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RayStatus {
    /// It is the status of the object.
    Own,
    /// `rayClusterStatus` of a RayJob.
    OfJob,
    /// `activeServiceStatus.rayClusterStatus` of a RayService.
    OfService,
}

impl Counting {
    /// The counts in `status`.
    pub fn read(self, status: &StatusHead) -> OwnCounts {
        match self {
            Self::None => OwnCounts::default(),
            Self::Succeeded => OwnCounts {
                succeeded_pods: status.succeeded,
                ..OwnCounts::default()
            },
            Self::RayWorkers(place) => OwnCounts {
                desired_workers: match place {
                    RayStatus::Own => status.ray_cluster().desired_workers(),
                    RayStatus::OfJob => status.ray_cluster_status.desired_workers(),
                    RayStatus::OfService => status.active_service_status.ray_cluster_status.desired_workers(),
                },
                ..OwnCounts::default()
            },
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ActiveServiceHead {
    #[serde(deserialize_with = "object")]
    ray_cluster_status: RayClusterHead,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RayClusterHead {
    #[serde(deserialize_with = "lenient")]
    desired_worker_replicas: Option<i32>,
    #[serde(deserialize_with = "lenient")]
    observed_generation: Option<i64>,
}

impl RayClusterHead {
    /// KubeRay leaves a zero out: without the number, a generation that was observed means none.
    fn desired_workers(self) -> Option<i32> {
        self.desired_worker_replicas.or(self.observed_generation.map(|_| 0))
    }
}

impl StatusHead {
    fn ray_cluster(&self) -> RayClusterHead {
        RayClusterHead {
            desired_worker_replicas: self.desired_worker_replicas,
            observed_generation: self.observed_generation,
        }
    }
}

/// An object, or as good as none: of a list serde would take the elements for the fields.
pub(super) fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    let object = Some(value).filter(Value::is_object);
    Ok(object
        .and_then(|object| serde_json::from_value(object).ok())
        .unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use crate::{facts::TypeRef, kinds::counting};

    #[rstest]
    #[case::not_said("RayCluster", json!({}), None)]
    #[case::smaller("RayCluster", json!({"desiredWorkerReplicas": 2, "observedGeneration": 3}), Some(2))]
    #[case::a_zero_is_left_out("RayCluster", json!({"observedGeneration": 3, "state": "ready"}), Some(0))]
    #[case::oddly_typed("RayCluster", json!({"desiredWorkerReplicas": "2"}), None)]
    #[case::of_a_job("RayJob", json!({"rayClusterStatus": {"desiredWorkerReplicas": 1}}), Some(1))]
    #[case::a_job_says_no_more("RayJob", json!({"desiredWorkerReplicas": 1, "observedGeneration": 3}), None)]
    #[case::a_text("RayJob", json!({"rayClusterStatus": "ready"}), None)]
    #[case::a_list("RayJob", json!({"rayClusterStatus": [1]}), None)]
    #[case::a_list_of_a_service("RayService", json!({"activeServiceStatus": [{"desiredWorkerReplicas": 1}]}), None)]
    #[case::of_a_service("RayService", json!({"activeServiceStatus": {"rayClusterStatus": {"observedGeneration": 1}}}), Some(0))]
    fn the_workers_that_ray_wants_are_read(
        #[case] kind: &str,
        #[case] status: serde_json::Value,
        #[case] expected: Option<i32>,
    ) {
        let status = serde_json::from_value(status).unwrap();
        let counts = counting(&TypeRef::new("ray.io/v1", kind)).read(&status);
        assert_eq!(counts.desired_workers, expected);
    }
}
