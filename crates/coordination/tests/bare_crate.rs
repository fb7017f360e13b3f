//! `kube-leader-election` as it comes, on schedules that give it two leaders, and the same schedules behind the layer.
//!
//! A regression test for D1 to D5 of ha-sharding.md, 1.3. If the bare crate should ever pass, the layer may shrink.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::similar_names,
    reason = "helpers of tests are not covered by the exception for tests"
)]

mod sim;

use std::{sync::Arc, time::Duration};

use appwrapper_coordination::{
    Claimed, GuardedLease, LeaseBackend, LeaseParams, LeaseTimings, SharedClock, testing::TokioClock,
};
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};
use serde_json::json;
use sim::{Link, Server, Weather, identity, lease, lease_path, run, sleep_ms};

/// Reads at once, writes 20 ms after the other: both have read before either writes.
fn slow_link(server: &Server, seed: u64) -> Link {
    Link::new(
        server,
        Weather {
            delay: (10, 10),
            ..Weather::CALM
        },
        seed,
    )
}

fn bare(server: &Server, pod: &str) -> LeaseLock {
    let params = LeaseLockParams {
        lease_name: "lock".to_owned(),
        holder_id: identity(pod, "n1").as_str().to_owned(),
        lease_ttl: Duration::from_secs(10),
    };
    LeaseLock::new(slow_link(server, 1).client(), "ns", params)
}

fn layered(server: &Server, pod: &str) -> GuardedLease {
    let params = LeaseParams {
        namespace: "ns".to_owned(),
        name: "lock".to_owned(),
        identity: identity(pod, "n1"),
        timings: LeaseTimings::standard(),
        creation: None,
    };
    let clock: SharedClock = Arc::new(TokioClock::default());
    GuardedLease::new(&slow_link(server, 1).client(), params, clock).unwrap()
}

async fn leads(lock: &LeaseLock) -> bool {
    matches!(lock.try_acquire_or_renew().await, Ok(LeaseLockResult::Acquired(_)))
}

async fn holds(lease: &mut GuardedLease) -> bool {
    matches!(lease.acquire_or_renew().await, Ok(Claimed::Held { .. }))
}

/// A Lease that its holder has given up in order, long ago by any clock.
fn free(server: &Server) {
    server.put(
        &lease_path("lock"),
        lease(
            json!({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3,
            "acquireTime": "2001-01-01T00:00:00.000000Z", "renewTime": "2001-01-01T00:00:00.000000Z"}),
        ),
    );
}

fn live(server: &Server, holder: &str, renewed: jiff::Timestamp) {
    server.put(
        &lease_path("lock"),
        lease(
            json!({"holderIdentity": holder, "leaseDurationSeconds": 10, "leaseTransitions": 3,
            "acquireTime": "2001-01-01T00:00:00.000000Z", "renewTime": format!("{renewed:.6}")}),
        ),
    );
}

#[test]
fn two_candidates_on_a_free_lease_both_lead_with_the_bare_crate_and_one_with_the_layer() {
    run(async {
        let server = Server::default();
        free(&server);
        let (a, b) = (bare(&server, "a"), bare(&server, "b"));
        let both = tokio::join!(leads(&a), leads(&b));
        assert_eq!(both, (true, true), "D1: the bare crate no longer gives two leaders");
        let log = server.log();
        let epochs: Vec<_> = log
            .iter()
            .skip(1)
            .map(|entry| entry.after.clone().unwrap()["spec"]["leaseTransitions"].clone())
            .collect();
        assert_eq!(epochs, [json!(4), json!(4)], "D2: under one and the same epoch");
        assert!(sim::oracle::i2(&log).is_err());
    });
    run(async {
        let server = Server::default();
        free(&server);
        let (mut a, mut b) = (layered(&server, "a"), layered(&server, "b"));
        let (a, b) = tokio::join!(holds(&mut a), holds(&mut b));
        assert!(a != b, "one of the two, not {a} and {b}");
        sim::oracle::i2(&server.log()).unwrap();
    });
}

#[test]
fn a_stalled_renewal_after_a_take_over_leads_with_the_bare_crate_and_not_with_the_layer() {
    // D3: the holder has read its own name; before it writes, another takes the Lease.
    let thief = |server: &Server| {
        let mut stolen = server.get(&lease_path("lock")).unwrap();
        stolen["spec"]["holderIdentity"] = json!("b");
        stolen["spec"]["leaseTransitions"] = json!(5);
        server.put(&lease_path("lock"), stolen);
    };
    run(async {
        let server = Server::default();
        free(&server);
        let a = bare(&server, "a");
        assert!(leads(&a).await);
        let renewal = async {
            // The read is answered by 20 ms, the write arrives at 30.
            sleep_ms(25).await;
            thief(&server);
        };
        let (told, ()) = tokio::join!(leads(&a), renewal);
        assert!(told, "D3: the bare crate no longer believes that it leads");
    });
    run(async {
        let server = Server::default();
        free(&server);
        let mut a = layered(&server, "a");
        assert!(holds(&mut a).await);
        let renewal = async {
            // No read: the write arrives at 10 ms.
            sleep_ms(5).await;
            thief(&server);
        };
        let (told, ()) = tokio::join!(holds(&mut a), renewal);
        assert!(!told);
        assert_eq!(server.get(&lease_path("lock")).unwrap()["spec"]["holderIdentity"], "b");
    });
}

#[test]
fn a_late_step_down_evicts_the_successor_with_the_bare_crate_and_not_with_the_layer() {
    let thief = |server: &Server| {
        let mut stolen = server.get(&lease_path("lock")).unwrap();
        stolen["spec"]["holderIdentity"] = json!("b");
        server.put(&lease_path("lock"), stolen);
    };
    let holder = |server: &Server| server.get(&lease_path("lock")).unwrap()["spec"]["holderIdentity"].clone();
    run(async {
        let server = Server::default();
        free(&server);
        let a = bare(&server, "a");
        assert!(leads(&a).await);
        let (_, ()) = tokio::join!(a.step_down(), async {
            sleep_ms(25).await;
            thief(&server);
        });
        assert_eq!(holder(&server), "", "D4: the bare crate no longer evicts");
    });
    run(async {
        let server = Server::default();
        free(&server);
        let mut a = layered(&server, "a");
        assert!(holds(&mut a).await);
        let note = appwrapper_coordination::ReleaseNote::new();
        let (released, ()) = tokio::join!(a.release(&note), async {
            sleep_ms(5).await;
            thief(&server);
        });
        assert!(released.is_err());
        assert_eq!(holder(&server), "b");
    });
}

#[test]
fn a_wall_clock_an_hour_off_steals_with_the_bare_crate_and_changes_nothing_with_the_layer() {
    let hour = jiff::SignedDuration::from_hours(1);
    let now = jiff::Timestamp::now();
    for (renewed, what) in [
        (now.checked_sub(hour).unwrap(), "behind"),
        (now.checked_add(hour).unwrap(), "ahead"),
    ] {
        run(async {
            let server = Server::default();
            live(&server, "b", renewed);
            let stolen = leads(&bare(&server, "a")).await;
            assert_eq!(
                stolen,
                what == "behind",
                "D5: the bare crate goes by the wall clock no longer"
            );
        });
        run(async {
            let server = Server::default();
            live(&server, "b", renewed);
            let mut a = layered(&server, "a");
            assert!(!holds(&mut a).await, "{what}");
            sleep_ms(9_900).await;
            assert!(!holds(&mut a).await, "{what}");
            sleep_ms(200).await;
            assert!(holds(&mut a).await, "{what}");
        });
    }
}
