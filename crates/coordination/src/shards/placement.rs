//! Who should hold which shard: a pure function of the members and of who holds what.
//!
//! Rendezvous hashing gives every (shard, member) a weight that all replicas compute alike. Current holders stay where they
//! may, so a change of membership moves at most `ceil(S/N)` shards. What moves, and when:
//! - a shard whose owner goes is its first backup's: that one has it warm and claims it without waiting for the leader. So the
//!   first backups of each member are chosen such that the shards are even without it, and nothing need move again;
//! - a shard without owner and backup goes to the heaviest member with room, at once;
//! - an imbalance of two or more is mended by moving single shards to members that have been up for a while, a few at a time,
//!   and of those the one that has stayed longest: what has just moved stays;
//! - while a rollout is under way (members of two templates), nothing moves for balance's sake, and the next holders are of
//!   the newest template, those with the least. So each shard moves once in a rollout, not twice.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;

use crate::jitter::stable_hash;

use super::slot::ShardId;

/// A live member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name, the pod's.
    pub name: String,
    /// Hash of its pod template.
    pub template: String,
    /// Up long enough to be given shards for balance's sake.
    pub ready: bool,
    /// On its way out: to be given nothing.
    pub draining: bool,
}

/// Who should hold a shard, and who should keep it warm.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// The holder, unless nobody is there.
    pub holder: Option<String>,
    /// In order.
    pub backups: Vec<String>,
}

/// What to place, and the rules.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The shards.
    pub shards: &'a [ShardId],
    /// The live members, by name, each once.
    pub members: &'a [Candidate],
    /// Template of the member created last.
    pub newest: &'a str,
    /// Who holds what.
    pub holders: &'a BTreeMap<ShardId, String>,
    /// When they took it, each by its own clock: compared only among the shards of one holder.
    pub acquired: &'a BTreeMap<ShardId, Timestamp>,
    /// What was published before.
    pub published: &'a BTreeMap<ShardId, Placement>,
    /// Warm backups per shard.
    pub backups: usize,
    /// How many moves for balance's sake may be under way at a time.
    pub moves: usize,
}

/// Weight of a member for a shard.
pub fn weight(shard: ShardId, member: &str) -> u64 {
    stable_hash(&[&shard.to_string(), member])
}

/// Members in the order in which they may claim a shard when nothing is published.
pub fn ranked<'a>(shard: ShardId, members: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut ranked: Vec<&str> = members.collect();
    ranked.sort_by_key(|member| (Reverse(weight(shard, member)), *member));
    ranked
}

/// The placement of all shards.
pub fn place(situation: &Situation<'_>) -> BTreeMap<ShardId, Placement> {
    let eligible: Vec<&Candidate> = situation.members.iter().filter(|member| !member.draining).collect();
    if eligible.is_empty() {
        return situation
            .shards
            .iter()
            .map(|shard| (*shard, Placement::default()))
            .collect();
    }
    let mixed = eligible.iter().any(|member| member.template != situation.newest)
        && eligible.iter().any(|member| member.template == situation.newest);
    let mut owners = keep(situation, &eligible);
    adopt(situation, &eligible, mixed, &mut owners);
    if !mixed {
        balance(situation, &eligible, &mut owners);
    }
    let backups = back_up(situation, &eligible, mixed, &owners);
    let placement = |shard: &ShardId| Placement {
        holder: owners.get(shard).cloned(),
        backups: backups.get(shard).cloned().unwrap_or_default(),
    };
    situation
        .shards
        .iter()
        .map(|shard| (*shard, placement(shard)))
        .collect()
}

type Owners = BTreeMap<ShardId, String>;

/// Shards stay with the member that was chosen before, else with the one that holds them.
fn keep(situation: &Situation<'_>, eligible: &[&Candidate]) -> Owners {
    let here = |name: &&String| eligible.iter().any(|member| member.name == **name);
    let owner = |shard: &ShardId| {
        let chosen = situation
            .published
            .get(shard)
            .and_then(|placement| placement.holder.as_ref());
        chosen
            .filter(here)
            .or_else(|| situation.holders.get(shard).filter(here))
            .cloned()
    };
    situation
        .shards
        .iter()
        .filter_map(|shard| Some((*shard, owner(shard)?)))
        .collect()
}

/// What each of so many members may have if the whole is to be even.
struct Share {
    least: usize,
    /// How many members have one more.
    more: usize,
}

impl Share {
    fn of(shards: usize, members: usize) -> Self {
        let members = members.max(1);
        Self {
            least: shards / members,
            more: shards % members,
        }
    }

    /// Whether a member with this load may have another one.
    fn has_room(&self, load: usize, loads: impl Iterator<Item = usize>) -> bool {
        load < self.least || load == self.least && loads.filter(|load| *load > self.least).count() < self.more
    }
}

