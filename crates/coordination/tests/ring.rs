//! The ring of replicas: who holds what after which event, and how long nobody does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::similar_names,
    reason = "helpers of tests are not covered by the exception for tests"
)]

mod sim;

use std::time::Duration;

use serde_json::json;
use sim::{
    Broken, Registry, Replica, ReplicaOptions, lease, lease_path, oracle,
    replica::LEADER,
    run,
    scene::{SHARDS, counts, longest_gap, options, owners, server_with_objects, three, unowned, until},
    server::Entry,
    sleep_ms,
};
use tokio::time::Instant;

fn green(log: &[Entry]) {
    oracle::all(log).unwrap();
    oracle::i6(log, 64 / SHARDS as usize, 6_000).unwrap();
}

#[test]
fn three_replicas_share_the_shards_soon_after_an_empty_start_and_then_keep_still() {
    for seed in 0..3 {
        run(async move {
            let (server, registry) = (server_with_objects(), Registry::default());
            let all = ["a", "b", "c"].map(|pod| {
                Replica::start(
                    &server,
                    &registry,
                    options(pod, seed * 10 + u64::from(pod.as_bytes()[0])),
                )
            });
            let all = all.each_ref();
            let took = until("all shards held", 4_000, || {
                counts(&all).iter().sum::<usize>() == SHARDS as usize
            })
            .await;
            assert!(took < Duration::from_secs(3), "{took:?}");
            until("shared evenly", 40_000, || {
                counts(&all).iter().all(|count| (1..=2).contains(count))
            })
            .await;
            sleep_ms(10_000).await;
            let before = owners(&all);
            sleep_ms(30_000).await;
            assert_eq!(before, owners(&all), "nothing moves when nothing happens");
            green(&server.log());
        });
    }
}

#[test]
fn sigterm_hands_every_shard_to_its_warm_backup_in_milliseconds() {
    for seed in 0..5 {
        run(async move {
            let (server, registry) = (server_with_objects(), Registry::default());
            let [a, b, c] = three(&server, &registry, seed).await;
            let lost = b.holds();
            let from = Instant::now();
            let requests = a.link.requests() + c.link.requests();
            b.terminate().await;
            let drained = from.elapsed();
            until("all shards held", 2_000, || {
                counts(&[&a, &c]).iter().sum::<usize>() == SHARDS as usize
            })
            .await;
            let _ = requests;
            let log = server.log();
            let gaps = unowned(&log, from);
            assert_eq!(gaps.len(), lost.len());
            assert!(gaps.iter().all(|gap| *gap < Duration::from_millis(50)), "{gaps:?}");
            assert!(drained < Duration::from_millis(1_500), "{drained:?}");
            sleep_ms(8_000).await;
            let gaps = longest_gap(&server.log(), from);
            assert!(gaps.values().all(|gap| *gap < Duration::from_secs(1)), "{gaps:?}");
            // Hand-over costs the release and the claim, whatever the number of objects.
            let moved = |entry: &&Entry| {
                entry.at >= from
                    && entry.path.contains("-shard-")
                    && entry.before.as_ref().map(|l| l["spec"]["holderIdentity"].clone())
                        != entry.after.as_ref().map(|l| l["spec"]["holderIdentity"].clone())
            };
            assert_eq!(log.iter().filter(moved).count(), 2 * lost.len());
            green(&server.log());
        });
    }
}

#[test]
fn a_crash_is_taken_over_within_the_lease_duration_and_a_second() {
    for seed in 0..5 {
        run(async move {
            let (server, registry) = (server_with_objects(), Registry::default());
            let [a, b, c] = three(&server, &registry, seed).await;
            sleep_ms(seed * 411).await;
            let from = Instant::now();
            b.kill();
            until("all shards held", 11_000, || {
                counts(&[&a, &c]).iter().sum::<usize>() == SHARDS as usize
            })
            .await;
            let took = from.elapsed();
            assert!(took > Duration::from_secs(7), "{took:?}");
            sleep_ms(10_000).await;
            green(&server.log());
        });
    }
}

