//! Who should hold what, over many random histories: I5 and I8 of ha-sharding.md, section 6.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::similar_names,
    reason = "helpers of tests are not covered by the exception for tests"
)]

mod sim;

use std::collections::{BTreeMap, BTreeSet};

use appwrapper_coordination::shards::{Candidate, Placement, ShardCount, ShardId, Situation, place, weight};
use jiff::Timestamp;
use sim::Rng;

type Placements = BTreeMap<ShardId, Placement>;
type Place = fn(&Situation<'_>) -> Placements;

fn member(name: &str, template: &str) -> Candidate {
    Candidate {
        name: name.to_owned(),
        template: template.to_owned(),
        ready: true,
        draining: false,
    }
}

struct Ring {
    shards: Vec<ShardId>,
    members: Vec<Candidate>,
    holders: BTreeMap<ShardId, String>,
    acquired: BTreeMap<ShardId, Timestamp>,
    moves: u32,
    published: Placements,
    newest: String,
    place: Place,
}

impl Ring {
    fn new(count: u32, place: Place) -> Self {
        Self {
            shards: ShardCount::new(count).unwrap().shards().collect(),
            members: Vec::new(),
            holders: BTreeMap::new(),
            acquired: BTreeMap::new(),
            moves: 0,
            published: Placements::new(),
            newest: "t1".to_owned(),
            place,
        }
    }

    /// One round of the leader.
    fn publish(&mut self) {
        let situation = Situation {
            shards: &self.shards,
            members: &self.members,
            newest: &self.newest,
            holders: &self.holders,
            acquired: &self.acquired,
            published: &self.published,
            backups: 1,
            moves: 2,
        };
        self.published = (self.place)(&situation);
    }

    fn give(&mut self, shard: ShardId, to: &str) {
        if self.holders.insert(shard, to.to_owned()).as_deref() != Some(to) {
            self.moves += 1;
            let now = Timestamp::from_second(self.moves.into()).unwrap();
            self.acquired.insert(shard, now);
        }
    }

    /// The moves that were published are made.
    fn follow(&mut self) {
        for (shard, placement) in self.published.clone() {
            if let Some(holder) = &placement.holder {
                self.give(shard, holder);
            }
        }
    }

    /// SIGTERM: it releases to the backups that stand ready, before the leader has said a word, and is gone.
    fn drain(&mut self, name: &str) -> Result<Vec<ShardId>, String> {
        self.members
            .iter_mut()
            .find(|member| member.name == name)
            .unwrap()
            .draining = true;
        let held: Vec<ShardId> = self
            .shards
            .iter()
            .filter(|id| self.holders[*id] == name)
            .copied()
            .collect();
        let mut moved = Vec::new();
        for shard in held {
            if let Some(backup) = self.published[&shard].backups.first().cloned() {
                self.give(shard, &backup);
                moved.push(shard);
            }
        }
        moved.extend(self.settle()?);
        self.members.retain(|member| member.name != name);
        moved.extend(self.settle()?);
        Ok(moved)
    }

    /// Rounds until nothing changes. Returns which shards changed hands, once per move.
    fn settle(&mut self) -> Result<Vec<ShardId>, String> {
        let mut moved = Vec::new();
        for _ in 0..200 {
            let before = self.holders.clone();
            self.publish();
            let under_way = self.published.iter().filter(|(shard, placement)| {
                before.get(shard).is_some_and(|holder| {
                    self.members
                        .iter()
                        .any(|member| member.name == *holder && !member.draining)
                        && placement.holder.as_ref() != Some(holder)
                })
            });
            if under_way.count() > 2 {
                return Err("more than two moves at a time".to_owned());
            }
            self.follow();
            let changed: Vec<ShardId> = self
                .shards
                .iter()
                .filter(|shard| self.holders.get(shard) != before.get(shard))
                .copied()
                .collect();
            if changed.is_empty() {
                return Ok(moved);
            }
            moved.extend(changed);
        }
        Err("does not settle".to_owned())
    }

    fn check(&self) -> Result<(), String> {
        let eligible: Vec<&Candidate> = self.members.iter().filter(|member| !member.draining).collect();
        for shard in &self.shards {
            let placement = &self.published[shard];
            let holder = placement.holder.as_ref().ok_or("a shard without a holder")?;
            if !eligible.iter().any(|member| member.name == *holder) {
                return Err(format!("{holder} is not there"));
            }
            if placement.backups.contains(holder) || placement.backups.len() != 1.min(eligible.len() - 1) {
                return Err(format!("backups of {shard}: {placement:?}"));
            }
        }
        let loads: Vec<usize> = eligible
            .iter()
            .map(|member| {
                self.published
                    .values()
                    .filter(|p| p.holder.as_ref() == Some(&member.name))
                    .count()
            })
            .collect();
        if loads.iter().max().unwrap() - loads.iter().min().unwrap() > 1 {
            return Err(format!("uneven: {loads:?}"));
        }
        Ok(())
    }
}

fn history(seed: u64, place: Place) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let count = 1 + u32::try_from(rng.below(64)).unwrap();
    let mut ring = Ring::new(count, place);
    let mut born = 0;
    ring.members.push(member("m0", "t1"));
    ring.settle()?;
    for _ in 0..12 {
        let leaves = ring.members.len() > 1 && rng.thousandth(450);
        let most;
        if leaves {
            let gone = ring
                .members
                .remove(usize::try_from(rng.below(ring.members.len() as u64)).unwrap());
            // Its shards must move, and evening out what they were put on may move one or two more.
            most = ring.holders.values().filter(|holder| **holder == gone.name).count() + 1;
            ring.holders.retain(|_, holder| *holder != gone.name);
        } else {
            born += 1;
            ring.members.push(member(&format!("m{born}"), "t1"));
            most = ring.shards.len().div_ceil(ring.members.len());
        }
        let moved = ring.settle()?;
        ring.check().map_err(|wrong| format!("I5: {wrong}"))?;
        if moved.len() > most {
            return Err(format!(
                "I8: one change moved {} of {count} shards, {most} allowed",
                moved.len()
            ));
        }
        if moved.iter().collect::<BTreeSet<_>>().len() != moved.len() {
            return Err("I8: a shard moved twice for one change".to_owned());
        }
    }
    Ok(())
}

