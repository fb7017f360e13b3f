//! The CustomResourceDefinition, generated from the types.
//!
//! Its structure is that of the Go controller's CRD: no default and no limit beyond the types, and nothing required at the
//! root (spec/api.md section 1). Beside that it carries a few rules in CEL. `cargo xtask generate` writes it to `deploy/crd/`.

pub(crate) mod rules;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::schema::StructuralSchemaRewriter;
use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Value, json};

use crate::appwrapper::{AppWrapperSpec, AppWrapperStatus};

/// Name of the CRD object.
pub const NAME: &str = "appwrappers.workload.codeflare.dev";

/// The definition as it is applied to a cluster.
pub fn definition() -> CustomResourceDefinition {
    serde_json::from_value(manifest()).unwrap_or_default()
}

/// The definition as JSON.
pub fn manifest() -> Value {
    let condition = |type_: &str| format!(".status.conditions[?(@.type==\"{type_}\")].status");
    let column = |name: &str, path: &str, type_: &str| json!({"name": name, "jsonPath": path, "type": type_});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": crate::GROUP,
            "names": {
                "kind": crate::KIND,
                "listKind": "AppWrapperList",
                "plural": crate::PLURAL,
                "singular": "appwrapper",
                "shortNames": ["aw"],
            },
            "scope": "Namespaced",
            "versions": [{
                "name": crate::VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Status", ".status.phase", "string"),
                    column("Quota Reserved", &condition("QuotaReserved"), "string"),
                    column("Resources Deployed", &condition("ResourcesDeployed"), "string"),
                    column("Unhealthy", &condition("Unhealthy"), "string"),
                    column("Age", ".metadata.creationTimestamp", "date"),
                ],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A group of Kubernetes objects that is queued, deployed, watched over and retried as one workload.",
                    "x-kubernetes-validations": rules::of_appwrapper(),
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": schema_of::<AppWrapperSpec>(),
                        "status": schema_of::<AppWrapperStatus>(),
                    },
                }},
            }],
        },
    })
}

fn schema_of<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(StructuralSchemaRewriter)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// Drops what the Go controller's CRD does not have: titles, and defaults (Kueue clears `suspend` by removing it, so a
/// default would bring it back).
fn tidy(schema: &mut Value) {
    let Value::Object(node) = schema else { return };
    for key in ["title", "default", "nullable"] {
        node.remove(key);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = node.get_mut(key) {
            tidy(child);
        }
    }
    if let Some(Value::Object(properties)) = node.get_mut("properties") {
        properties.values_mut().for_each(tidy);
    }
}

pub(crate) fn template_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "The complete wrapped object.",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

pub(crate) fn tolerations_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "Tolerations to append.",
        "items": {"type": "object", "properties": {
            "effect": {"type": "string"},
            "key": {"type": "string"},
            "operator": {"type": "string"},
            "tolerationSeconds": {"type": "integer", "format": "int64"},
            "value": {"type": "string"},
        }},
    })
}

pub(crate) fn scheduling_gates_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "Scheduling gates to append.",
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    })
}

/// `metav1.Condition` with its limits, as a list keyed by type.
pub(crate) fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "description": "Conditions, one per type.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
        value.pointer(path).unwrap_or_else(|| panic!("nothing at {path}"))
    }

    #[test]
    fn nothing_is_defaulted_and_nothing_is_required_at_the_root() {
        let schema = manifest();
        let root = at(&schema, "/spec/versions/0/schema/openAPIV3Schema");
        assert!(root.get("required").is_none());
        assert!(!root.to_string().contains("\"default\""));
        assert!(!root.to_string().contains("nullable"));
        assert_eq!(at(root, "/properties/spec/required"), &json!(["components"]));
    }

    #[test]
    fn a_template_is_an_embedded_resource() {
        let schema = manifest();
        let component = at(
            &schema,
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/components/items",
        );
        assert_eq!(
            at(component, "/properties/template/x-kubernetes-embedded-resource"),
            &json!(true)
        );
        assert_eq!(
            at(component, "/properties/template/x-kubernetes-preserve-unknown-fields"),
            &json!(true)
        );
        assert_eq!(at(component, "/required"), &json!(["template"]));
    }

    #[test]
    fn the_status_of_a_component_requires_its_four_fields() {
        let schema = manifest();
        let items = at(
            &schema,
            "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/componentStatus/items",
        );
        let mut required: Vec<_> = at(items, "/required").as_array().unwrap().clone();
        required.sort_by_key(ToString::to_string);
        assert_eq!(required, ["apiVersion", "kind", "name", "podSets"].map(Value::from));
    }

    #[test]
    fn the_definition_survives_the_typed_form() {
        assert_eq!(definition().spec.versions.len(), 1);
    }
}
