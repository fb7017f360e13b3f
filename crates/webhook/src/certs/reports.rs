//! Who serves what: each replica tells it in an annotation of the certificate Lease.
//!
//! The old authority leaves the bundles only after the last replica has left it. A replica repeats its report, so that one
//! that is gone is known by its silence.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};

const PREFIX: &str = "serving.workload.codeflare.dev/";
/// Longest name of an annotation after its prefix.
const NAME_LIMIT: usize = 63;
/// A replica that has been silent for this long is gone, or cut off from the API server.
const GONE: SignedDuration = SignedDuration::from_mins(10);
/// How often a report is repeated.
pub const REPEAT: SignedDuration = SignedDuration::from_mins(2);

/// What the replicas told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// Serial number by replica, of those that are there.
    live: BTreeMap<String, String>,
    /// Replicas that are gone.
    gone: Vec<String>,
}

impl Reports {
    /// Reads the annotations of the Lease.
    pub fn read(lease: &Lease, now: Timestamp) -> Self {
        let mut reports = Self::default();
        for (name, value) in lease.metadata.annotations.iter().flatten() {
            let Some(replica) = name.strip_prefix(PREFIX) else {
                continue;
            };
            let (serial, time) = value.split_once(' ').unwrap_or((value, ""));
            let age = time.parse().map(|time: Timestamp| now.duration_since(time).abs());
            if age.is_ok_and(|age| age < GONE) {
                reports.live.insert(replica.to_owned(), serial.to_owned());
            } else {
                reports.gone.push(replica.to_owned());
            }
        }
        reports
    }

    /// Whether somebody has told what he serves, and everybody serves this.
    pub fn all_serve(&self, serial: &str) -> bool {
        !self.live.is_empty() && self.live.values().all(|served| served == serial)
    }

    /// The change that takes away who is gone, if anybody is.
    pub fn prune(&self) -> Option<Value> {
        let gone: Map<_, _> = self
            .gone
            .iter()
            .map(|replica| (format!("{PREFIX}{replica}"), Value::Null))
            .collect();
        (!gone.is_empty()).then(|| json!({"metadata": {"annotations": gone}}))
    }
}

/// Tells that `replica` serves the certificate of this serial number.
pub async fn tell(
    leases: &Api<Lease>,
    lease: &str,
    replica: &str,
    serial: &str,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let value = format!("{serial} {now}");
    let patch = json!({"metadata": {"annotations": {format!("{PREFIX}{}", key(replica)): value}}});
    leases
        .patch(lease, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(drop)
}

/// A name as far as it fits; the end of a pod's name is what tells it from its siblings.
fn key(replica: &str) -> &str {
    let start = replica.len().saturating_sub(NAME_LIMIT);
    replica.get(start..).unwrap_or(replica).trim_matches(['-', '.', '_'])
}

/// Leases of a namespace.
pub fn leases(client: &Client, namespace: &str) -> Api<Lease> {
    Api::namespaced(client.clone(), namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_counts_and_the_silent_one_does_not() {
        let now: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
        let lease = |entries: &[(&str, &str)]| -> Lease {
            let annotations: Map<_, _> = entries
                .iter()
                .map(|(name, value)| (format!("{PREFIX}{name}"), json!(value)))
                .collect();
            serde_json::from_value(json!({"metadata": {"name": "l", "annotations": annotations}})).unwrap()
        };
        let read = |entries: &[(&str, &str)]| Reports::read(&lease(entries), now);
        assert!(!read(&[]).all_serve("01"));
        assert!(read(&[("a", "01 2026-12-01T11:59:00Z")]).all_serve("01"));
        assert!(!read(&[("a", "01 2026-12-01T11:59:00Z"), ("b", "02 2026-12-01T11:55:00Z")]).all_serve("01"));
        let silent = read(&[
            ("a", "01 2026-12-01T12:01:00Z"),
            ("b", "02 2026-12-01T11:45:00Z"),
            ("c", "junk"),
        ]);
        assert!(silent.all_serve("01"));
        assert_eq!(
            silent.prune().unwrap()["metadata"]["annotations"][format!("{PREFIX}b")],
            Value::Null
        );
        assert_eq!(read(&[("a", "01 2026-12-01T12:00:00Z")]).prune(), None);
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let name = format!("{}-x7k2p", "webhook-".repeat(10));
        assert!(key(&name).len() <= NAME_LIMIT && key(&name).ends_with("-x7k2p"));
        assert_eq!(key("webhook-1"), "webhook-1");
    }
}
