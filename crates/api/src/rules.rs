//! Structural rules of an AppWrapper, which hold whoever let it in.
//!
//! The webhook applies them at admission and reports every violation; the controller applies them again before it creates
//! anything, because the webhook can be away, switched off or deceived, and the controller's rights are wider than a
//! user's. What takes the API server to decide (a kind's scope, a user's rights) is the webhook's alone.

mod object;
mod pod_sets;

use std::collections::HashSet;

use serde_json::Value;

use crate::{
    ANNOTATION_PREFIX,
    appwrapper::{AppWrapper, Component},
    config::AdmissionConfig,
    declared,
};

/// Longest value of a label; the name of an AppWrapper is one on each of its components.
pub const LABEL_VALUE_LIMIT: usize = 63;

/// Groups whose kinds hand out rights or change what the API server trusts. Admission that looks at who asks would see the
/// controller, not the user (design/deploy-security.md section 5, threat 5).
const PRIVILEGED_GROUPS: [&str; 9] = [
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "certificates.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authorization.openshift.io",
    "oauth.openshift.io",
];

/// A rule that an AppWrapper breaks: where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// What sort of fault it is.
    pub fault: Fault,
    /// Path of the field, for example `spec.components[1].template.metadata.namespace`.
    pub field: String,
    /// The offending value and the remedy.
    pub message: String,
}

/// The rules, in groups that are worth counting apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// A component names no object.
    Malformed,
    /// Too many components.
    ComponentCount,
    /// Pod sets that are missing, too many, or differ from the template.
    PodSets,
    /// Another namespace.
    Namespace,
    /// A kind that may not be wrapped here.
    Kind,
    /// An AppWrapper or a list inside an AppWrapper.
    Nested,
    /// Names, labels and what only the API server writes.
    Metadata,
    /// A declared end that cannot be read, or is declared in the wrong place.
    Completion,
}

/// Sorts of faults, as Kubernetes words them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The value is not allowed here.
    Forbidden,
    /// The value is wrong.
    Invalid,
    /// The value is missing.
    Required,
}

impl Fault {
    /// The words of Kubernetes' field errors.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid value",
            Self::Required => "Required value",
        }
    }
}

impl Violation {
    fn new(rule: Rule, fault: Fault, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            rule,
            fault,
            field: field.into(),
            message: message.into(),
        }
    }
}

/// The first rule that the AppWrapper breaks, if any, for the controller before it creates anything. How many pod sets there
/// may be is between Kueue and the webhook: without Kueue no number is too large, and an AppWrapper without any succeeds.
pub fn check(wrapper: &AppWrapper, admission: &AdmissionConfig) -> Result<(), Violation> {
    let mut violations = Vec::new();
    structure(wrapper, admission, usize::MAX, &mut violations);
    violations.into_iter().next().map_or(Ok(()), Err)
}

/// Every rule that a new AppWrapper breaks, in the order of its fields. Cheap where it matters: an AppWrapper with too many
/// components is not looked into.
pub fn violations(wrapper: &AppWrapper, admission: &AdmissionConfig) -> Vec<Violation> {
    let mut violations = Vec::new();
    let limit = admission.max_pod_sets;
    let Some(pod_sets) = structure(wrapper, admission, limit, &mut violations) else {
        return violations;
    };
    let components = |message: String| Violation::new(Rule::PodSets, Fault::Invalid, "spec.components", message);
    if pod_sets == 0 {
        violations.push(components(
            "components contains no podspecs; wrap at least one object that makes pods, or declare its podSets".into(),
        ));
    } else if pod_sets > limit {
        violations.push(components(format!(
            "components contains {pod_sets} podspecs; at most {limit} are allowed (appwrapper.admission.maxPodSets, which \
             Kueue must accept as well)"
        )));
    }
    violations
}

