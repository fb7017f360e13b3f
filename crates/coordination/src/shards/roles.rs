//! What this replica should do about each shard, as a pure function of what it knows.
//!
//! The leader's word comes first: the desired holder claims at once, then its backups in order, then everybody else by
//! rendezvous rank, 300 ms apart. Without a leader's word the rank alone counts, so that nothing waits for a leader. Who is
//! on its way out, has just released, or let the Lease run out is passed over, so the next in line does not wait for it.

use std::{collections::BTreeMap, time::Duration};

use crate::record::ClaimPolicy;

use super::{
    map::ShardMap,
    placement::ranked,
    roster::{Member, Roster, ShardLease},
    slot::ShardId,
};

/// From one rank to the next.
pub const RANK_STEP: Duration = Duration::from_millis(300);

/// What is to be done about one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duty {
    /// Whether and how soon to claim.
    pub policy: ClaimPolicy,
    /// Whether to have the caches warm (or keep them so).
    pub warm: bool,
    /// Nobody holds it and we are the next to: what is cold may stay so, since it would have to be listed anew after the claim.
    pub next: bool,
    /// Whether what is held should be given up.
    pub hand_over: bool,
}

/// What a replica knows about itself.
#[derive(Debug, Clone, Copy)]
pub struct Myself<'a> {
    /// Its pod.
    pub name: &'a str,
    /// Told to go.
    pub draining: bool,
    /// No claim for now: somebody outside of the ring leads, or the ring is not known yet.
    pub barred: bool,
    /// Somebody outside of the ring leads: what is held must go.
    pub usurped: bool,
    /// Backups per shard.
    pub backups: usize,
}

impl Duty {
    const NONE: Self = Self {
        policy: ClaimPolicy::Never,
        warm: false,
        next: false,
        hand_over: false,
    };
}

/// The duties for all shards of the map, and for those that are held beyond it.
pub fn duties(me: Myself<'_>, roster: &Roster, held: impl Iterator<Item = ShardId>) -> BTreeMap<ShardId, Duty> {
    let map = roster.map();
    let members = roster.members();
    let mut duties: BTreeMap<ShardId, Duty> = held
        .map(|shard| {
            (
                shard,
                Duty {
                    hand_over: true,
                    ..Duty::NONE
                },
            )
        })
        .collect();
    for shard in map.as_ref().map(ShardMap::shards).unwrap_or_default() {
        let holds = duties.contains_key(&shard);
        let duty = roster
            .shard(shard)
            .map_or(Duty::NONE, |lease| duty(me, &members, shard, &lease, holds));
        duties.insert(shard, duty);
    }
    // A map that cannot be read takes nothing away: the watch may simply not have delivered it yet.
    if map.is_none() && !me.draining && !me.usurped {
        for duty in duties.values_mut() {
            duty.hand_over = false;
        }
    }
    duties
}

fn duty(me: Myself<'_>, members: &[Member], shard: ShardId, lease: &ShardLease, holds: bool) -> Duty {
    let line = line(me, members, shard, lease);
    let rank = line.iter().position(|name| *name == me.name);
    let policy = match rank {
        Some(rank) if !me.draining && !me.barred => {
            ClaimPolicy::After(RANK_STEP * u32::try_from(rank).unwrap_or(u32::MAX))
        }
        _ => ClaimPolicy::Never,
    };
    let named = match &lease.published {
        Some(published) => {
            published.holder.as_deref() == Some(me.name) || published.backups.iter().any(|backup| backup == me.name)
        }
        None => rank.is_some_and(|rank| rank <= me.backups),
    };
    // Given up only to somebody who is there and has it warm: a move is for balance and never worth a gap.
    let ready = |successor: &str| {
        let member = members.iter().find(|member| member.name == successor);
        member.is_some_and(|member| !member.draining && member.warm.contains(&shard))
    };
    let moved_to = lease
        .published
        .as_ref()
        .and_then(|published| published.holder.as_deref());
    let hand_over = holds && (me.draining || me.usurped || moved_to.is_some_and(|to| to != me.name && ready(to)));
    let unheld = !lease.live || lease.holder.as_deref().map(Roster::pod_of) == Some(me.name);
    Duty {
        policy,
        warm: !me.draining && (holds || named),
        next: !me.draining && !holds && unheld && rank == Some(0),
        hand_over,
    }
}

/// Everybody who may claim, in order.
fn line<'a>(me: Myself<'a>, members: &'a [Member], shard: ShardId, lease: &'a ShardLease) -> Vec<&'a str> {
    let may = |name: &str| {
        let gone = lease
            .released_by
            .as_deref()
            .is_some_and(|releaser| Roster::pod_of(releaser) == name);
        let member = members.iter().find(|member| member.name == name);
        // We are here, whatever our own Lease looks like from here.
        !gone && (name == me.name || member.is_some_and(|member| !member.draining))
    };
    // Whoever is named can only be succeeded once its time is over, and then it is dead: the next one need not wait for it.
    let holder = lease.holder.as_deref().map(Roster::pod_of);
    let alive = |name: &str| holder != Some(name) || name == me.name;
    let mut line: Vec<&str> = Vec::new();
    if let Some(published) = &lease.published {
        line.extend(published.holder.as_deref());
        line.extend(published.backups.iter().map(String::as_str));
    }
    let names = members
        .iter()
        .map(|member| member.name.as_str())
        .chain(std::iter::once(me.name));
    line.extend(ranked(shard, names));
    let mut kept: Vec<&str> = Vec::new();
    for name in line {
        if may(name) && alive(name) && !kept.contains(&name) {
            kept.push(name);
        }
    }
    // The releaser may have its shard back if nobody else wants it, after everybody else.
    if !kept.contains(&me.name) {
        kept.push(me.name);
    }
    kept
}
