//! A replica's own Lease: that it lives, from which template, what it has warm, and whether it is leaving.
//!
//! The Lease is kept by a supervisor like any other; this file writes the notes on it, whenever they change, under the write
//! guard of that Lease's tenure. The notes steer moves and ranks and nothing else, so a late or lost one does no harm.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::Client;
use tokio::sync::watch;

use crate::{guard::guarded_client, supervisor::LeaseHandle};

use super::{
    leases::RingLeases,
    slot::{RingNames, ShardId},
};

/// Field manager of a member's notes.
const MANAGER: &str = "appwrapper-member";
/// Pause after a failed note.
const PAUSE: Duration = Duration::from_millis(300);

/// What a member says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MemberNotes {
    pub(crate) template: String,
    pub(crate) warm: BTreeSet<ShardId>,
    pub(crate) draining: bool,
}

/// Where to write them.
#[derive(Clone)]
pub(crate) struct Noter {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) names: RingNames,
    pub(crate) limit: Duration,
}

// === impl MemberNotes ===

impl MemberNotes {
    pub(crate) fn annotations(&self, names: &RingNames) -> BTreeMap<String, String> {
        let warm: Vec<String> = self.warm.iter().map(ToString::to_string).collect();
        BTreeMap::from([
            (names.key("template"), self.template.clone()),
            (names.key("warm"), warm.join(",")),
            (names.key("draining"), self.draining.to_string()),
        ])
    }
}

// === impl Noter ===

impl Noter {
    /// Keeps the notes on the Lease up to date, until dropped or until the Lease's supervisor ends.
    pub(crate) async fn run(self, lease: String, handle: LeaseHandle, mut notes: watch::Receiver<MemberNotes>) {
        while let Ok(tenure) = handle.held().await {
            let client = guarded_client(&self.client, tenure.write_guard());
            let leases = RingLeases::new(client, &self.namespace, self.names.clone(), self.limit);
            let ended = tenure.ended();
            // A new tenure may be of a new Lease: write in any case.
            notes.mark_changed();
            loop {
                tokio::select! {
                    biased;
                    () = ended.cancelled() => break,
                    changed = notes.changed() => if changed.is_err() { return },
                }
                let current = notes.borrow_and_update().annotations(&self.names);
                if let Err(error) = leases
                    .annotate(&lease, tenure.epoch().lease_uid(), MANAGER, &current)
                    .await
                {
                    tracing::debug!(%error, "could not write the member's notes yet");
                    notes.mark_changed();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}