/// Applies the rules to each part; returns the number of pod sets, if the parts were looked at.
fn structure(
    wrapper: &AppWrapper,
    admission: &AdmissionConfig,
    max_pod_sets: usize,
    violations: &mut Vec<Violation>,
) -> Option<usize> {
    let key = wrapper.key();
    if key.name.len() > LABEL_VALUE_LIMIT {
        violations.push(Violation::new(
            Rule::Metadata,
            Fault::Invalid,
            "metadata.name",
            format!(
                "{:?} has {} characters; the name labels every component and may have at most {LABEL_VALUE_LIMIT}",
                &*key.name,
                key.name.len()
            ),
        ));
    }
    let components = &wrapper.spec.components;
    if components.len() > admission.max_components {
        violations.push(Violation::new(
            Rule::ComponentCount,
            Fault::Invalid,
            "spec.components",
            format!(
                "there are {} components; at most {} are allowed (appwrapper.admission.maxComponents)",
                components.len(),
                admission.max_components
            ),
        ));
        return None;
    }
    let mut names = HashSet::new();
    let mut pod_sets = 0;
    for (position, component) in components.iter().enumerate() {
        let field = format!("spec.components[{position}]");
        let head = match component.template.head() {
            Ok(head) => head,
            Err(error) => {
                let field = format!("{field}.template");
                violations.push(Violation::new(
                    Rule::Malformed,
                    Fault::Invalid,
                    field,
                    error.to_string(),
                ));
                continue;
            }
        };
        let Ok(object) = component.template.object().map(Value::Object) else {
            continue;
        };
        violations.extend(misplaced(component, &field));
        let place = object::Place {
            field: &field,
            namespace: &key.namespace,
            name: &key.name,
        };
        object::check(head, &object, &place, admission, violations);
        if let Some(name) = &head.name
            && !names.insert((head.type_ref.group(), &head.type_ref.kind, name))
        {
            violations.push(Violation::new(
                Rule::Metadata,
                Fault::Invalid,
                format!("{field}.template.metadata.name"),
                format!(
                    "{} {name:?} is wrapped twice; give each component a name of its own",
                    head.type_ref.kind
                ),
            ));
        }
        let declared = &component.pod_sets;
        pod_sets += if declared.len() > max_pod_sets {
            // Too many in any case, and each could point to the whole of a large template.
            declared.len()
        } else {
            let found = pod_sets::check(declared, &head.type_ref, &object, &field, violations);
            object::check_pod_labels(&object, &found, &place, violations);
            found.len()
        };
    }
    Some(pod_sets)
}

