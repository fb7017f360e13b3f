//! What many tests begin with, and what they ask of the log afterwards.

use std::{collections::BTreeMap, time::Duration};

use appwrapper_coordination::shards::{ShardId, Slot};
use serde_json::json;
use tokio::time::Instant;

use super::{Registry, Replica, ReplicaOptions, Server, object_path, server::Entry, sleep_ms};

pub const SHARDS: u32 = 4;

/// A server with one object per slot.
pub fn server_with_objects() -> Server {
    let server = Server::default();
    for slot in Slot::all() {
        server.put(
            &object_path(slot),
            json!({"kind": "Object", "metadata": {}, "spec": {"count": 0}}),
        );
    }
    server
}

/// How many shards each holds.
pub fn counts(replicas: &[&Replica]) -> Vec<usize> {
    replicas.iter().map(|replica| replica.holds().len()).collect()
}

/// Who holds what.
pub fn owners(replicas: &[&Replica]) -> BTreeMap<ShardId, String> {
    let held = |replica: &&Replica| {
        let pod = replica.options.pod.clone();
        replica.holds().into_iter().map(move |id| (id, pod.clone()))
    };
    replicas.iter().flat_map(held).collect()
}

/// Waits for something for so many milliseconds; how long it took.
pub async fn until(what: &str, limit: u64, mut met: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !met() {
        assert!(
            begun.elapsed() < Duration::from_millis(limit),
            "{what}: not within {limit} ms"
        );
        sleep_ms(10).await;
    }
    begun.elapsed()
}

pub fn options(pod: &str, seed: u64) -> ReplicaOptions {
    ReplicaOptions {
        shards: SHARDS,
        ..ReplicaOptions::of(pod, seed)
    }
}

/// Three replicas that share everything evenly.
pub async fn three(server: &Server, registry: &Registry, seed: u64) -> [Replica; 3] {
    let all = ["a", "b", "c"].map(|pod| {
        let own = u64::from(pod.as_bytes()[0]);
        Replica::start(server, registry, options(pod, seed * 100 + own))
    });
    until("evenly shared", 40_000, || {
        let counts = counts(&all.each_ref());
        counts.iter().sum::<usize>() == SHARDS as usize && counts.iter().all(|count| (1..=2).contains(count))
    })
    .await;
    // Backups warm, notes written.
    sleep_ms(3_000).await;
    all
}

/// Longest time without a write to any object of the Lease's shard, from `from` on.
pub fn longest_gap(log: &[Entry], from: Instant) -> BTreeMap<String, Duration> {
    let mut last: BTreeMap<String, Instant> = BTreeMap::new();
    let mut gaps: BTreeMap<String, Duration> = BTreeMap::new();
    for entry in log
        .iter()
        .filter(|entry| entry.at >= from && entry.path.contains("/objects/"))
    {
        let lease = entry.after.as_ref().unwrap()["spec"]["lease"]
            .as_str()
            .unwrap()
            .to_owned();
        let before = last.insert(lease.clone(), entry.at).unwrap_or(from);
        let gap = gaps.entry(lease).or_default();
        *gap = entry.at.duration_since(before).max(*gap);
    }
    gaps
}

/// From a release to the claim that follows it.
pub fn unowned(log: &[Entry], from: Instant) -> Vec<Duration> {
    let mut released: BTreeMap<&str, Instant> = BTreeMap::new();
    let mut gaps = Vec::new();
    for entry in log
        .iter()
        .filter(|entry| entry.at >= from && entry.path.contains("-shard-"))
    {
        let holder = entry
            .after
            .as_ref()
            .and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        match holder {
            Some("") => drop(released.insert(&entry.path, entry.at)),
            Some(_) => gaps.extend(
                released
                    .remove(entry.path.as_str())
                    .map(|at| entry.at.duration_since(at)),
            ),
            None => {}
        }
    }
    gaps
}

/// How often each shard's Lease went from one pod to another after `from`.
pub fn moves(log: &[Entry], from: Instant) -> BTreeMap<String, u32> {
    let mut holders: BTreeMap<&str, String> = BTreeMap::new();
    let mut moves: BTreeMap<String, u32> = BTreeMap::new();
    for entry in log.iter().filter(|entry| entry.path.contains("-shard-")) {
        let holder = entry
            .after
            .as_ref()
            .and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        let Some(pod) = holder
            .and_then(|holder| holder.split('_').next())
            .filter(|pod| !pod.is_empty())
        else {
            continue;
        };
        let before = holders.insert(&entry.path, pod.to_owned());
        if entry.at >= from && before.is_some_and(|before| before != pod) {
            let lease = entry.path.rsplit('/').next().unwrap().to_owned();
            *moves.entry(lease).or_default() += 1;
        }
    }
    moves
}
