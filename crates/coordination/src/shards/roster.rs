//! What one replica knows about the ring: every Lease that carries the ring's label, and since when it has been so.
//!
//! Filled from the watch; judged by observed time like a single Lease, so no machine's wall clock enters. It tells who is
//! alive, who holds what, and what the leader and the members have noted. It decides nothing: claims are decided by
//! compare-and-swap, and who sees an older roster merely tries too early or too late.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;

use crate::{
    clock::{BootInstant, SharedClock},
    identity::Identity,
    record::{Sign, is_newer},
    watch::LeaseChange,
};

use super::{
    handover::drained_by,
    map::ShardMap,
    placement::Placement,
    slot::{RingNames, ShardId},
};

/// All Leases of the ring.
#[derive(Debug, Clone)]
pub struct Roster {
    names: RingNames,
    clock: SharedClock,
    own_duration: Duration,
    leases: BTreeMap<String, Sighting>,
    complete: bool,
}

/// A member whose Lease is live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The pod.
    pub name: String,
    /// Its identity.
    pub identity: String,
    /// Hash of its pod template.
    pub template: String,
    /// Shards whose caches it has warm.
    pub warm: BTreeSet<ShardId>,
    /// On its way out.
    pub draining: bool,
    /// It has said all this; before, the template is not known.
    pub announced: bool,
    /// The leader's word about the shards takes this process into account.
    pub placed: bool,
    /// Since when this replica has known it under this identity.
    pub since: BootInstant,
    /// When its Lease was created, by the API server's clock: which template is the newest.
    pub created: Option<jiff::Timestamp>,
}

/// A shard's Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardLease {
    /// Whoever it names, alive or not.
    pub holder: Option<String>,
    /// Whether the holder's time is not over yet.
    pub live: bool,
    /// When the holder took it, by its own clock.
    pub acquired: Option<jiff::Timestamp>,
    /// Who released it last, while nobody holds it.
    pub released_by: Option<String>,
    /// What the leader published.
    pub published: Option<Placement>,
}

#[derive(Debug, Clone)]
struct Sighting {
    lease: Lease,
    sign: Sign,
    changed_at: BootInstant,
    holder_since: BootInstant,
}

// === impl Roster ===

impl Roster {
    /// What one look at the Leases shows, for display: whoever is named counts as alive.
    pub fn of_list(names: RingNames, clock: SharedClock, leases: Vec<Lease>) -> Self {
        let mut roster = Self::new(names, clock, Duration::from_secs(1));
        roster.apply(LeaseChange::All(leases));
        roster
    }

    pub(crate) fn new(names: RingNames, clock: SharedClock, own_duration: Duration) -> Self {
        Self {
            names,
            clock,
            own_duration,
            leases: BTreeMap::new(),
            complete: false,
        }
    }

    /// Takes in what a watch saw. Returns the Leases that were news, and the names of those that are gone.
    pub(crate) fn apply(&mut self, change: LeaseChange) -> (Vec<Lease>, Vec<String>) {
        match change {
            LeaseChange::Seen(lease) => (self.see(*lease).into_iter().collect(), Vec::new()),
            LeaseChange::Gone(lease) => {
                let name = lease.metadata.name.clone().unwrap_or_default();
                // A late event about an earlier Lease of that name must not remove the present one.
                let known = self.leases.get(&name);
                let same = known.is_some_and(|known| known.lease.metadata.uid == lease.metadata.uid);
                let gone = same.then(|| self.leases.remove(&name)).is_some();
                (Vec::new(), gone.then_some(name).into_iter().collect())
            }
            LeaseChange::All(leases) => {
                self.complete = true;
                let names: BTreeSet<String> = leases.iter().filter_map(|lease| lease.metadata.name.clone()).collect();
                let gone = self
                    .leases
                    .keys()
                    .filter(|name| !names.contains(*name))
                    .cloned()
                    .collect();
                self.leases.retain(|name, _| names.contains(name));
                (leases.into_iter().filter_map(|lease| self.see(lease)).collect(), gone)
            }
        }
    }

    fn see(&mut self, lease: Lease) -> Option<Lease> {
        let name = lease.metadata.name.clone()?;
        let now = self.clock.now();
        let sign = Sign::of(&lease);
        let (changed_at, holder_since) = match self.leases.get(&name) {
            Some(known) if !is_newer(&lease, &known.lease) => return None,
            Some(known) => (
                if known.sign == sign { known.changed_at } else { now },
                if known.sign.holder == sign.holder && known.sign.uid == sign.uid {
                    known.holder_since
                } else {
                    now
                },
            ),
            None => (now, now),
        };
        self.leases.insert(
            name,
            Sighting {
                lease: lease.clone(),
                sign,
                changed_at,
                holder_since,
            },
        );
        Some(lease)
    }

