//! Rules of one wrapped object: its kind, its namespace, its metadata.

use serde_json::{Map, Value};

use super::{Fault, PRIVILEGED_GROUPS, Rule, Violation};
use crate::{
    ANNOTATION_PREFIX, APPWRAPPER_LABEL, appwrapper::PodSet, config::AdmissionConfig, declared, facts::TypeRef,
    path::Path, template::TemplateHead,
};

/// Fields of metadata that a user may set. The rest belongs to the API server or decides who deletes the object.
const ALLOWED_METADATA: [&str; 5] = ["name", "generateName", "namespace", "labels", "annotations"];

/// Where a component lies, and what its AppWrapper is called.
pub(super) struct Place<'a> {
    /// Path of the component.
    pub(super) field: &'a str,
    /// Namespace of the AppWrapper; empty if it is not known, in a manifest.
    pub(super) namespace: &'a str,
    /// Name of the AppWrapper; empty if it will be generated.
    pub(super) name: &'a str,
}

pub(super) fn check(
    head: &TemplateHead,
    object: &Value,
    place: &Place<'_>,
    admission: &AdmissionConfig,
    violations: &mut Vec<Violation>,
) {
    let field = format!("{}.template", place.field);
    if !is_api_version(&head.type_ref.api_version) {
        violations.push(Violation::new(
            Rule::Malformed,
            Fault::Invalid,
            format!("{field}.apiVersion"),
            format!(
                "{:.80?} is no API version; write v1 or group/v1",
                head.type_ref.api_version
            ),
        ));
    }
    violations.extend(check_kind(&head.type_ref, object, &field, admission));
    if let Some(other) = head.namespace.as_deref()
        && !place.namespace.is_empty()
        && other != place.namespace
    {
        violations.push(Violation::new(
            Rule::Namespace,
            Fault::Forbidden,
            format!("{field}.metadata.namespace"),
            format!(
                "AppWrappers cannot create objects in other namespaces: {other:?} is not the AppWrapper's, {:?}; leave it out",
                place.namespace
            ),
        ));
    }
    if head.name.is_none() && head.generate_name.is_none() {
        violations.push(Violation::new(
            Rule::Metadata,
            Fault::Required,
            format!("{field}.metadata"),
            "has neither name nor generateName; set one of them",
        ));
    }
    for key in ALLOWED_METADATA.iter().copied().take(3) {
        // A name that is no text reads as absent everywhere else.
        if let Some(value) = object.pointer(&format!("/metadata/{key}"))
            && !value.is_string()
            && !value.is_null()
        {
            violations.push(Violation::new(
                Rule::Metadata,
                Fault::Invalid,
                format!("{field}.metadata.{key}"),
                format!("must be a string, found {}", crate::path::type_name(value)),
            ));
        }
    }
    let metadata = object.get("metadata").and_then(Value::as_object);
    for (key, value) in metadata.into_iter().flatten() {
        if !ALLOWED_METADATA.contains(&key.as_str()) && !is_empty(value) {
            violations.push(Violation::new(
                Rule::Metadata,
                Fault::Forbidden,
                format!("{field}.metadata.{key}"),
                format!(
                    "only {} may be set under metadata of a component; remove {key}",
                    ALLOWED_METADATA.join(", ")
                ),
            ));
        }
    }
    if object.get("status").is_some_and(|status| !is_empty(status)) {
        violations.push(Violation::new(
            Rule::Metadata,
            Fault::Forbidden,
            format!("{field}.status"),
            "a component is created without a status; remove it",
        ));
    }
    violations.extend(label_violation(metadata, place, "template"));
    violations.extend(declared_violation(head, &field));
}

