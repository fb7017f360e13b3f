//! Watches Leases, so that a hand-over is noticed in milliseconds instead of at the next poll.
//!
//! Events only ever hurry things up: what they say is acted on by compare-and-swap, and a watch that has silently died
//! costs speed, never safety. So that it does not cost much speed either, each watch ends after 20 s by the server's
//! timer and by ours, and a list can be repeated meanwhile.
//!
//! The client must be one without a short read timeout: not [`lease_client`](crate::lease_client), whose idle connections
//! end after one request's limit.

use std::{pin::pin, time::Duration};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};

/// Longest life of one watch.
const WATCH_SECONDS: u32 = 20;
/// Pause after an error.
const PAUSE: Duration = Duration::from_millis(500);

/// What was seen.
#[derive(Debug, Clone)]
pub enum LeaseChange {
    /// All Leases of the selection. Those not among them are gone.
    All(Vec<Lease>),
    /// A Lease as it is now.
    Seen(Box<Lease>),
    /// A Lease as it was last.
    Gone(Box<Lease>),
}

/// A watch on the Leases that a selector picks.
#[derive(Debug, Clone)]
pub struct LeaseWatch {
    api: Api<Lease>,
    labels: Option<String>,
    fields: Option<String>,
    list_every: Duration,
    rpc_timeout: Duration,
}

// === impl LeaseWatch ===

impl LeaseWatch {
    /// All Leases of a namespace with these labels, listed anew every `list_every`.
    pub fn labelled(
        client: Client,
        namespace: &str,
        labels: String,
        list_every: Duration,
        rpc_timeout: Duration,
    ) -> Self {
        let api = Api::namespaced(client, namespace);
        Self {
            api,
            labels: Some(labels),
            fields: None,
            list_every,
            rpc_timeout,
        }
    }

    /// One Lease. Its supervisor polls by itself, so that it is listed only when a watch ends.
    pub fn named(client: Client, namespace: &str, name: &str, rpc_timeout: Duration) -> Self {
        let api = Api::namespaced(client, namespace);
        let list_every = Duration::from_secs(u64::from(WATCH_SECONDS));
        Self {
            api,
            labels: None,
            fields: Some(format!("metadata.name={name}")),
            list_every,
            rpc_timeout,
        }
    }

    /// Watches until dropped. `sink` must not block.
    pub async fn run(self, mut sink: impl FnMut(LeaseChange) + Send) {
        loop {
            if let Err(error) = self.round(&mut sink).await {
                tracing::debug!(%error, "watching leases failed");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// One list, and one watch from there to its end.
    async fn round(&self, sink: &mut (impl FnMut(LeaseChange) + Send)) -> Result<(), WatchError> {
        let version = self.list(sink).await?;
        let mut params = WatchParams::default().timeout(WATCH_SECONDS);
        params.label_selector.clone_from(&self.labels);
        params.field_selector.clone_from(&self.fields);
        let limit = Duration::from_secs(u64::from(WATCH_SECONDS)) + self.rpc_timeout;
        let end = tokio::time::Instant::now() + limit;
        let stream = tokio::time::timeout(self.rpc_timeout, self.api.watch(&params, &version)).await??;
        let mut stream = pin!(stream.map_err(WatchError::from));
        let mut list_at = tokio::time::Instant::now() + self.list_every;
        loop {
            let event = tokio::select! {
                biased;
                event = stream.next() => event,
                () = tokio::time::sleep_until(list_at) => {
                    self.list(sink).await?;
                    list_at = tokio::time::Instant::now() + self.list_every;
                    continue;
                }
                () = tokio::time::sleep_until(end) => None,
            };
            match event {
                None => return Ok(()),
                Some(Err(error)) => return Err(error),
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    sink(LeaseChange::Seen(lease.into()));
                }
                Some(Ok(WatchEvent::Deleted(lease))) => sink(LeaseChange::Gone(lease.into())),
                Some(Ok(WatchEvent::Bookmark(_))) => {}
                // Too old a version, most of all: the next round lists.
                Some(Ok(WatchEvent::Error(status))) => return Err(WatchError::Ended(status.message.clone())),
            }
        }
    }

    async fn list(&self, sink: &mut (impl FnMut(LeaseChange) + Send)) -> Result<String, WatchError> {
        let mut params = ListParams::default();
        params.label_selector.clone_from(&self.labels);
        params.field_selector.clone_from(&self.fields);
        let list = tokio::time::timeout(self.rpc_timeout, self.api.list(&params)).await??;
        let version = list.metadata.resource_version.unwrap_or_default();
        sink(LeaseChange::All(list.items));
        Ok(version)
    }
}

#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error("no answer in time")]
    Slow(#[from] tokio::time::error::Elapsed),
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("the watch ended: {0}")]
    Ended(String),
}
