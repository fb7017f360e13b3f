//! Rules of the pod sets of one component: declared ones must be usable and agree with what the kind makes of its template.
//!
//! The texts up to the first semicolon are those of the Go controller (spec/webhook.md section 3, rows 5 to 11).

use std::collections::HashSet;

use serde_json::Value;

use super::{Fault, Rule, Violation};
use crate::{
    ANNOTATION_PREFIX,
    appwrapper::PodSet,
    facts::TypeRef,
    path::Path,
    pod_template,
    podsets::{self, PodSetError},
};

/// Longest path: far more than any real one needs.
const PATH_LIMIT: usize = 1024;

/// Checks the pod sets of the component at `field`. Returns those that count: the declared ones or, if there are more, the
/// inferred ones; none if they cannot be told.
pub(super) fn check(
    declared: &[PodSet],
    type_ref: &TypeRef,
    template: &Value,
    field: &str,
    violations: &mut Vec<Violation>,
) -> Vec<PodSet> {
    for (index, pod_set) in declared.iter().enumerate() {
        check_declared(pod_set, template, &format!("{field}.podSets[{index}]"), violations);
    }
    let inferred = match podsets::infer(type_ref, template) {
        Ok(inferred) => inferred,
        Err(error) => {
            let message = format!("error inferring PodSets: {error}");
            violations.push(Violation::new(
                Rule::PodSets,
                Fault::Invalid,
                format!("{field}.template"),
                message,
            ));
            return Vec::new();
        }
    };
    let counted: Vec<PodSet> = declared
        .iter()
        .map(|pod_set| PodSet {
            replicas: podsets::declared_replicas(pod_set, template).unwrap_or(pod_set.replicas),
            ..pod_set.clone()
        })
        .collect();
    // Declared for the Go controller's sake, they agree with what that infers.
    let as_go = || podsets::infer_as_go(type_ref, template).is_ok_and(|go| disagreement(&counted, &go).is_none());
    if let Some(message) = disagreement(&counted, &inferred).filter(|_| duplicate(declared).is_some() || !as_go()) {
        violations.push(Violation::new(
            Rule::PodSets,
            Fault::Invalid,
            format!("{field}.podSets"),
            message,
        ));
    }
    if declared.len() >= inferred.len() {
        declared.to_vec()
    } else {
        inferred
    }
}

fn check_declared(pod_set: &PodSet, template: &Value, field: &str, violations: &mut Vec<Violation>) {
    let mut broken = |fault, part: &str, message: String| {
        violations.push(Violation::new(Rule::PodSets, fault, format!("{field}.{part}"), message));
    };
    if pod_set.path.is_empty() {
        let remedy = "podspec must specify path; for example template.spec.template";
        broken(Fault::Required, "path", remedy.into());
    }
    if pod_set.path.len() > PATH_LIMIT {
        let length = pod_set.path.len();
        broken(
            Fault::Invalid,
            "path",
            format!("path has {length} bytes; at most {PATH_LIMIT} are allowed"),
        );
    } else if let Err(error) = usable(&pod_set.path, template) {
        broken(
            Fault::Invalid,
            "path",
            format!("path does not refer to a v1.PodSpecTemplate: {error}"),
        );
    }
    let annotation = format!("{ANNOTATION_PREFIX}{}", podsets::REPLICAS_PATH);
    let replicas_path = pod_set.annotations.get(&annotation);
    let long = replicas_path.is_some_and(|path| path.len() > PATH_LIMIT);
    if long {
        let message = format!("path has more than {PATH_LIMIT} bytes, which is the limit");
        broken(Fault::Invalid, &format!("annotations[{annotation}]"), message);
    } else if let Err(error) = podsets::declared_replicas(pod_set, template) {
        broken(Fault::Invalid, &format!("annotations[{annotation}]"), error.to_string());
    }
    if let Some(replicas) = pod_set.replicas.filter(|replicas| *replicas < 0) {
        broken(
            Fault::Invalid,
            "replicas",
            format!("{replicas} pods is out of range; use 0 or more"),
        );
    }
}

fn usable(path: &str, template: &Value) -> Result<(), String> {
    let value = Path::parse(path)
        .and_then(|path| path.get(template))
        .map_err(|error| PodSetError::from(error).to_string())?;
    pod_template::check(value)
}

/// The first pod set whose path another one has already.
fn duplicate(declared: &[PodSet]) -> Option<&PodSet> {
    let mut paths = HashSet::new();
    declared.iter().find(|pod_set| !paths.insert(&pod_set.path))
}

