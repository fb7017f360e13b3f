//! The commands against the fake API server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::{sync::Arc, time::Duration};

use appwrapper_testkit::api_server::{ApiServer, Effect, Match, ResourceKind, Verb};
use clap::Parser;
use kubectl_appwrapper::{args::Args, run, session::Session, style::Paint};
use serde_json::{Value, json};

const UID: &str = "aw-uid";

struct World {
    server: ApiServer,
    session: Session,
}

impl World {
    fn new() -> Self {
        let server = ApiServer::new();
        // Times in objects are whole seconds.
        server.set_clock(jiff::Timestamp::from_second(1_767_225_600).unwrap());
        let clock = server.clone();
        let session = Session {
            client: server.client_as("user"),
            namespace: "team".into(),
            system: "appwrapper-system".into(),
            clock: Arc::new(move || clock.now()),
        };
        Self { server, session }
    }

    async fn run(&self, command: &str) -> anyhow::Result<(String, u8)> {
        let args = Args::try_parse_from(std::iter::once("kubectl-appwrapper").chain(command.split(' '))).unwrap();
        run::run(&self.session, &args, Paint::PLAIN).await
    }

    async fn text(&self, command: &str) -> String {
        self.run(command).await.unwrap().0
    }

    async fn error(&self, command: &str) -> String {
        format!("{:#}", self.run(command).await.unwrap_err())
    }

    /// An AppWrapper around one Job of two pods, in this phase.
    fn wrapper(&self, phase: &str, suspend: bool, conditions: &Value) {
        let component = json!({"name": "train", "kind": "Job", "apiVersion": "batch/v1",
            "podSets": [{"path": "template.spec.template", "replicas": 2}],
            "conditions": [{"type": "ResourcesDeployed", "status": "True", "reason": "ComponentCreatedSuccessfully",
                "message": "", "lastTransitionTime": self.at(-30)}]});
        self.server.create(json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {"name": "train", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "queue",
                "workload.codeflare.dev/slot": "02"}},
            "spec": {"suspend": suspend, "components": [{"podSetInfos": [{}], "template": {"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "train"}, "spec": {"parallelism": 2, "template": {"spec": {"containers": []}}}}}]},
            "status": {"phase": phase, "resettingCount": 1, "conditions": conditions, "componentStatus": [component]},
        }));
        self.server
            .patch("appwrappers", "team", "train", &json!({"metadata": {"uid": UID}}));
    }

    fn at(&self, second: i64) -> String {
        let now = self.server.now().as_second();
        jiff::Timestamp::from_second(now + second).unwrap().to_string()
    }

    fn condition(&self, type_: &str, status: &str, reason: &str, since: i64) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": self.at(since)})
    }

    fn owned(&self, kind: &str, api_version: &str, name: &str, owner: (&str, &str, &str, &str), rest: Value) {
        let (owner_api, owner_kind, owner_name, owner_uid) = owner;
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "team",
            "labels": {"workload.codeflare.dev/appwrapper": "train"},
            "ownerReferences": [{"apiVersion": owner_api, "kind": owner_kind, "name": owner_name, "uid": owner_uid, "controller": true}]}});
        json_merge(&mut object, rest);
        self.server.create(object);
    }

    fn job(&self) -> String {
        let owner = ("workload.codeflare.dev/v1beta2", "AppWrapper", "train", UID);
        self.server.set_auto_collect(false);
        self.owned("Job", "batch/v1", "train", owner, json!({}));
        let job = self.server.get("jobs", "team", "train").unwrap();
        job["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn workload(&self, status: &Value) {
        self.server
            .register(ResourceKind::new("kueue.x-k8s.io", "v1beta2", "workloads", "Workload"));
        self.server
            .create(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "appwrapper-train", "namespace": "team",
                "ownerReferences": [{"apiVersion": "x/v1", "kind": "AppWrapper", "name": "train", "uid": UID}]},
            "spec": {}, "status": status}));
    }
}

fn json_merge(object: &mut Value, rest: Value) {
    let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) else {
        return;
    };
    object.extend(rest);
}

