//! Reviews as the API server sends them.

use anyhow::{Context as _, Result, ensure};
use appwrapper_api::{API_VERSION, GROUP, KIND, PLURAL, VERSION};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::load::Load;
use super::server::{MUTATE, VALIDATE};
use appwrapper_testkit::wrappers;

/// The review of an AppWrapper of so many components, one of which makes pods, as it looks after the mutating webhook.
pub async fn body(load: &Load, components: usize) -> Result<Vec<u8>> {
    let mut templates = vec![wrappers::job("work", &[])];
    templates.extend((1..components).map(|index| {
        let metadata = json!({"name": format!("part-{index}"), "labels": {"app": "bench"}});
        if index % 2 == 0 {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}})
        } else {
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}})
        }
    }));
    let components: Vec<_> = templates
        .into_iter()
        .map(|template| json!({"template": template}))
        .collect();
    let mut object = json!({
        "apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "bench", "namespace": "default"},
        "spec": {"components": components},
    });
    let answer = load.send(MUTATE, &review(&object)).await?;
    let mutated: Value = serde_json::from_slice(&answer)?;
    let patch: ByteString = serde_json::from_value(mutated.pointer("/response/patch").context("no patch")?.clone())?;
    let patch: json_patch::Patch = serde_json::from_slice(&patch.0)?;
    json_patch::patch(&mut object, &patch)?;
    let review = review(&object);
    let answer: Value = serde_json::from_slice(&load.send(VALIDATE, &review).await?)?;
    ensure!(
        answer.pointer("/response/allowed") == Some(&Value::Bool(true)),
        "refused: {answer}"
    );
    Ok(review)
}

fn review(object: &Value) -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": GROUP, "version": VERSION, "kind": KIND},
        "resource": {"group": GROUP, "version": VERSION, "resource": PLURAL},
        "namespace": "default", "name": "bench", "operation": "CREATE", "object": object, "oldObject": null,
        "userInfo": {"username": "ann", "groups": ["system:masters", "system:authenticated"]}, "dryRun": false,
    }})
    .to_string()
    .into_bytes()
}
