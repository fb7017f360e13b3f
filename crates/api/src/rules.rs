//! Structural rules of a component, which hold whoever let the AppWrapper in.
//!
//! The webhook applies them at admission; the controller applies them again before it creates anything, because the
//! webhook can be away, switched off or deceived, and the controller's rights are wider than a user's.

use std::collections::HashSet;

use crate::{
    appwrapper::{AppWrapper, Component},
    podsets::{self, PodSetError},
    template::TemplateError,
};

/// Longest value of a label; the name of an AppWrapper is one on each of its components.
pub const LABEL_VALUE_LIMIT: usize = 63;

/// A rule that an AppWrapper breaks: where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Violation {
    /// Path of the field, for example `spec.components[1].template.metadata.namespace`.
    pub field: String,
    /// The offending value and the remedy.
    pub message: String,
}

impl Violation {
    fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

/// The first rule that the AppWrapper breaks, if any.
pub fn check(wrapper: &AppWrapper) -> Result<(), Violation> {
    let key = wrapper.key();
    if key.name.len() > LABEL_VALUE_LIMIT {
        return Err(Violation::new(
            "metadata.name",
            format!(
                "{:?} has {} characters; the name labels every component and may have at most {LABEL_VALUE_LIMIT}",
                &*key.name,
                key.name.len()
            ),
        ));
    }
    let mut names = HashSet::new();
    for (position, component) in wrapper.spec.components.iter().enumerate() {
        let field = format!("spec.components[{position}].template");
        check_component(component, &key.namespace, &field)?;
        if let Ok(head) = component.template.head()
            && let Some(name) = &head.name
            && !names.insert((&head.type_ref, name))
        {
            return Err(Violation::new(
                format!("{field}.metadata.name"),
                format!(
                    "{} {name:?} is wrapped twice; give each component a name of its own",
                    head.type_ref.kind
                ),
            ));
        }
        podsets::resolve(component).map_err(|error| pod_set_violation(position, &error))?;
    }
    Ok(())
}

fn check_component(component: &Component, namespace: &str, field: &str) -> Result<(), Violation> {
    let head = component
        .template
        .head()
        .map_err(|error| Violation::new(field, error.to_string()))?;
    if head.type_ref.group() == crate::GROUP && &*head.type_ref.kind == crate::KIND {
        return Err(Violation::new(
            field,
            "an AppWrapper cannot wrap an AppWrapper; list its components here instead",
        ));
    }
    if let Some(other) = head.namespace.as_deref().filter(|other| *other != namespace) {
        return Err(Violation::new(
            format!("{field}.metadata.namespace"),
            format!("{other:?} is another namespace; components live in the AppWrapper's, {namespace:?}: leave it out"),
        ));
    }
    if head.name.is_none() && head.generate_name.is_none() {
        return Err(Violation::new(
            format!("{field}.metadata"),
            "has neither name nor generateName; set one of them",
        ));
    }
    Ok(())
}

fn pod_set_violation(position: usize, error: &PodSetError) -> Violation {
    let part = match error {
        PodSetError::Template(TemplateError::NotAnObject | TemplateError::NoType) => "template",
        _ => "podSets",
    };
    Violation::new(format!("spec.components[{position}].{part}"), error.to_string())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

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

    fn service(metadata: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
    }

    #[test]
    fn a_plain_appwrapper_breaks_no_rule() {
        let own = json!({"name": "s", "namespace": "ns"});
        assert_eq!(
            check(&wrapper(
                "a",
                vec![service(own), service(json!({"generateName": "s-"}))]
            )),
            Ok(())
        );
    }

    #[rstest]
    #[case::not_an_object(vec![json!([])], "spec.components[0].template")]
    #[case::no_kind(vec![json!({"apiVersion": "v1"})], "spec.components[0].template")]
    #[case::other_namespace(vec![service(json!({"name": "s", "namespace": "other"}))], "spec.components[0].template.metadata.namespace")]
    #[case::no_name(vec![service(json!({}))], "spec.components[0].template.metadata")]
    #[case::twice(vec![service(json!({"name": "s"})), service(json!({"name": "s"}))], "spec.components[1].template.metadata.name")]
    #[case::nested(vec![json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "x"}})], "spec.components[0].template")]
    #[case::no_pod_template(vec![json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {}})], "spec.components[0].podSets")]
    fn a_broken_rule_names_its_field(#[case] templates: Vec<Value>, #[case] field: &str) {
        assert_eq!(check(&wrapper("a", templates)).unwrap_err().field, field);
    }

    #[test]
    fn a_name_that_cannot_be_a_label_is_refused() {
        assert_eq!(
            check(&wrapper(&"a".repeat(64), vec![])).unwrap_err().field,
            "metadata.name"
        );
    }
}
