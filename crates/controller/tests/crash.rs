//! The controller dies after every single API write in turn, and another one takes over.
//!
//! Cases R04 and R05: whatever the point of death, in the end there are exactly the components that are wanted, all of
//! them controlled by the AppWrapper, none made twice, under the names that the status records.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use appwrapper_testkit::api_server::{Match, Moment, Verb, Verdict};
use common::{World, job, service};
use serde_json::{Value, json};

fn generated(prefix: &str) -> Value {
    let mut component = job("unused");
    component["template"]["metadata"] = json!({"generateName": prefix});
    component
}

/// Kills the controller at its `nth` write, before or after the write took place, and starts another.
async fn die_at(world: World, nth: u64, moment: Moment) -> (World, bool) {
    let died = Arc::new(AtomicBool::new(false));
    let hook = Arc::clone(&died);
    world.server.reset_requests();
    world.server.faults().on_write(move |call| {
        if hook.load(Ordering::SeqCst) {
            return Verdict::Continue;
        }
        if call.request.author == "controller" && call.nth == nth && call.moment == moment {
            hook.store(true, Ordering::SeqCst);
            return Verdict::Hang;
        }
        Verdict::Continue
    });
    world.submit("train", json!([generated("train-"), service("svc"), job("fixed")]));
    let reached = {
        let died = Arc::clone(&died);
        world
            .server
            .wait_until("death or rest", Duration::from_secs(5), move |_| {
                died.load(Ordering::SeqCst)
            })
            .await
            .is_ok()
    };
    let world = world.restart().await;
    (world, reached)
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_any_write_neither_doubles_nor_loses_a_component() {
    let mut deaths = 0;
    for moment in [Moment::Before, Moment::After] {
        for nth in 1..=12 {
            let world = World::start().await;
            let (world, died) = die_at(world, nth, moment).await;
            deaths += usize::from(died);
            world.wait_phase("train", "Running").await;
            world.pass(Duration::from_secs(5)).await;
            let at = format!("death {moment:?} write {nth}");
            let uid = world.wrapper("train")["metadata"]["uid"].clone();
            let jobs = world.server.list("jobs", "team", "");
            let services = world.server.list("services", "team", "");
            assert_eq!((jobs.len(), services.len()), (2, 1), "{at}");
            for object in jobs.iter().chain(&services) {
                assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], uid, "{at}");
            }
            let recorded = world.wrapper("train")["status"]["componentStatus"][0]["name"].clone();
            assert!(
                jobs.iter().any(|job| job["metadata"]["name"] == recorded),
                "{at}: {recorded} is not there"
            );
            let created = world
                .server
                .history()
                .iter()
                .filter(|change| change.before.is_none() && change.resource == "jobs.batch")
                .count();
            assert_eq!(created, 2, "{at}: a Job was made twice");
            let deletes = world.server.count(&Match::verb(Verb::Delete).author("controller"));
            assert_eq!(deletes, 0, "{at}");
            // Nothing is left once the AppWrapper is deleted.
            world.server.delete("appwrappers", "team", "train", "Background");
            world
                .wait("all is gone", |world| {
                    world.get("appwrappers", "train").is_none() && world.server.list("jobs", "team", "").is_empty()
                })
                .await;
        }
    }
    assert!(deaths >= 10, "only {deaths} deaths took place; the test shows little");
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_answer_is_lost_is_not_repeated() {
    let world = World::start().await;
    let fault = world
        .server
        .faults()
        .add(
            Match::verb(Verb::Create).resource("jobs"),
            appwrapper_testkit::api_server::Effect::DropAnswer,
        )
        .times(1);
    world.submit("lost", json!([generated("lost-")]));
    world.wait_phase("lost", "Running").await;
    assert_eq!(fault.hits(), 1);
    assert_eq!(world.server.list("jobs", "team", "").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_finished_appwrapper_stays_finished_whatever_a_late_copy_says() {
    let world = World::start().await;
    world.submit("done", json!([job("done")]));
    world.wait_phase("done", "Running").await;
    // Everything that happens from here on is unknown to the next controller's watch of AppWrappers.
    let gate = world.server.gate("appwrappers");
    gate.freeze_lists();
    gate.hold();
    let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    world.server.patch_status("jobs", "team", "done", &complete);
    world.wait_phase("done", "Succeeded").await;
    let world = world.restart().await;
    world.server.delete_now("jobs", "team", "done");
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.phase("done"), "Succeeded");
    gate.thaw();
    gate.release();
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.phase("done"), "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_for_an_appwrapper_that_is_being_deleted() {
    let world = World::start().await;
    world.submit("first", json!([job("first")]));
    world.wait_phase("first", "Running").await;
    let gate = world.server.gate("appwrappers");
    gate.watched().await;
    gate.hold();
    world
        .server
        .patch("appwrappers", "team", "first", &json!({"metadata": {"finalizers": []}}));
    world.server.delete_now("appwrappers", "team", "first");
    world.server.reset_requests();
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(
        world
            .server
            .count(&Match::verb(Verb::Create).resource("jobs").author("controller")),
        0
    );
}
