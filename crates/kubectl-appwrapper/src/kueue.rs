//! What Kueue makes of an AppWrapper: the Workload that it owns, in whatever version the cluster serves.

use kube::{
    Api,
    api::{DynamicObject, ListParams},
    discovery,
};
use serde_json::Value;

use crate::{
    report::{Kueue, Reason, Workload},
    session::{Session, plain},
};

const GROUP: &str = "kueue.x-k8s.io";

/// Looks for the Workload of the AppWrapper with this uid.
pub async fn find(session: &Session, uid: &str) -> Result<Kueue, String> {
    let refused = |error: &kube::Error| format!("what Kueue makes of it: {}", plain(error));
    let group = match discovery::group(&session.client, GROUP).await {
        Ok(group) => group,
        Err(kube::Error::Discovery(_)) => return Ok(Kueue::Absent),
        Err(error) => return Err(refused(&error)),
    };
    let Some((resource, _)) = group.recommended_kind("Workload") else {
        return Ok(Kueue::Absent);
    };
    let api: Api<DynamicObject> = Api::namespaced_with(session.client.clone(), &session.namespace, &resource);
    let workloads = api
        .list(&ListParams::default())
        .await
        .map_err(|error| refused(&error))?;
    let owned = workloads.items.into_iter().find(|workload| {
        let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|owner| owner.uid == uid)
    });
    Ok(owned.map_or(Kueue::NoWorkload, |workload| {
        let name = workload.metadata.name.unwrap_or_default();
        Kueue::Workload(read(&name, &workload.data))
    }))
}

/// Reads a Workload. What is oddly shaped reads as absent.
pub fn read(name: &str, object: &Value) -> Workload {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let find = |type_: &str| {
        conditions
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == type_)
    };
    let is = |type_: &str, status: &str| find(type_).filter(|condition| condition["status"] == status);
    // The latest word on why it does not run: it was evicted, or it gets no quota.
    let why = is("QuotaReserved", "False")
        .filter(|condition| !text(condition, "/message").is_empty())
        .or_else(|| is("Evicted", "True"))
        .or_else(|| is("QuotaReserved", "False"));
    let checks = object.pointer("/status/admissionChecks").and_then(Value::as_array);
    Workload {
        name: name.to_owned(),
        quota_reserved: is("QuotaReserved", "True").is_some(),
        admitted: is("Admitted", "True").is_some(),
        inactive: object.pointer("/spec/active") == Some(&Value::Bool(false)),
        cluster_queue: Some(text(object, "/status/admission/clusterQueue").to_owned()).filter(|name| !name.is_empty()),
        why: why.and_then(reason),
        checks: checks
            .into_iter()
            .flatten()
            .filter(|check| check["state"] != "Ready")
            .map(|check| {
                let message = text(check, "/message");
                let said = if message.is_empty() {
                    String::new()
                } else {
                    format!(": {message}")
                };
                format!("{} is {}{said}", text(check, "/name"), text(check, "/state"))
            })
            .collect(),
    }
}

fn reason(condition: &Value) -> Option<Reason> {
    Some(Reason {
        reason: text(condition, "/reason").to_owned(),
        message: text(condition, "/message").to_owned(),
        since: text(condition, "/lastTransitionTime").parse().ok()?,
    })
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn a_workload_without_quota_says_why() {
        let no_quota = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed";
        let workload = read(
            "w",
            &json!({"status": {"conditions": [condition("QuotaReserved", "False", "Pending", no_quota)]}}),
        );
        assert!(!workload.quota_reserved && !workload.admitted && !workload.inactive);
        assert_eq!(workload.why.unwrap().message, no_quota);
    }

    #[test]
    fn an_evicted_one_says_so_and_a_pending_check_is_named() {
        let workload = read(
            "w",
            &json!({"spec": {"active": false}, "status": {
                "admission": {"clusterQueue": "cq"},
                "conditions": [condition("QuotaReserved", "False", "Pending", ""), condition("Evicted", "True", "Preempted", "by w2")],
                "admissionChecks": [{"name": "prov", "state": "Pending", "message": "no nodes"}, {"name": "b", "state": "Ready"}]}}),
        );
        assert_eq!(workload.why.unwrap().reason, "Preempted");
        assert_eq!(workload.checks, ["prov is Pending: no nodes"]);
        assert!(workload.inactive);
        assert_eq!(workload.cluster_queue.as_deref(), Some("cq"));
    }

    #[test]
    fn an_odd_workload_says_nothing() {
        assert_eq!(
            read("w", &json!({"status": {"conditions": 7, "admissionChecks": "x"}})),
            Workload {
                name: "w".into(),
                ..Workload::default()
            }
        );
    }
}
