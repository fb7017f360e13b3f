//! Pod sets of a component: declared by the user or inferred from the table of kinds (spec/components.md section 3).
//!
//! Number, order, path, replicas and annotations of the result are read by Kueue, which computes the same list with its
//! own Go code before ours is published; a difference makes it suspend the workload.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    ANNOTATION_PREFIX,
    appwrapper::{Component, ComponentStatus, PodSet},
    kinds::{self, PodSetRule, ReplicaRule, Topology},
    path::{Path, PathError},
    pod_template,
    template::TemplateError,
};

/// Why the pod sets of a component cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodSetError {
    /// The template names no object.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A path leads nowhere.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path leads to something else than a pod template.
    #[error("{path} does not refer to a v1.PodSpecTemplate: {fault}")]
    NotAPodTemplate {
        /// The path.
        path: String,
        /// What is wrong with the value.
        fault: String,
    },
    /// A number of pods is not an integer.
    #[error("{path} must be an integer, found {found}")]
    NotAnInteger {
        /// The path.
        path: String,
        /// The value, shortened.
        found: String,
    },
    /// A number of pods is negative or too large.
    #[error("{path}: {count} pods is out of range; a pod set has 0 to 2147483647 pods")]
    Range {
        /// The path.
        path: String,
        /// The number.
        count: i128,
    },
    /// The parent of a replica count is missing or no object.
    #[error("{path} is missing or not an object")]
    NoParent {
        /// The path.
        path: String,
    },
}

/// The pod sets of a component: the declared ones, verbatim, or the inferred ones.
pub fn resolve(component: &Component) -> Result<Vec<PodSet>, PodSetError> {
    let template = Value::Object(component.template.object()?);
    if component.pod_sets.is_empty() {
        return infer(&component.template.head()?.type_ref, &template);
    }
    for pod_set in &component.pod_sets {
        check_count(&pod_set.path, i128::from(pod_set.replicas.unwrap_or(1)))?;
        check_template(&pod_set.path, &template)?;
    }
    Ok(component.pod_sets.clone())
}

/// The pod sets that a kind of the table makes of `template`; none for a kind without a row.
pub fn infer(type_ref: &crate::TypeRef, template: &Value) -> Result<Vec<PodSet>, PodSetError> {
    let mut pod_sets = Vec::new();
    for rule in kinds::lookup(type_ref).map_or(&[][..], |row| row.pod_sets) {
        infer_rule(rule, template, &mut pod_sets)?;
    }
    for pod_set in &pod_sets {
        check_template(&pod_set.path, template)?;
    }
    Ok(pod_sets)
}

/// Pods that all components together are expected to make. Saturates.
pub fn expected_pods(components: &[ComponentStatus]) -> i64 {
    components
        .iter()
        .flat_map(|component| &component.pod_sets)
        .fold(0, |sum, pod_set| {
            sum.saturating_add(i64::from(pod_set.replicas.unwrap_or(1)))
        })
}

fn check_template(path: &str, template: &Value) -> Result<(), PodSetError> {
    let value = Path::parse(path)?.get(template)?;
    pod_template::check(value).map_err(|fault| PodSetError::NotAPodTemplate {
        path: path.to_owned(),
        fault,
    })
}

fn check_count(path: &str, count: i128) -> Result<i32, PodSetError> {
    i32::try_from(count)
        .ok()
        .filter(|count| *count >= 0)
        .ok_or_else(|| PodSetError::Range {
            path: path.to_owned(),
            count,
        })
}

fn infer_rule(rule: &PodSetRule, template: &Value, pod_sets: &mut Vec<PodSet>) -> Result<(), PodSetError> {
    let base_path = join("template", rule.base);
    let base = descend(template, rule.base);
    if !rule.each {
        return infer_entry(rule, base, &base_path, pod_sets);
    }
    let Some(Value::Array(entries)) = base else {
        return Ok(());
    };
    for (index, entry) in entries.iter().enumerate() {
        infer_entry(rule, Some(entry), &format!("{base_path}[{index}]"), pod_sets)?;
    }
    Ok(())
}

