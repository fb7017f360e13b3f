//! Acquire, renew and release one Lease.
//!
//! [`LeaseBackend`] is the seam: the supervisor knows nothing else. [`GuardedLease`] is the implementation in use,
//! `kube-leader-election` behind [the layer](crate::layer); a direct compare-and-swap could stand in for it.
//!
//! A call either proves that this process holds the Lease, with the epoch and the instant *before* the proving write was
//! sent, or names who does, or is an error, and an error proves nothing. No call takes longer than three reads and three
//! writes at the time limit each; the supervisor fences meanwhile if it must.

use std::{collections::BTreeMap, future::Future, sync::Arc, sync::Mutex, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};
use tower::Layer;

use crate::{
    clock::{BootInstant, SharedClock},
    error::Error,
    identity::Identity,
    layer::{LeaseLayer, SharedMemory, recall},
    record::{ClaimPolicy, Creation, Memory},
    tenure::Epoch,
    timings::LeaseTimings,
};

/// Tries of one call that meets conflicts. A holder's Lease also gets notes from the leader, so one is ordinary.
const TRIES: usize = 3;

/// Annotations to write together with the release; `None` removes one.
pub type ReleaseNote = BTreeMap<String, Option<String>>;

/// What a call found.
#[derive(Debug, Clone, PartialEq)]
pub enum Claimed {
    /// This process holds the Lease.
    Held {
        /// The epoch.
        epoch: Epoch,
        /// Before the write was sent that proves it.
        sent_at: BootInstant,
        /// The Lease as written, with the notes of others in its annotations.
        lease: Box<Lease>,
    },
    /// It does not.
    NotHeld {
        /// Who does, if anyone.
        holder: Option<String>,
        /// When the Lease may be taken if nothing changes and the policy allows it.
        free_at: Option<BootInstant>,
        /// The Lease as last seen, if it exists.
        lease: Option<Box<Lease>>,
    },
}

/// One Lease, from the point of view of one process.
pub trait LeaseBackend: Send + 'static {
    /// Renews if the tenure under way is ours, else takes the Lease if it is free and the policy allows it.
    fn acquire_or_renew(&mut self) -> impl Future<Output = Result<Claimed, Error>> + Send;

    /// Gives the Lease up by compare-and-swap, with `note` in the same write. The caller has drained.
    fn release(&mut self, note: &ReleaseNote) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes note of a watch event. Returns whether it was news.
    fn observe(&mut self, lease: &Lease) -> bool;

    /// Makes the next call read the Lease whatever is remembered.
    fn distrust(&mut self);

    /// Sets whether and how soon the Lease may be taken.
    fn set_policy(&mut self, policy: ClaimPolicy);

    /// The tenure under way is over: whatever the Lease says, holding it again takes a new epoch.
    fn abandon(&mut self);
}

/// What a [`GuardedLease`] is about.
#[derive(Debug, Clone)]
pub struct LeaseParams {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Who we are.
    pub identity: Identity,
    /// Times.
    pub timings: LeaseTimings,
    /// How to create the Lease if it is missing; none if that is another's task.
    pub creation: Option<Creation>,
}

/// `kube-leader-election` behind the layer.
pub struct GuardedLease {
    lock: LeaseLock,
    memory: SharedMemory,
}

// === impl GuardedLease ===

impl GuardedLease {
    /// A Lease reached through `client`, which should be one of [`lease_client`]. Must be called inside a runtime.
    pub fn new(client: &Client, params: LeaseParams, clock: SharedClock) -> Result<Self, Error> {
        let LeaseParams {
            namespace,
            name,
            identity,
            timings,
            creation,
        } = params;
        timings.validate()?;
        let title = format!("{namespace}/{name}");
        let holder_id = identity.as_str().to_owned();
        let memory = Arc::new(Mutex::new(Memory::new(
            title,
            identity,
            timings.duration,
            creation,
            clock,
        )));
        let layer = LeaseLayer::new(Arc::clone(&memory), &namespace, &name, timings.rpc_timeout);
        let client = client.clone();
        let service = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        let client = Client::new(layer.layer(service), namespace.clone());
        let params = LeaseLockParams {
            lease_name: name,
            holder_id,
            lease_ttl: timings.duration,
        };
        Ok(Self {
            lock: LeaseLock::new(client, &namespace, params),
            memory,
        })
    }