#[test]
fn a_container_that_restarts_in_its_pod_has_its_shards_back_within_a_second() {
    run(async move {
        let (server, registry) = (server_with_objects(), Registry::default());
        let [a, b, c] = three(&server, &registry, 1).await;
        let held = b.holds();
        let mut options = b.kill();
        sleep_ms(800).await;
        options.nonce = 2;
        options.seed += 1;
        let from = Instant::now();
        let again = Replica::start(&server, &registry, options);
        until("its shards back", 2_000, || again.holds() == held).await;
        assert!(from.elapsed() < Duration::from_secs(1), "{:?}", from.elapsed());
        sleep_ms(10_000).await;
        assert_eq!(counts(&[&a, &again, &c]).iter().sum::<usize>(), SHARDS as usize);
        green(&server.log());
    });
}

#[test]
fn the_leader_may_die_and_nothing_stops_and_another_takes_its_place() {
    run(async move {
        let (server, registry) = (server_with_objects(), Registry::default());
        let all = three(&server, &registry, 1).await;
        let leads = |replica: &Replica| replica.handle.leader().borrow().tenure().is_some();
        let leader = all.iter().position(leads).unwrap();
        let (mut rest, mut dead) = (Vec::new(), None);
        for (i, replica) in all.into_iter().enumerate() {
            if i == leader {
                dead = Some(replica);
            } else {
                rest.push(replica);
            }
        }
        let others: Vec<_> = rest.iter().map(Replica::holds).collect();
        dead.unwrap().kill();
        sleep_ms(5_000).await;
        for (replica, held) in rest.iter().zip(&others) {
            assert_eq!(replica.holds(), *held);
        }
        until("another leader", 9_000, || rest.iter().any(leads)).await;
        until("all held", 8_000, || {
            counts(&rest.iter().collect::<Vec<_>>()).iter().sum::<usize>() == SHARDS as usize
        })
        .await;
        green(&server.log());
    });
}

#[test]
fn a_new_replica_gets_its_share_after_warming_and_no_shard_moves_twice() {
    run(async move {
        let (server, registry) = (server_with_objects(), Registry::default());
        let a = Replica::start(&server, &registry, options("a", 1));
        until("all held", 4_000, || a.holds().len() == SHARDS as usize).await;
        sleep_ms(3_000).await;
        let from = Instant::now();
        let b = Replica::start(&server, &registry, options("b", 2));
        sleep_ms(8_000).await;
        assert!(b.holds().is_empty(), "not before it has been there for ten seconds");
        until("evenly shared", 20_000, || counts(&[&a, &b]) == [2, 2]).await;
        sleep_ms(10_000).await;
        let log = server.log();
        let gaps = unowned(&log, from);
        assert_eq!(gaps.len(), 2);
        assert!(gaps.iter().all(|gap| *gap < Duration::from_millis(50)), "{gaps:?}");
        green(&log);
    });
}

#[test]
fn while_the_go_controller_leads_nobody_begins_and_when_it_comes_back_everybody_stops() {
    run(async move {
        let (server, registry) = (server_with_objects(), Registry::default());
        let go = |n: u32| {
            lease(
                json!({"holderIdentity": "host_5d0d3cf5-9b8c-4a53-9a43-2f9fa3c1d6c1", "leaseDurationSeconds": 15,
                "leaseTransitions": 9, "renewTime": format!("2026-01-01T00:{:02}:{:02}.000000Z", n / 60, n % 60)}),
            )
        };
        server.put(&lease_path(LEADER), go(0));
        let a = Replica::start(&server, &registry, options("a", 1));
        let b = Replica::start(&server, &registry, options("b", 2));
        for n in 1..20 {
            sleep_ms(2_000).await;
            server.put(&lease_path(LEADER), go(n));
            assert_eq!(counts(&[&a, &b]), [0, 0]);
        }
        until("taken over when it is gone", 22_000, || {
            counts(&[&a, &b]).iter().sum::<usize>() == SHARDS as usize
        })
        .await;
        for n in 20..30 {
            server.put(&lease_path(LEADER), go(n));
            sleep_ms(1_000).await;
        }
        assert_eq!(counts(&[&a, &b]), [0, 0], "two controllers at a time");
        green(&server.log());
    });
}

