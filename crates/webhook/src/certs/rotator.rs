//! What the one replica does that holds the certificate Lease: carry out the plan.
//!
//! Each round reads the configurations first and the Secret after them. Whoever changes both writes the Secret first, so a
//! Secret read after a bundle is at least as new: with writes bound to the versions that were read, a second rotator can
//! waste a round of ours but never undo it.

use std::{sync::Arc, time::Duration};

use appwrapper_coordination::{LeaseHandle, Tenure, guarded_client};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    bundle::Configurations,
    clock::ServerClock,
    issue::Issuing,
    material::{Certificate, Material},
    plan::{Seen, Step, next_step},
    replica::{Memory, Names},
    reports::{self, Reports},
};
use crate::error::Error;

/// From one round to the next. A bundle that was changed by hand is repaired after that long at most.
const PERIOD: Duration = Duration::from_secs(5);

/// Carries out the plan while the Lease is held.
pub struct Rotator {
    client: Client,
    names: Names,
    configurations: Configurations,
    issuing: Issuing,
    settle: SignedDuration,
    clock: ServerClock,
    memory: Arc<Memory>,
    /// Since when the issuer-to-be has been in both bundles.
    published: Option<(String, Timestamp)>,
    /// Since when all replicas have served the certificate of this serial number.
    served: Option<(String, Timestamp)>,
}

/// What the rotator needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Objects in the namespace.
    pub names: Names,
    /// The two configurations.
    pub configurations: Configurations,
    /// What is issued.
    pub issuing: Issuing,
    /// How long a bundle needs to reach every API server.
    pub settle: SignedDuration,
}

impl Rotator {
    /// Writes through `client`, which must not retry by itself.
    pub fn new(client: Client, options: Options, clock: ServerClock, memory: Arc<Memory>) -> Self {
        let Options {
            names,
            configurations,
            issuing,
            settle,
        } = options;
        Self {
            client,
            names,
            configurations,
            issuing,
            settle,
            clock,
            memory,
            published: None,
            served: None,
        }
    }

    /// Works whenever the Lease is held, until its supervisor ends.
    pub async fn run(mut self, lease: LeaseHandle) {
        while let Ok(tenure) = lease.held().await {
            tracing::info!(lease = tenure.lease(), "this replica looks after the certificates");
            self.published = None;
            self.served = None;
            let ended = tenure.ended();
            tokio::select! {
                () = ended.cancelled() => {}
                () = self.hold(&tenure, &lease) => {}
            }
        }
    }

    async fn hold(&mut self, tenure: &Tenure, lease: &LeaseHandle) {
        let client = guarded_client(&self.client, tenure.write_guard());
        while tenure.is_live() {
            let reports = lease
                .latest()
                .borrow()
                .as_ref()
                .map(|lease| Reports::read(lease, self.clock.now()));
            let again = match self.round(&client, reports.unwrap_or_default()).await {
                Ok(again) => again,
                Err(error) => {
                    tracing::warn!(%error, "the certificates could not be looked after");
                    false
                }
            };
            if !again {
                tokio::select! {
                    () = tokio::time::sleep(PERIOD) => {}
                    () = self.memory.changed() => {}
                }
            }
        }
    }

    /// One round. Returns whether the next is due at once.
    pub async fn round(&mut self, client: &Client, reports: Reports) -> Result<bool, Error> {
        let configurations = self.configurations.read(client, &self.clock).await;
        let configurations = configurations.map_err(Error::request("cannot read the webhook configurations"))?;
        let path = format!(
            "/api/v1/namespaces/{}/secrets/{}",
            self.names.namespace, self.names.secret
        );
        let secret: Secret = self
            .clock
            .fetch(client, &path)
            .await
            .map_err(Error::request("cannot read the certificate Secret"))?;
        let now = self.clock.now();
        let (mut material, _) = Material::of(&secret);
        let [mutating, validating] = &configurations;
        let mut published = mutating.certificates();
        let common = validating.certificates();
        published.retain(|certificate| common.contains(certificate));
        self.note(&material, &published, &reports, now);
        let memory = self.memory.material();
        let seen = Seen {
            now,
            secret: &material,
            memory: memory.as_ref(),
            published: &published,
            published_for: since(self.published.as_ref(), now),
            served_for: since(self.served.as_ref(), now),
        };
        let mut again = false;
        match next_step(seen, &self.issuing, self.settle)? {
            Step::Wait(why) => tracing::debug!(why, "certificates are left as they are"),
            Step::Write(next, why) => {
                let version = secret.metadata.resource_version.unwrap_or_default();
                self.write(client, &next, &version)
                    .await
                    .map_err(Error::request("cannot write the certificate Secret"))?;
                tracing::info!(why, material = ?next, "certificate Secret written");
                material = *next;
                again = true;
            }
        }
        // With no authority at all there is nothing to say yet, and an empty bundle would mean the system's own.
        let bundle = material.bundle();
        for configuration in configurations.iter().filter(|_| !bundle.is_empty()) {
            let written = configuration.publish(client, &bundle).await;
            again |= written.map_err(Error::request("cannot write a webhook configuration"))?;
        }
        if let Some(patch) = reports.prune() {
            let leases = reports::leases(client, &self.names.namespace);
            let pruned = leases
                .patch(&self.names.lease, &PatchParams::default(), &Patch::Merge(patch))
                .await;
            pruned.map_err(Error::request("cannot tidy the certificate Lease"))?;
        }
        Ok(again)
    }

    /// Keeps count of how long something has been so. A new holder of the Lease counts anew.
    fn note(&mut self, material: &Material, published: &[Certificate], reports: &Reports, now: Timestamp) {
        let next = material
            .next
            .as_ref()
            .map(|next| &next.certificate)
            .filter(|next| published.contains(next));
        keep_since(&mut self.published, next.map(|next| next.serial.as_str()), now);
        let serial = material.serving.as_ref().map(|pair| pair.leaf.serial.as_str());
        keep_since(&mut self.served, serial.filter(|serial| reports.all_serve(serial)), now);
    }

    async fn write(&self, client: &Client, material: &Material, version: &str) -> Result<(), kube::Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.names.namespace);
        let patch = json!({"metadata": {"resourceVersion": version}, "data": material.write()});
        secrets
            .patch(&self.names.secret, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
    }
}

fn keep_since(since: &mut Option<(String, Timestamp)>, now_so: Option<&str>, now: Timestamp) {
    match (now_so, &since) {
        (Some(serial), Some((known, _))) if serial == known => {}
        (Some(serial), _) => *since = Some((serial.to_owned(), now)),
        (None, _) => *since = None,
    }
}

fn since(begun: Option<&(String, Timestamp)>, now: Timestamp) -> Option<SignedDuration> {
    begun.map(|(_, begun)| now.duration_since(*begun))
}