#[tokio::test(start_paused = true)]
async fn status_shows_the_tree_and_the_reconcilers_deadline() {
    let world = World::new();
    let conditions = json!([
        world.condition("ResourcesDeployed", "True", "Resuming", -30),
        world.condition("Unhealthy", "True", "FoundFailedPods", -18),
        world.condition("PodsReady", "True", "SufficientPodsReady", -20),
    ]);
    world.wrapper("Running", false, &conditions);
    let job = world.job();
    let owner = ("batch/v1", "Job", "train", job.as_str());
    world.owned(
        "Pod",
        "v1",
        "train-0",
        owner,
        json!({"spec": {"nodeName": "node-a", "containers": []}, "status": {"phase": "Running"}}),
    );
    world.owned(
        "Pod",
        "v1",
        "train-1",
        owner,
        json!({"spec": {"nodeName": "node-b", "containers": []}, "status": {"phase": "Failed", "containerStatuses": [
            {"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}}),
    );
    world.owned(
        "Pod",
        "v1",
        "stranger",
        ("apps/v1", "ReplicaSet", "x", "other"),
        json!({"status": {"phase": "Running"}}),
    );
    let text = world.text("status train").await;
    for line in [
        "AppWrapper team/train  Running",
        "  retries: 1 of 3",
        "  next: in 42s the failed pods cost a retry",
        "└─ pods of no component",
        "├─ Job train  Active  2/2 pods",
        "│  ├─ train-0  Running  on node-a",
        "│  └─ train-1  Failed  on node-b  exit code 137  OOMKilled",
        "   └─ stranger  Running",
        "  queue: queue (the cluster has no Kueue)",
        "not known: the configured limits (ConfigMap appwrapper-operator-config",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
    let report: Value = serde_json::from_str(&world.text("status train -o json").await).unwrap();
    assert_eq!(report["components"][0]["pods"][1]["exitCodes"], json!([137]));
    assert_eq!(report["next"]["inSeconds"], 42);
}

#[tokio::test(start_paused = true)]
async fn limits_come_from_the_configuration_and_the_annotations() {
    let world = World::new();
    let conditions = json!([
        world.condition("ResourcesDeployed", "False", "Resetting", -10),
        world.condition("Unhealthy", "True", "FoundFailedPods", -60),
    ]);
    world.wrapper("Resetting", false, &conditions);
    world.server.create(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "appwrapper-operator-config", "namespace": "appwrapper-system"},
        "data": {"config.yaml": "appwrapper:\n  faultTolerance:\n    resetPause: 30s\n    retryLimit: 7\n"}}));
    let text = world.text("status train").await;
    assert!(text.contains("retries: 1 of 7"), "{text}");
    assert!(text.contains("next: in 20s components are created again"), "{text}");
    let own =
        json!({"metadata": {"annotations": {"workload.codeflare.dev.appwrapper/retryPausePeriodDuration": "15s"}}});
    world.server.patch("appwrappers", "team", "train", &own);
    let text = world.text("status train").await;
    assert!(text.contains("next: in 5s components are created again"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn explain_passes_on_what_kueue_says() {
    let world = World::new();
    world.wrapper("Suspended", true, &json!([]));
    let message =
        "couldn't assign flavors to pod set train: insufficient unused quota for cpu in flavor default, 2 more needed";
    world.workload(
        &json!({"conditions": [{"type": "QuotaReserved", "status": "False", "reason": "Pending",
        "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
    );
    let text = world.text("explain train").await;
    for part in [
        "waits in queue \"queue\" until Kueue admits it",
        message,
        "have the quota raised",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn explain_names_a_missing_right() {
    let world = World::new();
    world.wrapper(
        "Resuming",
        false,
        &json!([world.condition("ResourcesDeployed", "True", "Resuming", -10)]),
    );
    world.server.register(
        ResourceKind::new(
            "authorization.k8s.io",
            "v1",
            "subjectaccessreviews",
            "SubjectAccessReview",
        )
        .cluster_scoped(),
    );
    world.server.faults().add(
        Match::verb(Verb::Create).resource("subjectaccessreviews"),
        Effect::Reply(Arc::new(|request| {
            let mut review = request.body.as_deref().cloned().unwrap_or_default();
            let user = review["spec"]["user"].as_str().unwrap_or_default();
            assert_eq!(
                user,
                "system:serviceaccount:appwrapper-system:appwrapper-controller-manager"
            );
            review["status"] = json!({"allowed": false});
            (201, review)
        })),
    );
    let text = world.text("explain train").await;
    assert!(text.contains("The controller may not create batch/v1:Job"), "{text}");
    assert!(text.contains("workload.codeflare.dev/aggregate-to-manager"), "{text}");
    assert!(text.contains("In 50s creating components is given up"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn explain_sees_a_component_that_is_suspended() {
    let world = World::new();
    world.wrapper(
        "Running",
        false,
        &json!([world.condition("PodsReady", "False", "InsufficientPodsReady", -10)]),
    );
    world.job();
    world
        .server
        .patch("jobs", "team", "train", &json!({"spec": {"suspend": true}}));
    let text = world.text("explain train").await;
    assert!(text.contains("Job train is suspended by its own spec"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_read_is_said_and_no_failure() {
    let world = World::new();
    world.wrapper("Running", false, &json!([]));
    for resource in ["pods", "leases", "events.events.k8s.io", "jobs", "configmaps"] {
        world
            .server
            .faults()
            .add(Match::any().resource(resource), Effect::forbidden());
    }
    let text = world.text("status train").await;
    for unknown in [
        "its pods: ",
        "its events: ",
        "who looks after it",
        "Job train  Unreadable",
    ] {
        assert!(text.contains(unknown), "{unknown:?} in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_appwrapper_that_is_not_there_is_an_error_that_helps() {
    let world = World::new();
    let error = world.error("status nothing").await;
    assert!(
        error.contains("nothing") && error.contains("team") && error.contains("list -A"),
        "{error}"
    );
    assert!(world.error("wait nothing").await.contains("nothing"));
    assert_eq!(world.run("wait nothing --for deleted").await.unwrap().1, 0);
}

#[tokio::test(start_paused = true)]
async fn list_shows_one_row_each() {
    let world = World::new();
    world.wrapper(
        "Failed",
        false,
        &json!([world.condition("Unhealthy", "True", "FailedComponent", -1)]),
    );
    let text = world.text("list -A").await;
    let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row[..8],
        ["team", "train", "Failed", "FailedComponent", "1", "1", "2", "queue"]
    );
    let rows: Value = serde_json::from_str(&world.text("list -o json").await).unwrap();
    assert_eq!(rows[0]["phase"], "Failed");
}

#[tokio::test(start_paused = true)]
async fn wait_ends_when_the_phase_comes_or_cannot_come() {
    let world = World::new();
    world.wrapper("Resuming", false, &json!([]));
    let timed_out = world.run("wait train --for Running --timeout 5s").await.unwrap();
    assert_eq!(timed_out.1, 3);
    let (waited, ()) = tokio::join!(world.run("wait train --for Running --timeout 1h"), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        world
            .server
            .patch_status("appwrappers", "team", "train", &json!({"phase": "Running"}));
    });
    assert_eq!(waited.unwrap().1, 0);
    world
        .server
        .patch_status("appwrappers", "team", "train", &json!({"phase": "Failed"}));
    assert_eq!(world.run("wait train --for Succeeded").await.unwrap().1, 4);
    assert_eq!(
        world.run("wait train").await.unwrap(),
        ("AppWrapper train is Failed\n".to_owned(), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn retry_creates_a_failed_one_anew_and_touches_no_other() {
    let world = World::new();
    world.wrapper("Running", false, &json!([]));
    assert!(
        world
            .error("retry train --yes")
            .await
            .contains("is Running, not Failed")
    );
    world
        .server
        .patch_status("appwrappers", "team", "train", &json!({"phase": "Failed"}));
    assert!(
        world.error("retry train").await.contains("--yes"),
        "no terminal to ask on"
    );
    assert_eq!(
        world.server.get("appwrappers", "team", "train").unwrap()["metadata"]["uid"],
        UID
    );
    world.text("retry train --yes").await;
    let anew = world.server.get("appwrappers", "team", "train").unwrap();
    assert_ne!(anew["metadata"]["uid"], UID);
    assert_eq!(anew["status"]["phase"], Value::Null);
    assert_eq!(anew["spec"]["components"][0]["podSetInfos"], Value::Null);
    assert_eq!(
        anew["metadata"]["labels"],
        json!({"kueue.x-k8s.io/queue-name": "queue"})
    );
    let deletes = Match::verb(Verb::Delete).resource("appwrappers").when(|request| {
        let body = request.body.as_deref().cloned().unwrap_or_default();
        body["preconditions"]["uid"] == UID && body["preconditions"]["resourceVersion"].is_string()
    });
    assert_eq!(world.server.count(&deletes), 1, "only the object that was looked at");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_cannot_create_keeps_the_manifest() {
    let world = World::new();
    world.wrapper("Failed", false, &json!([]));
    world
        .server
        .faults()
        .add(Match::verb(Verb::Create).resource("appwrappers"), Effect::forbidden());
    let error = world.error("retry train --yes").await;
    assert!(
        error.contains("deleted but not created anew") && error.contains("\"parallelism\": 2"),
        "{error}"
    );
}
