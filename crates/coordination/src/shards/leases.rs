//! The calls about ring Leases that are not acquiring or renewing: notes, creation, deletion, the map.
//!
//! Each is bounded in time and says in its name what protects it: notes are server-side applied by one field manager per
//! role, so that roles do not overwrite each other; the map is swapped by version; a deletion names uid and version.

use std::{collections::BTreeMap, future::Future, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::json;

use crate::error::Error;

use super::slot::RingNames;

/// Leases of one ring, through one client.
#[derive(Debug, Clone)]
pub(crate) struct RingLeases {
    api: Api<Lease>,
    names: RingNames,
    limit: Duration,
}

// === impl RingLeases ===

impl RingLeases {
    pub(crate) fn new(client: Client, namespace: &str, names: RingNames, limit: Duration) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            names,
            limit,
        }
    }

    /// Sets the annotations that `manager` owns: what is not in `notes` and was before is removed. The uid is part of it, since
    /// an apply would create a Lease that has just been deleted, without labels, and for ever in the way.
    pub(crate) async fn annotate(
        &self,
        lease: &str,
        uid: &str,
        manager: &str,
        notes: &BTreeMap<String, String>,
    ) -> Result<Lease, Error> {
        let patch = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": lease, "uid": uid, "annotations": notes},
        });
        let params = PatchParams::apply(manager).force();
        let patch = Patch::Apply(&patch);
        self.bounded(lease, self.api.patch(lease, &params, &patch)).await
    }

    /// Creates a Lease that nobody has ever held, to be had at once. That it exists already is as good.
    pub(crate) async fn create(&self, lease: &str, annotations: BTreeMap<String, String>) -> Result<(), Error> {
        self.post(lease, annotations, None).await
    }

    /// Creates a Lease in the place of one that may have had a holder: it bears a time, so whoever sees it waits.
    pub(crate) async fn create_in_doubt(&self, lease: &str) -> Result<(), Error> {
        let now = MicroTime(jiff::Timestamp::now());
        let spec = LeaseSpec {
            renew_time: Some(now),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        self.post(lease, BTreeMap::new(), Some(spec)).await
    }

    async fn post(
        &self,
        lease: &str,
        annotations: BTreeMap<String, String>,
        spec: Option<LeaseSpec>,
    ) -> Result<(), Error> {
        let object = Lease {
            metadata: ObjectMeta {
                name: Some(lease.to_owned()),
                labels: Some(self.names.labels()),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec,
        };
        match self
            .bounded(lease, self.api.create(&PostParams::default(), &object))
            .await
        {
            Ok(_) | Err(Error::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes the Lease if it is still as seen.
    pub(crate) async fn delete_as_seen(&self, lease: &Lease) -> Result<(), Error> {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let preconditions = Preconditions {
            uid: lease.metadata.uid.clone(),
            resource_version: lease.metadata.resource_version.clone(),
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        match self.bounded(&name, self.api.delete(&name, &params)).await {
            Ok(_) | Err(Error::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Changes annotations if the Lease is still as seen.
    pub(crate) async fn swap(&self, seen: &Lease, notes: &BTreeMap<String, Option<String>>) -> Result<Lease, Error> {
        let name = seen.metadata.name.clone().unwrap_or_default();
        let patch = json!({"metadata": {"resourceVersion": seen.metadata.resource_version, "annotations": notes}});
        let patch = Patch::Merge(&patch);
        self.bounded(&name, self.api.patch(&name, &PatchParams::default(), &patch))
            .await
    }

    /// Reads one Lease from the store, not from a cache.
    pub(crate) async fn get(&self, lease: &str) -> Result<Option<Lease>, Error> {
        self.bounded(lease, self.api.get_opt(lease)).await
    }

    /// Lists the ring from the store.
    pub(crate) async fn list(&self) -> Result<Vec<Lease>, Error> {
        let params = ListParams::default().labels(&self.names.selector());
        Ok(self.bounded("*", self.api.list(&params)).await?.items)
    }

    async fn bounded<T>(&self, lease: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
        let lease = lease.to_owned();
        match tokio::time::timeout(self.limit, call).await {
            Err(_) => Err(Error::Timeout {
                lease,
                limit: self.limit,
            }),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(match status.code {
                403 => Error::Forbidden {
                    lease,
                    message: status.message.clone(),
                },
                404 => Error::Missing { lease },
                409 => Error::Conflict { lease },
                _ => Error::Request {
                    lease,
                    source: status.message.clone().into(),
                },
            }),
            Ok(Err(error)) => Err(Error::Request {
                lease,
                source: error.into(),
            }),
        }
    }
}
