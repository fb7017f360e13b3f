//! The seed: a component missing in the cache is confirmed by an uncached read, and only then does the AppWrapper fail.
//!
//! Everything is the real controller but for the API server and the clock. The watch of the component's kind is held back,
//! so the cache never sees what was created: the 98 ms of the bug report, made as long as wanted.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use appwrapper_testkit::api_server::{Match, Verb};
use common::{CASES, Case, World, job, service};
use serde_json::json;

/// Submits an AppWrapper whose component the cache does not see, and waits until it runs.
async fn blind(case: &Case) -> World {
    let world = World::start().await;
    // An informer that is started by the first use lists what it is asked about; warm it first.
    world.submit("warm", json!([(case.component)("warm")]));
    world.wait_phase("warm", "Running").await;
    world.server.gate(case.resource).watched().await;
    world.server.gate(case.resource).hold();
    // No pod ever comes here; patience keeps that out of the picture.
    let patience = json!({"workload.codeflare.dev.appwrapper/admissionGracePeriodDuration": "1h"});
    world.submit_with("late", json!([(case.component)("late")]), patience);
    world.wait_phase("late", "Running").await;
    world
}

#[cfg(not(feature = "invert-confirmation"))]
#[tokio::test(start_paused = true)]
async fn a_component_that_only_the_cache_misses_keeps_its_appwrapper_running() {
    for case in CASES {
        let world = blind(case).await;
        world.server.reset_requests();
        world.pass(Duration::from_secs(9)).await;
        assert_eq!(world.phase("late"), "Running", "{}", case.resource);
        assert_eq!(
            world.condition("late", "Unhealthy")["status"],
            "False",
            "{}",
            case.resource
        );
        assert_eq!(world.gets(case.resource), 1, "one read per doubt: {}", case.resource);
        let survived = "appwrapper_component_confirmations_total";
        assert!(
            world.metric(survived) >= 1.0,
            "{}: the race is not counted",
            case.resource
        );
        world.server.gate(case.resource).release();
        world.pass(Duration::from_secs(15)).await;
        world.server.reset_requests();
        world.pass(Duration::from_secs(50)).await;
        assert_eq!(
            world.gets(case.resource),
            0,
            "the cache has caught up: {}",
            case.resource
        );
        assert_eq!(world.phase("late"), "Running", "{}", case.resource);
    }
}

