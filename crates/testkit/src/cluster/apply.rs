//! Applies manifests as `kubectl apply --server-side` does.
//!
//! Objects are applied in the order of the text. A kind that the API server does not know yet is waited for, and so is
//! each CustomResourceDefinition until it is established, so that a text may define a kind and then use it.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::time::Instant;

use super::ready::wait;

const FIELD_MANAGER: &str = "appwrapper-testkit";
const DEADLINE: Duration = Duration::from_secs(30);

/// Applies every object of a text of YAML documents; returns what the API server made of them. Objects without a
/// namespace go to `default`.
///
/// # Errors
///
/// When the text is no YAML, when a kind is still unknown after 30 seconds, or when the API server refuses an object.
pub async fn apply_yaml(client: &Client, text: &str) -> Result<Vec<DynamicObject>> {
    let mut kinds = HashMap::new();
    let mut applied = Vec::new();
    for object in parse(text)? {
        let types = object.types.clone().context("an object has apiVersion and kind")?;
        let what = format!("{} {}", types.kind, object.name_any());
        let (resource, scope) = match kinds.get(&types) {
            Some(known) => known,
            None => &*kinds.entry(types.clone()).or_insert(resolve(client, &types).await?),
        };
        let api: Api<DynamicObject> = match (scope, object.namespace()) {
            (Scope::Cluster, _) => Api::all_with(client.clone(), resource),
            (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, resource),
            (Scope::Namespaced, None) => Api::namespaced_with(client.clone(), "default", resource),
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let answer = api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await;
        applied.push(answer.with_context(|| format!("applying {what}"))?);
        if types.kind == "CustomResourceDefinition" {
            wait_for_crd(client, &object.name_any()).await?;
        }
    }
    Ok(applied)
}

/// Waits until a CustomResourceDefinition is established.
///
/// # Errors
///
/// When it is not after 30 seconds.
pub async fn wait_for_crd(client: &Client, name: &str) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let what = format!("{name} is established");
    let established = wait(Instant::now() + DEADLINE, &what, || async {
        let conditions = definitions.get(name).await?.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        Ok(conditions.find(|condition| condition.type_ == "Established" && condition.status == "True"))
    });
    established.await.map(drop)
}

/// The objects of a text of YAML documents; those of a `List` one by one.
///
/// # Errors
///
/// When the text is no YAML, or a document is no Kubernetes object.
pub fn parse(text: &str) -> Result<Vec<DynamicObject>> {
    // The limits guard against hostile texts; the larger CustomResourceDefinitions are beyond them.
    let options = serde_saphyr::options! { budget: None };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options).context("reading YAML")?;
    let mut objects = Vec::new();
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List") => {
                let Some(Value::Array(items)) = list.remove("items") else {
                    bail!("a List has items")
                };
                objects.extend(items);
            }
            object => objects.push(object),
        }
    }
    let objects = objects.into_iter().map(|object| {
        let object: DynamicObject = serde_json::from_value(object).context("reading an object")?;
        if object.types.is_none() {
            bail!("an object has no kind: {}", serde_json::to_string(&object)?);
        }
        Ok(object)
    });
    objects.collect()
}

async fn resolve(client: &Client, types: &TypeMeta) -> Result<(ApiResource, Scope)> {
    let kind = GroupVersionKind::try_from(types)?;
    let what = format!("{}/{} is served", types.api_version, types.kind);
    let served = wait(Instant::now() + DEADLINE, &what, || async {
        Ok(Some(pinned_kind(client, &kind).await?))
    });
    let (resource, capabilities) = served.await?;
    Ok((resource, capabilities.scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_lists_and_empty_documents_become_objects() {
        let text = "
---
# only a comment
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data: {number: \"1\", flag: \"true\"}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
";
        let objects = parse(text).unwrap();
        let names: Vec<String> = objects.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(objects[0].data["data"]["number"], "1");
        assert_eq!(objects[0].data["data"]["flag"], "true");
    }

    #[test]
    fn a_document_without_a_kind_is_refused() {
        assert!(parse("metadata: {name: a}").unwrap_err().to_string().contains("kind"));
    }
}
