//! Tries a failed AppWrapper again.
//!
//! Failed is never left, for Kueue's sake as well: it takes the phase for the end of its Workload. So the object is
//! deleted, with its uid as precondition, and created anew from what its user wrote: without status, without what
//! Kueue and the webhook have added, with all its retries.

use std::time::Duration;

use anyhow::{Context, bail};
use appwrapper_api::{AppWrapper, AppWrapperStatus, Phase, SLOT_LABEL, USER_ID_LABEL, USER_LABEL};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, PostParams, Preconditions};

use crate::{
    args::Goal,
    session::Session,
    wait::{self, Ended},
};

/// The AppWrapper of that name, if it may be tried again.
pub async fn candidate(session: &Session, name: &str) -> anyhow::Result<AppWrapper> {
    let wrapper = session.wrapper(name).await?;
    if wrapper.metadata.deletion_timestamp.is_some() {
        bail!("AppWrapper {name} is being deleted already; wait until it is gone and create it anew");
    }
    if wrapper.status.phase() != Some(Phase::Failed) {
        bail!(
            "AppWrapper {name} is {}, not Failed; only a failed one is tried again",
            if wrapper.status.phase.is_empty() {
                "new"
            } else {
                &wrapper.status.phase
            }
        );
    }
    Ok(wrapper)
}

/// What is created anew: what the user wrote.
pub fn renewed(wrapper: &AppWrapper) -> AppWrapper {
    let mut spec = wrapper.spec.clone();
    // With a queue, Kueue suspends it at creation; without one, nobody else would start it.
    spec.suspend = false;
    for component in &mut spec.components {
        component.pod_set_infos.clear();
    }
    let mut labels = wrapper.metadata.labels.clone().unwrap_or_default();
    for added in [SLOT_LABEL, USER_LABEL, USER_ID_LABEL] {
        labels.remove(added);
    }
    let old = &wrapper.metadata;
    AppWrapper {
        metadata: ObjectMeta {
            name: old.name.clone(),
            namespace: old.namespace.clone(),
            labels: Some(labels).filter(|labels| !labels.is_empty()),
            annotations: old.annotations.clone(),
            owner_references: old.owner_references.clone(),
            ..ObjectMeta::default()
        },
        spec,
        status: AppWrapperStatus::default(),
    }
}

/// Deletes it and creates it anew.
pub async fn retry(session: &Session, wrapper: &AppWrapper, limit: Duration) -> anyhow::Result<AppWrapper> {
    let name = wrapper.metadata.name.as_deref().unwrap_or_default();
    let api = session.wrappers();
    let params = DeleteParams::background().preconditions(Preconditions {
        uid: wrapper.metadata.uid.clone(),
        resource_version: wrapper.metadata.resource_version.clone(),
    });
    match api.delete(name, &params).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            bail!("AppWrapper {name} has changed meanwhile; look at it and try again")
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot delete AppWrapper {name}; nothing was changed"));
        }
    }
    let (ended, phase) = wait::wait(session, name, Goal::Deleted, Some(limit)).await?;
    if ended != Ended::Reached {
        bail!(
            "AppWrapper {name} is still {phase} after {limit:?}, so it was not created anew. When it is gone, create it with:\n{}",
            manifest(wrapper)
        );
    }
    let created = api.create(&PostParams::default(), &renewed(wrapper)).await;
    created.with_context(|| {
        format!(
            "AppWrapper {name} was deleted but not created anew. Its manifest:\n{}\n",
            manifest(wrapper)
        )
    })
}

/// What would be created, for a person to keep. YAML is a superset of it.
fn manifest(wrapper: &AppWrapper) -> String {
    let mut object = serde_json::to_value(renewed(wrapper)).unwrap_or_default();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        fields.insert("apiVersion".to_owned(), appwrapper_api::API_VERSION.into());
        fields.insert("kind".to_owned(), appwrapper_api::KIND.into());
    }
    serde_json::to_string_pretty(&object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_have_added_is_left_out() {
        let wrapper: AppWrapper = serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "finalizers": ["f"],
                "labels": {"workload.codeflare.dev/slot": "01", "workload.codeflare.dev/user": "me",
                    "kueue.x-k8s.io/queue-name": "q"},
                "annotations": {"workload.codeflare.dev.appwrapper/retryLimit": "1"}},
            "spec": {"suspend": true, "components": [{"podSetInfos": [{"labels": {"x": "y"}}],
                "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}}]},
            "status": {"phase": "Failed", "resettingCount": 1},
        }))
        .unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest(&wrapper)).unwrap();
        assert_eq!(
            manifest,
            json!({
                "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
                "metadata": {"name": "a", "namespace": "n", "labels": {"kueue.x-k8s.io/queue-name": "q"},
                    "annotations": {"workload.codeflare.dev.appwrapper/retryLimit": "1"}},
                "spec": {"components": [{"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}}]},
            })
        );
    }
}
