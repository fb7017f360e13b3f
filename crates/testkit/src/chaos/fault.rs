//! The faults, one row each, and how each befalls.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use rand::Rng as _;
use rand::seq::IndexedRandom as _;
use serde_json::json;

use super::{Chaos, clock};
use crate::api_server::{Effect, Match};
use crate::cluster::Component;
use crate::controller::NAMESPACE;
use crate::fleet::ring::{LEADER_LEASE, SHARD_LEASE};

/// By how much a wrong clock is wrong.
const SHIFT: i64 = 3_600;
/// How long the store stands still.
const STILL: Duration = Duration::from_secs(5);
/// How much longer than its Lease a process is paused.
const LONGER: Duration = Duration::from_secs(10);

/// What befalls one replica, or all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL, as when a node fails; another replica takes its place.
    Kill,
    /// SIGKILL, and the process starts again in its pod.
    Restart,
    /// SIGTERM; another replica takes its place.
    Terminate,
    /// SIGSTOP until long after its Leases have run out, then SIGCONT.
    Pause,
    /// Nothing reaches the API server or comes from it.
    Drop,
    /// Everything reaches the API server, and no answer comes back.
    Mute,
    /// Every connection is refused, and those that are open break.
    Refuse,
    /// Everything takes long.
    Delay,
    /// One replica's time of day is off by an hour, and it hands over to others whose is not.
    Clock,
    /// The API server ends and starts again.
    ApiServer,
    /// The store stands still.
    Etcd,
    /// A Lease is deleted by hand.
    Delete,
    /// A Lease is taken by somebody else, who does not renew it.
    Steal,
}

impl Fault {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 13] = [
        ("kill", Self::Kill),
        ("restart", Self::Restart),
        ("terminate", Self::Terminate),
        ("pause", Self::Pause),
        ("drop", Self::Drop),
        ("mute", Self::Mute),
        ("refuse", Self::Refuse),
        ("delay", Self::Delay),
        ("clock", Self::Clock),
        ("api-server", Self::ApiServer),
        ("etcd", Self::Etcd),
        ("delete-lease", Self::Delete),
        ("steal-lease", Self::Steal),
    ];

    /// What must be there before the stream begins.
    pub(super) async fn prepare(self, chaos: &mut Chaos<'_>) -> Result<()> {
        if self != Self::Clock {
            return Ok(());
        }
        let sane = victim(chaos).await?;
        let shift = if chaos.random.random() { SHIFT } else { -SHIFT };
        let library = clock::library(chaos.cluster.dir()).await?;
        let before = chaos.fleet.options().clone();
        *chaos.fleet.options() = clock::shifted(before.clone(), &library, shift);
        let wrong = chaos.fleet.add().await;
        *chaos.fleet.options() = before;
        wrong?;
        chaos.fleet.replica(&sane)?.terminate();
        chaos.fleet.remove(&sane).await?;
        chaos.fleet.settled().await.map(drop)
    }

    /// Does it, and undoes what does not undo itself. Says what was done to whom.
    pub(super) async fn befall(self, chaos: &mut Chaos<'_>) -> Result<String> {
        let whom = match self {
            Self::ApiServer | Self::Etcd => String::new(),
            Self::Delete | Self::Steal => lease(chaos).await?,
            Self::Clock => chaos
                .fleet
                .replicas()
                .last()
                .context("there are replicas")?
                .name()
                .to_owned(),
            _ => victim(chaos).await?,
        };
        let cluster = chaos.cluster;
        match self {
            Self::Kill => {
                chaos.fleet.replica_mut(&whom)?.kill()?;
                chaos.fleet.add().await?;
                // Its pod stays for as long as it is named: nobody knows yet that it is dead.
                let limit = chaos.lease * 2 + super::HELD;
                let gone = |ring: &crate::fleet::Ring| ring.held_by(&whom).is_empty();
                chaos.fleet.until("its shards are taken over", limit, gone).await?;
                chaos.fleet.remove(&whom).await?;
            }
            Self::Restart => {
                chaos.fleet.replica_mut(&whom)?.kill()?;
                chaos.fleet.restart(&whom).await?;
            }
            Self::Terminate | Self::Clock => {
                chaos.fleet.replica(&whom)?.terminate();
                chaos.fleet.add().await?;
                chaos.fleet.remove(&whom).await?;
            }
            Self::Pause => {
                let process = chaos.fleet.replica(&whom)?.process()?;
                process.pause();
                tokio::time::sleep(chaos.lease + LONGER).await;
                process.resume();
            }
            Self::Drop => spoil(chaos, &whom, Effect::Hang).await?,
            Self::Mute => spoil(chaos, &whom, Effect::HangAnswer).await?,
            Self::Refuse => spoil(chaos, &whom, Effect::Refuse).await?,
            Self::Delay => {
                let delay = Duration::from_millis(chaos.random.random_range(200..3_000));
                spoil(chaos, &whom, Effect::Delay(delay)).await?;
                return Ok(format!("{self} {whom} by {delay:?}"));
            }
            Self::ApiServer => {
                cluster.end(Component::KubeApiserver).await?;
                cluster.start_killed().await?;
            }
            Self::Etcd => {
                cluster.pause(Component::Etcd).await?;
                tokio::time::sleep(STILL).await;
                cluster.resume(Component::Etcd)?;
            }
            Self::Delete => {
                leases(chaos).delete(&whom, &DeleteParams::default()).await?;
            }
            Self::Steal => steal(chaos, &whom).await?,
        }
        Ok(format!("{self} {whom}").trim_end().to_owned())
    }
}

