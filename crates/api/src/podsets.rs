//! Pod sets of a component: declared by the user or inferred from the table of kinds (spec/components.md section 3).
//!
//! Number, order, path, replicas and annotations of the result are read by Kueue, which computes the same list with its
//! own Go code before ours is published; a difference makes it suspend the workload.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    ANNOTATION_PREFIX,
    appwrapper::{Component, ComponentStatus, PodSet},
    facts::OwnCounts,
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
    /// Two numbers of pods are given.
    #[error("{declared} replicas are declared, but {path} says {found}; leave replicas out")]
    Disagrees {
        /// The path.
        path: String,
        /// What is declared.
        declared: i32,
        /// What the path leads to.
        found: i32,
    },
    /// The parent of a replica count is missing or no object.
    #[error("{path} is missing or not an object")]
    NoParent {
        /// The path.
        path: String,
    },
}

/// Annotation of a declared pod set, after [`ANNOTATION_PREFIX`]: where in the template the number of its pods is. Kueue keeps
/// it where it writes components anew, and takes the number from our status.
pub const REPLICAS_PATH: &str = "replicas-path";

/// The pod sets of a component: the declared ones, verbatim but for numbers that their template has, or the inferred ones.
pub fn resolve(component: &Component) -> Result<Vec<PodSet>, PodSetError> {
    let template = Value::Object(component.template.object()?);
    if component.pod_sets.is_empty() {
        return infer(&component.template.head()?.type_ref, &template);
    }
    let mut pod_sets = component.pod_sets.clone();
    for pod_set in &mut pod_sets {
        pod_set.replicas = declared_replicas(pod_set, &template)?;
        check_count(&pod_set.path, i128::from(pod_set.replicas.unwrap_or(1)))?;
        check_template(&pod_set.path, &template)?;
    }
    Ok(pod_sets)
}

/// How many pods a declared pod set has: as it says, or as its template says where [`REPLICAS_PATH`] leads.
pub fn declared_replicas(pod_set: &PodSet, template: &Value) -> Result<Option<i32>, PodSetError> {
    let Some(path) = pod_set.annotations.get(&format!("{ANNOTATION_PREFIX}{REPLICAS_PATH}")) else {
        return Ok(pod_set.replicas);
    };
    let count = match Path::parse(path)?.get(template)? {
        Value::Null => 1,
        value => integer(value).ok_or_else(|| not_an_integer(path, value))?,
    };
    let found = check_count(path, count)?;
    match pod_set.replicas {
        Some(declared) if declared != found => Err(PodSetError::Disagrees {
            path: path.clone(),
            declared,
            found,
        }),
        _ => Ok(Some(found)),
    }
}

fn not_an_integer(path: &str, value: &Value) -> PodSetError {
    PodSetError::NotAnInteger {
        path: path.to_owned(),
        found: value.to_string().chars().take(40).collect(),
    }
}

/// The pod sets that a kind of the table makes of `template`; none for a kind without a row.
///
/// Where the Go controller infers less, so does Kueue until it sees our status, which we publish first of all: it makes its
/// Workload anew then, since nothing is admitted yet.
pub fn infer(type_ref: &crate::TypeRef, template: &Value) -> Result<Vec<PodSet>, PodSetError> {
    infer_by(kinds::lookup(type_ref), template, Some)
}

/// The pod sets that the Go controller infers, which a user may have declared for its sake.
pub fn infer_as_go(type_ref: &crate::TypeRef, template: &Value) -> Result<Vec<PodSet>, PodSetError> {
    let row = kinds::lookup(type_ref).filter(|row| !row.is_ours);
    infer_by(row, template, |rule| match rule {
        ReplicaRule::RayWorkers => Some(ReplicaRule::Strict("replicas")),
        ReplicaRule::RaySubmitter => None,
        rule => Some(rule),
    })
}

