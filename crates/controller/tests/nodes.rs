//! Node health: a workload leaves a node that is marked for a resource it uses, and that costs no retry.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use common::{World, job};
use serde_json::{Value, json};

fn node(server: &appwrapper_testkit::api_server::ApiServer, name: &str) {
    server.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
}

fn mark(world: &World, node: &str, health: &Value) {
    let labels = json!({"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": health}}});
    world.server.patch("nodes", "", node, &labels);
}

/// A Job and its running pod, which asks for this many GPUs, on a node.
async fn run(world: &World, name: &str, gpus: &str, node: &str) {
    let quick = json!({"workload.codeflare.dev.appwrapper/retryPausePeriodDuration": "1s"});
    world.submit_with(name, json!([job(name)]), quick);
    world.wait_phase(name, "Running").await;
    pod(world, name, gpus, node);
    world
        .wait("ready pods", |world| {
            world.condition(name, "PodsReady")["status"] == "True"
        })
        .await;
}

fn pod(world: &World, name: &str, gpus: &str, node: &str) {
    let job = world.get("jobs", name).unwrap();
    world.server.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{name}-{node}"), "namespace": "team",
        "labels": {"workload.codeflare.dev/appwrapper": name}, "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]},
        "status": {"phase": "Running"}}));
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_uses_what_is_marked_moves_and_no_other_does() {
    let world = World::start().await;
    node(&world.server, "sick");
    node(&world.server, "well");
    run(&world, "uses", "2", "sick").await;
    run(&world, "idle", "0", "sick").await;
    run(&world, "elsewhere", "2", "well").await;
    let before = world.get("jobs", "uses").unwrap()["metadata"]["uid"].clone();
    for health in ["WARN", "TESTING", "PASS"] {
        mark(&world, "sick", &health.into());
        world.pass(Duration::from_secs(5)).await;
        assert_eq!(world.phase("uses"), "Running", "{health} evicts nothing");
    }
    mark(&world, "sick", &"EVICT".into());
    let is_leaving = |world: &World| {
        let pod = world.get("pods", "uses-sick");
        pod.is_some_and(|pod| !pod["metadata"]["deletionTimestamp"].is_null())
    };
    world.wait("the pod to leave", is_leaving).await;
    world.server.finish_pod("team", "uses-sick");
    world
        .wait("another Job", |world| {
            world
                .get("jobs", "uses")
                .is_some_and(|job| job["metadata"]["uid"] != before)
        })
        .await;
    world.wait_phase("uses", "Running").await;
    pod(&world, "uses", "2", "well");
    world.pass(Duration::from_secs(90)).await;
    for name in ["uses", "idle", "elsewhere"] {
        assert_eq!(world.phase(name), "Running", "{name}");
        assert_eq!(
            world.wrapper(name)["status"]["resettingCount"],
            Value::Null,
            "{name}: no retry is counted"
        );
    }
    let failure = world.condition("uses", "LastFailure");
    assert_eq!(failure["reason"], "AutopilotNoExecute");
    assert!(
        failure["message"].as_str().unwrap().contains("map[sick:{}]"),
        "{failure}"
    );
    assert_eq!(world.condition("idle", "LastFailure"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_is_there_when_the_process_starts_counts_and_one_that_is_gone_does_not() {
    let world = World::start().await;
    node(&world.server, "sick");
    run(&world, "a", "1", "sick").await;
    mark(&world, "sick", &"TESTING".into());
    let world = world.restart().await;
    world.pass(Duration::from_secs(90)).await;
    assert_eq!(world.condition("a", "LastFailure"), Value::Null);
    world.controller.kill();
    world.server.patch(
        "nodes",
        "",
        "sick",
        &json!({"metadata": {"labels": {"autopilot.ibm.com/gpuhealth": "EVICT"}}}),
    );
    let controller = common::Controller::start(&world.server).await;
    let world = World {
        server: world.server,
        controller,
    };
    world
        .wait("the move", |world| {
            world.condition("a", "LastFailure")["reason"] == "AutopilotNoExecute"
        })
        .await;
}
