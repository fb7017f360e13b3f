//! Objects of a kind that nobody coded end by the rule that they declare.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::time::Duration;

use appwrapper_testkit::api_server::{Match, Verb};
use common::{World, widget};
use serde_json::{Value, json};

fn declaring(name: &str) -> Value {
    let mut component = widget(name);
    component["template"]["metadata"]["annotations"] = json!({
        "workload.codeflare.dev.appwrapper/successCondition": "status.conditions[type=Done].status=True",
        "workload.codeflare.dev.appwrapper/failureCondition": "status.phase=Broken,Lost",
    });
    component
}

fn patience() -> Value {
    json!({"workload.codeflare.dev.appwrapper/admissionGracePeriodDuration": "1h",
        "workload.codeflare.dev.appwrapper/retryPausePeriodDuration": "1s"})
}

#[tokio::test(start_paused = true)]
async fn an_object_succeeds_and_fails_by_what_it_declares() {
    let world = World::start().await;
    // A watch of metadata alone, which must be begun anew for those that declare.
    world.submit_with("plain", json!([widget("plain")]), patience());
    world.wait_phase("plain", "Running").await;
    for name in ["good", "bad"] {
        world.submit_with(name, json!([declaring(name)]), patience());
        world.wait_phase(name, "Running").await;
    }
    world.pass(Duration::from_secs(20)).await;
    world.server.reset_requests();
    let done = json!({"conditions": [{"type": "Busy", "status": "True"}, {"type": "Done", "status": "True"}]});
    world.server.patch_status("widgets", "team", "good", &done);
    world.wait_phase("good", "Succeeded").await;
    world
        .server
        .patch_status("widgets", "team", "bad", &json!({"phase": "Lost"}));
    world
        .wait("a retry", |world| world.wrapper("bad")["status"]["resettingCount"] == 1)
        .await;
    assert_eq!(world.condition("bad", "Unhealthy")["reason"], "FailedComponent");
    assert_eq!(world.phase("plain"), "Running");
    let gets = world.server.count(
        &Match::verb(Verb::Get)
            .resource("widgets")
            .name("good")
            .author("controller"),
    );
    assert_eq!(gets, 0, "the watch has told it");
    world.wait_phase("bad", "Running").await;
}

#[tokio::test(start_paused = true)]
async fn pods_prove_no_success_of_an_object_that_tells_it_itself() {
    let world = World::start().await;
    world.submit_with("a", json!([declaring("a")]), patience());
    world.wait_phase("a", "Running").await;
    let widget = world.get("widgets", "a").unwrap();
    world.server.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-0", "namespace": "team",
        "labels": {"workload.codeflare.dev/appwrapper": "a"},
        "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Widget", "name": "a", "uid": widget["metadata"]["uid"], "controller": true}]},
        "spec": {"containers": []}, "status": {"phase": "Succeeded"}}));
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(world.phase("a"), "Running");
    // A controller that starts anew reads whole objects at once.
    let world = world.restart().await;
    world.pass(Duration::from_secs(10)).await;
    let done = json!({"conditions": [{"type": "Done", "status": "True"}]});
    world.server.patch_status("widgets", "team", "a", &done);
    world.wait_phase("a", "Succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_cannot_be_read_fails_before_anything_is_created() {
    let world = World::start().await;
    let mut component = declaring("a");
    component["template"]["metadata"]["annotations"]["workload.codeflare.dev.appwrapper/successCondition"] =
        "Done".into();
    world.submit("a", json!([component]));
    world.wait_phase("a", "Failed").await;
    let message = world.condition("a", "Unhealthy")["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("successCondition") && message.contains("PATH=VALUE"),
        "{message}"
    );
    assert!(world.get("widgets", "a").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_number_of_pods_is_taken_from_the_template_and_published() {
    let world = World::start().await;
    let mut component = widget("a");
    component["podSets"][0]["annotations"] =
        json!({"workload.codeflare.dev.appwrapper/replicas-path": "template.spec.size"});
    component["template"]["spec"]["size"] = 5.into();
    world.submit_with("a", json!([component]), patience());
    world.wait_phase("a", "Running").await;
    let published = &world.wrapper("a")["status"]["componentStatus"][0]["podSets"][0]["replicas"];
    assert_eq!(*published, 5, "Kueue takes it from here");
}
