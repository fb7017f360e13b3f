//! The table of kinds against the schemas of the real definitions: every path of a row leads to a field of the right type.
//!
//! What is known of the schemas was read from the CustomResourceDefinitions in the Go modules named here, all of them
//! Apache-2.0. A new version is taken in by reading it again.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use appwrapper_api::{
    TypeRef,
    kinds::{self, CompletionRule, KINDS, Kind, PodSetRule, ReplicaRule},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    PodTemplate,
    Integer,
    Boolean,
    Text,
}

use Type::{Boolean, Integer, PodTemplate, Text};

/// What is known of one version of a kind.
struct Schema {
    api_version: &'static str,
    kind: &'static str,
    fields: &'static [(&'static str, Type)],
}

const SCHEMAS: &[Schema] = &[
    Schema {
        api_version: "jobset.x-k8s.io/v1alpha2",
        kind: "JobSet",
        // sigs.k8s.io/jobset@v0.11.1, config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml
        fields: &[
            ("spec.replicatedJobs[].replicas", Integer),
            ("spec.replicatedJobs[].template.spec.parallelism", Integer),
            ("spec.replicatedJobs[].template.spec.completions", Integer),
            ("spec.replicatedJobs[].template.spec.template", PodTemplate),
            ("status.conditions[].type", Text),
        ],
    },
    Schema {
        api_version: "leaderworkerset.x-k8s.io/v1",
        kind: "LeaderWorkerSet",
        // sigs.k8s.io/lws@v0.7.0, config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml
        fields: &[
            ("spec.replicas", Integer),
            ("spec.leaderWorkerTemplate.size", Integer),
            ("spec.leaderWorkerTemplate.leaderTemplate", PodTemplate),
            ("spec.leaderWorkerTemplate.workerTemplate", PodTemplate),
        ],
    },
    Schema {
        api_version: "kubeflow.org/v1",
        kind: "PyTorchJob",
        // github.com/kubeflow/training-operator@v1.9.0, manifests/base/crds/kubeflow.org_pytorchjobs.yaml
        fields: &[
            ("spec.pytorchReplicaSpecs.Master.replicas", Integer),
            ("spec.pytorchReplicaSpecs.Master.template", PodTemplate),
            ("spec.pytorchReplicaSpecs.Worker.replicas", Integer),
            ("spec.pytorchReplicaSpecs.Worker.template", PodTemplate),
            ("status.conditions[].type", Text),
        ],
    },
    Schema {
        api_version: "kubeflow.org/v1",
        kind: "MPIJob",
        // github.com/kubeflow/training-operator@v1.9.0, manifests/base/crds/kubeflow.org_mpijobs.yaml
        fields: &[
            ("spec.mpiReplicaSpecs.Launcher.replicas", Integer),
            ("spec.mpiReplicaSpecs.Launcher.template", PodTemplate),
            ("spec.mpiReplicaSpecs.Worker.replicas", Integer),
            ("spec.mpiReplicaSpecs.Worker.template", PodTemplate),
            ("status.conditions[].type", Text),
        ],
    },
    Schema {
        api_version: "kubeflow.org/v2beta1",
        kind: "MPIJob",
        // github.com/kubeflow/mpi-operator@v0.6.0, manifests/base/kubeflow.org_mpijobs.yaml
        fields: &[
            ("spec.mpiReplicaSpecs.Launcher.replicas", Integer),
            ("spec.mpiReplicaSpecs.Launcher.template", PodTemplate),
            ("spec.mpiReplicaSpecs.Worker.replicas", Integer),
            ("spec.mpiReplicaSpecs.Worker.template", PodTemplate),
            ("status.conditions[].type", Text),
        ],
    },
    Schema {
        api_version: "trainer.kubeflow.org/v1alpha1",
        kind: "TrainJob",
        // github.com/kubeflow/trainer/v2@v2.1.0, manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml
        fields: &[("status.conditions[].type", Text)],
    },
    Schema {
        api_version: "ray.io/v1",
        kind: "RayCluster",
        // github.com/ray-project/kuberay/ray-operator@v1.5.0, config/crd/bases/ray.io_rayclusters.yaml
        fields: &[
            ("spec.headGroupSpec.template", PodTemplate),
            ("spec.workerGroupSpecs[].template", PodTemplate),
            ("spec.workerGroupSpecs[].replicas", Integer),
            ("spec.workerGroupSpecs[].numOfHosts", Integer),
            ("spec.workerGroupSpecs[].suspend", Boolean),
        ],
    },
    Schema {
        api_version: "ray.io/v1",
        kind: "RayJob",
        // github.com/ray-project/kuberay/ray-operator@v1.5.0, config/crd/bases/ray.io_rayjobs.yaml
        fields: &[
            ("spec.rayClusterSpec.headGroupSpec.template", PodTemplate),
            ("spec.rayClusterSpec.workerGroupSpecs[].template", PodTemplate),
            ("spec.rayClusterSpec.workerGroupSpecs[].replicas", Integer),
            ("spec.rayClusterSpec.workerGroupSpecs[].numOfHosts", Integer),
            ("spec.rayClusterSpec.workerGroupSpecs[].suspend", Boolean),
            ("spec.submitterPodTemplate", PodTemplate),
            ("spec.submissionMode", Text),
            ("status.jobStatus", Text),
            ("status.jobDeploymentStatus", Text),
        ],
    },
    Schema {
        api_version: "ray.io/v1",
        kind: "RayService",
        // github.com/ray-project/kuberay/ray-operator@v1.5.0, config/crd/bases/ray.io_rayservices.yaml
        fields: &[
            ("spec.rayClusterConfig.headGroupSpec.template", PodTemplate),
            ("spec.rayClusterConfig.workerGroupSpecs[].template", PodTemplate),
            ("spec.rayClusterConfig.workerGroupSpecs[].replicas", Integer),
            ("spec.rayClusterConfig.workerGroupSpecs[].numOfHosts", Integer),
            ("spec.rayClusterConfig.workerGroupSpecs[].suspend", Boolean),
        ],
    },
];

