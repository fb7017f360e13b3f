//! The rows: one per kind.

use super::{CompletionRule, Counting, Ending, Kind, PodSetRule, RayStatus, ReplicaRule, Topology};

const JOB_END: CompletionRule = CompletionRule::Conditions {
    complete: "Complete",
    failed: "Failed",
};

const fn plain(base: &'static str, replicas: ReplicaRule) -> PodSetRule {
    PodSetRule {
        base,
        each: false,
        template: "template",
        replicas,
        required: false,
        topology: Topology::None,
    }
}

const fn ray_head(base: &'static str) -> PodSetRule {
    PodSetRule {
        required: true,
        ..plain(base, ReplicaRule::One)
    }
}

const fn ray_workers(base: &'static str) -> PodSetRule {
    PodSetRule {
        each: true,
        ..plain(base, ReplicaRule::RayWorkers)
    }
}

/// Both operators that serve it use these conditions.
const KUBEFLOW_END: CompletionRule = CompletionRule::Conditions {
    complete: "Succeeded",
    failed: "Failed",
};

const MPI_SETS: &[PodSetRule] = &[
    plain("spec.mpiReplicaSpecs.Launcher", ReplicaRule::Strict("replicas")),
    plain("spec.mpiReplicaSpecs.Worker", ReplicaRule::OrNone("replicas")),
];

const fn pytorch(base: &'static str) -> PodSetRule {
    PodSetRule {
        topology: Topology::PodIndex("training.kubeflow.org/replica-index"),
        ..plain(base, ReplicaRule::Strict("replicas"))
    }
}

const JOB_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Every kind with a row, in alphabetical order of their API groups.
pub static KINDS: &[Kind] = &[
    Kind {
        api_version: "v1",
        kind: "Pod",
        is_ours: false,
        pod_sets: &[PodSetRule {
            template: "",
            ..plain("", ReplicaRule::One)
        }],
        completion: CompletionRule::Pods,
        ending: Ending::WithPods,
        counting: Counting::None,
    },
    Kind {
        api_version: "apps/v1",
        kind: "Deployment",
        is_ours: false,
        pod_sets: &[plain("spec", ReplicaRule::Strict("replicas"))],
        completion: CompletionRule::Pods,
        ending: Ending::Never,
        counting: Counting::None,
    },
    Kind {
        api_version: "apps/v1",
        kind: "StatefulSet",
        is_ours: false,
        pod_sets: &[plain("spec", ReplicaRule::Strict("replicas"))],
        completion: CompletionRule::Pods,
        ending: Ending::Never,
        counting: Counting::None,
    },
    Kind {
        api_version: "batch/v1",
        kind: "Job",
        is_ours: false,
        pod_sets: &[PodSetRule {
            required: true,
            topology: Topology::PodIndex(JOB_INDEX),
            ..plain("spec", ReplicaRule::Job(""))
        }],
        completion: JOB_END,
        ending: Ending::WithPods,
        counting: Counting::Succeeded,
    },
    Kind {
        api_version: "jobset.x-k8s.io/v1alpha2",
        kind: "JobSet",
        is_ours: false,
        pod_sets: &[PodSetRule {
            base: "spec.replicatedJobs",
            each: true,
            template: "template.spec.template",
            replicas: ReplicaRule::JobTimesReplicas("template.spec"),
            required: false,
            topology: Topology::SubGroups {
                pod_index: JOB_INDEX,
                sub_group_index: "jobset.sigs.k8s.io/job-index",
            },
        }],
        completion: CompletionRule::Conditions {
            complete: "Completed",
            failed: "Failed",
        },
        ending: Ending::WithPods,
        counting: Counting::None,
    },
    Kind {
        api_version: "kubeflow.org/v1",
        kind: "PyTorchJob",
        is_ours: false,
        pod_sets: &[
            pytorch("spec.pytorchReplicaSpecs.Master"),
            pytorch("spec.pytorchReplicaSpecs.Worker"),
        ],
        completion: KUBEFLOW_END,
        ending: Ending::WithPods,
        counting: Counting::None,
    },
    // Of the training operator.
    Kind {
        api_version: "kubeflow.org/v1",
        kind: "MPIJob",
        is_ours: true,
        pod_sets: MPI_SETS,
        completion: KUBEFLOW_END,
        ending: Ending::WithPods,
        counting: Counting::None,
    },
    // Of the MPI operator.
    Kind {
        api_version: "kubeflow.org/v2beta1",
        kind: "MPIJob",
        is_ours: true,
        pod_sets: MPI_SETS,
        completion: KUBEFLOW_END,
        ending: Ending::WithPods,
        counting: Counting::None,
    },
    Kind {
        api_version: "leaderworkerset.x-k8s.io/v1",
        kind: "LeaderWorkerSet",
        is_ours: true,
        pod_sets: &[
            PodSetRule {
                template: "leaderWorkerTemplate.leaderTemplate",
                ..plain("spec", ReplicaRule::Strict("replicas"))
            },
            PodSetRule {
                template: "leaderWorkerTemplate.workerTemplate",
                required: true,
                ..plain("spec", ReplicaRule::GroupWorkers)
            },
        ],
        completion: CompletionRule::Pods,
        ending: Ending::Never,
        counting: Counting::None,
    },
    Kind {
        api_version: "ray.io/v1",
        kind: "RayCluster",
        is_ours: false,
        pod_sets: &[ray_head("spec.headGroupSpec"), ray_workers("spec.workerGroupSpecs")],
        completion: CompletionRule::Pods,
        ending: Ending::Never,
        counting: Counting::RayWorkers(RayStatus::Own),
    },
    Kind {
        api_version: "ray.io/v1",
        kind: "RayJob",
        is_ours: false,
        pod_sets: &[
            ray_head("spec.rayClusterSpec.headGroupSpec"),
            ray_workers("spec.rayClusterSpec.workerGroupSpecs"),
            PodSetRule {
                template: "submitterPodTemplate",
                ..plain("spec", ReplicaRule::RaySubmitter)
            },
        ],
        completion: CompletionRule::RayJob,
        ending: Ending::WithPods,
        counting: Counting::RayWorkers(RayStatus::OfJob),
    },
    Kind {
        api_version: "ray.io/v1",
        kind: "RayService",
        is_ours: true,
        pod_sets: &[
            ray_head("spec.rayClusterConfig.headGroupSpec"),
            ray_workers("spec.rayClusterConfig.workerGroupSpecs"),
        ],
        completion: CompletionRule::Pods,
        ending: Ending::Never,
        counting: Counting::RayWorkers(RayStatus::OfService),
    },
    // Its pod templates lie in the runtime that it refers to; a user declares those that it overrides.
    Kind {
        api_version: "trainer.kubeflow.org/v1alpha1",
        kind: "TrainJob",
        is_ours: true,
        pod_sets: &[],
        completion: CompletionRule::Conditions {
            complete: "Complete",
            failed: "Failed",
        },
        ending: Ending::WithPods,
        counting: Counting::None,
    },
];
