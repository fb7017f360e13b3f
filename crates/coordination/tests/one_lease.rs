//! One Lease, from acquiring to handing over, against an API server in memory and with paused time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::similar_names,
    reason = "helpers of tests are not covered by the exception for tests"
)]

mod sim;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use appwrapper_coordination::{ClaimPolicy, Error, Fenced, LeaseEvent, LeaseTimings, State, testing::TokioClock};
use serde_json::json;
use sim::{Candidate, CandidateOptions, Server, identity, lease, lease_path, run, sleep_ms};
use tokio::time::Instant;

fn holder(server: &Server) -> String {
    server.get(&lease_path("lock")).unwrap()["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn transitions(server: &Server) -> i64 {
    server.get(&lease_path("lock")).unwrap()["spec"]["leaseTransitions"]
        .as_i64()
        .unwrap()
}

#[test]
fn a_missing_lease_is_created_and_renewed_with_one_request_per_period() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let tenure = one.handle.held().await.unwrap();
        assert_eq!(tenure.epoch().transitions(), 0);
        let before = one.link.requests();
        sleep_ms(60_000).await;
        let made = one.link.requests() - before;
        assert!((27..=34).contains(&made), "{made} requests in 60 s at a period of 2 s");
        assert!(tenure.is_live());
        assert_eq!(transitions(&server), 0);
    });
}

#[test]
fn leases_left_by_other_tools_can_be_had() {
    let released = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 7,
        "acquireTime": "2001-01-01T00:00:00.000000Z", "renewTime": "2001-01-01T00:00:00.000000Z"});
    let cases = [
        (json!({}), 0),
        (json!({"holderIdentity": ""}), 0),
        (released, 0),
        // Emptied by hand, perhaps under a live holder: after the duration only.
        (json!({"holderIdentity": "", "leaseTransitions": 7}), 10_000),
        (json!({"leaseTransitions": 7}), 10_000),
    ];
    for (spec, after) in cases {
        run(async {
            let server = Server::default();
            server.put(&lease_path("lock"), lease(spec.clone()));
            let one = Candidate::start(&server, CandidateOptions::of("a", 1));
            let begun = Instant::now();
            let tenure = one.handle.held().await.unwrap();
            let took = begun.elapsed().as_millis();
            assert!(took >= after && took < after + 200, "{spec}: {took} ms");
            let before = spec["leaseTransitions"].as_i64().unwrap_or(0);
            assert_eq!(i64::from(tenure.epoch().transitions()), before + 1, "{spec}");
        });
    }
}

#[test]
fn the_go_controllers_live_lease_is_respected_and_its_dead_one_taken_after_its_own_duration() {
    run(async {
        let server = Server::default();
        let go = |second: u32| {
            lease(
                json!({"holderIdentity": "host_5d0d3cf5-9b8c-4a53-9a43-2f9fa3c1d6c1", "leaseDurationSeconds": 15,
                "leaseTransitions": 4, "renewTime": format!("2001-01-01T00:00:{second:02}.000000Z")}),
            )
        };
        server.put(&lease_path("lock"), go(0));
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        for second in 1..20 {
            sleep_ms(2_000).await;
            server.put(&lease_path("lock"), go(second));
        }
        assert!(!one.is_live(), "the year 2001 in renewTime must not matter");
        let died = Instant::now();
        let state = one.handle.state().borrow().clone();
        assert_eq!(
            state,
            State::Standby {
                holder: Some("host_5d0d3cf5-9b8c-4a53-9a43-2f9fa3c1d6c1".to_owned())
            }
        );
        let tenure = one.handle.held().await.unwrap();
        let waited = died.elapsed();
        assert!(
            waited >= Duration::from_secs(15) && waited < Duration::from_millis(17_500),
            "{waited:?}"
        );
        assert_eq!(tenure.epoch().transitions(), 5);
    });
}