/// No shard is named more than once.
fn each_once<'a>(moved: impl IntoIterator<Item = &'a ShardId>, what: &str) -> Result<(), String> {
    let mut moves: BTreeMap<&ShardId, u32> = BTreeMap::new();
    for shard in moved {
        *moves.entry(shard).or_default() += 1;
    }
    match moves.iter().find(|(_, moves)| **moves > 1) {
        Some((shard, moves)) => Err(format!("I8: {shard} moved {moves} times {what}")),
        None => Ok(()),
    }
}

/// One replica of `n` is drained, and another takes its place, as when a node is emptied.
fn replacement(n: usize, count: u32, place: Place) -> Result<(), String> {
    let mut ring = Ring::new(count, place);
    for i in 0..n {
        ring.members.push(member(&format!("m{i}"), "t1"));
        ring.settle()?;
    }
    ring.check()?;
    for i in 0..n {
        let name = format!("m{i}");
        let held = ring.holders.values().filter(|holder| **holder == name).count();
        let mut moved = ring.drain(&name)?;
        if moved.len() != held {
            return Err(format!(
                "I8: {} moves for {held} shards of one that was drained",
                moved.len()
            ));
        }
        ring.check()?;
        ring.members.push(Candidate {
            ready: false,
            ..member(&format!("new{i}"), "t1")
        });
        moved.extend(ring.settle()?);
        ring.members.last_mut().unwrap().ready = true;
        moved.extend(ring.settle()?);
        each_once(&moved, "when one was replaced")?;
        ring.check()?;
    }
    Ok(())
}

/// A rollout of `n` replicas, one new pod at a time, each old one drained when a new one is there.
fn rollout(n: usize, count: u32, place: Place) -> Result<(), String> {
    let mut ring = Ring::new(count, place);
    ring.members = (0..n).map(|i| member(&format!("old{i}"), "t1")).collect();
    ring.settle()?;
    let mut moved = Vec::new();
    for i in 0..n {
        ring.members.push(member(&format!("new{i}"), "t2"));
        "t2".clone_into(&mut ring.newest);
        moved.extend(ring.settle()?);
        moved.extend(ring.drain(&format!("old{i}"))?);
    }
    ring.check()?;
    each_once(&moved, &format!("in a rollout of {n}"))
}

