//! Who holds what, as the Leases say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context as _, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use crate::controller::NAMESPACE;

/// The Lease of whoever leads.
pub const LEADER_LEASE: &str = "f134c674.codeflare.dev";
/// What the name of a shard's Lease begins with; its number and `-of-COUNT` follow.
pub const SHARD_LEASE: &str = "appwrapper-shard-";

const LABELS: &str = "workload.codeflare.dev/ring=appwrapper";
const MEMBER_LEASE: &str = "appwrapper-member-";
const KEYS: &str = "workload.codeflare.dev/";

/// All Leases at one moment.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    /// The pod that leads.
    pub leader: Option<String>,
    /// The shards by number.
    pub shards: BTreeMap<usize, Shard>,
    /// What each member has warm, by pod and by the shard's name.
    warm: BTreeMap<String, BTreeSet<String>>,
}

/// The Lease of a shard.
#[derive(Debug, Clone, Default)]
pub struct Shard {
    /// `NUMBER-of-COUNT`.
    pub name: String,
    /// The pod that it names.
    pub holder: Option<String>,
    /// How often it has been acquired.
    pub transitions: i32,
    desired: Option<String>,
    backups: Vec<String>,
}

impl Ring {
    /// Reads the Leases.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    pub async fn read(client: &Client) -> Result<Self> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        let leader = leases
            .get_opt(LEADER_LEASE)
            .await
            .context("reading the leader's Lease")?;
        let listed = leases.list(&ListParams::default().labels(LABELS)).await;
        let mut ring = Self {
            leader: leader.as_ref().and_then(holder),
            ..Self::default()
        };
        for lease in listed.context("listing the Leases")?.items {
            ring.add(&lease);
        }
        Ok(ring)
    }

    fn add(&mut self, lease: &Lease) {
        let name = lease.name_any();
        let note = |key: &str| lease.annotations().get(&format!("{KEYS}{key}")).map(String::as_str);
        let list = |key: &str| note(key).unwrap_or_default().split(',').filter(|one| !one.is_empty());
        if let Some(pod) = name.strip_prefix(MEMBER_LEASE) {
            let warm = list("warm").map(str::to_owned).collect();
            self.warm.insert(pod.to_owned(), warm);
        }
        let shard = name.strip_prefix(SHARD_LEASE);
        let number = shard.and_then(|shard| shard.split('-').next()?.parse().ok());
        if let (Some(shard), Some(number)) = (shard, number) {
            let shard = Shard {
                name: shard.to_owned(),
                holder: holder(lease),
                transitions: lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0),
                desired: note("desired-holder")
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned),
                backups: list("desired-backup").map(str::to_owned).collect(),
            };
            self.shards.insert(number, shard);
        }
    }

    /// The shards that a pod holds.
    pub fn held_by(&self, pod: &str) -> BTreeSet<usize> {
        let held = |shard: &Shard| shard.holder.as_deref() == Some(pod);
        self.shards
            .iter()
            .filter(|(_, shard)| held(shard))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Whether there is a leader and each shard is held, by these pods.
    pub fn is_held(&self, pods: &[&str]) -> bool {
        let is_here = |pod: &Option<String>| pod.as_deref().is_some_and(|pod| pods.contains(&pod));
        let count = self
            .shards
            .values()
            .next()
            .and_then(|shard| shard.name.rsplit('-').next()?.parse().ok());
        is_here(&self.leader)
            && count == Some(self.shards.len())
            && self.shards.values().all(|shard| is_here(&shard.holder))
    }

    /// Whether all is [held](Self::is_held), each shard by the one that should hold it, with its backups warm.
    pub fn is_covered(&self, pods: &[&str]) -> bool {
        let is_warm = |pod: &String, shard: &Shard| self.warm.get(pod).is_some_and(|warm| warm.contains(&shard.name));
        self.is_held(pods)
            && self.shards.values().all(|shard| {
                shard.desired == shard.holder
                    && (pods.len() == 1 || !shard.backups.is_empty())
                    && shard.backups.iter().all(|backup| is_warm(backup, shard))
            })
    }

    /// Whether all is [covered](Self::is_covered) and evenly shared, so that nothing is about to move.
    pub fn is_settled(&self, pods: &[&str]) -> bool {
        let loads: Vec<usize> = pods.iter().map(|pod| self.held_by(pod).len()).collect();
        let even = loads.iter().max().zip(loads.iter().min());
        even.is_some_and(|(most, least)| most - least <= 1) && self.is_covered(pods)
    }
}

/// Whose Lease it is, by pod.
fn holder(lease: &Lease) -> Option<String> {
    let identity = lease.spec.as_ref()?.holder_identity.as_deref()?;
    let pod = identity.split('_').next()?;
    (!pod.is_empty()).then(|| pod.to_owned())
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leader {}", self.leader.as_deref().unwrap_or("nobody"))?;
        for shard in self.shards.values() {
            let (name, transitions) = (&shard.name, shard.transitions);
            let holder = shard.holder.as_deref().unwrap_or("nobody");
            write!(f, "; {name} {holder}, transitions {transitions}")?;
            if shard.desired != shard.holder {
                write!(f, ", should be {}", shard.desired.as_deref().unwrap_or("nobody"))?;
            }
        }
        Ok(())
    }
}
