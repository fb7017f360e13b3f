//! Refusals, worded and coded as the real server words and codes them.
//!
//! Most are a `Status` body with reason, code and details. `Unserved` is the exception that matters to clients: a path
//! without a handler is answered in plain text, which a client must not take for "this object does not exist".

use serde_json::{Value, json};

use super::kinds::ResourceKind;
use crate::answer::status_object;

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ApiError {
    /// A `Status` body.
    Status { code: u16, body: Value },
    /// The plain-text 404 of a path that nobody serves.
    Unserved,
}

impl ApiError {
    pub(crate) fn new(code: u16, reason: &str, message: &str) -> Self {
        Self::with_details(code, reason, message, Value::Null)
    }

    pub(crate) fn with_details(code: u16, reason: &str, message: &str, details: Value) -> Self {
        let mut body = status_object(code, reason, message);
        if !details.is_null() {
            body["details"] = details;
        }
        Self::Status { code, body }
    }

    fn about(kind: &ResourceKind, name: &str, code: u16, reason: &str, message: &str) -> Self {
        Self::with_details(code, reason, message, details(kind, name))
    }

    pub(crate) fn not_found(kind: &ResourceKind, name: &str) -> Self {
        Self::about(
            kind,
            name,
            404,
            "NotFound",
            &format!("{} \"{name}\" not found", kind.id()),
        )
    }

    pub(crate) fn already_exists(kind: &ResourceKind, name: &str) -> Self {
        Self::about(
            kind,
            name,
            409,
            "AlreadyExists",
            &format!("{} \"{name}\" already exists", kind.id()),
        )
    }

    /// A write on top of another version.
    pub(crate) fn modified(kind: &ResourceKind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// A precondition on uid or resourceVersion that does not hold.
    pub(crate) fn precondition(kind: &ResourceKind, name: &str, what: &str, wanted: &str, found: &str) -> Self {
        let why = format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
        Self::conflict(kind, name, &why)
    }

    fn conflict(kind: &ResourceKind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.id());
        Self::about(kind, name, 409, "Conflict", &message)
    }

    pub(crate) fn invalid(kind: &ResourceKind, name: &str, field: &str, why: &str) -> Self {
        let message = format!("{}.{} \"{name}\" is invalid: {field}: {why}", kind.kind, kind.group);
        let mut details = details(kind, name);
        details["kind"] = kind.kind.clone().into();
        details["causes"] = json!([{"reason": "FieldValueInvalid", "message": why, "field": field}]);
        Self::with_details(422, "Invalid", &message, details)
    }

    pub(crate) fn bad_request(message: &str) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn namespace_terminating(kind: &ResourceKind, name: &str, namespace: &str) -> Self {
        let message = format!(
            "{} \"{name}\" is forbidden: unable to create new content in namespace {namespace} because it is being \
             terminated",
            kind.id()
        );
        let mut details = details(kind, name);
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        Self::with_details(403, "Forbidden", &message, details)
    }

    /// A version or continue token that was compacted away.
    pub(crate) fn expired(message: &str) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A read at a version that does not exist yet.
    pub(crate) fn too_large_version(wanted: u64, current: u64) -> Self {
        Self::with_details(
            504,
            "Timeout",
            &format!("Timeout: Too large resource version: {wanted}, current: {current}"),
            json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            }),
        )
    }
}

/// The `details` of a `Status` about one object. `kind` holds the plural there, as on the real server.
pub(crate) fn details(kind: &ResourceKind, name: &str) -> Value {
    let mut details = json!({"name": name, "kind": kind.plural});
    if !kind.group.is_empty() {
        details["group"] = kind.group.clone().into();
    }
    details
}