#[test]
fn a_crashed_holder_is_succeeded_within_the_duration_plus_a_second() {
    for seed in 0..20 {
        run(async move {
            let server = Server::default();
            let one = Candidate::start(&server, CandidateOptions::of("a", seed));
            one.handle.held().await.unwrap();
            let two = Candidate::start(&server, CandidateOptions::of("b", seed + 100));
            sleep_ms(10_000 + 137 * seed).await;
            assert!(!two.is_live());
            one.kill();
            let died = Instant::now();
            two.handle.held().await.unwrap();
            // A poll may have seen the last renewal up to a period late. With a watch it would be a second less.
            assert!(died.elapsed() <= Duration::from_millis(12_300), "{:?}", died.elapsed());
            assert_eq!(transitions(&server), 1);
        });
    }
}

#[test]
fn a_holder_cut_off_fences_itself_before_anyone_else_may_begin() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let tenure = one.handle.held().await.unwrap();
        let two = Candidate::start(&server, CandidateOptions::of("b", 2));
        sleep_ms(5_000).await;
        let guard = tenure.write_guard();
        guard.check().unwrap().settle();
        one.link.cut(true);
        let cut = Instant::now();
        tenure.ended().cancelled().await;
        assert!(cut.elapsed() <= Duration::from_millis(6_100), "{:?}", cut.elapsed());
        assert_eq!(guard.check().unwrap_err(), Fenced::Lost);
        assert!(!two.is_live());
        two.handle.held().await.unwrap();
        assert!(cut.elapsed() >= Duration::from_secs(8));
        // The one that was cut off comes back as a standby, not as a holder.
        one.link.cut(false);
        sleep_ms(10_000).await;
        assert!(!one.is_live());
        assert!(
            matches!(&*one.handle.state().borrow(), State::Standby { holder: Some(holder) } if holder == "b_b-uid_n1")
        );
    });
}

#[test]
fn after_a_fence_the_same_process_gets_the_lease_back_under_a_new_epoch() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let first = one.handle.held().await.unwrap();
        one.link.cut(true);
        first.ended().cancelled().await;
        one.link.cut(false);
        let second = one.handle.held().await.unwrap();
        assert_ne!(first.epoch(), second.epoch());
        assert!(second.epoch().transitions() > first.epoch().transitions());
        assert_eq!(first.epoch().lease_uid(), second.epoch().lease_uid());
    });
}

#[test]
fn a_suspended_machine_wakes_up_fenced() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let tenure = one.handle.held().await.unwrap();
        let guard = tenure.write_guard();
        one.clock.jump(Duration::from_secs(3_600));
        // At once, before any task has run.
        assert!(
            matches!(guard.check().unwrap_err(), Fenced::DeadlinePassed { late } if late > Duration::from_secs(3_000))
        );
        assert!(!tenure.is_live());
        let again = one.handle.held().await.unwrap();
        assert_ne!(again.epoch(), tenure.epoch());
    });
}

#[test]
fn a_lease_that_is_stolen_deleted_or_recreated_fences_its_holder_at_once() {
    for case in ["stolen", "deleted", "recreated"] {
        run(async {
            let server = Server::default();
            let path = lease_path("lock");
            let one = Candidate::start(&server, CandidateOptions::of("a", 1));
            let tenure = one.handle.held().await.unwrap();
            sleep_ms(5_000).await;
            let mine = server.get(&path).unwrap();
            if case == "stolen" {
                let mut theirs = mine.clone();
                theirs["spec"]["holderIdentity"] = json!("kubectl");
                server.put(&path, theirs);
            } else {
                server.delete(&path);
                if case == "recreated" {
                    let mut again = lease(mine["spec"].clone());
                    again["spec"]["leaseTransitions"] = json!(0);
                    server.put(&path, again);
                }
            }
            let at = Instant::now();
            tenure.ended().cancelled().await;
            assert!(
                at.elapsed() <= Duration::from_millis(2_300),
                "{case}: {:?}",
                at.elapsed()
            );
            if case != "stolen" {
                let next = one.handle.held().await.unwrap();
                assert_ne!(next.epoch().lease_uid(), tenure.epoch().lease_uid(), "{case}");
            }
        });
    }
}