/// Backups by weight alone, without a thought for what their heirs have already.
fn without_heirs(situation: &Situation<'_>) -> Placements {
    let mut placements = place(situation);
    for (shard, placement) in &mut placements {
        let others = situation.members.iter().filter(|member| !member.draining);
        let others = others.filter(|member| placement.holder.as_ref() != Some(&member.name));
        let heaviest = others.max_by_key(|member| weight(*shard, &member.name));
        placement.backups = heaviest.map(|member| member.name.clone()).into_iter().collect();
    }
    placements
}

/// Not knowing what has just moved.
fn without_rest(situation: &Situation<'_>) -> Placements {
    let nothing = BTreeMap::new();
    place(&Situation {
        acquired: &nothing,
        ..*situation
    })
}

/// What one would write first: shard modulo members.
fn naive(situation: &Situation<'_>) -> Placements {
    let members = situation.members;
    let at = |shard: &ShardId, by: usize| members[(usize::from(shard.index()) + by) % members.len()].name.clone();
    let placement = |shard: &ShardId| Placement {
        holder: Some(at(shard, 0)),
        backups: vec![at(shard, 1)],
    };
    situation
        .shards
        .iter()
        .map(|shard| (*shard, placement(shard)))
        .collect()
}

/// Pure rendezvous hashing: little moves, but nobody counts.
fn uncapped(situation: &Situation<'_>) -> Placements {
    let best = |shard: &ShardId| {
        situation
            .members
            .iter()
            .max_by_key(|member| weight(*shard, &member.name))
            .unwrap()
            .name
            .clone()
    };
    let placement = |shard: &ShardId| Placement {
        holder: Some(best(shard)),
        backups: Vec::new(),
    };
    situation
        .shards
        .iter()
        .map(|shard| (*shard, placement(shard)))
        .collect()
}

#[test]
fn one_change_of_membership_moves_little_and_leaves_the_shards_even() {
    for seed in 0..200 {
        if let Err(wrong) = history(seed, place) {
            panic!("seed {seed}: {wrong}");
        }
    }
}

#[test]
fn a_rollout_moves_each_shard_once() {
    for n in 1..=6 {
        for count in [1, 2, 3, 8, 16, 64] {
            rollout(n, count, place).unwrap();
        }
    }
}

#[test]
fn a_replica_that_is_drained_and_replaced_moves_each_shard_once() {
    for n in 2..=6 {
        for count in [1, 2, 3, 4, 5, 8, 16, 64] {
            replacement(n, count, place).unwrap_or_else(|wrong| panic!("{n} replicas, {count} shards: {wrong}"));
        }
    }
}

#[test]
fn a_naive_placement_is_red() {
    let drained = |place| {
        let red = |(n, count)| replacement(n, count, place).is_err_and(|wrong| wrong.contains("I8"));
        (2..=6).flat_map(|n| [4, 8, 16].map(|count| (n, count))).any(red)
    };
    assert!(drained(without_heirs));
    assert!(drained(without_rest));
    assert!(
        (0..50)
            .any(|seed| history(seed, naive).is_err_and(|wrong| wrong.contains("I8") || wrong.contains("at a time")))
    );
    assert!((0..50).any(|seed| history(seed, uncapped).is_err_and(|wrong| wrong.contains("I5"))));
    assert!((2..=6).any(|n| rollout(n, 8, naive).is_err()));
}

#[test]
fn a_flapping_member_gets_nothing_until_it_has_stayed() {
    let mut ring = Ring::new(8, place);
    ring.members = vec![member("a", "t1"), member("b", "t1")];
    ring.settle().unwrap();
    let before = ring.holders.clone();
    for _ in 0..20 {
        ring.members.push(Candidate {
            ready: false,
            ..member("c", "t1")
        });
        assert!(ring.settle().unwrap().is_empty());
        ring.members.pop();
        assert!(ring.settle().unwrap().is_empty());
    }
    assert_eq!(ring.holders, before);
}
