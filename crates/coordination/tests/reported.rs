//! Cases from bug reports about other controllers that no other test here tries in so many words.

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
use sim::{Candidate, CandidateOptions, Rng, Server, Weather, identity, lease, lease_path, oracle, run, sleep_ms};

/// R30: a Lease runs out, and many want it at one instant.
fn race(seed: u64, candidates: u32, compare_and_swap: bool) -> oracle::Verdict {
    run(async move {
        let mut server = Server::default();
        if !compare_and_swap {
            server = server.without_preconditions();
        }
        let expired = json!({"holderIdentity": "gone_6f9619ff-8b86-d011-b42d-00c04fc964ff_1", "leaseDurationSeconds": 2,
            "leaseTransitions": 3, "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z"});
        server.put(&lease_path("lock"), lease(expired));
        let mut rng = Rng::new(seed);
        let all: Vec<Candidate> = (0..candidates)
            .map(|n| {
                let options = CandidateOptions {
                    identity: identity(&format!("pod{n}"), "n1"),
                    weather: Weather {
                        delay: (0, 30),
                        ..Weather::CALM
                    },
                    ..CandidateOptions::of("pod", rng.next())
                };
                Candidate::start(&server, options)
            })
            .collect();
        let mut led = false;
        for _ in 0..500 {
            sleep_ms(10).await;
            let live = all.iter().filter(|candidate| candidate.is_live()).count();
            if live > 1 {
                return Err(format!("I5: {live} of {candidates} lead"));
            }
            led |= live == 1;
        }
        if led {
            oracle::i2(&server.log())
        } else {
            Err("I5: nobody leads".to_owned())
        }
    })
}

#[test]
fn of_ten_candidates_for_a_lease_that_has_run_out_one_leads() {
    sim::on_all_cores(sim::seeds(200), |seed| race(seed, 10, true));
}

#[test]
fn without_compare_and_swap_two_of_them_lead() {
    assert!((0..20).any(|seed| race(seed, 10, false).is_err_and(|wrong| wrong.contains("I5"))));
}

/// R31: a holder that is told to go while it is cut off keeps nobody waiting for longer than its Lease.
#[test]
fn a_holder_that_cannot_release_is_succeeded_when_its_lease_runs_out() {
    run(async {
        let server = Server::default();
        server.put(&lease_path("lock"), lease(json!({})));
        let a = Candidate::start(&server, CandidateOptions::of("a", 1));
        a.handle.held().await.unwrap();
        let b = Candidate::start(&server, CandidateOptions::of("b", 2));
        sleep_ms(3_000).await;
        a.link.cut(true);
        let tenure = a.handle.state().borrow().tenure().cloned().unwrap();
        let drained = tenure.drain().await;
        let _ = tokio::time::timeout(
            Duration::from_secs(3),
            a.handle.release(drained, std::collections::BTreeMap::new()),
        )
        .await;
        assert!(!tenure.is_live(), "the guard is shut whatever becomes of the release");
        let begun = tokio::time::Instant::now();
        tokio::time::timeout(Duration::from_secs(12), b.handle.held())
            .await
            .unwrap()
            .unwrap();
        assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
    });
}