#[test]
fn changing_the_number_of_shards_never_lets_two_generations_act() {
    for seed in 0..3 {
        run(async move {
            let (server, registry) = (server_with_objects(), Registry::default());
            let old = three(&server, &registry, seed).await;
            // A rollout with another count: the first new leader changes it.
            let mut new = Vec::new();
            for (i, replica) in old.into_iter().enumerate() {
                let pod = ["x", "y", "z"][i];
                let options = ReplicaOptions {
                    shards: 8,
                    template: "t2".to_owned(),
                    ..options(pod, seed * 100 + i as u64)
                };
                new.push(Replica::start(&server, &registry, options));
                sleep_ms(4_000).await;
                replica.terminate().await;
            }
            until("eight shards held", 60_000, || {
                counts(&new.iter().collect::<Vec<_>>()).iter().sum::<usize>() == 8
            })
            .await;
            sleep_ms(5_000).await;
            let shards = server
                .list(sim::LEASES)
                .iter()
                .filter(|l| l["metadata"]["name"].as_str().unwrap().contains("-of-4"))
                .count();
            assert_eq!(shards, 0, "old Leases are gone");
            oracle::all(&server.log()).unwrap();
        });
    }
}

#[test]
fn a_map_overwritten_without_closing_is_red() {
    let red = (0..6).any(|seed| {
        run(async move {
            let (server, registry) = (server_with_objects(), Registry::default());
            let all = three(&server, &registry, seed).await;
            // One replica does not hear of it for a while, as happens; nobody waits for it without the barrier.
            all[0].link.stop_watches(true);
            let mut map = server.get(&lease_path("appwrapper-map")).unwrap();
            map["metadata"]["annotations"]["workload.codeflare.dev/shards"] = json!("8");
            map["metadata"]["annotations"]["workload.codeflare.dev/generation"] = json!("2");
            server.put(&lease_path("appwrapper-map"), map);
            for i in 0..8 {
                let name = format!("appwrapper-shard-{i}-of-8");
                let mut shard = lease(json!({}));
                shard["metadata"]["labels"] = json!({"workload.codeflare.dev/ring": "appwrapper"});
                server.put(&lease_path(&name), shard);
            }
            sleep_ms(6_000).await;
            oracle::i1(&server.log()).is_err()
        })
    });
    assert!(red, "without the barrier I11 should be red");
}

fn hand_over_with(broken: Broken, check: impl Fn(&[Entry]) -> oracle::Verdict) -> bool {
    (0..6).any(|seed| {
        run(async {
            let (server, registry) = (server_with_objects(), Registry::default());
            let start = |pod: &str, n: u64| {
                Replica::start(
                    &server,
                    &registry,
                    ReplicaOptions {
                        broken,
                        cache_lag: 300,
                        ..options(pod, seed * 10 + n)
                    },
                )
            };
            let (a, b) = (start("a", 1), start("b", 2));
            until("shared", 40_000, || counts(&[&a, &b]) == [2, 2]).await;
            sleep_ms(3_000).await;
            a.terminate().await;
            sleep_ms(12_000).await;
            drop(b);
            check(&server.log()).is_err()
        })
    })
}

#[test]
fn each_left_out_step_of_the_hand_over_is_red() {
    let i6 = |log: &[Entry]| oracle::i6(log, 64 / SHARDS as usize, 6_000);
    assert!(!hand_over_with(Broken::default(), |log| oracle::all(log).and(i6(log))));
    assert!(hand_over_with(
        Broken {
            no_barrier: true,
            ..Broken::default()
        },
        oracle::i7
    ));
    assert!(hand_over_with(
        Broken {
            no_resync: true,
            ..Broken::default()
        },
        i6
    ));
    let drainless = Broken {
        writes_after_drain: true,
        no_guard: true,
        ..Broken::default()
    };
    assert!(hand_over_with(drainless, oracle::i4));
}