/// How the object declares to end must be readable, and not contradict what is known of its kind.
fn declared_violation(head: &TemplateHead, field: &str) -> Option<Violation> {
    let annotation = |suffix: &str| format!("{field}.metadata.annotations[{ANNOTATION_PREFIX}{suffix}]");
    if head.declared.is_empty() {
        return None;
    }
    let present = if head.declared.success.is_some() {
        declared::SUCCESS
    } else {
        declared::FAILURE
    };
    if !declared::allows(&head.type_ref) {
        return Some(Violation::new(
            Rule::Completion,
            Fault::Forbidden,
            annotation(present),
            format!(
                "a {} tells by itself how it ends; remove the annotation",
                head.type_ref.kind
            ),
        ));
    }
    let (suffix, error) = head.declared.rule().err()?;
    Some(Violation::new(
        Rule::Completion,
        Fault::Invalid,
        annotation(suffix),
        error.to_string(),
    ))
}

/// Whether it is written as the API server writes it. `/v1`, which it takes for `v1`, would be a type of its own here, whose
/// pods nobody infers.
fn is_api_version(text: &str) -> bool {
    let is_label = |label: &str| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(plain)
    };
    let (group, version) = text
        .split_once('/')
        .map_or((None, text), |(group, version)| (Some(group), version));
    is_label(version) && group.is_none_or(|group| group.split('.').all(is_label))
}

fn check_kind(type_ref: &TypeRef, object: &Value, field: &str, admission: &AdmissionConfig) -> Option<Violation> {
    let forbid = |rule, message: String| Some(Violation::new(rule, Fault::Forbidden, field, message));
    if type_ref.group() == crate::GROUP && &*type_ref.kind == crate::KIND {
        return forbid(
            Rule::Nested,
            "Nested AppWrappers are forbidden; list the components here instead".into(),
        );
    }
    if object.get("items").is_some_and(Value::is_array) {
        return forbid(
            Rule::Nested,
            format!(
                "{} is a list; make each of its items a component of its own",
                type_ref.kind
            ),
        );
    }
    if PRIVILEGED_GROUPS.contains(&type_ref.group()) && !admission.unsafe_allow_privileged_kinds {
        return forbid(
            Rule::Kind,
            format!(
                "kinds of {} hand out rights and cannot be wrapped; create {} directly",
                type_ref.group(),
                type_ref.kind
            ),
        );
    }
    if !admission.allows(type_ref) {
        let kind = match type_ref.group() {
            "" => type_ref.kind.to_string(),
            group => format!("{group}/{}", type_ref.kind),
        };
        return forbid(
            Rule::Kind,
            format!("kind {kind} may not be wrapped; an administrator can add it to appwrapper.admission.allowedKinds"),
        );
    }
    None
}

/// Pods are found by the label of their AppWrapper: a template with another one's cannot be labelled.
pub(super) fn check_pod_labels(
    object: &Value,
    pod_sets: &[PodSet],
    place: &Place<'_>,
    violations: &mut Vec<Violation>,
) {
    for pod_set in pod_sets.iter().filter(|pod_set| pod_set.path != "template") {
        let template = Path::parse(&pod_set.path).ok().and_then(|path| path.get(object).ok());
        let metadata = template.and_then(|template| template.get("metadata"));
        violations.extend(label_violation(
            metadata.and_then(Value::as_object),
            place,
            &pod_set.path,
        ));
    }
}

fn label_violation(metadata: Option<&Map<String, Value>>, place: &Place<'_>, path: &str) -> Option<Violation> {
    let label = metadata?.get("labels")?.get(APPWRAPPER_LABEL)?;
    if label.as_str() == Some(place.name) {
        return None;
    }
    let remedy = "the label names the AppWrapper that an object belongs to; remove it, it is set for you";
    Some(Violation::new(
        Rule::Metadata,
        Fault::Forbidden,
        format!("{}.{path}.metadata.labels[{APPWRAPPER_LABEL}]", place.field),
        format!("{} is another AppWrapper: {remedy}", short(label)),
    ))
}