#[test]
fn a_watch_event_of_a_theft_fences_without_a_request() {
    run(async {
        let server = Server::default();
        let path = lease_path("lock");
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let tenure = one.handle.held().await.unwrap();
        let mut theirs = server.get(&path).unwrap();
        theirs["spec"]["holderIdentity"] = json!("kubectl");
        let theirs = server.put(&path, theirs);
        let before = one.link.requests();
        one.handle.observe(serde_json::from_value(theirs).unwrap());
        tenure.ended().cancelled().await;
        assert_eq!(one.link.requests(), before);
    });
}

#[test]
fn notes_of_others_cost_a_read_but_not_the_lease() {
    run(async {
        let server = Server::default();
        let path = lease_path("lock");
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let tenure = one.handle.held().await.unwrap();
        for note in 0..40 {
            sleep_ms(700).await;
            let mut noted = server.get(&path).unwrap();
            noted["metadata"]["annotations"] = json!({"desired-holder": note.to_string()});
            server.put(&path, noted);
        }
        assert!(tenure.is_live());
        assert_eq!(transitions(&server), 0);
    });
}

#[test]
fn a_drained_holder_hands_over_in_milliseconds_to_a_watching_standby() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let tenure = one.handle.held().await.unwrap();
        let two = Candidate::start(&server, CandidateOptions::of("b", 2));
        sleep_ms(5_000).await;
        let mut events = server.watch(sim::LEASES, None, None);
        let observed = two.handle.clone();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                observed.observe(serde_json::from_value(event["object"].clone()).unwrap());
            }
        });
        let guard = tenure.write_guard();
        let permit = guard.check().unwrap();
        let draining = tokio::spawn({
            let tenure = tenure.clone();
            async move { tenure.drain().await }
        });
        sleep_ms(300).await;
        assert!(!draining.is_finished(), "a write is in flight");
        assert_eq!(guard.check().unwrap_err(), Fenced::Shut);
        permit.settle();
        let drained = draining.await.unwrap();
        let note = BTreeMap::from([("handover-rv".to_owned(), Some("{\"AppWrapper\":\"17\"}".to_owned()))]);
        let at = Instant::now();
        one.handle.release(drained, note).await.unwrap();
        let next = two.handle.held().await.unwrap();
        assert!(at.elapsed() < Duration::from_millis(100), "{:?}", at.elapsed());
        assert_eq!(next.epoch().transitions(), tenure.epoch().transitions() + 1);
        let lease = server.get(&lease_path("lock")).unwrap();
        assert_eq!(
            lease["metadata"]["annotations"]["handover-rv"],
            "{\"AppWrapper\":\"17\"}"
        );
        assert!(tenure.ended().is_cancelled());
        // The releaser does not take it back, even when the successor goes too.
        two.kill();
        sleep_ms(30_000).await;
        assert!(!one.is_live());
        one.handle.set_policy(ClaimPolicy::After(Duration::ZERO));
        one.handle.held().await.unwrap();
    });
}

#[test]
fn a_write_of_unknown_outcome_holds_the_release_up_for_the_write_bound() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let tenure = one.handle.held().await.unwrap();
        let at = Instant::now();
        drop(tenure.write_guard().check().unwrap());
        tenure.drain().await;
        assert_eq!(at.elapsed(), LeaseTimings::standard().write_bound);
    });
}

#[test]
fn a_proof_of_an_older_tenure_releases_nothing() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let first = one.handle.held().await.unwrap();
        let drained = first.drain().await;
        one.link.cut(true);
        first.ended().cancelled().await;
        one.link.cut(false);
        let second = one.handle.held().await.unwrap();
        let refused = one.handle.release(drained, BTreeMap::new()).await.unwrap_err();
        assert!(matches!(refused, Error::NotHeld { .. }));
        assert!(second.is_live());
    });
}

