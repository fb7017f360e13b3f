//! Replicas in a ring: who works on which AppWrapper, and what happens to it when a replica goes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use appwrapper_api::{SLOT_LABEL, Slot};
use appwrapper_controller::{replica::LEADER_LEASE, rights};
use appwrapper_testkit::api_server::{Effect, Match, Verb};
use common::ring::{Member, Ring, SYSTEM, assert_shared, names};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn every_appwrapper_is_worked_on_by_exactly_one_replica() {
    let ring = Ring::new(8);
    let members = ring.three().await;
    let wrappers = names("train", 40);
    let before = ring.server.revision();
    ring.submit_all(&wrappers);
    ring.all_running(&wrappers, 10).await;
    assert_shared(&members.each_ref(), 8);
    ring.assert_made_once(&wrappers);
    let mut workers = std::collections::BTreeSet::new();
    for name in &wrappers {
        let slot = Slot::of("team", name).number();
        let holder = members
            .iter()
            .find(|member| member.holds().iter().any(|shard| shard.index() == slot % 8))
            .unwrap();
        let authors: Vec<String> = ring
            .writes_since(before)
            .into_iter()
            .filter(|change| change.name == *name)
            .map(|change| change.author)
            .collect();
        assert!(
            !authors.is_empty() && authors.iter().all(|author| author == holder.name),
            "{name}: {authors:?}"
        );
        workers.insert(holder.name);
    }
    assert_eq!(workers.len(), 3, "the work is spread");
    for member in &members {
        let owned = member.metric("appwrapper_shard_owned{");
        assert!((owned - f64::from(u32::try_from(member.holds().len()).unwrap())).abs() < 0.5);
        assert!(member.health.ready().ok, "{}", member.health.ready().text);
    }
    let led: f64 = members
        .iter()
        .map(|member| member.metric("leader_election_master_status{"))
        .sum();
    assert!((led - 1.0).abs() < 0.5, "one leads");
}

