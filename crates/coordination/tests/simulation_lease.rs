//! Seeded simulation of one Lease: three candidates, rough weather, and every kind of mishap.
//!
//! `SIM_SEEDS=20000 cargo test -p appwrapper-coordination --test simulation_lease` runs more. A red seed prints its number;
//! `SIM_FIRST` starts there.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::similar_names,
    reason = "helpers of tests are not covered by the exception for tests"
)]

mod sim;

use std::time::Duration;

use appwrapper_coordination::{LeaseTimings, Tenure, guarded_client, testing::TokioClock};
use serde_json::{Value, json};
use sim::{Candidate, CandidateOptions, Rng, Server, Weather, identity, lease, lease_path, oracle, run, sleep_ms};

const OBJECT: &str = "/apis/sim.dev/v1/namespaces/ns/objects/one";

#[derive(Debug, Clone, Copy)]
struct Plan {
    seconds: u64,
    weather: Weather,
    mishaps: bool,
    broken: Broken,
    no_compare_and_swap: bool,
    /// By how many hours the replicas' wall clocks are wrong.
    skew: [i64; 3],
}

#[derive(Debug, Clone, Copy, Default)]
struct Broken {
    no_guard: bool,
    no_drain: bool,
}

const ROUGH: Plan = Plan {
    seconds: 60,
    weather: Weather::ROUGH,
    mishaps: true,
    broken: Broken {
        no_guard: false,
        no_drain: false,
    },
    no_compare_and_swap: false,
    skew: [0; 3],
};

/// Writes to the one object for as long as the candidate holds the Lease, and now and then hands over.
async fn work(
    candidate: sim::link::Link,
    handle: appwrapper_coordination::LeaseHandle,
    clock: TokioClock,
    plan: Plan,
    seed: u64,
) {
    let mut rng = Rng::new(seed ^ 0xabcd);
    while let Ok(tenure) = handle.held().await {
        let guarded = guarded_client(&candidate.client(), tenure.write_guard());
        let client = if plan.broken.no_guard {
            candidate.client()
        } else {
            guarded
        };
        let gives_up_after = if plan.mishaps && rng.thousandth(400) {
            2 + rng.below(20)
        } else {
            u64::MAX
        };
        let mut writes = 0;
        while tenure.is_live() || plan.broken.no_guard && writes < 60 {
            write(&candidate, &client, &tenure, &clock).await;
            writes += 1;
            if writes == gives_up_after {
                let more = plan.broken.no_drain.then(|| {
                    let (candidate, tenure, clock) = (candidate.clone(), tenure.clone(), clock.clone());
                    let client = candidate.client();
                    tokio::spawn(async move {
                        for _ in 0..20 {
                            write(&candidate, &client, &tenure, &clock).await;
                            sleep_ms(50).await;
                        }
                    })
                });
                let drained = tenure.drain().await;
                let _ = handle
                    .release(drained, appwrapper_coordination::ReleaseNote::new())
                    .await;
                sleep_ms(3_000 + rng.below(5_000)).await;
                handle.set_policy(appwrapper_coordination::ClaimPolicy::After(Duration::ZERO));
                drop(more);
                break;
            }
            sleep_ms(100 + rng.below(500)).await;
        }
    }
}

async fn write(link: &sim::link::Link, client: &kube::Client, tenure: &Tenure, clock: &TokioClock) {
    let read = http::Request::get(OBJECT).body(Vec::new()).unwrap();
    let read = tokio::time::timeout(Duration::from_secs(2), link.client().request::<Value>(read)).await;
    let Ok(Ok(object)) = read else { return };
    let patch = json!({
        "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
        "spec": {"epoch": tenure.epoch().to_string(), "holder": tenure.holder(), "first": false,
            "left": tenure.deadline().since(appwrapper_coordination::Clock::now(clock)).as_millis().to_string()},
    });
    let request = http::Request::patch(OBJECT)
        .header("content-type", "application/merge-patch+json")
        .body(serde_json::to_vec(&patch).unwrap())
        .unwrap();
    let _ = tokio::time::timeout(Duration::from_secs(3), client.request::<Value>(request)).await;
}