/// Kinds of Kubernetes itself, which the tests on a real control plane create.
const BUILT_IN: [&str; 3] = ["v1", "apps/v1", "batch/v1"];

fn join(base: &str, path: &str) -> String {
    match (base, path) {
        (base, "") => base.to_owned(),
        ("", path) => path.to_owned(),
        (base, path) => format!("{base}.{path}"),
    }
}

/// The fields that a rule reads, and what they must be.
fn of_rule(rule: &PodSetRule) -> Vec<(String, Type)> {
    let base = if rule.each {
        format!("{}[]", rule.base)
    } else {
        rule.base.to_owned()
    };
    let mut fields = vec![(join(&base, rule.template), PodTemplate)];
    let mut read = |path: &str, type_| fields.push((join(&base, path), type_));
    match rule.replicas {
        ReplicaRule::One => {}
        ReplicaRule::Strict(path) | ReplicaRule::OrNone(path) => read(path, Integer),
        ReplicaRule::Job(job) => {
            for field in ["parallelism", "completions"] {
                read(&join(job, field), Integer);
            }
        }
        ReplicaRule::JobTimesReplicas(job) => {
            read("replicas", Integer);
            for field in ["parallelism", "completions"] {
                read(&join(job, field), Integer);
            }
        }
        ReplicaRule::RayWorkers => {
            read("replicas", Integer);
            read("numOfHosts", Integer);
            read("suspend", Boolean);
        }
        ReplicaRule::RaySubmitter => read("submissionMode", Text),
        ReplicaRule::GroupWorkers => {
            read("replicas", Integer);
            read("leaderWorkerTemplate.size", Integer);
            read("leaderWorkerTemplate.leaderTemplate", PodTemplate);
        }
    }
    fields
}

fn of_row(row: &Kind) -> Vec<(String, Type)> {
    let mut fields: Vec<_> = row.pod_sets.iter().flat_map(of_rule).collect();
    match row.completion {
        CompletionRule::Pods => {}
        CompletionRule::Conditions { .. } => fields.push(("status.conditions[].type".to_owned(), Text)),
        CompletionRule::RayJob => {
            fields.extend(["jobStatus", "jobDeploymentStatus"].map(|field| (format!("status.{field}"), Text)));
        }
    }
    fields
}

#[test]
fn every_path_of_the_table_leads_to_a_field_of_the_real_kind() {
    for row in KINDS.iter().filter(|row| !BUILT_IN.contains(&row.api_version)) {
        let name = format!("{} {}", row.api_version, row.kind);
        let schema = SCHEMAS
            .iter()
            .find(|schema| (schema.api_version, schema.kind) == (row.api_version, row.kind))
            .unwrap_or_else(|| panic!("nothing is known of the schema of {name}"));
        for (path, type_) in of_row(row) {
            let found = schema.fields.iter().find(|(known, _)| *known == path);
            assert_eq!(found.map(|(_, found)| *found), Some(type_), "{name}: {path}");
        }
    }
}

#[test]
fn every_known_schema_has_its_row_and_every_known_field_its_use() {
    for schema in SCHEMAS {
        let row = kinds::lookup(&TypeRef::new(schema.api_version, schema.kind)).expect(schema.kind);
        let used = of_row(row);
        for (path, _) in schema.fields {
            assert!(used.iter().any(|(known, _)| known == path), "{}: {path}", schema.kind);
        }
    }
}