    /// What the memory says after a call that did not hold the Lease.
    fn not_held(memory: &mut Memory) -> Claimed {
        memory.holding = None;
        Claimed::NotHeld {
            holder: memory.holder().map(str::to_owned),
            free_at: memory.free_at(),
            lease: memory.lease().cloned().map(Box::new),
        }
    }
}

impl LeaseBackend for GuardedLease {
    async fn acquire_or_renew(&mut self) -> Result<Claimed, Error> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            recall(&self.memory).failure = None;
            let result = self.lock.try_acquire_or_renew().await;
            let mut memory = recall(&self.memory);
            if let Some(error) = memory.duplicate() {
                return Err(error);
            }
            let lost = memory.holding.is_some() && !memory.is_ours();
            return match (result, memory.failure.take()) {
                // The crate takes a created Lease for its own; ours is created as nobody's.
                (Ok(LeaseLockResult::Acquired(_)), None) if memory.holder() != Some(memory.me.as_str()) => {
                    Ok(Self::not_held(&mut memory))
                }
                (Ok(LeaseLockResult::Acquired(_)), None) => {
                    let proof = memory.epoch().zip(memory.sent_at).zip(memory.lease().cloned());
                    let lease_name = memory.name.clone();
                    let ((epoch, sent_at), lease) = proof.ok_or(Error::Unexpected {
                        lease: lease_name,
                        what: "answer without a uid".to_owned(),
                    })?;
                    memory.holding = Some(epoch.clone());
                    Ok(Claimed::Held {
                        epoch,
                        sent_at,
                        lease: Box::new(lease),
                    })
                }
                (Ok(LeaseLockResult::NotAcquired(_)), None) => Ok(Self::not_held(&mut memory)),
                // Read anew and look who wrote it.
                (_, Some(Error::Conflict { .. })) if attempt < TRIES => continue,
                // The Lease is gone or names another: that is certain, unlike a request that failed.
                (_, Some(_)) if lost => Ok(Self::not_held(&mut memory)),
                (_, Some(error)) => Err(error),
                (Err(source), None) => Err(Error::Request {
                    lease: memory.name.clone(),
                    source: source.into(),
                }),
            };
        }
    }

    async fn release(&mut self, note: &ReleaseNote) -> Result<(), Error> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            {
                let mut memory = recall(&self.memory);
                memory.failure = None;
                memory.note.clone_from(note);
                if memory.holding.is_none() {
                    return Err(Error::NotHeld {
                        lease: memory.name.clone(),
                    });
                }
            }
            let result = self.lock.step_down().await;
            let mut memory = recall(&self.memory);
            let failure = memory.failure.take();
            return match (result, failure) {
                (Ok(()), None) => {
                    memory.holding = None;
                    Ok(())
                }
                (_, Some(Error::Conflict { .. })) if attempt < TRIES => continue,
                (Err(kube_leader_election::Error::ReleaseLockWhenNotLeading { .. }), _) => {
                    memory.holding = None;
                    Err(Error::NotHeld {
                        lease: memory.name.clone(),
                    })
                }
                (_, Some(error)) => Err(error),
                (Err(source), None) => Err(Error::Request {
                    lease: memory.name.clone(),
                    source: source.into(),
                }),
            };
        }
    }

    fn observe(&mut self, lease: &Lease) -> bool {
        recall(&self.memory).observe(lease)
    }

    fn distrust(&mut self) {
        recall(&self.memory).distrust();
    }

    fn set_policy(&mut self, policy: ClaimPolicy) {
        recall(&self.memory).claim = policy;
    }

    fn abandon(&mut self) {
        recall(&self.memory).holding = None;
    }
}

/// A client for Leases and nothing else: its own connections, no replaying of requests, every wait bounded
/// (ha-sharding.md, 1.4d and 7.1). Must be called inside the runtime that is to drive it.
pub fn lease_client(mut config: kube::Config, timings: &LeaseTimings) -> Result<Client, kube::Error> {
    // A replayed renewal would arrive long after the deadline it was meant to extend.
    config.default_retry = false;
    config.connect_timeout = Some(timings.rpc_timeout.min(Duration::from_secs(2)));
    config.read_timeout = Some(timings.rpc_timeout);
    config.write_timeout = Some(timings.rpc_timeout);
    Client::try_from(config)
}