    /// Whether a whole list has been seen.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// The shard map, if there is one.
    pub fn map(&self) -> Option<ShardMap> {
        ShardMap::read(&self.leases.get(&self.names.map_lease())?.lease, &self.names)
    }

    /// A Lease of the ring.
    pub fn lease(&self, name: &str) -> Option<&Lease> {
        self.leases.get(name).map(|sighting| &sighting.lease)
    }

    /// Live members by name.
    pub fn members(&self) -> Vec<Member> {
        let left: BTreeSet<&str> = self
            .leases
            .values()
            .filter_map(|sighting| self.note(&sighting.lease, "left-by"))
            .collect();
        let member = |(name, sighting): (&String, &Sighting)| {
            let name = self.names.member_of(name)?.to_owned();
            let identity = self.live_holder(sighting)?;
            let note = |key: &str| self.note(&sighting.lease, key).unwrap_or_default();
            Some(Member {
                name,
                placed: note("placed") == identity,
                announced: self.note(&sighting.lease, "template").is_some(),
                template: note("template").to_owned(),
                warm: note("warm").split(',').filter_map(ShardId::parse).collect(),
                draining: note("draining") == "true" || left.contains(identity.as_str()),
                since: sighting.holder_since,
                created: sighting.lease.metadata.creation_timestamp.as_ref().map(|time| time.0),
                identity,
            })
        };
        self.leases.iter().filter_map(member).collect()
    }

    /// Whether the leader's word about the shards takes the process of this identity into account.
    pub fn is_placed(&self, identity: &Identity) -> bool {
        let same = |member: &Member| member.identity == identity.as_str() && member.placed;
        self.members().iter().any(same)
    }

    /// A shard's Lease as it stands; none if it does not exist.
    pub fn shard(&self, shard: ShardId) -> Option<ShardLease> {
        let sighting = self.leases.get(&self.names.shard_lease(shard))?;
        let published = self.note(&sighting.lease, "desired-holder").map(|holder| Placement {
            holder: Some(holder).filter(|holder| !holder.is_empty()).map(str::to_owned),
            backups: self
                .note(&sighting.lease, "desired-backup")
                .unwrap_or_default()
                .split(',')
                .filter(|backup| !backup.is_empty())
                .map(str::to_owned)
                .collect(),
        });
        let free = sighting.sign.holder.is_empty();
        Some(ShardLease {
            holder: (!free).then(|| sighting.sign.holder.clone()),
            live: self.live_holder(sighting).is_some(),
            acquired: sighting.sign.acquired.as_ref().map(|time| time.0),
            released_by: free.then(|| drained_by(&sighting.lease, &self.names)).flatten(),
            published,
        })
    }

    /// All shards that have a Lease, of whatever count.
    pub fn shards(&self) -> Vec<ShardId> {
        self.leases
            .keys()
            .filter_map(|name| self.names.shard_of(name))
            .collect()
    }

    /// Member Leases that have been dead for this long.
    pub fn dead_members(&self, for_at_least: Duration) -> Vec<&Lease> {
        let now = self.clock.now();
        let members = self
            .leases
            .iter()
            .filter(|(name, _)| self.names.member_of(name).is_some());
        let dead = members.map(|(_, sighting)| sighting).filter(|sighting| {
            let limit = sighting.sign.duration(self.own_duration).saturating_add(for_at_least);
            now.since(sighting.changed_at) >= limit
        });
        dead.map(|sighting| &sighting.lease).collect()
    }

    /// The pod behind a holder's identity.
    pub fn pod_of(holder: &str) -> &str {
        Identity::parse(holder).map_or(holder, |parts| parts.pod)
    }

    fn live_holder(&self, sighting: &Sighting) -> Option<String> {
        let duration = sighting.sign.duration(self.own_duration);
        let live = self.clock.now() < sighting.changed_at.after(duration);
        (live && !sighting.sign.holder.is_empty()).then(|| sighting.sign.holder.clone())
    }

    fn note<'a>(&self, lease: &'a Lease, key: &str) -> Option<&'a str> {
        lease
            .metadata
            .annotations
            .as_ref()?
            .get(&self.names.key(key))
            .map(String::as_str)
    }
}