/// One run. Returns the log and how often two tenures were live at a time.
fn simulate(seed: u64, plan: Plan) -> (Vec<sim::server::Entry>, u32) {
    run(async move {
        let mut server = Server::default();
        if plan.no_compare_and_swap {
            server = server.without_preconditions();
        }
        server.put(&lease_path("lock"), lease(json!({})));
        server.put(OBJECT, json!({"kind": "Object", "metadata": {}, "spec": {}}));
        let mut rng = Rng::new(seed);
        let pods = ["a", "b", "c"];
        let mut all: Vec<(Candidate, tokio::task::JoinHandle<()>, u32)> = Vec::new();
        let start = |pod: usize, nonce: u32, rng: &mut Rng| {
            let offset = Duration::from_secs(rng.within((1, 1_000_000)));
            let clock = TokioClock::new(offset, 980_000 + rng.below(40_001));
            let options = CandidateOptions {
                identity: identity(pods[pod], &format!("n{nonce}")),
                weather: Weather {
                    skew: plan.skew[pod],
                    ..plan.weather
                },
                clock: clock.clone(),
                at_once: false,
                ..CandidateOptions::of(pods[pod], rng.next())
            };
            let candidate = Candidate::start(&server, options);
            let work = work(
                candidate.link.clone(),
                candidate.handle.clone(),
                clock,
                plan,
                rng.next(),
            );
            let worker = tokio::spawn(sim::Stoppable::new(&candidate.link, work));
            (candidate, worker, nonce)
        };
        for pod in 0..3 {
            all.push(start(pod, 1, &mut rng));
        }
        let mut overlaps = 0;
        let mut ms = 0;
        while ms < plan.seconds * 1_000 {
            let step = 200 + rng.below(600);
            sleep_ms(step).await;
            ms += step;
            // A stopped process holds nothing that it could use: its first look at the clock refuses.
            let live = all.iter().filter(|(candidate, ..)| candidate.is_live()).count();
            overlaps += u32::from(live > 1);
            if !plan.mishaps || !rng.thousandth(200) {
                continue;
            }
            let pod = usize::try_from(rng.below(3)).unwrap();
            match rng.below(7) {
                0 => {
                    let link = all[pod].0.link.clone();
                    let length = 500 + rng.below(15_000);
                    link.cut(true);
                    tokio::spawn(async move {
                        sleep_ms(length).await;
                        link.cut(false);
                    });
                }
                1 => {
                    let link = all[pod].0.link.clone();
                    let length = 500 + rng.below(20_000);
                    link.stop(true);
                    tokio::spawn(async move {
                        sleep_ms(length).await;
                        link.stop(false);
                    });
                }
                2 => {
                    // Killed, and started again in its pod.
                    let fresh = start(pod, all[pod].2 + 1, &mut rng);
                    let (old, worker, _) = std::mem::replace(&mut all[pod], fresh);
                    worker.abort();
                    old.link.kill();
                    old.kill();
                }
                // A holder's clock that leaps, as after a suspend. A standby's may not leap alone: the others would have
                // lived through that time too, and `stop` covers that.
                3 if all[pod].0.is_live() => all[pod].0.clock.jump(Duration::from_millis(rng.below(30_000))),
                4 => server.delete(&lease_path("lock")),
                5 => {
                    if let Some(mut stolen) = server.get(&lease_path("lock")) {
                        let transitions = stolen["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
                        stolen["spec"] = json!({"holderIdentity": "kubectl", "leaseDurationSeconds": 3,
                            "leaseTransitions": transitions + 1});
                        server.put(&lease_path("lock"), stolen);
                    }
                }
                _ => {}
            }
        }
        (server.log(), overlaps)
    })
}

/// Runs seeds on all cores; the first that is red is reported with its number.
fn all_green(count: u64, plan: Plan, check: impl Fn(&[sim::server::Entry], u32) -> oracle::Verdict + Sync) {
    sim::on_all_cores(sim::seeds(count), |seed| {
        let (log, overlaps) = simulate(seed, plan);
        let verdict = check(&log, overlaps);
        if verdict.is_err() && std::env::var("SIM_LOG").is_ok() {
            oracle::print(&log);
        }
        verdict
    });
}

fn some_red(count: u64, plan: Plan, check: impl Fn(&[sim::server::Entry], u32) -> oracle::Verdict) {
    let red = (0..count).any(|seed| {
        let (log, overlaps) = simulate(seed, plan);
        check(&log, overlaps).is_err()
    });
    assert!(red, "{plan:?} should be red within {count} seeds");
}

/// Two live tenures at a time are never in order. A suspended clock is not looked at by `is_live` alone, so it counts too.
fn no_overlap(overlaps: u32) -> oracle::Verdict {
    if overlaps == 0 {
        Ok(())
    } else {
        Err(format!("I5: two tenures at a time, {overlaps} times"))
    }
}

#[test]
fn no_schedule_gives_an_object_two_masters() {
    all_green(1_000, ROUGH, |log, _| oracle::all(log));
}

#[test]
fn in_any_weather_without_outside_hands_there_is_one_holder_at_a_time() {
    let plan = Plan {
        mishaps: false,
        seconds: 60,
        ..ROUGH
    };
    all_green(50, plan, |log, overlaps| oracle::all(log).and(no_overlap(overlaps)));
}

#[test]
fn work_gets_done_in_rough_weather() {
    let plan = Plan {
        mishaps: false,
        ..ROUGH
    };
    all_green(10, plan, |log, _| {
        let writes = log.iter().filter(|entry| entry.path == OBJECT).count();
        if writes > 25 {
            Ok(())
        } else {
            Err(format!("{writes} writes in {} s", plan.seconds))
        }
    });
}

/// What was written, in order, without the times.
fn digest(seed: u64, plan: Plan) -> Vec<String> {
    let (log, _) = simulate(seed, plan);
    let what = |entry: &sim::server::Entry| {
        let spec = entry.after.as_ref().map(|object| &object["spec"]);
        let field = |name: &str| spec.map(|spec| spec[name].to_string());
        format!(
            "{} {} {:?} {:?} {:?}",
            entry.at.duration_since(log[0].at).as_nanos(),
            entry.path,
            field("epoch"),
            field("holderIdentity"),
            field("leaseTransitions")
        )
    };
    log.iter().map(what).collect()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..5 {
        let (one, two) = (digest(seed, ROUGH), digest(seed, ROUGH));
        let differs = one.iter().zip(&two).position(|(one, two)| one != two);
        assert_eq!(
            differs.map(|at| (&one[at - 3..=at], &two[at - 3..=at])),
            None,
            "seed {seed}"
        );
        assert_eq!(one.len(), two.len(), "seed {seed}");
    }
}

#[test]
fn wall_clocks_an_hour_off_change_nothing_at_all() {
    for seed in 0..10 {
        assert_eq!(
            digest(seed, ROUGH),
            digest(
                seed,
                Plan {
                    skew: [1, -1, 0],
                    ..ROUGH
                }
            ),
            "I10: seed {seed}"
        );
    }
}

#[test]
fn without_compare_and_swap_i1_or_i2_is_red() {
    some_red(
        60,
        Plan {
            no_compare_and_swap: true,
            ..ROUGH
        },
        |log, _| oracle::i2(log),
    );
    some_red(
        60,
        Plan {
            no_compare_and_swap: true,
            ..ROUGH
        },
        |log, _| oracle::i1(log),
    );
}

#[test]
fn without_the_guard_i1_and_i3_are_red() {
    let plan = Plan {
        broken: Broken {
            no_guard: true,
            ..Broken::default()
        },
        ..ROUGH
    };
    some_red(60, plan, |log, _| oracle::i1(log));
    some_red(60, plan, |log, _| oracle::i3(log));
}

#[test]
fn without_the_drain_i4_is_red() {
    let plan = Plan {
        broken: Broken {
            no_drain: true,
            ..Broken::default()
        },
        ..ROUGH
    };
    some_red(60, plan, |log, _| oracle::i4(log));
}

#[test]
fn standard_timings_are_what_is_simulated() {
    assert_eq!(CandidateOptions::of("a", 1).timings, LeaseTimings::standard());
}
