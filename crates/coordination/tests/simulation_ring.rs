//! Seeded simulation of the whole ring: three replicas, rough weather, crashes, restarts, SIGTERM, stops, cuts, Leases stolen
//! and deleted, the number of shards changed. Afterwards the weather clears, and all must be well again.
//!
//! `SIM_SEEDS=10000 cargo test -p appwrapper-coordination --test simulation_ring` runs more; a red seed prints its number, and
//! `SIM_FIRST=<seed> SIM_SEEDS=1 SIM_LOG=1` shows what happened in it. A seed is about a minute of three replicas.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::similar_names,
    reason = "helpers of tests are not covered by the exception for tests"
)]

mod sim;

use std::collections::BTreeMap;

use appwrapper_coordination::{shards::Slot, testing::TokioClock};
use serde_json::json;
use sim::{
    Registry, Replica, ReplicaOptions, Rng, Server, Weather, lease_path, object_path, oracle, run, server::Entry,
    sleep_ms,
};

struct Outcome {
    log: Vec<Entry>,
    wrong: Option<String>,
}

struct Ring {
    server: Server,
    registry: Registry,
    rng: Rng,
    replicas: Vec<Replica>,
    born: u32,
    shards: u32,
    weather: Weather,
}

impl Ring {
    fn options(&mut self, pod: &str) -> ReplicaOptions {
        ReplicaOptions {
            shards: self.shards,
            weather: self.weather,
            clock: TokioClock::new(
                std::time::Duration::from_secs(self.rng.within((1, 1_000_000))),
                980_000 + self.rng.below(40_001),
            ),
            cache_lag: 200,
            pause: (400, 1_200),
            ..ReplicaOptions::of(pod, self.rng.next())
        }
    }

    fn join(&mut self) {
        self.born += 1;
        let options = self.options(&format!("pod{}", self.born));
        self.replicas
            .push(Replica::start(&self.server, &self.registry, options));
    }

    fn pick(&mut self) -> usize {
        usize::try_from(self.rng.below(self.replicas.len() as u64)).unwrap()
    }

    fn shard_lease(&mut self) -> Option<String> {
        let names: Vec<String> = self
            .server
            .list(sim::LEASES)
            .iter()
            .filter_map(|lease| lease["metadata"]["name"].as_str().map(str::to_owned))
            .filter(|name| name.contains("-shard-"))
            .collect();
        let at = usize::try_from(self.rng.below(names.len().max(1) as u64)).unwrap();
        names.get(at).map(|name| lease_path(name))
    }

    async fn mishap(&mut self) {
        let pod = self.pick();
        match self.rng.below(9) {
            0 => {
                let (link, length) = (self.replicas[pod].link.clone(), 500 + self.rng.below(14_000));
                link.cut(true);
                tokio::spawn(async move {
                    sleep_ms(length).await;
                    link.cut(false);
                });
            }
            1 => {
                let (link, length) = (self.replicas[pod].link.clone(), 500 + self.rng.below(16_000));
                link.stop(true);
                tokio::spawn(async move {
                    sleep_ms(length).await;
                    link.stop(false);
                });
            }
            2 => {
                let (link, length) = (self.replicas[pod].link.clone(), 500 + self.rng.below(12_000));
                link.stop_watches(true);
                tokio::spawn(async move {
                    sleep_ms(length).await;
                    link.stop_watches(false);
                });
            }
            3 | 4 => {
                // Killed, and started again in the same pod.
                let old = self.replicas.remove(pod).kill();
                sleep_ms(self.rng.below(3_000)).await;
                let fresh = self.options(&old.pod);
                let options = ReplicaOptions {
                    nonce: old.nonce + 1,
                    shards: self.shards,
                    ..fresh
                };
                self.replicas
                    .push(Replica::start(&self.server, &self.registry, options));
            }
            5 | 6 => {
                // Replaced: the new pod first.
                self.join();
                sleep_ms(self.rng.below(4_000)).await;
                let old = self.replicas.remove(pod);
                tokio::spawn(async move { old.terminate().await });
            }
            7 => {
                if let Some(path) = self.shard_lease() {
                    self.server.delete(&path);
                }
            }
            _ => {
                if let Some(path) = self.shard_lease()
                    && let Some(mut stolen) = self.server.get(&path)
                {
                    stolen["spec"]["holderIdentity"] = json!("kubectl");
                    stolen["spec"]["leaseTransitions"] =
                        json!(stolen["spec"]["leaseTransitions"].as_i64().unwrap_or(0) + 1);
                    stolen["spec"]["leaseDurationSeconds"] = json!(2);
                    self.server.put(&path, stolen);
                }
            }
        }
    }
}

