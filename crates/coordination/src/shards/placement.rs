//! Who should hold which shard: a pure function of the members and of who holds what.
//!
//! Rendezvous hashing gives every (shard, member) a weight that all replicas compute alike. Current holders stay where they
//! may, so a change of membership moves at most `ceil(S/N)` shards. What moves, and when:
//! - a shard without an owner goes to the heaviest member with room below the cap, at once;
//! - an imbalance of two or more is mended by moving single shards to members that have been up for a while, a few at a time;
//! - while a rollout is under way (members of two templates), nothing moves for balance's sake, and what must move goes to
//!   the newest template, to the member with the least. So each shard moves once in a rollout, not twice.

use std::collections::BTreeMap;

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
    ranked.sort_by_key(|member| (std::cmp::Reverse(weight(shard, member)), *member));
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

/// Shards without an owner get one. Nobody gets more than leaves the whole even, so that nothing need move again.
fn adopt(situation: &Situation<'_>, eligible: &[&Candidate], mixed: bool, owners: &mut Owners) {
    let (least, more) = (
        situation.shards.len() / eligible.len(),
        situation.shards.len() % eligible.len(),
    );
    for shard in situation.shards {
        if owners.contains_key(shard) {
            continue;
        }
        let backups = situation
            .published
            .get(shard)
            .map(|placement| placement.backups.as_slice())
            .unwrap_or_default();
        let with_more = eligible
            .iter()
            .filter(|member| load(owners, &member.name) > least)
            .count();
        let most = if with_more < more { least + 1 } else { least };
        let best = eligible.iter().min_by_key(|member| {
            let load = load(owners, &member.name);
            let old = mixed && member.template != situation.newest;
            // In a rollout the least loaded of the new; else the one that has it warm, else the heaviest.
            let rank = if mixed {
                load
            } else {
                usize::from(!backups.contains(&member.name))
            };
            (
                load >= most,
                old,
                rank,
                std::cmp::Reverse(weight(*shard, &member.name)),
                &member.name,
            )
        });
        if let Some(best) = best {
            owners.insert(*shard, best.name.clone());
        }
    }
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
            .max_by_key(|shard| weight(**shard, &emptiest.name));
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
    let wanted = situation.backups.min(eligible.len().saturating_sub(1));
    let cap = (situation.shards.len() * wanted).div_ceil(eligible.len());
    let is_old = |name: &String| {
        eligible
            .iter()
            .any(|member| member.name == *name && member.template != situation.newest)
    };
    let mut loads: BTreeMap<&str, usize> = BTreeMap::new();
    let mut heirs: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut backups = BTreeMap::new();
    for shard in situation.shards {
        let before = situation
            .published
            .get(shard)
            .map(|placement| placement.backups.as_slice())
            .unwrap_or_default();
        // In a rollout the first backup of an old holder is the next holder for sure: count what it will have when that
        // one goes. They go one after the other, so each for itself.
        let leaver = owners
            .get(shard)
            .filter(|owner| mixed && is_old(owner))
            .map(String::as_str);
        let mut others: Vec<&&Candidate> = eligible
            .iter()
            .filter(|member| owners.get(shard) != Some(&member.name))
            .collect();
        others.sort_by_key(|member| {
            let name = member.name.as_str();
            let old = mixed && member.template != situation.newest;
            let rank = match leaver {
                Some(leaver) => load(owners, name) + heirs.get(&(leaver, name)).copied().unwrap_or(0),
                None => usize::from(loads.get(name).copied().unwrap_or(0) >= cap),
            };
            (
                old,
                rank,
                !before.contains(&member.name),
                std::cmp::Reverse(weight(*shard, name)),
                name,
            )
        });
        let chosen: Vec<&&&Candidate> = others.iter().take(wanted).collect();
        for (place, member) in chosen.iter().enumerate() {
            match leaver {
                Some(leaver) if place == 0 => *heirs.entry((leaver, member.name.as_str())).or_default() += 1,
                _ => *loads.entry(member.name.as_str()).or_default() += 1,
            }
        }
        backups.insert(*shard, chosen.iter().map(|member| member.name.clone()).collect());
    }
    backups
}

fn load(owners: &Owners, member: &str) -> usize {
    owners.values().filter(|owner| *owner == member).count()
}