fn infer_entry(
    rule: &PodSetRule,
    entry: Option<&Value>,
    entry_path: &str,
    pod_sets: &mut Vec<PodSet>,
) -> Result<(), PodSetError> {
    let found = entry.and_then(|entry| descend(entry, rule.template));
    if found.is_none() && !rule.required {
        return Ok(());
    }
    let entry = entry.unwrap_or(&Value::Null);
    let replicas = replicas(rule.replicas, entry, entry_path)?;
    pod_sets.push(PodSet {
        replicas: Some(replicas),
        path: join(entry_path, rule.template),
        annotations: topology(rule.topology, entry),
    });
    Ok(())
}

fn replicas(rule: ReplicaRule, entry: &Value, entry_path: &str) -> Result<i32, PodSetError> {
    let count = match rule {
        ReplicaRule::One => 1,
        ReplicaRule::Strict(field) => {
            let path = join(entry_path, field);
            if !entry.is_object() {
                return Err(PodSetError::NoParent {
                    path: entry_path.to_owned(),
                });
            }
            let count = match descend(entry, field) {
                None | Some(Value::Null) => 1,
                Some(value) => integer(value).ok_or_else(|| PodSetError::NotAnInteger {
                    path: path.clone(),
                    found: value.to_string().chars().take(40).collect(),
                })?,
            };
            return check_count(&path, count);
        }
        ReplicaRule::Job(job) => job_pods(descend(entry, job)),
        ReplicaRule::JobTimesReplicas(job) => {
            let copies = lenient(entry.get("replicas")).unwrap_or(1);
            copies.saturating_mul(job_pods(descend(entry, job)))
        }
    };
    check_count(entry_path, count)
}

/// Completions bound the pods of a Job only where there are fewer of them than its parallelism.
fn job_pods(spec: Option<&Value>) -> i128 {
    let field = |name| lenient(spec.and_then(|spec| spec.get(name)));
    let parallelism = field("parallelism").unwrap_or(1);
    match field("completions") {
        Some(completions) if completions < parallelism => completions,
        _ => parallelism,
    }
}

fn lenient(value: Option<&Value>) -> Option<i128> {
    value.and_then(integer)
}

fn integer(value: &Value) -> Option<i128> {
    value
        .as_i64()
        .map(i128::from)
        .or_else(|| value.as_u64().map(i128::from))
}

fn topology(topology: Topology, entry: &Value) -> BTreeMap<String, String> {
    let annotation = |name: &str, value: &str| (format!("{ANNOTATION_PREFIX}{name}"), value.to_owned());
    match topology {
        Topology::None => BTreeMap::new(),
        Topology::PodIndex(label) => BTreeMap::from([annotation("tas-pod-index-label", label)]),
        Topology::SubGroups {
            pod_index,
            sub_group_index,
        } => {
            let count = lenient(entry.get("replicas")).unwrap_or(1).to_string();
            BTreeMap::from([
                annotation("tas-pod-index-label", pod_index),
                annotation("tas-sub-group-index-label", sub_group_index),
                annotation("tas-sub-group-count", &count),
            ])
        }
    }
}

/// The value at a dotted path of the table; such paths have no index.
fn descend<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(value);
    }
    path.split('.').try_fold(value, |value, field| value.get(field))
}