fn infer_by(
    row: Option<&kinds::Kind>,
    template: &Value,
    counted: fn(ReplicaRule) -> Option<ReplicaRule>,
) -> Result<Vec<PodSet>, PodSetError> {
    let mut pod_sets = Vec::new();
    for rule in row.map_or(&[][..], |row| row.pod_sets) {
        if let Some(replicas) = counted(rule.replicas) {
            infer_rule(&PodSetRule { replicas, ..*rule }, template, &mut pod_sets)?;
        }
    }
    for pod_set in &pod_sets {
        check_template(&pod_set.path, template)?;
    }
    Ok(pod_sets)
}

/// Pods that all components together are expected to make. Saturates.
pub fn expected_pods(components: &[ComponentStatus]) -> i64 {
    pods_of(components.iter().flat_map(|component| &component.pod_sets))
}

/// Pods that a component wants just now: the declared ones, but for workers that its autoscaler has taken away. Those that
/// it adds are not waited for.
pub fn wanted_pods(component: &ComponentStatus, row: Option<&kinds::Kind>, counts: OwnCounts) -> i64 {
    let declared = pods_of(&component.pod_sets);
    let (Some(row), Some(desired)) = (row, counts.desired_workers) else {
        return declared;
    };
    let is_of_workers = |pod_set: &&PodSet| row.makes_workers(&pod_set.path);
    let workers = pods_of(component.pod_sets.iter().filter(is_of_workers));
    let taken_away = workers.saturating_sub(i64::from(desired.max(0)));
    declared.saturating_sub(taken_away.max(0))
}

fn pods_of<'a>(pod_sets: impl IntoIterator<Item = &'a PodSet>) -> i64 {
    pod_sets.into_iter().fold(0, |sum: i64, pod_set| {
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
    let Some(replicas) = replicas(rule.replicas, entry, entry_path)? else {
        return Ok(());
    };
    pod_sets.push(PodSet {
        replicas: Some(replicas),
        path: join(entry_path, rule.template),
        annotations: topology(rule.topology, entry),
    });
    Ok(())
}

/// How many pods an entry makes; none if it makes no pod set at all.
fn replicas(rule: ReplicaRule, entry: &Value, entry_path: &str) -> Result<Option<i32>, PodSetError> {
    let strict = |field: &str, absent: i128| {
        if !entry.is_object() {
            return Err(PodSetError::NoParent {
                path: entry_path.to_owned(),
            });
        }
        let path = join(entry_path, field);
        let count = match descend(entry, field) {
            None | Some(Value::Null) => absent,
            Some(value) => integer(value).ok_or_else(|| not_an_integer(&path, value))?,
        };
        check_count(&path, count).map(i128::from)
    };
    let count = match rule {
        ReplicaRule::One => 1,
        ReplicaRule::Strict(field) => strict(field, 1)?,
        ReplicaRule::OrNone(field) => strict(field, 0)?,
        ReplicaRule::Job(job) => job_pods(descend(entry, job)),
        ReplicaRule::JobTimesReplicas(job) => {
            let copies = lenient(entry.get("replicas")).unwrap_or(1);
            copies.saturating_mul(job_pods(descend(entry, job)))
        }
        ReplicaRule::RayWorkers if entry.get("suspend") == Some(&Value::Bool(true)) => 0,
        ReplicaRule::RayWorkers => strict("replicas", 1)?.saturating_mul(strict("numOfHosts", 1)?),
        ReplicaRule::RaySubmitter => match entry.get("submissionMode").and_then(Value::as_str) {
            None | Some("" | "K8sJobMode") => 1,
            // The others submit from the head's pod, or from outside.
            Some(_) => return Ok(None),
        },
        ReplicaRule::GroupWorkers => {
            let has_leader = descend(entry, "leaderWorkerTemplate.leaderTemplate").is_some();
            let size = strict("leaderWorkerTemplate.size", 1)?;
            strict("replicas", 1)?.saturating_mul((size - i128::from(has_leader)).max(0))
        }
    };
    check_count(entry_path, count).map(Some)
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