/// The inversion: a confirmation that reads the cache makes the test above red. Built with a feature of its own.
#[cfg(feature = "invert-confirmation")]
#[tokio::test(start_paused = true)]
async fn without_the_uncached_read_the_blind_cache_fails_a_healthy_workload() {
    for case in CASES {
        let world = blind(case).await;
        world.wait_phase("late", "Failed").await;
        assert_eq!(
            world.condition("late", "Unhealthy")["reason"],
            "MissingComponent",
            "{}",
            case.resource
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_component_that_is_really_deleted_fails_its_appwrapper_at_once() {
    for case in CASES {
        for policy in ["Background", "Foreground", "Orphan"] {
            let world = World::start().await;
            world.submit("gone", json!([(case.component)("gone"), service("beside")]));
            world.wait_phase("gone", "Running").await;
            world.pass(Duration::from_secs(3)).await;
            let before = tokio::time::Instant::now();
            world.server.delete(case.resource, "team", "gone", policy);
            world.wait_phase("gone", "Failed").await;
            assert!(
                before.elapsed() < Duration::from_secs(1),
                "{} {policy}: {:?}",
                case.resource,
                before.elapsed()
            );
            let unhealthy = world.condition("gone", "Unhealthy");
            assert_eq!(unhealthy["status"], "True");
            assert_eq!(unhealthy["reason"], "MissingComponent");
            assert_eq!(
                unhealthy["message"],
                "Only found 1 deployed components, but was expecting 2"
            );
            world
                .wait("the other component goes", |world| {
                    world.get("services", "beside").is_none()
                })
                .await;
            world
                .wait("the quota is given back", |world| {
                    world.condition("gone", "QuotaReserved")["status"] == "False"
                        && world.condition("gone", "ResourcesDeployed")["status"] == "False"
                })
                .await;
            assert!(
                world.wrapper("gone")["status"].get("resettingCount").is_none(),
                "no retry"
            );
        }
    }
}

#[cfg(not(feature = "invert-confirmation"))]
#[tokio::test(start_paused = true)]
async fn an_answer_that_proves_nothing_fails_nothing() {
    use appwrapper_testkit::api_server::Effect;

    type Answer = (&'static str, fn() -> Effect);
    let answers: [Answer; 8] = [
        ("403", Effect::forbidden),
        ("429", Effect::too_many_requests),
        ("500", Effect::internal_error),
        ("503", Effect::unavailable),
        ("never", || Effect::Hang),
        ("garbage", || Effect::Undecodable),
        ("plain 404", || Effect::Text(404, "404 page not found\n")),
        ("refused", || Effect::Refuse),
    ];
    for (what, answer) in answers {
        let case = &CASES[0];
        let world = blind(case).await;
        let fault = world
            .server
            .faults()
            .add(Match::verb(Verb::Get).resource("jobs").name("late"), answer());
        world.server.delete("jobs", "team", "late", "Background");
        world.pass(Duration::from_secs(120)).await;
        assert_eq!(world.phase("late"), "Running", "{what}");
        assert_eq!(world.condition("late", "Unhealthy")["status"], "False", "{what}");
        assert!(fault.hits() >= 3, "{what}: asked again {} times", fault.hits());
        assert!(
            fault.hits() <= 40,
            "{what}: asked {} times in two minutes",
            fault.hits()
        );
        // Once the server answers, the deletion counts.
        fault.remove();
        world.wait_phase("late", "Failed").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_appwrapper_whose_cache_agrees_costs_no_read() {
    let world = World::start().await;
    for index in 0..20 {
        world.submit(&format!("quiet-{index}"), json!([job(&format!("quiet-{index}"))]));
    }
    world
        .wait("all run", |world| {
            (0..20).all(|index| world.phase(&format!("quiet-{index}")) == "Running")
        })
        .await;
    world.server.step_jobs();
    for index in 0..20 {
        let pods = world.server.list(
            "pods",
            "team",
            &format!("workload.codeflare.dev/appwrapper=quiet-{index}"),
        );
        for pod in pods {
            world
                .server
                .set_pod_phase("team", pod["metadata"]["name"].as_str().unwrap(), "Running");
        }
    }
    world
        .wait("all are ready", |world| {
            (0..20).all(|index| world.condition(&format!("quiet-{index}"), "PodsReady")["status"] == "True")
        })
        .await;
    assert_eq!(
        world
            .server
            .count(&Match::verb(Verb::Get).resource("jobs").author("controller")),
        0
    );
    world.server.reset_requests();
    world.pass(Duration::from_secs(600)).await;
    let reads = world.server.count(&Match::verb(Verb::Get).author("controller"));
    let writes = world.server.count(&Match::writes().author("controller"));
    assert_eq!((reads, writes), (0, 0), "the steady state is silent");
}

#[cfg(not(feature = "invert-confirmation"))]
#[tokio::test(start_paused = true)]
async fn a_component_whose_label_was_stripped_stays_alive_at_a_bounded_rate_of_reads() {
    let world = World::start().await;
    world.submit("bare", json!([job("bare")]));
    world.wait_phase("bare", "Running").await;
    world.server.step_jobs();
    let pod = world.server.list("pods", "team", "")[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    world.server.set_pod_phase("team", &pod, "Running");
    world.pass(Duration::from_secs(3)).await;
    let label = json!({"metadata": {"labels": {"workload.codeflare.dev/appwrapper": null}}});
    world.server.patch("jobs", "team", "bare", &label);
    world.server.reset_requests();
    world.pass(Duration::from_secs(300)).await;
    assert_eq!(world.phase("bare"), "Running");
    let reads = world.gets("jobs");
    assert!((5..=31).contains(&reads), "{reads} reads in five minutes");
    // It is looked after all the same: its end is seen, and so is its deletion.
    world.server.delete("jobs", "team", "bare", "Background");
    world.wait_phase("bare", "Failed").await;
}

#[cfg(not(feature = "invert-confirmation"))]
#[tokio::test(start_paused = true)]
async fn of_two_components_one_unseen_the_other_decides() {
    let world = blind(&CASES[0]).await;
    world.submit("two", json!([job("two-a"), service("two-b")]));
    world.wait_phase("two", "Running").await;
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(world.phase("two"), "Running");
    world.server.delete("services", "team", "two-b", "Background");
    world.wait_phase("two", "Failed").await;
    assert_eq!(
        world.condition("two", "Unhealthy")["message"],
        "Only found 1 deployed components, but was expecting 2"
    );
}

#[cfg(not(feature = "invert-confirmation"))]
#[tokio::test(start_paused = true)]
async fn a_failure_that_only_the_uncached_read_sees_counts() {
    let world = blind(&CASES[0]).await;
    let failed = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    world.server.patch_status("jobs", "team", "late", &failed);
    world
        .wait("the retry", |world| {
            world.wrapper("late")["status"]["resettingCount"] == 1
        })
        .await;
    assert_eq!(world.condition("late", "Unhealthy")["reason"], "FailedComponent");
}

#[tokio::test(start_paused = true)]
async fn a_component_replaced_by_a_strangers_counts_as_missing_and_the_stranger_is_spared() {
    let world = World::start().await;
    world.submit("mine", json!([job("mine")]));
    world.wait_phase("mine", "Running").await;
    world.pass(Duration::from_secs(3)).await;
    world.server.delete_now("jobs", "team", "mine");
    world.server.create(json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "mine", "namespace": "team", "labels": {"workload.codeflare.dev/appwrapper": "mine"}}}));
    world.wait_phase("mine", "Failed").await;
    world.pass(Duration::from_secs(60)).await;
    assert!(world.get("jobs", "mine").is_some(), "a stranger's object was deleted");
}