#[tokio::test(start_paused = true)]
async fn sigterm_hands_every_shard_over_in_no_time_and_nothing_is_done_twice() {
    let ring = Ring::new(8);
    let [a, b, c] = ring.three().await;
    let wrappers = names("train", 40);
    ring.submit_all(&wrappers);
    // In the middle of it.
    ring.until("some run", 10, || {
        wrappers.iter().any(|name| ring.phase(name) == "Running")
    })
    .await;
    let lost = f64::from(u32::try_from(b.holds().len()).unwrap());
    let begun = tokio::time::Instant::now();
    b.terminate().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let took = ring
        .until("all shards held", 5, || a.holds().len() + c.holds().len() == 8)
        .await;
    assert!(took < Duration::from_millis(500), "{took:?}");
    ring.all_running(&wrappers, 10).await;
    assert_shared(&[&a, &c], 8);
    let more = names("later", 40);
    ring.submit_all(&more);
    let took = ring.all_running(&more, 10).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
    let all: Vec<String> = wrappers.into_iter().chain(more).collect();
    ring.assert_made_once(&all);
    let taken_over = [&a, &c].map(|member| member.metric("appwrapper_shard_takeover_seconds_count"));
    assert!(taken_over.iter().sum::<f64>() >= lost, "{taken_over:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_taken_over_when_the_lease_runs_out() {
    let ring = Ring::new(8);
    let [a, b, c] = ring.three().await;
    let wrappers = names("train", 40);
    ring.submit_all(&wrappers);
    ring.until("some run", 10, || {
        wrappers.iter().any(|name| ring.phase(name) == "Running")
    })
    .await;
    b.kill(&ring.server);
    let took = ring
        .until("all shards held", 12, || a.holds().len() + c.holds().len() == 8)
        .await;
    assert!(
        took > Duration::from_secs(6) && took < Duration::from_secs(11),
        "{took:?}"
    );
    ring.all_running(&wrappers, 3).await;
    assert_shared(&[&a, &c], 8);
    ring.assert_made_once(&wrappers);
    assert_eq!(ring.server.count(&Match::verb(Verb::Delete).resource("jobs")), 0);
}

/// One shard, held by the first, warm in the second.
async fn two(ring: &Ring) -> (Member, Member) {
    let a = ring.start("a");
    ring.until("a holds it", 20, || a.holds().len() == 1).await;
    let b = ring.start("b");
    ring.until("b is ready", 30, || b.health.ready().ok).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    (a, b)
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_nothing_is_judged_by_what_the_standby_saw_long_ago() {
    let ring = Ring::new(1);
    let (a, b) = two(&ring).await;
    ring.submit("train");
    ring.all_running(&["train".to_owned()], 5).await;
    // From here on the standby sees nothing of Jobs but what it saw: the one that fails.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let gate = ring.server.gate("jobs").for_client("b");
    gate.hold();
    let failed = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    ring.server.patch_status("jobs", "team", "train", &failed);
    gate.release_one();
    ring.until("it is reset and runs again", 120, || {
        ring.wrapper("train")["status"]["resettingCount"] == 1 && ring.phase("train") == "Running"
    })
    .await;
    a.kill(&ring.server);
    ring.until("b holds it", 15, || b.holds().len() == 1).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let wrapper = ring.wrapper("train");
    assert_eq!(
        (&wrapper["status"]["phase"], &wrapper["status"]["resettingCount"]),
        (&json!("Running"), &json!(1))
    );
    assert_eq!(ring.jobs_made()["train"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_successor_whose_watches_lag_lists_anew_and_then_acts() {
    let ring = Ring::new(1);
    let (a, b) = two(&ring).await;
    let gates = ["appwrappers", "jobs"].map(|resource| ring.server.gate(resource).for_client("b"));
    gates.iter().for_each(appwrapper_testkit::gate::Gate::hold);
    let wrappers = names("train", 5);
    ring.submit_all(&wrappers);
    ring.all_running(&wrappers, 10).await;
    let before = ring
        .server
        .count(&Match::verb(Verb::List).resource("appwrappers").author("b"));
    a.terminate().await;
    ring.until("b holds it", 5, || b.holds().len() == 1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    ring.assert_made_once(&wrappers);
    assert!(wrappers.iter().all(|name| ring.phase(name) == "Running"));
    let after = ring
        .server
        .count(&Match::verb(Verb::List).resource("appwrappers").author("b"));
    assert!(after > before, "it was listed anew");
}

#[tokio::test(start_paused = true)]
async fn a_successor_whose_watches_are_up_to_date_lists_nothing() {
    let ring = Ring::new(1);
    let (a, b) = two(&ring).await;
    let wrappers = names("train", 5);
    ring.submit_all(&wrappers);
    ring.all_running(&wrappers, 10).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    ring.server.reset_requests();
    a.terminate().await;
    let took = ring.until("b holds it", 5, || b.holds().len() == 1).await;
    assert!(took < Duration::from_millis(500), "{took:?}");
    ring.submit("next");
    let took = ring.all_running(&["next".to_owned()], 5).await;
    assert!(took < Duration::from_millis(500), "{took:?}");
    for resource in ["appwrappers", "jobs", "pods"] {
        let lists = ring
            .server
            .count(&Match::verb(Verb::List).resource(resource).author("b"));
        assert_eq!(lists, 0, "{resource}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_or_impossible_slot_is_filled_in_by_the_leader() {
    let ring = Ring::new(4);
    let a = ring.start("a");
    ring.until("a holds all", 20, || a.holds().len() == 4).await;
    ring.submit_labelled("bare", &json!({"team": "x"}));
    ring.submit_labelled("forged", &json!({SLOT_LABEL: "ff"}));
    ring.submit_labelled("given", &json!({SLOT_LABEL: "2a"}));
    let wrappers = ["bare", "forged", "given"].map(str::to_owned);
    ring.all_running(&wrappers, 5).await;
    for (name, slot) in [
        ("bare", Slot::of("team", "bare").to_string()),
        ("forged", Slot::of("team", "forged").to_string()),
        ("given", "2a".to_owned()),
    ] {
        assert_eq!(ring.wrapper(name)["metadata"]["labels"][SLOT_LABEL], slot, "{name}");
        let job = ring.server.get("jobs", "team", name).unwrap();
        assert_eq!(job["metadata"]["labels"][SLOT_LABEL], slot, "{name}");
    }
    assert_eq!(ring.wrapper("bare")["metadata"]["labels"]["team"], "x");
    ring.assert_made_once(&wrappers);
}

#[tokio::test(start_paused = true)]
async fn components_that_have_no_slot_are_seen_by_the_shard_of_their_appwrapper() {
    let ring = Ring::new(4);
    let a = ring.start("a");
    ring.until("a holds all", 20, || a.holds().len() == 4).await;
    ring.submit("old");
    ring.all_running(&["old".to_owned()], 5).await;
    // As the Go controller would have made it.
    let no_slot = json!({"metadata": {"labels": {SLOT_LABEL: null}}});
    ring.server.patch("jobs", "team", "old", &no_slot);
    ring.server.reset_requests();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(ring.phase("old"), "Running");
    let reads = ring.server.count(&Match::verb(Verb::Get).resource("jobs"));
    assert_eq!(reads, 0, "the watch has it");
}

#[tokio::test(start_paused = true)]
async fn one_shard_needs_no_slots() {
    let ring = Ring::new(1);
    let a = ring.start("a");
    ring.submit_labelled("bare", &json!({}));
    ring.all_running(&["bare".to_owned()], 20).await;
    assert_eq!(ring.wrapper("bare")["metadata"]["labels"][SLOT_LABEL], json!(null));
    assert_eq!(a.holds().len(), 1);
    ring.assert_made_once(&["bare".to_owned()]);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_shards_changes_on_a_live_ring_and_nothing_is_lost() {
    let mut ring = Ring::new(1);
    let a = ring.start("a");
    ring.until("a holds all", 20, || a.holds().len() == 1).await;
    // Without slots, since one shard needs none.
    let wrappers = names("train", 10);
    for name in &wrappers {
        ring.submit_labelled(name, &json!({}));
    }
    ring.all_running(&wrappers, 10).await;
    ring.shards = 4;
    let b = ring.start("b");
    ring.until("b is ready", 30, || b.health.ready().ok).await;
    a.terminate().await;
    ring.until("b holds all", 30, || b.holds().len() == 4).await;
    ring.submit("later");
    ring.all_running(&["later".to_owned()], 10).await;
    // Those of before are worked on as well: one whose Job is gone is noticed.
    for name in &wrappers {
        ring.server.delete_now("jobs", "team", name);
    }
    ring.until("all are noticed", 10, || {
        wrappers.iter().all(|name| ring.phase(name) == "Failed")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_while_the_go_controller_lives_and_readiness_says_so() {
    let ring = Ring::new(2);
    let go = json!({"spec": {"holderIdentity": "old_6f9619ff-8b86-d011-b42d-00c04fc964ff", "leaseDurationSeconds": 15,
        "renewTime": "2026-01-01T00:00:00.000000Z", "acquireTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": 1}});
    ring.server.patch("leases", SYSTEM, LEADER_LEASE, &go);
    let a = ring.start("a");
    ring.submit("train");
    for second in 0..30 {
        let renewed = json!({"spec": {"renewTime": format!("2026-01-01T00:00:{second:02}.000000Z")}});
        ring.server.patch("leases", SYSTEM, LEADER_LEASE, &renewed);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let report = a.health.ready();
    assert!(
        !report.ok && report.text.contains("waits for old_6f9619ff"),
        "{}",
        report.text
    );
    assert!(report.text.contains(LEADER_LEASE), "{}", report.text);
    assert_eq!(ring.phase("train"), "");
    // It is ended.
    ring.all_running(&["train".to_owned()], 30).await;
    assert!(a.health.ready().ok);
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_name_are_one_too_many() {
    let ring = Ring::new(2);
    let first = ring.start("a");
    ring.until("it holds all", 20, || first.holds().len() == 2).await;
    let second = ring.start_as("a", "twin", 2);
    let error = tokio::time::timeout(Duration::from_secs(60), second.end())
        .await
        .unwrap()
        .unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("calls itself a") && text.contains("--identity"), "{text}");
    assert_eq!(first.holds().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_rights_on_leases_the_error_says_which_to_grant() {
    let ring = Ring::new(2);
    ring.server.faults().add(
        Match::verb(Verb::List).resource("leases").author("a"),
        Effect::forbidden(),
    );
    let error = rights::on_leases(&ring.server.client_as("a"), SYSTEM)
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("leases.coordination.k8s.io") && text.contains(SYSTEM),
        "{text}"
    );
    rights::on_leases(&ring.server.client_as("b"), SYSTEM).await.unwrap();
}