/// Whether a field says nothing: manifests written by Go programs carry `creationTimestamp: null` and `status: {}`.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::template::Template;

    fn found(object: &Value, admission: &AdmissionConfig) -> Vec<String> {
        let template = Template::new(object);
        let place = Place {
            field: "c",
            namespace: "ns",
            name: "a",
        };
        let mut violations = Vec::new();
        check(template.head().unwrap(), object, &place, admission, &mut violations);
        violations.into_iter().map(|violation| violation.field).collect()
    }

    fn pod(extra: Value) -> Value {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        json_merge(&mut pod, extra);
        pod
    }

    fn json_merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    json_merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    #[rstest]
    #[case::plain(json!({}))]
    #[case::all_allowed(json!({"metadata": {"namespace": "ns", "labels": {"a": "b"}, "annotations": {"c": "d"}}}))]
    #[case::generated_manifest(json!({"metadata": {"creationTimestamp": null}, "status": {}}))]
    #[case::empty_lists(json!({"metadata": {"finalizers": [], "ownerReferences": []}, "status": {"replicas": 0, "x": {}}}))]
    #[case::own_label(json!({"metadata": {"labels": {"workload.codeflare.dev/appwrapper": "a"}}}))]
    fn what_is_fine_breaks_no_rule(#[case] extra: Value) {
        assert_eq!(found(&pod(extra), &AdmissionConfig::default()), Vec::<String>::new());
    }

    #[rstest]
    #[case::other_namespace(json!({"metadata": {"namespace": "NS"}}), "c.template.metadata.namespace")]
    #[case::namespace_no_text(json!({"metadata": {"namespace": ["ns"]}}), "c.template.metadata.namespace")]
    #[case::owner(json!({"metadata": {"ownerReferences": [{"uid": "1"}]}}), "c.template.metadata.ownerReferences")]
    #[case::finalizer(json!({"metadata": {"finalizers": ["x"]}}), "c.template.metadata.finalizers")]
    #[case::uid(json!({"metadata": {"uid": "1"}}), "c.template.metadata.uid")]
    #[case::version(json!({"metadata": {"resourceVersion": "1"}}), "c.template.metadata.resourceVersion")]
    #[case::managed(json!({"metadata": {"managedFields": [{}, {"manager": "x"}]}}), "c.template.metadata.managedFields")]
    #[case::deletion(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), "c.template.metadata.deletionTimestamp")]
    #[case::status(json!({"status": {"phase": "Running"}}), "c.template.status")]
    #[case::label(json!({"metadata": {"labels": {"workload.codeflare.dev/appwrapper": "b"}}}), "c.template.metadata.labels[workload.codeflare.dev/appwrapper]")]
    #[case::core_in_disguise(json!({"apiVersion": "/v1"}), "c.template.apiVersion")]
    #[case::list(json!({"items": []}), "c.template")]
    #[case::nested(json!({"apiVersion": "workload.codeflare.dev/v9", "kind": "AppWrapper"}), "c.template")]
    #[case::not_allowed(json!({"kind": "Secret"}), "c.template")]
    #[case::privileged(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}), "c.template")]
    fn a_broken_rule_names_its_field(#[case] extra: Value, #[case] field: &str) {
        assert_eq!(found(&pod(extra), &AdmissionConfig::default()), [field]);
    }

    #[test]
    fn privileged_kinds_take_the_flag_and_the_list() {
        let binding = pod(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}));
        let all = serde_json::from_value(json!({"allowedKinds": ["*"]})).unwrap();
        assert_eq!(found(&binding, &all), ["c.template"]);
        let flag = AdmissionConfig {
            unsafe_allow_privileged_kinds: true,
            ..AdmissionConfig::default()
        };
        assert_eq!(found(&binding, &flag), ["c.template"]);
        let both = AdmissionConfig {
            unsafe_allow_privileged_kinds: true,
            ..all
        };
        assert_eq!(found(&binding, &both), Vec::<String>::new());
    }
}
