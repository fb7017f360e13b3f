//! A component's template: the wrapped object, kept as compact text.
//!
//! Templates are most of an AppWrapper's size and are read in two phases only, so they are stored as JSON text and
//! parsed on demand. The few fields that name the object are read once, when the AppWrapper is decoded.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{declared::Declared, facts::TypeRef};

/// The wrapped object of one component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    json: Arc<str>,
    head: Option<TemplateHead>,
}

/// The fields of a template that name the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateHead {
    /// Type of the object.
    pub type_ref: TypeRef,
    /// `metadata.name`, if given and not empty.
    pub name: Option<Arc<str>>,
    /// `metadata.generateName`, if given and not empty.
    pub generate_name: Option<Arc<str>>,
    /// `metadata.namespace`, if given and not empty.
    pub namespace: Option<Arc<str>>,
    /// How the object declares to end.
    pub declared: Declared,
}

/// Why a template names no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template is no JSON object.
    #[error("template is not an object: write a complete Kubernetes object with apiVersion, kind and metadata")]
    NotAnObject,
    /// `apiVersion` or `kind` is missing.
    #[error("template has no apiVersion or no kind: both must be non-empty strings")]
    NoType,
}

impl Template {
    /// The template that holds `object`.
    pub fn new(object: &Value) -> Self {
        Self {
            json: object.to_string().into(),
            head: TemplateHead::read(object),
        }
    }

    /// What the template names, or why it names nothing.
    pub fn head(&self) -> Result<&TemplateHead, TemplateError> {
        self.head.as_ref().ok_or(if self.json.starts_with('{') {
            TemplateError::NoType
        } else {
            TemplateError::NotAnObject
        })
    }

    /// The object itself.
    pub fn object(&self) -> Result<Map<String, Value>, TemplateError> {
        serde_json::from_str(&self.json).map_err(|_| TemplateError::NotAnObject)
    }

    /// Size of the template in bytes of compact JSON.
    pub fn size(&self) -> usize {
        self.json.len()
    }
}

impl TemplateHead {
    fn read(object: &Value) -> Option<Self> {
        let text = |value: &Value, key: &str| -> Option<Arc<str>> {
            value.get(key)?.as_str().filter(|text| !text.is_empty()).map(Arc::from)
        };
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        Some(Self {
            type_ref: TypeRef {
                api_version: text(object, "apiVersion")?,
                kind: text(object, "kind")?,
            },
            name: text(metadata, "name"),
            generate_name: text(metadata, "generateName"),
            namespace: text(metadata, "namespace"),
            declared: Declared::of(object),
        })
    }
}

impl Default for Template {
    fn default() -> Self {
        Self::new(&Value::Null)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(&Value::deserialize(deserializer)?))
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: Value = serde_json::from_str(&self.json).map_err(serde::ser::Error::custom)?;
        value.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_names_no_object_says_why() {
        assert_eq!(Template::new(&json!([1])).head(), Err(TemplateError::NotAnObject));
        assert_eq!(
            Template::new(&json!({"kind": "Pod"})).head(),
            Err(TemplateError::NoType)
        );
        assert_eq!(
            Template::new(&json!({"apiVersion": 1, "kind": "Pod"})).head(),
            Err(TemplateError::NoType)
        );
    }

    #[test]
    fn odd_metadata_is_no_name() {
        let template = Template::new(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": "x"}));
        assert_eq!(template.head().unwrap().name, None);
    }

    #[test]
    fn a_template_is_read_back() {
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"x": [1.5, null]}});
        let template: Template = serde_json::from_value(object.clone()).unwrap();
        assert_eq!(serde_json::to_value(&template).unwrap(), object);
    }
}