fn join(base: &str, path: &str) -> String {
    if path.is_empty() {
        base.to_owned()
    } else {
        format!("{base}.{path}")
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({"spec": {"containers": [{"name": "a", "image": "i"}]}})
    }

    #[allow(clippy::needless_pass_by_value, reason = "reads better in a table")]
    fn sets(template: Value) -> Result<Vec<(String, i32)>, PodSetError> {
        let component = Component {
            template: crate::Template::new(&template),
            ..Default::default()
        };
        Ok(resolve(&component)?
            .into_iter()
            .map(|set| (set.path, set.replicas.unwrap()))
            .collect())
    }

    #[rstest]
    #[case::default(json!({}), 1)]
    #[case::parallelism(json!({"parallelism": 4}), 4)]
    #[case::fewer_completions(json!({"parallelism": 4, "completions": 3}), 3)]
    #[case::more_completions(json!({"parallelism": 2, "completions": 9}), 2)]
    #[case::only_completions(json!({"completions": 9}), 1)]
    #[case::odd_values_are_not_given(json!({"parallelism": "4", "completions": 1.5}), 1)]
    #[case::none(json!({"parallelism": 0}), 0)]
    fn a_job_runs_as_many_pods_as_both_bounds_allow(#[case] mut spec: Value, #[case] pods: i32) {
        spec["template"] = pod();
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec});
        assert_eq!(sets(job).unwrap(), [("template.spec.template".to_owned(), pods)]);
    }

    #[test]
    fn a_jobset_multiplies_and_tells_its_topology() {
        let job = |replicas: i32| json!({"name": "w", "replicas": replicas, "template": {"spec": {"parallelism": 2, "template": pod()}}});
        let jobset = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "spec": {"replicatedJobs": [job(3), {"name": "empty"}, job(1)]}});
        let type_ref = crate::TypeRef::new("jobset.x-k8s.io/v1alpha2", "JobSet");
        let inferred = infer(&type_ref, &jobset).unwrap();
        let found: Vec<_> = inferred
            .iter()
            .map(|set| (set.path.as_str(), set.replicas.unwrap()))
            .collect();
        assert_eq!(
            found,
            [
                ("template.spec.replicatedJobs[0].template.spec.template", 6),
                ("template.spec.replicatedJobs[2].template.spec.template", 2),
            ]
        );
        assert_eq!(
            inferred[0].annotations["workload.codeflare.dev.appwrapper/tas-sub-group-count"],
            "3"
        );
    }

    #[test]
    fn pytorch_is_master_then_worker() {
        let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": {
            "Worker": {"replicas": 4, "template": pod()}, "Master": {"template": pod()}}}});
        assert_eq!(
            sets(job).unwrap(),
            [
                ("template.spec.pytorchReplicaSpecs.Master.template".to_owned(), 1),
                ("template.spec.pytorchReplicaSpecs.Worker.template".to_owned(), 4),
            ]
        );
    }

    #[test]
    fn ray_kinds_have_a_head_and_workers() {
        let spec = json!({"headGroupSpec": {"template": pod()},
            "workerGroupSpecs": [{"replicas": 2, "template": pod()}, {"template": pod()}]});
        let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": spec});
        let job = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"rayClusterSpec": spec}});
        let counts = |template| {
            sets(template)
                .unwrap()
                .into_iter()
                .map(|(_, count)| count)
                .collect::<Vec<_>>()
        };
        assert_eq!(counts(cluster), [1, 2, 1]);
        assert_eq!(counts(job), [1, 2, 1]);
        let headless = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {}});
        assert!(matches!(sets(headless), Err(PodSetError::Path(_))));
    }

    #[rstest]
    #[case::pod(json!({"apiVersion": "v1", "kind": "Pod", "spec": pod()["spec"]}), 1)]
    #[case::service(json!({"apiVersion": "v1", "kind": "Service"}), 0)]
    #[case::unknown_version(json!({"apiVersion": "batch/v1beta1", "kind": "Job"}), 0)]
    #[case::deployment_without_template(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}), 0)]
    fn a_kind_has_as_many_pod_sets_as_its_row_finds(#[case] template: Value, #[case] count: usize) {
        assert_eq!(sets(template).unwrap().len(), count);
    }

    #[rstest]
    #[case::negative(json!(-1))]
    #[case::overflow(json!(4_294_967_296_i64))]
    #[case::text(json!("2"))]
    #[case::fraction(json!(1.5))]
    fn a_bad_replica_count_is_an_error(#[case] replicas: Value) {
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "spec": {"replicas": replicas, "template": pod()}});
        assert!(sets(deployment).is_err());
    }

    #[test]
    fn a_jobset_too_large_is_an_error_not_an_overflow() {
        let jobset = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [
            {"replicas": i64::MAX, "template": {"spec": {"parallelism": i64::MAX, "template": pod()}}}]}});
        assert!(matches!(sets(jobset), Err(PodSetError::Range { .. })));
    }

    #[test]
    fn declared_pod_sets_are_taken_verbatim_after_a_check() {
        let template =
            crate::Template::new(&json!({"apiVersion": "example.com/v1", "kind": "Widget", "a": {"b": pod()}}));
        let declared = |path: &str, replicas| Component {
            pod_sets: vec![PodSet {
                replicas,
                path: path.to_owned(),
                annotations: BTreeMap::new(),
            }],
            template: template.clone(),
            ..Default::default()
        };
        assert_eq!(resolve(&declared("template.a.b", None)).unwrap()[0].replicas, None);
        assert!(resolve(&declared("template.a", None)).is_err());
        assert!(resolve(&declared("template.a.b", Some(-1))).is_err());
    }
}
