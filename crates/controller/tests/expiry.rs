//! A finished AppWrapper that is not to be kept is deleted, also by a process that starts after its time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use appwrapper_testkit::api_server::{Match, Verb};
use common::{World, job};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn a_finished_appwrapper_expires_under_its_uid_and_version() {
    let world = World::start().await;
    let ttl = json!({"workload.codeflare.dev.appwrapper/finishedTTLDuration": "1h"});
    for (name, annotations) in [("short", ttl), ("kept", json!({}))] {
        world.submit_with(name, json!([job(name)]), annotations);
        world.wait_phase(name, "Running").await;
        let done = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        world.server.patch_status("jobs", "team", name, &done);
        world.wait_phase(name, "Succeeded").await;
    }
    let uid = world.wrapper("short")["metadata"]["uid"].clone();
    world.pass(Duration::from_secs(3_500)).await;
    assert_eq!(world.phase("short"), "Succeeded");
    world.server.reset_requests();
    let world = world.restart().await;
    assert_eq!(world.phase("short"), "Succeeded", "not yet");
    world.pass(Duration::from_secs(100)).await;
    world
        .wait("the end of the AppWrapper", |world| {
            world.get("appwrappers", "short").is_none()
        })
        .await;
    assert!(world.get("jobs", "short").is_none(), "its components went first");
    assert_eq!(world.phase("kept"), "Succeeded");
    let deletes = Match::verb(Verb::Delete).resource("appwrappers").when(move |request| {
        let body = request.body.as_deref().cloned().unwrap_or_default();
        body["preconditions"]["uid"] == uid && body["preconditions"]["resourceVersion"].is_string()
    });
    assert_eq!(world.server.count(&deletes), 1);
    assert_eq!(
        world.server.count(&Match::verb(Verb::Delete).resource("appwrappers")),
        1
    );
}