/// A replica that holds something.
async fn victim(chaos: &mut Chaos<'_>) -> Result<String> {
    let ring = chaos.fleet.ring().await?;
    let names: Vec<String> = chaos
        .fleet
        .replicas()
        .iter()
        .map(|replica| replica.name().to_owned())
        .filter(|name| !ring.held_by(name).is_empty())
        .collect();
    names
        .choose(&mut chaos.random)
        .cloned()
        .context("somebody holds a shard")
}

/// A Lease of a shard, or the leader's.
async fn lease(chaos: &mut Chaos<'_>) -> Result<String> {
    let ring = chaos.fleet.ring().await?;
    let shards = ring.shards.values().map(|shard| format!("{SHARD_LEASE}{}", shard.name));
    let names: Vec<String> = shards.chain([LEADER_LEASE.to_owned()]).collect();
    names.choose(&mut chaos.random).cloned().context("there are Leases")
}

fn leases(chaos: &Chaos<'_>) -> Api<Lease> {
    Api::namespaced(chaos.cluster.client(), NAMESPACE)
}

/// Spoils everything between a replica and the API server until its Leases have long run out.
async fn spoil(chaos: &Chaos<'_>, whom: &str, effect: Effect) -> Result<()> {
    let rules = chaos.fleet.replica(whom)?.proxy()?.rules();
    let watches = rules.gate("*");
    match effect {
        Effect::Refuse => watches.cut_watches(),
        Effect::Delay(delay) => watches.delay(delay),
        _ => watches.hold(),
    }
    rules.add(Match::any(), effect);
    tokio::time::sleep(chaos.lease + LONGER / 2).await;
    rules.clear();
    Ok(())
}

async fn steal(chaos: &Chaos<'_>, whom: &str) -> Result<()> {
    let leases = leases(chaos);
    let spec = leases.get(whom).await?.spec.unwrap_or_default();
    let now = jiff::Timestamp::now();
    let stolen = json!({ "spec": {
        "holderIdentity": "thief__1",
        "acquireTime": format!("{now:.6}"),
        "renewTime": format!("{now:.6}"),
        "leaseDurationSeconds": chaos.lease.as_secs(),
        "leaseTransitions": spec.lease_transitions.unwrap_or(0) + 1,
    }});
    leases
        .patch(whom, &PatchParams::default(), &Patch::Merge(stolen))
        .await?;
    Ok(())
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, fault)| fault == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        let names = || Self::ALL.map(|(name, _)| name).join(", ");
        found
            .map(|(_, fault)| *fault)
            .ok_or_else(|| format!("{text} is no fault; there are {}", names()))
    }
}
