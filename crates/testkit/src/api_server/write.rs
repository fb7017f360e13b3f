//! Create, update and patch.
//!
//! What is kept of the real server's rules: names from `generateName`, AlreadyExists, no creation in a terminating
//! namespace; optimistic locking by `metadata.resourceVersion` on updates and on every form of patch; separation of
//! `status`; immutable metadata; generations; writes without effect leave the version alone; an update that takes the
//! last finalizer of a deleted object removes it.
//!
//! Server-side apply is a merge that creates what is missing: no field ownership is kept.

use std::sync::Arc;

use serde_json::{Value, json};

use super::error::ApiError;
use super::kinds::ResourceKind;
use super::object;
use super::request::{ApiRequest, Verb};
use super::store::{Actor, ObjectKey, State};

/// `generateName` is cut so that the whole fits into a DNS label.
const GENERATED_BASE_LIMIT: usize = 58;

/// Metadata that no client may change.
const IMMUTABLE: [&str; 6] = [
    "name",
    "namespace",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
];

impl State {
    /// Stores a new object.
    pub(crate) fn create(
        &mut self,
        by: &Actor,
        kind: &ResourceKind,
        namespace: Option<&str>,
        mut body: Value,
    ) -> Result<Arc<Value>, ApiError> {
        check_type(kind, &body)?;
        if !matches!(object::resource_version(&body), "" | "0") {
            return Err(ApiError::new(
                500,
                "InternalError",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let namespace = place(kind, namespace, &mut body)?;
        self.name(kind, &namespace, &mut body)?;
        let name = object::name(&body).to_owned();
        self.admit_namespace(kind, &name, &namespace)?;
        let key = ObjectKey {
            resource: kind.id(),
            namespace,
            name,
        };
        if self.objects.contains_key(&key) {
            return Err(ApiError::already_exists(kind, &key.name));
        }

        object::fields(&mut body).insert("apiVersion".to_owned(), kind.api_version().into());
        object::fields(&mut body).insert("kind".to_owned(), kind.kind.clone().into());
        let (uid, created) = (self.next_uid(), self.stamp(0));
        let metadata = object::metadata(&mut body);
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), created);
        metadata.insert("generation".to_owned(), 1.into());
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
        if kind.status_subresource && by.request.is_some() {
            object::fields(&mut body).remove("status");
        }
        match kind.id().as_str() {
            "pods" => {
                object::section(&mut body, "status")
                    .entry("phase")
                    .or_insert("Pending".into());
            }
            "namespaces" => {
                object::section(&mut body, "spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
                object::section(&mut body, "status").insert("phase".to_owned(), "Active".into());
            }
            _ => {}
        }
        Ok(self.commit(by, &key, Some(body)))
    }

    /// Replaces an object, or its status.
    pub(crate) fn update(
        &mut self,
        by: &Actor,
        kind: &ResourceKind,
        key: &ObjectKey,
        body: Value,
    ) -> Result<Arc<Value>, ApiError> {
        check_type(kind, &body)?;
        if object::name(&body) != key.name {
            let message = "the name of the object does not match the name on the URL";
            return Err(ApiError::bad_request(message));
        }
        let old = self.existing(kind, key)?;
        if object::resource_version(&body).is_empty() && (kind.is_custom() || kind.plural == "leases") {
            let why = "Invalid value: 0: must be specified for an update";
            return Err(ApiError::invalid(kind, &key.name, "metadata.resourceVersion", why));
        }
        let (wanted, found) = (object::uid(&body), object::uid(&old));
        if !wanted.is_empty() && wanted != found {
            return Err(ApiError::precondition(kind, &key.name, "UID", wanted, found));
        }
        self.replace(by, kind, key, &old, body)
    }

    /// Applies the patch of a request.
    pub(crate) fn patch(
        &mut self,
        request: &ApiRequest,
        kind: &ResourceKind,
        key: &ObjectKey,
    ) -> Result<Arc<Value>, ApiError> {
        let by = Actor::of(request);
        let patch = request
            .body
            .as_deref()
            .ok_or_else(|| ApiError::bad_request("the patch is not JSON"))?;
        let form = request.content_type.split(';').next().unwrap_or_default().trim();
        if form == "application/apply-patch+yaml" && !self.objects.contains_key(key) {
            let namespace = Some(key.namespace.as_str()).filter(|ns| !ns.is_empty());
            return self.create(
                &Actor {
                    verb: Verb::Patch,
                    ..by
                },
                kind,
                namespace,
                patch.clone(),
            );
        }
        let old = self.existing(kind, key)?;
        let mut new = Value::clone(&old);
        match form {
            "application/json-patch+json" => {
                let operations: Vec<json_patch::PatchOperation> = serde_json::from_value(patch.clone())
                    .map_err(|e| ApiError::bad_request(&format!("error decoding patch: {e}")))?;
                json_patch::patch(&mut new, &operations)
                    .map_err(|e| ApiError::new(422, "Invalid", &format!("the server rejected our request: {e}")))?;
            }
            "application/strategic-merge-patch+json" if kind.is_custom() => {
                let message = "the body of the request was in an unknown format - accepted media types include: \
                               application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                return Err(ApiError::new(415, "UnsupportedMediaType", message));
            }
            _ => json_patch::merge(&mut new, patch),
        }
        if object::uid(&new) != object::uid(&old) {
            return Err(ApiError::invalid(kind, &key.name, "metadata.uid", "field is immutable"));
        }
        self.replace(&by, kind, key, &old, new)
    }

    /// Stores `new` in place of `old`, after the rules that updates and patches share.
    fn replace(
        &mut self,
        by: &Actor,
        kind: &ResourceKind,
        key: &ObjectKey,
        old: &Arc<Value>,
        new: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let version = object::resource_version(&new);
        if !matches!(version, "" | "0") && version != object::resource_version(old) {
            return Err(ApiError::modified(kind, &key.name));
        }
        let mut new = new;
        if by.subresource.as_deref() == Some("status") {
            let status = new.get_mut("status").map(Value::take);
            new = Value::clone(old);
            put_or_remove(&mut new, "status", status);
        } else if kind.status_subresource {
            put_or_remove(&mut new, "status", old.get("status").cloned());
        }
        for field in IMMUTABLE.into_iter().chain(["uid"]) {
            object::keep_metadata(old, &mut new, field);
        }
        for field in ["apiVersion", "kind"] {
            put_or_remove(&mut new, field, old.get(field).cloned());
        }
        let (before, after) = (object::finalizers(old), object::finalizers(&new));
        if object::is_deleting(old) && after.iter().any(|f| !before.contains(f)) {
            let why = "Forbidden: no new finalizers can be added if the object is being deleted";
            return Err(ApiError::invalid(kind, &key.name, "metadata.finalizers", why));
        }
        if object::same_content(old, &new) {
            return Ok(Arc::clone(old));
        }
        if is_finished(&new) {
            let last = self.commit(by, key, None);
            return Ok(last);
        }
        if spec_differs(old, &new) {
            let generation = old
                .pointer("/metadata/generation")
                .and_then(Value::as_u64)
                .unwrap_or_default()
                + 1;
            object::metadata(&mut new).insert("generation".to_owned(), generation.into());
        }
        Ok(self.commit(by, key, Some(new)))
    }

    pub(crate) fn existing(&self, kind: &ResourceKind, key: &ObjectKey) -> Result<Arc<Value>, ApiError> {
        self.objects
            .get(key)
            .cloned()
            .ok_or_else(|| ApiError::not_found(kind, &key.name))
    }

    /// Settles the name of a new object.
    fn name(&mut self, kind: &ResourceKind, namespace: &str, body: &mut Value) -> Result<(), ApiError> {
        if !object::name(body).is_empty() {
            return Ok(());
        }
        let base = object::text(body, "/metadata/generateName").to_owned();
        if base.is_empty() {
            let why = "Required value: name or generateName is required";
            return Err(ApiError::invalid(kind, "", "metadata.name", why));
        }
        let base: String = base.chars().take(GENERATED_BASE_LIMIT).collect();
        loop {
            let name = format!("{base}{}", self.next_suffix());
            let key = ObjectKey {
                resource: kind.id(),
                namespace: namespace.to_owned(),
                name,
            };
            if !self.objects.contains_key(&key) {
                object::metadata(body).insert("name".to_owned(), key.name.into());
                return Ok(());
            }
        }
    }

    fn admit_namespace(&self, kind: &ResourceKind, name: &str, namespace: &str) -> Result<(), ApiError> {
        if namespace.is_empty() {
            return Ok(());
        }
        let key = ObjectKey {
            resource: "namespaces".to_owned(),
            namespace: String::new(),
            name: namespace.to_owned(),
        };
        match self.objects.get(&key) {
            Some(found) if object::is_deleting(found) => Err(ApiError::namespace_terminating(kind, name, namespace)),
            None if self.require_namespaces => {
                let namespaces = ResourceKind::new("", "v1", "namespaces", "Namespace");
                Err(ApiError::not_found(&namespaces, namespace))
            }
            _ => Ok(()),
        }
    }
}

/// Whether nothing keeps a deleted object any longer.
pub(crate) fn is_finished(object: &Value) -> bool {
    let grace = object
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or_default();
    object::is_deleting(object)
        && grace == 0
        && object::finalizers(object).is_empty()
        && (object::text(object, "/kind") != "Namespace" || object::list(object, "/spec/finalizers").is_empty())
}

/// Settles the namespace of a new object.
fn place(kind: &ResourceKind, in_path: Option<&str>, body: &mut Value) -> Result<String, ApiError> {
    if !kind.namespaced {
        object::metadata(body).remove("namespace");
        return Ok(String::new());
    }
    let namespace = match (in_path.unwrap_or_default(), object::namespace(body)) {
        (path, "") => path.to_owned(),
        ("", body) => body.to_owned(),
        (path, body) if path == body => path.to_owned(),
        _ => {
            let message = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(message));
        }
    };
    if namespace.is_empty() {
        return Err(ApiError::bad_request("an object of this kind needs a namespace"));
    }
    object::metadata(body).insert("namespace".to_owned(), namespace.clone().into());
    Ok(namespace)
}

fn check_type(kind: &ResourceKind, body: &Value) -> Result<(), ApiError> {
    if !body.is_object() {
        return Err(ApiError::bad_request("the body is not an object"));
    }
    let (api_version, name) = (object::text(body, "/apiVersion"), object::text(body, "/kind"));
    let fits = matches!(name, "") || name == kind.kind;
    if fits && (api_version.is_empty() || api_version == kind.api_version()) {
        return Ok(());
    }
    let message = format!(
        "the object provided is of type {api_version}, Kind={name}, not {}",
        kind.kind
    );
    Err(ApiError::bad_request(&message))
}

fn put_or_remove(object: &mut Value, field: &str, value: Option<Value>) {
    match value {
        Some(value) => object::fields(object).insert(field.to_owned(), value),
        None => object::fields(object).remove(field),
    };
}

/// Whether anything but metadata and status differs, which is what a generation counts.
fn spec_differs(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        object::fields(&mut object).retain(|field, _| !matches!(field.as_str(), "metadata" | "status"));
        object
    };
    rest(old) != rest(new)
}