#[test]
fn a_container_that_restarts_in_its_pod_has_its_lease_back_at_once() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let first = one.handle.held().await.unwrap();
        one.kill();
        let at = Instant::now();
        let again = Candidate::start(
            &server,
            CandidateOptions {
                identity: identity("a", "n2"),
                ..CandidateOptions::of("a", 2)
            },
        );
        let second = again.handle.held().await.unwrap();
        assert!(at.elapsed() < Duration::from_millis(100), "{:?}", at.elapsed());
        assert_eq!(second.epoch().transitions(), first.epoch().transitions() + 1);
    });
}

#[test]
fn two_live_processes_of_one_pod_identity_end_in_a_clear_error() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        one.handle.held().await.unwrap();
        let twin = Candidate::start(
            &server,
            CandidateOptions {
                identity: identity("a", "n2"),
                ..CandidateOptions::of("a", 2)
            },
        );
        twin.handle.held().await.unwrap();
        let error = one.task.await.unwrap().unwrap_err();
        assert!(
            error.is_fatal() && error.to_string().contains("two replicas run under one identity"),
            "{error}"
        );
        assert!(twin.is_live());
    });
}

#[test]
fn a_refusal_by_rbac_is_told_in_words() {
    run(async {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        let server = Server::default();
        server.forbid("leases is forbidden: User \"x\" cannot get resource");
        let one = Candidate::start(
            &server,
            CandidateOptions {
                events: Some(Arc::new(move |event: &LeaseEvent| {
                    sink.lock().unwrap().push(event.clone());
                })),
                ..CandidateOptions::of("a", 1)
            },
        );
        sleep_ms(1_000).await;
        assert!(!one.is_live());
        let told = told.lock().unwrap();
        let Some(LeaseEvent::Failed { reason, message }) = told.first() else {
            panic!("{told:?}")
        };
        assert_eq!(*reason, "forbidden");
        assert!(
            message.contains("ns/lock") && message.contains("cannot get") && message.contains("grant get"),
            "{message}"
        );
    });
}

#[test]
fn dropping_the_handle_ends_the_tenure_but_never_releases() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        let tenure = one.handle.held().await.unwrap();
        drop(one.handle);
        one.task.await.unwrap().unwrap();
        assert!(tenure.ended().is_cancelled());
        assert_eq!(holder(&server), "a_a-uid_n1");
    });
}

#[test]
fn progress_goes_on_while_the_api_server_is_away() {
    run(async {
        let server = Server::default();
        let one = Candidate::start(&server, CandidateOptions::of("a", 1));
        one.handle.held().await.unwrap();
        one.link.cut(true);
        for _ in 0..30 {
            sleep_ms(1_000).await;
            let age = appwrapper_coordination::Clock::now(&one.clock).since(one.handle.last_progress());
            assert!(age <= Duration::from_secs(4), "{age:?}");
        }
    });
}

#[test]
fn a_clock_that_runs_two_percent_fast_or_slow_leaves_no_overlap() {
    for (fast, slow) in [(1_020_000, 980_000), (980_000, 1_020_000)] {
        run(async move {
            let server = Server::default();
            let clock = TokioClock::new(Duration::from_secs(50), slow);
            let one = Candidate::start(
                &server,
                CandidateOptions {
                    clock,
                    ..CandidateOptions::of("a", 1)
                },
            );
            let tenure = one.handle.held().await.unwrap();
            let clock = TokioClock::new(Duration::from_secs(90_000), fast);
            let two = Candidate::start(
                &server,
                CandidateOptions {
                    clock,
                    ..CandidateOptions::of("b", 2)
                },
            );
            sleep_ms(7_000).await;
            one.link.cut(true);
            tenure.ended().cancelled().await;
            let fenced = Instant::now();
            two.handle.held().await.unwrap();
            assert!(
                fenced.elapsed() >= LeaseTimings::standard().write_bound,
                "{:?}",
                fenced.elapsed()
            );
        });
    }
}
