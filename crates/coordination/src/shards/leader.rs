//! The leader: publishes who should hold what, and is never in the way.
//!
//! It looks after the map (how many shards), creates shard Leases, notes desired holders and backups on them and on each
//! member that this has been done, removes Leases of members long dead, and runs the back-fill it was given. All of its writes go through the write guard of its own
//! tenure. Holders renew, standbys claim and shards fail over without it; if it errs, balance suffers, not safety.
//!
//! Each round is computed anew from the roster, so a new leader needs no hand-over from the last.

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;

use crate::{
    clock::SharedClock,
    error::Error,
    guard::guarded_client,
    tenure::{Tenure, WriteGuard},
    timings::LeaseTimings,
};

use super::{
    leases::RingLeases,
    map::ShardMap,
    placement::{Candidate, Placement, Situation, place},
    roster::{Member, Roster},
    slot::{RingNames, ShardCount, ShardId},
};

/// Field manager of the leader's notes.
const MANAGER: &str = "appwrapper-leader";

/// Work that only the leader does, besides its own: it gets the guard of the leader's tenure for its writes, is started anew
/// when it ends, and is dropped when the tenure ends.
pub type LeaderWork = Arc<dyn Fn(WriteGuard) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What the leader is told.
#[derive(Clone)]
pub struct LeaderOptions {
    /// How many shards there should be.
    pub shards: ShardCount,
    /// Warm backups per shard.
    pub backups: usize,
    /// How long a member must have been up before shards are moved to it for balance's sake.
    pub settle: Duration,
    /// Moves for balance's sake at a time.
    pub moves: usize,
    /// Back-fill of labels and the like.
    pub work: Option<LeaderWork>,
}

impl LeaderOptions {
    /// One backup, 10 s to settle, two moves at a time.
    pub fn new(shards: ShardCount) -> Self {
        Self {
            shards,
            backups: 1,
            settle: Duration::from_secs(10),
            moves: 2,
            work: None,
        }
    }
}

/// One tenure of the leader.
pub(crate) struct Leader {
    pub(crate) leases: RingLeases,
    pub(crate) names: RingNames,
    pub(crate) options: LeaderOptions,
    pub(crate) timings: LeaseTimings,
    pub(crate) clock: SharedClock,
}

// === impl Leader ===

impl Leader {
    pub(crate) fn new(
        client: &Client,
        namespace: &str,
        names: RingNames,
        options: LeaderOptions,
        timings: LeaseTimings,
        clock: SharedClock,
        tenure: &Tenure,
    ) -> Self {
        let client = guarded_client(client, tenure.write_guard());
        let leases = RingLeases::new(client, namespace, names.clone(), timings.rpc_timeout);
        Self {
            leases,
            names,
            options,
            timings,
            clock,
        }
    }

    /// One round over what is known. Says what failed first; the next round tries again.
    pub(crate) async fn round(&self, roster: &Roster) -> Result<(), Error> {
        if !roster.is_complete() {
            return Ok(());
        }
        match roster.map() {
            None => self.found(roster).await,
            Some(map) if map.next.is_some() => self.close(map).await,
            Some(map) if map.count != self.options.shards => {
                tracing::info!(
                    from = map.count.get(),
                    to = self.options.shards.get(),
                    "changing the number of shards"
                );
                self.write_map(map, map.closing(self.options.shards)).await
            }
            Some(map) => self.publish(map, roster).await,
        }?;
        self.bury(roster).await
    }

    /// Writes the first map, or a new one if it was deleted or cannot be read.
    async fn found(&self, roster: &Roster) -> Result<(), Error> {
        let first = ShardMap::first(self.options.shards);
        let spoilt = roster.lease(&self.names.map_lease());
        // A lost map may have said anything. If shards of another count are about, they are closed as for a change.
        let strangers = roster.shards().iter().any(|shard| shard.of() != self.options.shards);
        let map = if spoilt.is_some() || strangers {
            first.closing(self.options.shards)
        } else {
            first
        };
        let notes = map.annotations(&self.names);
        if let Some(spoilt) = spoilt {
            return self.leases.swap(spoilt, &notes).await.map(drop);
        }
        // Before the map, since after it a missing Lease counts as deleted.
        for shard in map.shards() {
            self.leases
                .create(&self.names.shard_lease(shard), BTreeMap::new())
                .await?;
        }
        let notes = notes
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        self.leases.create(&self.names.map_lease(), notes).await
    }

    /// Writes the map if the store still says `from`; if not, our watch is behind, and the next round looks again.
    async fn write_map(&self, from: ShardMap, to: ShardMap) -> Result<(), Error> {
        let name = self.names.map_lease();
        let seen = self.leases.get(&name).await?.ok_or(Error::Missing { lease: name })?;
        if ShardMap::read(&seen, &self.names) != Some(from) {
            return Ok(());
        }
        self.leases.swap(&seen, &to.annotations(&self.names)).await.map(drop)
    }