fn simulate(seed: u64) -> Outcome {
    run(async move {
        let server = Server::default();
        for slot in Slot::all() {
            server.put(
                &object_path(slot),
                json!({"kind": "Object", "metadata": {}, "spec": {"count": 0}}),
            );
        }
        let mut rng = Rng::new(seed);
        let weather = if rng.thousandth(500) {
            Weather::ROUGH
        } else {
            Weather::CALM
        };
        let shards = [1, 2, 4][usize::try_from(rng.below(3)).unwrap()];
        let mut ring = Ring {
            server: server.clone(),
            registry: Registry::default(),
            rng,
            replicas: Vec::new(),
            born: 0,
            shards,
            weather,
        };
        for _ in 0..3 {
            ring.join();
        }
        let changes_count = ring.rng.thousandth(250);
        for round in 0..8 {
            sleep_ms(500 + ring.rng.below(6_000)).await;
            if round == 3 && changes_count {
                // A rollout with another count.
                ring.shards = [3, 5][usize::try_from(ring.rng.below(2)).unwrap()];
                for _ in 0..3 {
                    ring.join();
                    let old = ring.replicas.remove(0);
                    tokio::spawn(async move { old.terminate().await });
                    sleep_ms(2_000).await;
                }
            } else {
                ring.mishap().await;
            }
        }
        // All faults end by themselves within 16 s; then two lease durations and a change of count must be enough.
        for replica in &ring.replicas {
            replica.link.set_weather(Weather::CALM);
        }
        sleep_ms(16_000).await;
        let mut wrong = None;
        for waited in 0..60 {
            wrong = unwell(&ring);
            if wrong.is_none() {
                break;
            }
            if waited == 59 {
                break;
            }
            sleep_ms(1_000).await;
        }
        Outcome {
            log: server.log(),
            wrong,
        }
    })
}

/// I5: each shard in force is held by exactly one replica.
fn unwell(ring: &Ring) -> Option<String> {
    let mut holders: BTreeMap<String, u32> = BTreeMap::new();
    for replica in &ring.replicas {
        for shard in replica.holds() {
            *holders.entry(shard.to_string()).or_default() += 1;
        }
    }
    let expected: Vec<String> = (0..ring.shards).map(|i| format!("{i}-of-{}", ring.shards)).collect();
    let good = holders.len() == expected.len() && expected.iter().all(|shard| holders.get(shard) == Some(&1));
    let views: Vec<String> = ring
        .replicas
        .iter()
        .map(|replica| {
            let (roles, roster) = (replica.handle.roles(), replica.handle.roster());
            let (roles, roster) = (roles.borrow(), roster.borrow());
            let seen: Vec<String> = roster
                .shards()
                .iter()
                .map(|shard| format!("{shard} {:?} {:?}", roles.get(shard), roster.shard(*shard)))
                .collect();
            format!(
                "{} ended {} map {:?} leader {:?}\n    {}",
                replica.options.pod,
                replica.ended(),
                roster.map(),
                *replica.handle.leader().borrow(),
                seen.join("\n    ")
            )
        })
        .collect();
    (!good).then(|| {
        format!(
            "I5: {} shards, but held are {holders:?}\n  {}",
            ring.shards,
            views.join("\n  ")
        )
    })
}

#[test]
fn whatever_happens_no_object_has_two_masters_and_in_the_end_each_has_one() {
    sim::on_all_cores(sim::seeds(100), |seed| {
        let outcome = simulate(seed);
        let verdict = oracle::all(&outcome.log).and(outcome.wrong.map_or(Ok(()), Err));
        if verdict.is_err() && std::env::var("SIM_LOG").is_ok() {
            oracle::print(&outcome.log);
        }
        verdict
    });
}
