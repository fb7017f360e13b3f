//! Deletion: preconditions, propagation policies, grace periods and finalizers.
//!
//! A delete either removes the object at once or marks it with a deletion timestamp and leaves it until its finalizers
//! are gone and its grace period is over. Only pods have a grace period: a scheduled, unfinished pod waits for its
//! kubelet, which here is the test (`ApiServer::finish_pod`). What follows from foreground and orphan deletion is the
//! work of `collect.rs`.
//!
//! Without a policy Jobs of `batch/v1` orphan their dependents, all other kinds delete them in the background.

use std::sync::Arc;

use serde_json::Value;

use super::error::{ApiError, details};
use super::kinds::ResourceKind;
use super::object;
use super::request::ApiRequest;
use super::store::{Actor, ObjectKey, State};
use super::write::is_finished;

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// Seconds a pod is given when neither the request nor its spec says how many.
const POD_GRACE: i64 = 30;

/// What a delete asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) policy: Option<String>,
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

impl DeleteOptions {
    pub(crate) fn of(request: &ApiRequest) -> Self {
        Self {
            policy: request.propagation().map(str::to_owned),
            grace: request.grace_period(),
            uid: request.uid_precondition().map(str::to_owned),
            version: request.version_precondition().map(str::to_owned),
        }
    }

    pub(crate) fn policy(policy: &str) -> Self {
        Self {
            policy: Some(policy.to_owned()),
            ..Self::default()
        }
    }
}

impl State {
    /// Deletes an object. The answer is the object while it is still there, or for pods, and otherwise a `Status`.
    pub(crate) fn delete(
        &mut self,
        by: &Actor,
        kind: &ResourceKind,
        key: &ObjectKey,
        options: &DeleteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let old = self.existing(kind, key)?;
        for (what, wanted, found) in [
            ("UID", &options.uid, object::uid(&old)),
            ("ResourceVersion", &options.version, object::resource_version(&old)),
        ] {
            if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != found) {
                return Err(ApiError::precondition(kind, &key.name, what, wanted, found));
            }
        }

        let mut new = Value::clone(&old);
        let finalizers = finalizers_for(kind, &old, options.policy.as_deref());
        object::set_finalizers(&mut new, &finalizers);
        self.mark(kind, &mut new, options.grace);
        if is_finished(&new) {
            let last = self.commit(by, key, None);
            return Ok(if kind.plural == "pods" {
                last
            } else {
                Arc::new(success(kind, &last))
            });
        }
        if object::same_content(&old, &new) {
            Ok(old)
        } else {
            Ok(self.commit(by, key, Some(new)))
        }
    }

    /// Sets the deletion timestamp and grace period. A later delete may shorten the grace period, never lengthen it.
    fn mark(&self, kind: &ResourceKind, object: &mut Value, wanted: Option<i64>) {
        let grace = grace_period(kind, object, wanted);
        let before = object
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64);
        if object::is_deleting(object) && before.unwrap_or_default() <= grace {
            return;
        }
        let first = !object::is_deleting(object);
        let at = self.stamp(grace);
        let generation = object
            .pointer("/metadata/generation")
            .and_then(Value::as_u64)
            .unwrap_or_default()
            + 1;
        let metadata = object::metadata(object);
        metadata.insert("deletionTimestamp".to_owned(), at);
        metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
        if first {
            metadata.insert("generation".to_owned(), generation.into());
        }
        if kind.plural == "namespaces" {
            object::section(object, "status").insert("phase".to_owned(), "Terminating".into());
        }
    }
}

/// The finalizers of a deleted object: its own, and the one that stands for the propagation policy.
fn finalizers_for(kind: &ResourceKind, object: &Value, policy: Option<&str>) -> Vec<String> {
    let mut finalizers = object::finalizers(object);
    let had = |name: &str| finalizers.iter().any(|f| f == name);
    let by_default = if kind.id() == "jobs.batch" { Some(ORPHAN) } else { None };
    let wanted = match policy {
        Some("Orphan") => Some(ORPHAN),
        Some("Foreground") => Some(FOREGROUND),
        Some(_) => None,
        None if had(ORPHAN) => Some(ORPHAN),
        None if had(FOREGROUND) => Some(FOREGROUND),
        // Once the garbage collector is done with an object, a repeated delete must not start it again.
        None if object::is_deleting(object) => None,
        None => by_default,
    };
    finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
    finalizers.extend(wanted.map(str::to_owned));
    finalizers
}

fn grace_period(kind: &ResourceKind, object: &Value, wanted: Option<i64>) -> i64 {
    if kind.id() != "pods" || object::text(object, "/spec/nodeName").is_empty() {
        return 0;
    }
    if matches!(object::text(object, "/status/phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let in_spec = || {
        object
            .pointer("/spec/terminationGracePeriodSeconds")
            .and_then(Value::as_i64)
    };
    wanted.or_else(in_spec).unwrap_or(POD_GRACE).max(0)
}

fn success(kind: &ResourceKind, object: &Value) -> Value {
    let mut details = details(kind, object::name(object));
    details["uid"] = object::uid(object).into();
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    })
}
