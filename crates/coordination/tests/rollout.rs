//! I8 over whole rollouts: how often each shard changes hands while all replicas are replaced, or one of them is.
//!
//! `SIM_SEEDS` and `SIM_FIRST` as in `simulation_ring.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::similar_names,
    reason = "helpers of tests are not covered by the exception for tests"
)]

mod sim;

use sim::{
    Registry, Replica, ReplicaOptions, Rng, Server, oracle, run,
    scene::{counts, longest_gap, moves, options, server_with_objects, unowned, until},
    seeds, sleep_ms,
};
use tokio::time::Instant;

/// What is done, and what is left out.
#[derive(Debug, Clone, Copy)]
struct Plan {
    shards: u32,
    /// The replicas say of which template they are.
    hint: bool,
    /// The next old replica goes only when the new one is ready.
    patient: bool,
}

impl Plan {
    fn of(seed: u64) -> Self {
        Self {
            shards: [1, 3, 4, 8][usize::try_from(seed % 4).unwrap()],
            hint: true,
            patient: true,
        }
    }

    fn start(self, server: &Server, registry: &Registry, pod: &str, template: &str, seed: u64) -> Replica {
        let template = if self.hint { template } else { "" };
        let options = ReplicaOptions {
            shards: self.shards,
            template: template.to_owned(),
            pause: (500, 1_000),
            ..options(pod, seed)
        };
        Replica::start(server, registry, options)
    }

    fn even(self, replicas: &[&Replica]) -> bool {
        let counts = counts(replicas);
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        counts.iter().sum::<usize>() == self.shards as usize && most - least <= 1
    }

    /// Three replicas for a while, then what `then` does to them.
    async fn three(self, server: &Server, registry: &Registry, rng: &mut Rng) -> Vec<Replica> {
        let all: Vec<Replica> = ["a", "b", "c"]
            .map(|pod| self.start(server, registry, pod, "t1", rng.next()))
            .into();
        until("evenly shared", 60_000, || self.even(&all.iter().collect::<Vec<_>>())).await;
        sleep_ms(3_000 + rng.below(20_000)).await;
        all
    }
}

/// All replicas are replaced, the new one first, as a Deployment does it.
fn rolling_update(seed: u64, plan: Plan) -> Result<(), String> {
    run(async move {
        let (server, registry) = (server_with_objects(), Registry::default());
        let mut rng = Rng::new(seed);
        let mut old = plan.three(&server, &registry, &mut rng).await;
        let from = Instant::now();
        let mut new = Vec::new();
        while !old.is_empty() {
            let pod = ["x", "y", "z"][new.len()];
            let replica = plan.start(&server, &registry, pod, "t2", rng.next());
            if plan.patient {
                until("the new one is ready", 30_000, || replica.is_ready()).await;
                sleep_ms(rng.below(15_000)).await;
            }
            new.push(replica);
            let leaver = old.remove(usize::try_from(rng.below(old.len() as u64)).unwrap());
            leaver.terminate().await;
        }
        sleep_ms(60_000).await;
        if !plan.even(&new.iter().collect::<Vec<_>>()) {
            return Err(format!("uneven: {:?}", counts(&new.iter().collect::<Vec<_>>())));
        }
        judge(&server, from, plan.shards as usize)
    })
}

/// One replica is drained, and another takes its place a little later.
fn replacement(seed: u64, plan: Plan) -> Result<(), String> {
    run(async move {
        let (server, registry) = (server_with_objects(), Registry::default());
        let mut rng = Rng::new(seed);
        let mut all = plan.three(&server, &registry, &mut rng).await;
        let from = Instant::now();
        let leaver = all.remove(usize::try_from(rng.below(3)).unwrap());
        leaver.terminate().await;
        sleep_ms(rng.below(8_000)).await;
        all.push(plan.start(&server, &registry, "d", "t1", rng.next()));
        sleep_ms(90_000).await;
        if !plan.even(&all.iter().collect::<Vec<_>>()) {
            return Err(format!("uneven: {:?}", counts(&all.iter().collect::<Vec<_>>())));
        }
        judge(&server, from, 0)
    })
}

/// No shard moved twice, at least so many did, none was without a holder for long, and nothing else is wrong.
fn judge(server: &Server, from: Instant, at_least: usize) -> Result<(), String> {
    let log = server.log();
    let moves = moves(&log, from);
    if std::env::var("SIM_LOG").is_ok() {
        oracle::print(&log);
    }
    if moves.len() < at_least || moves.values().any(|times| *times > 1) {
        return Err(format!("I8: {moves:?}"));
    }
    let longest = unowned(&log, from).into_iter().max().unwrap_or_default();
    if longest.as_millis() > 500 {
        return Err(format!("a shard was without a holder for {longest:?}"));
    }
    let gaps = longest_gap(&log, from);
    if let Some((lease, gap)) = gaps.iter().find(|(_, gap)| gap.as_millis() > 2_500) {
        return Err(format!("{lease} stood still for {gap:?}"));
    }
    oracle::all(&log)
}

fn all_green(what: fn(u64, Plan) -> Result<(), String>, plan: fn(u64) -> Plan) {
    sim::on_all_cores(seeds(12), |seed| what(seed, plan(seed)));
}

#[test]
fn a_rolling_update_moves_each_shard_once() {
    all_green(rolling_update, Plan::of);
}

#[test]
fn a_replica_that_is_drained_and_replaced_moves_each_shard_once() {
    all_green(replacement, Plan::of);
}

/// Some seed moves a shard twice if this is left out.
fn assert_red(left_out: fn(Plan) -> Plan) {
    let red = |seed| rolling_update(seed, left_out(Plan::of(seed))).is_err_and(|wrong| wrong.contains("I8"));
    assert!((0..12).any(red));
}

#[test]
fn a_rollout_that_does_not_wait_for_readiness_is_red() {
    assert_red(|plan| Plan { patient: false, ..plan });
}

#[test]
fn a_rollout_in_which_nobody_knows_the_templates_is_red() {
    assert_red(|plan| Plan { hint: false, ..plan });
}
