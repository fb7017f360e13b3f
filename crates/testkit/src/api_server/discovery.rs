//! Discovery, version and health: what is served without objects behind it.
//!
//! Plain discovery only (`/api`, `/apis`, one group, one version), in the form kube's `pinned_kind` and `Discovery::run`
//! ask for. A request for the aggregated form gets the plain one, as from a server older than 1.26.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::error::ApiError;
use super::kinds::{Kinds, ResourceKind};

const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// Answers a path without a resource in it.
pub(crate) fn answer(kinds: &Kinds, path: &str) -> Result<Value, ApiError> {
    let segments: Vec<&str> = path.split('/').filter(|s| !s.is_empty()).collect();
    match segments.as_slice() {
        ["api"] => Ok(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        ["apis"] => {
            let groups: Vec<Value> = groups(kinds)
                .iter()
                .map(|(name, versions)| group(name, versions))
                .collect();
            Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", name] => {
            let found = groups(kinds).remove(*name).map(|versions| group(name, &versions));
            let mut found = found.ok_or(ApiError::Unserved)?;
            found["kind"] = "APIGroup".into();
            found["apiVersion"] = "v1".into();
            Ok(found)
        }
        ["api", version] => resources(kinds, "", version),
        ["apis", group, version] => resources(kinds, group, version),
        ["version"] => Ok(json!({
            "major": "1", "minor": "35", "gitVersion": "v1.35.0", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "testkit",
        })),
        ["healthz" | "livez" | "readyz", ..] => Ok(Value::Null),
        _ => Err(ApiError::Unserved),
    }
}

fn groups(kinds: &Kinds) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for kind in kinds.iter().filter(|k| !k.group.is_empty()) {
        let versions = groups.entry(kind.group.clone()).or_default();
        if !versions.contains(&kind.version) {
            versions.push(kind.version.clone());
        }
    }
    groups
}

fn group(name: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|v| json!({"groupVersion": format!("{name}/{v}"), "version": v}))
        .collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
}

fn resources(kinds: &Kinds, group: &str, version: &str) -> Result<Value, ApiError> {
    let served: Vec<_> = kinds
        .iter()
        .filter(|k| k.group == group && k.version == version)
        .collect();
    let Some(first) = served.first() else {
        return Err(ApiError::Unserved);
    };
    let group_version = first.api_version();
    let resources: Vec<Value> = served.iter().flat_map(|kind| entries(kind)).collect();
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn entries(kind: &ResourceKind) -> Vec<Value> {
    let entry = |name: String, verbs: &[&str]| {
        let singular = kind.kind.to_lowercase();
        let (namespaced, kind) = (kind.namespaced, &kind.kind);
        json!({"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": verbs})
    };
    let mut entries = vec![entry(kind.plural.clone(), &VERBS)];
    if kind.status_subresource {
        entries.push(entry(format!("{}/status", kind.plural), &["get", "patch", "update"]));
    }
    entries
}
