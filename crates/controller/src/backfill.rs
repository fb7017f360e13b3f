//! The leader's back-fill: gives a slot to AppWrappers that have none (design/decisions.md 8).
//!
//! The webhook gives slots at admission. Those that it never saw, or whose label names no slot, are watched by no shard; here
//! they get the slot that the reconciler would take for them. The watch is of metadata and empty in the steady state. Nothing
//! waits for it but such AppWrappers themselves, and a slot once given is never changed: the selector does not find it again.

use std::{pin::Pin, sync::Arc, time::Duration};

use appwrapper_api::{AppWrapper, SLOT_LABEL, Slot};
use appwrapper_coordination::{
    WriteGuard, guarded_client,
    shards::{self, LeaderWork},
};
use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::{PartialObjectMeta, Patch, PatchParams},
    runtime::watcher::{self, Event},
};
use serde_json::json;

/// Pause before a write that failed is tried again, by beginning anew.
const PAUSE: Duration = Duration::from_secs(1);

/// The work, for the leader to do through `client` under its own guard.
pub fn work(client: Client) -> LeaderWork {
    Arc::new(move |guard| -> Pin<Box<dyn Future<Output = ()> + Send>> { Box::pin(fill(client.clone(), guard)) })
}

/// Gives slots until something fails that a new list may mend.
async fn fill(client: Client, guard: WriteGuard) {
    let client = guarded_client(&client, guard);
    let config = watcher::Config::default().labels(&shards::Slot::none_selector(SLOT_LABEL));
    let api: Api<PartialObjectMeta<AppWrapper>> = Api::all(client.clone());
    let mut events = Box::pin(watcher::watcher(api, config));
    while let Some(event) = events.next().await {
        let result = match event {
            Ok(Event::Apply(wrapper) | Event::InitApply(wrapper)) => give(&client, &wrapper).await,
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) => Ok(()),
            Err(error) => {
                tracing::warn!(%error, "the watch of AppWrappers without a slot failed and is begun anew");
                break;
            }
        };
        if let Err(error) = result {
            tracing::warn!(error = %crate::failure::text(&error), "an AppWrapper could not be given its slot yet");
            break;
        }
    }
    tokio::time::sleep(PAUSE).await;
}

async fn give(client: &Client, wrapper: &PartialObjectMeta<AppWrapper>) -> Result<(), kube::Error> {
    let (namespace, name) = (wrapper.namespace().unwrap_or_default(), wrapper.name_any());
    let slot = Slot::of(&namespace, &name);
    let patch = json!({"metadata": {
        "uid": wrapper.uid(),
        "resourceVersion": wrapper.resource_version(),
        "labels": {SLOT_LABEL: slot.to_string()},
    }});
    let api: Api<AppWrapper> = Api::namespaced(client.clone(), &namespace);
    match api
        .patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
    {
        Ok(_) => {
            tracing::info!(appwrapper = %format!("{namespace}/{name}"), %slot, "a missing slot was filled in");
            Ok(())
        }
        // Gone, or changed: the watch tells of what it is now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_both_crates_are_the_same_numbers_under_the_same_labels() {
        assert_eq!(appwrapper_api::slot::SLOTS, shards::SLOTS);
        for slot in shards::Slot::all() {
            let label = slot.label();
            let given = Slot::parse(&label).unwrap();
            assert_eq!(given.to_string(), label);
            assert_eq!(shards::Slot::new(given.number()), Some(slot));
            assert_eq!(shards::Slot::from_label(&given.to_string()), Some(slot));
        }
        for forged in ["", "0", "40", "ff", "3F", "+1", " 1", "001", "zz"] {
            assert_eq!(
                Slot::parse(forged).is_some(),
                shards::Slot::from_label(forged).is_some()
            );
        }
    }
}