/// Shards without an owner get one.
fn adopt(situation: &Situation<'_>, eligible: &[&Candidate], mixed: bool, owners: &mut Owners) {
    let share = Share::of(situation.shards.len(), eligible.len());
    for shard in situation.shards {
        if owners.contains_key(shard) {
            continue;
        }
        let here = |name: &&String| eligible.iter().any(|member| member.name == **name);
        let heir = before(situation, *shard).iter().find(here);
        let best = || {
            eligible.iter().min_by_key(|member| {
                let own = load(owners, &member.name);
                let loads = eligible.iter().map(|other| load(owners, &other.name));
                let old = mixed && member.template != situation.newest;
                // In a rollout the least loaded of the new, else the heaviest.
                let rank = if mixed { own } else { 0 };
                let weight = Reverse(weight(*shard, &member.name));
                (!share.has_room(own, loads), old, rank, weight, &member.name)
            })
        };
        if let Some(best) = heir.or_else(|| best().map(|member| &member.name)).cloned() {
            owners.insert(*shard, best);
        }
    }
}

/// The backups that were chosen before.
fn before<'a>(situation: &'a Situation<'_>, shard: ShardId) -> &'a [String] {
    let published = situation.published.get(&shard);
    published
        .map(|placement| placement.backups.as_slice())
        .unwrap_or_default()
}

/// Single shards go from the fullest to the emptiest.
fn balance(situation: &Situation<'_>, eligible: &[&Candidate], owners: &mut Owners) {
    let under_way = |owners: &Owners| {
        let moving = |shard: &&ShardId| {
            situation
                .holders
                .get(shard)
                .is_some_and(|holder| owners.get(shard) != Some(holder))
        };
        situation.shards.iter().filter(moving).count()
    };
    while under_way(owners) < situation.moves {
        let fullest = eligible
            .iter()
            .max_by_key(|member| (load(owners, &member.name), &member.name));
        let emptiest = eligible
            .iter()
            .filter(|member| member.ready)
            .min_by_key(|member| (load(owners, &member.name), &member.name));
        let (Some(fullest), Some(emptiest)) = (fullest, emptiest) else {
            return;
        };
        if load(owners, &fullest.name) < load(owners, &emptiest.name) + 2 {
            return;
        }
        // What is on the move already is not turned round.
        let settled = |shard: &&ShardId| {
            owners.get(shard) == Some(&fullest.name) && situation.holders.get(shard) == Some(&fullest.name)
        };
        let chosen = situation
            .shards
            .iter()
            .filter(settled)
            .max_by_key(|shard| (Reverse(situation.acquired.get(*shard)), weight(**shard, &emptiest.name)));
        let Some(chosen) = chosen else { return };
        owners.insert(*chosen, emptiest.name.clone());
    }
}

/// Backups, as even as they get; those chosen before stay if they may.
fn back_up(
    situation: &Situation<'_>,
    eligible: &[&Candidate],
    mixed: bool,
    owners: &Owners,
) -> BTreeMap<ShardId, Vec<String>> {
    let others = eligible.len().saturating_sub(1);
    let wanted = situation.backups.min(others);
    let cap = (situation.shards.len() * wanted).div_ceil(eligible.len());
    let share = Share::of(situation.shards.len(), others);
    let is_old = |member: &Candidate| mixed && member.template != situation.newest;
    let mut loads: BTreeMap<&str, usize> = BTreeMap::new();
    // Per owner, since they go one after the other: how much more each of the others has then.
    let mut heirs: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut backups = BTreeMap::new();
    for shard in situation.shards {
        let owner = owners.get(shard).map(String::as_str).unwrap_or_default();
        let leaves = eligible.iter().any(|member| member.name == owner && is_old(member));
        let then = |name: &str| load(owners, name) + heirs.get(&(owner, name)).copied().unwrap_or(0);
        let mut ranked: Vec<&&Candidate> = eligible.iter().filter(|member| member.name != owner).collect();
        ranked.sort_by_cached_key(|member| {
            let name = member.name.as_str();
            let rest = eligible.iter().filter(|other| other.name != owner);
            // That an old holder goes in a rollout is certain, and all of its shards go to the new.
            let rank = if leaves {
                then(name)
            } else {
                usize::from(!share.has_room(then(name), rest.map(|other| then(&other.name))))
            };
            let full = loads.get(name).copied().unwrap_or(0) >= cap;
            let weight = Reverse(weight(*shard, name));
            let anew = !before(situation, *shard).contains(&member.name);
            (is_old(member), rank, full, anew, weight, name)
        });
        let chosen: Vec<&str> = ranked.iter().take(wanted).map(|member| member.name.as_str()).collect();
        for (place, name) in chosen.iter().enumerate() {
            *loads.entry(name).or_default() += 1;
            if place == 0 {
                *heirs.entry((owner, name)).or_default() += 1;
            }
        }
        backups.insert(*shard, chosen.into_iter().map(str::to_owned).collect());
    }
    backups
}

fn load(owners: &Owners, member: &str) -> usize {
    owners.values().filter(|owner| *owner == member).count()
}
