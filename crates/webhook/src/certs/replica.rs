//! What every replica does in self-managed mode: follow the Secret, serve what it holds, tell so.
//!
//! A new certificate is taken into use once both bundles trust it, unless what is in use is no better. What is loaded stays
//! loaded when the Secret is emptied, damaged or deleted.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use appwrapper_metrics::{Admission, labels::Reload};
use futures::{StreamExt, stream::BoxStream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::Notify;

use super::{
    clock::ServerClock,
    gate::Gate,
    material::{Material, Pair},
    reports,
    resolver::Resolver,
};

/// From one look at the bundles to the next.
const PERIOD: Duration = Duration::from_secs(10);
/// The same, while something is awaited.
const HURRY: Duration = Duration::from_millis(500);

/// Names of the objects in the namespace of the webhook.
#[derive(Clone, Debug)]
pub struct Names {
    /// Namespace of both.
    pub namespace: String,
    /// The Secret.
    pub secret: String,
    /// The Lease.
    pub lease: String,
    /// This replica.
    pub replica: String,
}

/// What a replica last took into use, and the sign that the Secret has changed. Shared with the rotator.
#[derive(Default)]
pub struct Memory {
    material: Mutex<Option<Material>>,
    changed: Notify,
}

impl Memory {
    /// What was last taken into use.
    pub fn material(&self) -> Option<Material> {
        self.material.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resolves when the Secret has changed since the last time.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn keep(&self, material: Material) {
        *self.material.lock().unwrap_or_else(PoisonError::into_inner) = Some(material);
    }
}

/// Follows the Secret.
pub struct Replica {
    client: Client,
    names: Names,
    clock: ServerClock,
    resolver: Arc<Resolver>,
    memory: Arc<Memory>,
    gate: Gate,
    metrics: Admission,
    /// The Secret as last seen.
    seen: Option<Material>,
    told: Option<(String, Timestamp)>,
}

impl Replica {
    /// Serves nothing yet.
    pub fn new(
        client: Client,
        names: Names,
        clock: ServerClock,
        resolver: Arc<Resolver>,
        memory: Arc<Memory>,
        gate: Gate,
        metrics: Admission,
    ) -> Self {
        Self {
            client,
            names,
            clock,
            resolver,
            memory,
            gate,
            metrics,
            seen: None,
            told: None,
        }
    }

    /// Follows the Secret for ever.
    pub async fn run(mut self) {
        let mut secrets = self.watch();
        loop {
            let settled = self.check().await;
            let nap = tokio::time::sleep(if settled { PERIOD } else { HURRY });
            tokio::select! {
                () = nap => {}
                event = secrets.next() => match event {
                    Some(Ok(secret)) => self.observe(secret.as_ref()),
                    Some(Err(error)) => tracing::warn!(%error, "the watch of the certificate Secret broke"),
                    None => secrets = self.watch(),
                },
            }
        }
    }

    fn watch(&self) -> BoxStream<'static, Result<Option<Secret>, watcher::Error>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.names.namespace);
        watcher::watch_object(secrets, &self.names.secret)
            .default_backoff()
            .boxed()
    }

    fn observe(&mut self, secret: Option<&Secret>) {
        self.memory.changed.notify_one();
        let Some(secret) = secret else {
            self.metrics.reload(Reload::Error);
            tracing::error!(
                secret = self.names.secret,
                "the certificate Secret does not exist: apply the manifests again; what is loaded stays in use"
            );
            self.gate
                .wait("the certificate Secret does not exist: apply the manifests again");
            return;
        };
        let (material, faults) = Material::of(secret);
        for fault in faults {
            self.metrics.reload(Reload::Error);
            tracing::warn!(fault, "a part of the certificate Secret cannot be used");
        }
        self.seen = Some(material);
    }

    /// Loads what should be loaded. Returns whether nothing is awaited.
    async fn check(&mut self) -> bool {
        let candidate = self.seen.as_ref().and_then(|material| material.serving.clone());
        if candidate.is_none() && self.resolver.serving().is_none() {
            return true;
        }
        let configurations = match self.gate.read().await {
            Ok(configurations) => configurations,
            Err(error) => {
                tracing::warn!(%error, "cannot read the webhook configurations");
                self.gate
                    .wait(&format!("cannot read the webhook configurations: {error}"));
                return false;
            }
        };
        let is_good = |pair: &Pair| self.gate.trusts(&configurations, pair).is_ok();
        let current = self.resolver.serving();
        let mut settled = true;
        if let Some(candidate) = candidate {
            if current.as_deref() == Some(&candidate) {
                self.remember();
            } else if is_good(&candidate) || !current.as_deref().is_some_and(is_good) {
                self.resolver.load(candidate);
                self.remember();
            } else {
                settled = false;
            }
        }
        let Some(serving) = self.resolver.serving() else {
            return settled;
        };
        self.gate.tell(&configurations, &serving);
        settled &= is_trusted(&self.gate, &configurations, &serving);
        self.report(&serving).await;
        settled
    }

    fn remember(&self) {
        if let Some(material) = &self.seen {
            if let Some(ca) = &material.ca {
                self.resolver.authority(&ca.certificate);
            }
            self.memory.keep(material.clone());
        }
    }

    async fn report(&mut self, serving: &Pair) {
        let now = self.clock.now();
        let serial = &serving.leaf.serial;
        let is_known = self
            .told
            .as_ref()
            .is_some_and(|(told, at)| told == serial && now.duration_since(*at).abs() < reports::REPEAT);
        if is_known {
            return;
        }
        let leases = reports::leases(&self.client, &self.names.namespace);
        match reports::tell(&leases, &self.names.lease, &self.names.replica, serial, now).await {
            Ok(()) => self.told = Some((serial.clone(), now)),
            Err(error) => tracing::warn!(%error, "cannot tell which certificate is served"),
        }
    }
}

fn is_trusted(gate: &Gate, configurations: &[super::bundle::Configuration; 2], pair: &Pair) -> bool {
    gate.trusts(configurations, pair).is_ok()
}