    /// Steps 3 and 4 of a change of count (see `map.rs`).
    async fn close(&self, map: ShardMap) -> Result<(), Error> {
        // From the store: what is not in this list after the closing map was written cannot begin a tenure any more.
        let mut roster = Roster::new(self.names.clone(), Arc::clone(&self.clock), self.timings.duration);
        let mut old: BTreeMap<String, Lease> = self.old_leases().await?;
        for lease in old.values().cloned() {
            roster.apply(crate::LeaseChange::Seen(Box::new(lease)));
        }
        let begun = self.clock.now();
        while !old.is_empty() {
            for lease in old.values() {
                let name = lease.metadata.name.as_deref().unwrap_or_default();
                let standing = self.names.shard_of(name).and_then(|shard| roster.shard(shard));
                if standing.is_none_or(|standing| !standing.live) {
                    // A conflict means that somebody claimed or renewed in between: seen in the next list.
                    match self.leases.delete_as_seen(lease).await {
                        Ok(()) | Err(Error::Conflict { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            old = self.old_leases().await?;
            roster.apply(crate::LeaseChange::All(old.values().cloned().collect()));
        }
        tracing::info!(took = ?self.clock.now().since(begun), "old shards are closed");
        for shard in map.advanced().count.shards() {
            self.leases
                .create(&self.names.shard_lease(shard), BTreeMap::new())
                .await?;
        }
        self.write_map(map, map.advanced()).await
    }

    async fn old_leases(&self) -> Result<BTreeMap<String, Lease>, Error> {
        let all = self.leases.list().await?.into_iter();
        let named = all.filter_map(|lease| Some((lease.metadata.name.clone()?, lease)));
        Ok(named.filter(|(name, _)| self.names.shard_of(name).is_some()).collect())
    }

    /// Creates what is missing and notes who should hold what, where that has changed.
    async fn publish(&self, map: ShardMap, roster: &Roster) -> Result<(), Error> {
        let shards = map.shards();
        for shard in &shards {
            if roster.shard(*shard).is_none() {
                // Deleted, most likely under a holder that may not have noticed.
                self.leases.create_in_doubt(&self.names.shard_lease(*shard)).await?;
            }
        }
        let members: Vec<Member> = roster.members().into_iter().filter(|member| member.announced).collect();
        let (published, wanted) = self.plan(&shards, roster, &members);
        let mut result = Ok(());
        for (shard, placement) in wanted {
            let name = self.names.shard_lease(shard);
            let uid = roster.lease(&name).and_then(|lease| lease.metadata.uid.as_deref());
            let (Some(uid), true) = (uid, published.get(&shard) != Some(&placement)) else {
                continue;
            };
            let Placement { holder, backups } = placement;
            let notes = BTreeMap::from([
                (self.names.key("desired-holder"), holder.unwrap_or_default()),
                (self.names.key("desired-backup"), backups.join(",")),
                (self.names.key("generation"), map.generation.to_string()),
            ]);
            // One that fails must not keep the word about the others back.
            if let Err(error) = self.leases.annotate(&name, uid, MANAGER, &notes).await {
                result = Err(error);
            }
        }
        result?;
        // After the word itself, so that whoever sees this has seen that: the watch keeps the order.
        for member in members.iter().filter(|member| !member.placed) {
            let name = self.names.member_lease(&member.name);
            let Some(uid) = roster.lease(&name).and_then(|lease| lease.metadata.uid.as_deref()) else {
                continue;
            };
            let notes = BTreeMap::from([(self.names.key("placed"), member.identity.clone())]);
            match self.leases.annotate(&name, uid, MANAGER, &notes).await {
                Ok(_) | Err(Error::Conflict { .. } | Error::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn plan(
        &self,
        shards: &[ShardId],
        roster: &Roster,
        members: &[Member],
    ) -> (BTreeMap<ShardId, Placement>, BTreeMap<ShardId, Placement>) {
        let now = self.clock.now();
        let newest = newest_template(members);
        let candidate = |member: &Member| Candidate {
            name: member.name.clone(),
            template: member.template.clone(),
            ready: now.since(member.since) >= self.options.settle,
            draining: member.draining,
        };
        let candidates: Vec<Candidate> = members.iter().map(candidate).collect();
        let standing: BTreeMap<ShardId, _> = shards
            .iter()
            .filter_map(|shard| Some((*shard, roster.shard(*shard)?)))
            .collect();
        let holders = standing
            .iter()
            .filter(|(_, lease)| lease.live)
            .filter_map(|(shard, lease)| Some((*shard, Roster::pod_of(lease.holder.as_deref()?).to_owned())))
            .collect();
        let acquired = standing
            .iter()
            .filter_map(|(shard, lease)| Some((*shard, lease.acquired?)))
            .collect();
        let published = standing
            .into_iter()
            .filter_map(|(shard, lease)| Some((shard, lease.published?)))
            .collect();
        let wanted = place(&Situation {
            shards,
            members: &candidates,
            newest: &newest,
            holders: &holders,
            acquired: &acquired,
            published: &published,
            backups: self.options.backups,
            moves: self.options.moves,
        });
        (published, wanted)
    }

    /// Removes Leases of members that have long been dead. With an owner they go with their pods anyway.
    async fn bury(&self, roster: &Roster) -> Result<(), Error> {
        for lease in roster.dead_members(self.timings.duration * 5) {
            match self.leases.delete_as_seen(lease).await {
                Ok(()) | Err(Error::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The template of the member whose Lease was created last, by the API server's one clock.
fn newest_template(members: &[Member]) -> String {
    let newest = members.iter().max_by_key(|member| (member.created, &member.name));
    newest.map(|member| member.template.clone()).unwrap_or_default()
}