/// The first way in which declared pod sets contradict each other or the inferred ones.
fn disagreement(declared: &[PodSet], inferred: &[PodSet]) -> Option<String> {
    if let Some(twice) = duplicate(declared) {
        return Some(format!(
            "multiple DeclaredPodSets with path '{}'; declare each once",
            twice.path
        ));
    }
    if declared.is_empty() || inferred.is_empty() {
        return None;
    }
    let remedy = "leave podSets out to have them inferred";
    if declared.len() != inferred.len() {
        return Some(format!(
            "DeclaredPodSet count {} differs from inferred count {}; {remedy}",
            declared.len(),
            inferred.len()
        ));
    }
    inferred.iter().find_map(|wanted| {
        let Some(found) = declared.iter().find(|pod_set| pod_set.path == wanted.path) else {
            return Some(format!("PodSet with path '{}' is missing; {remedy}", wanted.path));
        };
        let (found, wanted_count) = (found.replicas.unwrap_or(1), wanted.replicas.unwrap_or(1));
        (found != wanted_count).then(|| {
            format!(
                "replica count {found} differs from inferred count {wanted_count} for PodSet at path position '{}'; {remedy}",
                wanted.path
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn job() -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {
            "parallelism": 3, "completions": 2, "template": {"spec": {"containers": [{"name": "c"}]}},
        }})
    }

    fn job_set() -> Value {
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [
            {"template": job()}, {"replicas": 2, "template": job()}
        ]}})
    }

    fn found(declared: Value, template: &Value) -> Vec<(String, String)> {
        let declared: Vec<PodSet> = serde_json::from_value(declared).unwrap();
        let type_ref = TypeRef::new(
            template["apiVersion"].as_str().unwrap(),
            template["kind"].as_str().unwrap(),
        );
        let mut violations = Vec::new();
        check(&declared, &type_ref, template, "c", &mut violations);
        violations
            .into_iter()
            .map(|violation| (violation.field, violation.message))
            .collect()
    }

    #[rstest]
    #[case(json!([]), job())]
    #[case(json!([{"path": "template.spec.template", "replicas": 2}]), job())]
    #[case(json!([{"path": "template.spec.replicatedJobs[1].template.spec.template", "replicas": 4},
                  {"path": "template.spec.replicatedJobs[0].template.spec.template", "replicas": 2}]), job_set())]
    fn pod_sets_that_agree_are_fine(#[case] declared: Value, #[case] template: Value) {
        assert_eq!(found(declared, &template), []);
    }

    #[rstest]
    #[case::of_one_host(json!([{"path": "template.spec.headGroupSpec.template"}, {"path": "template.spec.workerGroupSpecs[0].template", "replicas": 2}]), true)]
    #[case::of_all_hosts(json!([{"path": "template.spec.headGroupSpec.template"}, {"path": "template.spec.workerGroupSpecs[0].template", "replicas": 8}]), true)]
    #[case::of_neither(json!([{"path": "template.spec.headGroupSpec.template"}, {"path": "template.spec.workerGroupSpecs[0].template", "replicas": 5}]), false)]
    fn what_was_declared_for_the_go_controller_is_right_as_well(#[case] declared: Value, #[case] is_right: bool) {
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        let ray = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": {"headGroupSpec": {"template": template},
            "workerGroupSpecs": [{"replicas": 2, "numOfHosts": 4, "template": template}]}});
        assert_eq!(found(declared, &ray).is_empty(), is_right);
    }

    #[test]
    fn a_kind_that_only_we_infer_may_be_declared_in_any_way() {
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        let set = json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "spec": {"replicas": 2,
            "leaderWorkerTemplate": {"size": 4, "leaderTemplate": template, "workerTemplate": template}}});
        let worker = json!({"path": "template.spec.leaderWorkerTemplate.workerTemplate", "replicas": 5});
        assert_eq!(found(json!([worker]), &set), []);
        assert_eq!(found(json!([worker, worker]), &set).len(), 1, "but once");
    }

    #[rstest]
    #[case::no_path(json!([{"path": "", "replicas": 2}]), job(), "c.podSets[0].path", "podspec must specify path")]
    #[case::not_a_template(json!([{"path": "template.metadata", "replicas": 2}]), job(), "c.podSets[0].path", "path does not refer to a v1.PodSpecTemplate")]
    #[case::missing(json!([{"path": "template.spec.tmpl"}]), job(), "c.podSets[0].path", "no field \"tmpl\"")]
    #[case::negative(json!([{"path": "template.spec.template", "replicas": -1}]), job(), "c.podSets[0].replicas", "-1 pods")]
    #[case::long(json!([{"path": format!("template{}", "[0]".repeat(50_000))}]), job(), "c.podSets[0].path", "150008 bytes")]
    #[case::replicas_path(json!([{"path": "template.spec.template", "annotations": {"workload.codeflare.dev.appwrapper/replicas-path": "template.spec.x"}}]), job(), "c.podSets[0].annotations[workload.codeflare.dev.appwrapper/replicas-path]", "no field \"x\"")]
    #[case::replicas_path_differs(json!([{"path": "template.spec.template", "annotations": {"workload.codeflare.dev.appwrapper/replicas-path": "template.spec.parallelism"}}]), job(), "c.podSets", "replica count 3 differs from inferred count 2")]
    #[case::twice(json!([{"path": "template.spec.template"}, {"path": "template.spec.template"}]), job(), "c.podSets", "multiple DeclaredPodSets with path 'template.spec.template'")]
    #[case::count(json!([{"path": "template.spec.replicatedJobs[0].template.spec.template"}]), job_set(), "c.podSets", "DeclaredPodSet count 1 differs from inferred count 2")]
    #[case::replicas(json!([{"path": "template.spec.template"}]), job(), "c.podSets", "replica count 1 differs from inferred count 2")]
    fn a_broken_rule_names_its_field(
        #[case] declared: Value,
        #[case] template: Value,
        #[case] field: &str,
        #[case] text: &str,
    ) {
        let all = found(declared, &template);
        assert!(
            all.iter().any(|(f, message)| f == field && message.contains(text)),
            "{all:?}"
        );
    }

    #[rstest]
    #[case(json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {}}), "no field \"template\"")]
    #[case(json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": "x", "template": {"spec": {}}}}), "must be an integer")]
    #[case(json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 4_294_967_296_u64, "template": {"spec": {}}}}), "out of range")]
    fn what_cannot_be_inferred_is_told(#[case] template: Value, #[case] text: &str) {
        let all = found(json!([]), &template);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].0, "c.template");
        assert!(
            all[0].1.starts_with("error inferring PodSets: ") && all[0].1.contains(text),
            "{all:?}"
        );
    }
}
