//! Small accessors for objects kept as JSON.
//!
//! Everything here reads leniently: a missing or ill-typed field is the empty value, since the fake server validates
//! no schema.

use serde_json::{Map, Value};

/// The string at `pointer`, or the empty string.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at `pointer`, or the empty list.
pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    list(object, "/metadata/finalizers")
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Writes the finalizers; an empty list removes the field, as the real server prints it.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        metadata(object).remove("finalizers");
    } else {
        metadata(object).insert("finalizers".to_owned(), finalizers.into());
    }
}

/// The top-level fields, made an object if they were none.
pub(crate) fn fields(object: &mut Value) -> &mut Map<String, Value> {
    child(object)
}

/// The metadata, made an object if it was none.
pub(crate) fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    child(fields(object).entry("metadata").or_insert(Value::Null))
}

/// The given top-level section, made an object if it was none.
pub(crate) fn section<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    child(fields(object).entry(name).or_insert(Value::Null))
}

fn child(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object above")
}

/// Copies a field of the metadata from one object to another, absence included.
pub(crate) fn keep_metadata(from: &Value, to: &mut Value, field: &str) {
    match from.get("metadata").and_then(|m| m.get(field)) {
        Some(value) => metadata(to).insert(field.to_owned(), value.clone()),
        None => metadata(to).remove(field),
    };
}

/// The same object with another version, as sent for an object that is gone or left a selector.
pub(crate) fn at_version(object: &Value, revision: u64) -> Value {
    let mut object = object.clone();
    metadata(&mut object).insert("resourceVersion".to_owned(), revision.to_string().into());
    object
}

/// The `PartialObjectMetadata` view of an object.
pub(crate) fn partial(object: &Value) -> Value {
    serde_json::json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata"),
    })
}

/// Whether two objects say the same apart from their version.
pub(crate) fn same_content(left: &Value, right: &Value) -> bool {
    at_version(left, 0) == at_version(right, 0)
}