/// How a component ends is declared on the wrapped object, where the watch of it sees it.
fn misplaced(component: &Component, field: &str) -> Option<Violation> {
    let names = [declared::SUCCESS, declared::FAILURE].map(|suffix| format!("{ANNOTATION_PREFIX}{suffix}"));
    let name = names
        .into_iter()
        .find(|name| component.annotations.contains_key(name))?;
    Some(Violation::new(
        Rule::Completion,
        Fault::Forbidden,
        format!("{field}.annotations[{name}]"),
        format!("has no effect here; put it into {field}.template.metadata.annotations"),
    ))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::config::KindPattern;

    fn wrapper(name: &str, templates: Vec<Value>) -> AppWrapper {
        let components: Vec<_> = templates
            .into_iter()
            .map(|template| json!({"template": template}))
            .collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns"}, "spec": {"components": components}
        }))
        .unwrap()
    }

    #[allow(clippy::needless_pass_by_value, reason = "reads better in a table")]
    fn service(metadata: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    }

    #[test]
    fn a_plain_appwrapper_breaks_no_rule() {
        let own = json!({"name": "s", "namespace": "ns"});
        let plain = wrapper("a", vec![service(own), service(json!({"generateName": "s-"}))]);
        assert_eq!(check(&plain, &AdmissionConfig::default()), Ok(()));
    }

    #[rstest]
    #[case::not_an_object(vec![json!([])], "spec.components[0].template")]
    #[case::no_kind(vec![json!({"apiVersion": "v1"})], "spec.components[0].template")]
    #[case::other_namespace(vec![service(json!({"name": "s", "namespace": "other"}))], "spec.components[0].template.metadata.namespace")]
    #[case::no_name(vec![service(json!({}))], "spec.components[0].template.metadata")]
    #[case::twice(vec![service(json!({"name": "s"})), service(json!({"name": "s"}))], "spec.components[1].template.metadata.name")]
    #[case::nested(vec![json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "x"}})], "spec.components[0].template")]
    #[case::no_pod_template(vec![json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {}})], "spec.components[0].template")]
    fn a_broken_rule_names_its_field(#[case] templates: Vec<Value>, #[case] field: &str) {
        let violation = check(&wrapper("a", templates), &AdmissionConfig::default()).unwrap_err();
        assert_eq!(violation.field, field);
    }

    fn every_kind() -> AdmissionConfig {
        AdmissionConfig {
            allowed_kinds: vec![KindPattern::try_from("*".to_owned()).unwrap()],
            ..AdmissionConfig::default()
        }
    }

    #[rstest]
    #[case::unknown_kind("example.com/v1", "Widget", "status.phase=Done", None)]
    #[case::unreadable("example.com/v1", "Widget", "phase=Done", Some("must begin with \"status\""))]
    #[case::no_comparison("example.com/v1", "Widget", "status.phase", Some("PATH=VALUE"))]
    #[case::a_kind_that_tells_its_end("batch/v1", "Job", "status.succeeded=1", Some("a Job tells by itself"))]
    #[case::a_pod("v1", "Pod", "status.phase=Running", Some("a Pod tells by itself"))]
    fn a_declared_end_must_be_readable_and_news(
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] rule: &str,
        #[case] message: Option<&str>,
    ) {
        const NAME: &str = "workload.codeflare.dev.appwrapper/failureCondition";
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "i"}]}});
        let spec = if kind == "Pod" {
            pod["spec"].clone()
        } else {
            json!({"template": pod})
        };
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "o", "annotations": {NAME: rule}}, "spec": spec});
        let found = check(&wrapper("a", vec![object]), &every_kind()).err();
        assert_eq!(found.is_some(), message.is_some(), "{found:?}");
        if let (Some(found), Some(message)) = (found, message) {
            assert_eq!(
                found.field,
                format!("spec.components[0].template.metadata.annotations[{NAME}]")
            );
            assert!(found.message.contains(message), "{found}");
        }
    }

    #[test]
    fn a_declared_end_in_the_wrong_place_says_where_it_belongs() {
        let mut wrapper = wrapper("a", vec![service(json!({"name": "s"}))]);
        let name = "workload.codeflare.dev.appwrapper/successCondition";
        wrapper.spec.components[0]
            .annotations
            .insert(name.into(), "status.a=b".into());
        let found = check(&wrapper, &every_kind()).unwrap_err();
        assert_eq!(found.field, format!("spec.components[0].annotations[{name}]"));
        assert!(
            found
                .message
                .contains("spec.components[0].template.metadata.annotations"),
            "{found}"
        );
    }

    #[test]
    fn the_controller_leaves_the_number_of_pod_sets_to_the_webhook() {
        let jobs = |count: usize| {
            let job = |index| {
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("j{index}")},
                    "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}})
            };
            wrapper("a", (0..count).map(job).collect())
        };
        let admission = AdmissionConfig::default();
        for count in [0, 9] {
            assert_eq!(check(&jobs(count), &admission), Ok(()));
            let found = violations(&jobs(count), &admission);
            assert_eq!(found.len(), 1);
            assert_eq!(
                (found[0].rule, found[0].field.as_str()),
                (Rule::PodSets, "spec.components")
            );
        }
    }

    #[rstest]
    #[case::not_listed("example.com/v1", "Widget", "example.com/Widget may not be wrapped")]
    #[case::privileged(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "cannot be wrapped; create RoleBinding directly"
    )]
    fn the_controller_creates_no_kind_that_the_configuration_forbids(
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] told: &str,
    ) {
        let mut custom = service(json!({"name": "s"}));
        custom["apiVersion"] = api_version.into();
        custom["kind"] = kind.into();
        let violation = check(&wrapper("a", vec![custom]), &AdmissionConfig::default()).unwrap_err();
        assert_eq!(
            (violation.rule, violation.field.as_str()),
            (Rule::Kind, "spec.components[0].template")
        );
        assert!(violation.message.contains(told), "{violation}");
    }

    #[test]
    fn an_appwrapper_with_too_many_components_is_not_looked_into() {
        let admission = AdmissionConfig {
            max_components: 2,
            ..AdmissionConfig::default()
        };
        let many = wrapper("a", vec![json!(1); 3]);
        let found = violations(&many, &admission);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].rule, Rule::ComponentCount);
        assert_eq!(check(&many, &admission), Err(found[0].clone()));
    }

    #[test]
    fn a_name_that_cannot_be_a_label_is_refused() {
        let violation = check(&wrapper(&"a".repeat(64), vec![]), &AdmissionConfig::default()).unwrap_err();
        assert_eq!(violation.field, "metadata.name");
    }
}
