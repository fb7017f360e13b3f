//! Reviews through the real service: labels, the access review, updates, limits and failures. The rules are in `rules.rs`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use appwrapper_testkit::api_server::{Effect, Match, Verb};
use common::*;
use http_body_util::Full;
use hyper::{Request, body::Bytes};
use serde_json::{Value, json};

#[tokio::test]
async fn a_plain_appwrapper_is_let_in_with_its_labels() {
    let webhook = Webhook::new("appwrapper:\n  defaultQueueName: team-queue\n");
    let mut object = wrapper(vec![component(pod("p")), component(service("s"))]);
    let mutated = webhook
        .post(MUTATE, review("CREATE", &user(), &object, &Value::Null))
        .await;
    apply(&mut object, &mutated.response);
    let labels = object["metadata"]["labels"].as_object().unwrap();
    assert_eq!(labels["workload.codeflare.dev/user"], "ann");
    assert_eq!(labels["workload.codeflare.dev/userid"], "u-1");
    assert_eq!(labels["kueue.x-k8s.io/queue-name"], "team-queue");
    assert!(
        labels["workload.codeflare.dev/slot"]
            .as_str()
            .is_some_and(|slot| slot.len() == 2)
    );
    assert!(object["spec"].get("suspend").is_none(), "suspend belongs to Kueue");
    let validated = webhook
        .post(VALIDATE, review("CREATE", &user(), &object, &Value::Null))
        .await;
    assert!(validated.allowed(), "{}", validated.text);
    assert_eq!(validated.response["status"]["code"], 200);
    assert_eq!(validated.response["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
}

/// A namespace admin, who may do everything in his namespace, wraps what is not of a namespace.
#[tokio::test]
async fn cluster_scoped_kinds_are_refused_even_to_an_admin_of_the_namespace() {
    let yaml = "appwrapper:\n  admission:\n    allowedKinds: [\"*\"]\n    unsafeAllowPrivilegedKinds: true\n";
    let webhook = Webhook::with_policy(yaml, |spec| spec["resourceAttributes"]["namespace"] == "ns");
    for (api_version, kind) in [
        ("v1", "Namespace"),
        ("v1", "Node"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ] {
        let wrapped = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
        let outcome = webhook
            .create(wrapper(vec![component(pod("p")), component(wrapped)]))
            .await;
        assert_eq!(outcome.fields(), ["spec.components[1].template"]);
        assert!(outcome.message().contains("is cluster-scoped"), "{}", outcome.message());
    }
    for review in webhook.reviews() {
        assert_eq!(
            review["resourceAttributes"]["resource"], "pods",
            "no right is asked for what is refused anyway"
        );
    }
}

#[tokio::test]
async fn rights_are_asked_once_per_kind_with_all_that_is_known_of_the_user() {
    let webhook = Webhook::with_policy("", |spec| {
        // Rights through a group only, or through an extra only.
        let groups = spec["groups"].as_array().cloned().unwrap_or_default();
        groups.contains(&json!("team")) || spec["extra"]["scopes"] == json!(["job-runner"])
    });
    let object = wrapper(vec![
        component(pod("p")),
        component(job("j")),
        component(pod("q")),
        component(service("s")),
    ]);
    assert!(webhook.create(object.clone()).await.allowed());
    let mut reviews = webhook.reviews();
    reviews.sort_by_key(ToString::to_string);
    let attributes: Vec<_> = reviews
        .iter()
        .map(|review| review["resourceAttributes"].clone())
        .collect();
    let asked = |group: &str, resource: &str| json!({"namespace": "ns", "verb": "create", "group": group, "version": "v1", "resource": resource});
    assert_eq!(
        attributes,
        [asked("", "pods"), asked("", "services"), asked("batch", "jobs")]
    );
    for review in &reviews {
        assert_eq!(review["user"], "ann");
        assert_eq!(review["uid"], "u-1");
        assert_eq!(review["groups"], json!(["team", "system:authenticated"]));
        assert_eq!(review["extra"], json!({"scopes": ["all"]}));
    }
    let extra_only = json!({"username": "bob", "extra": {"scopes": ["job-runner"]}});
    assert!(webhook.create_as(&extra_only, object.clone()).await.allowed());
    let nobody = json!({"username": "eve", "groups": ["others"]});
    let refused = webhook.create_as(&nobody, object).await;
    assert_eq!(
        refused.fields(),
        (0..4)
            .map(|i| format!("spec.components[{i}].template"))
            .collect::<Vec<_>>(),
    );
    assert!(
        refused
            .message()
            .contains("User eve is not authorized to create jobs.batch in ns"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn without_the_check_no_right_is_asked_but_scope_still_counts() {
    let webhook = Webhook::with_policy(
        "appwrapper:\n  userRBACAdmissionCheck: false\n  admission:\n    allowedKinds: [Pod, Namespace]\n",
        |_| false,
    );
    assert!(webhook.create(wrapper(vec![component(pod("p"))])).await.allowed());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
    assert!(
        !webhook
            .create(wrapper(vec![component(pod("p")), component(namespace)]))
            .await
            .allowed()
    );
    assert!(webhook.reviews().is_empty());
}

#[tokio::test]
async fn three_hundred_components_are_one_review_per_kind_and_in_time() {
    let webhook = Webhook::new("");
    let mut components: Vec<_> = (0..294).map(|i| component(service(&format!("s{i}")))).collect();
    components.extend((0..6).map(|i| component(pod(&format!("p{i}")))));
    let begun = std::time::Instant::now();
    let outcome = webhook.create(wrapper(components)).await;
    assert!(outcome.allowed(), "{}", outcome.message());
    assert_eq!(webhook.reviews().len(), 2);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn far_too_many_components_are_refused_without_being_looked_at() {
    let webhook = Webhook::new("");
    let outcome = webhook
        .create(wrapper(
            (0..10_000).map(|i| component(service(&format!("s{i}")))).collect(),
        ))
        .await;
    assert_eq!(outcome.fields(), ["spec.components"]);
    assert!(
        outcome.message().contains("10000 components; at most 500"),
        "{}",
        outcome.message()
    );
    assert!(webhook.server.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_silent_api_server_costs_a_retryable_refusal_before_the_callers_limit() {
    for (hang, silent_reviews) in [
        (Match::verb(Verb::Create).resource(SARS), 2),
        (Match::verb(Verb::Other), 0),
    ] {
        let webhook = Webhook::new("");
        webhook.policy.remove();
        webhook.server.faults().add(hang, Effect::Hang);
        let mut object = wrapper(vec![component(pod("p")), component(job("j"))]);
        let mutated = webhook
            .post(MUTATE, review("CREATE", &user(), &object, &Value::Null))
            .await;
        apply(&mut object, &mutated.response);
        let begun = tokio::time::Instant::now();
        let body = review("CREATE", &user(), &object, &Value::Null);
        let outcome = webhook.post(&format!("{VALIDATE}?timeout=3s"), body).await;
        let took = begun.elapsed();
        assert!(
            took > Duration::from_secs(2) && took < Duration::from_secs(3),
            "{took:?}"
        );
        assert_eq!(
            outcome.fields(),
            ["spec.components[0].template", "spec.components[1].template"]
        );
        assert!(
            outcome.message().contains("could not check in time"),
            "{}",
            outcome.message()
        );
        assert_eq!(outcome.response["status"]["code"], 503);
        assert_eq!(outcome.response["status"]["details"]["retryAfterSeconds"], 1);
        let page = webhook.metrics.registry().encode().unwrap();
        let counted = format!("appwrapper_webhook_access_reviews_total{{result=\"error\"}} {silent_reviews}\n");
        assert!(page.contains(&counted), "{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_api_server_is_told_apart_from_a_missing_right_and_passes() {
    for (broken, told) in [
        (Match::verb(Verb::Create).resource(SARS), "the access review failed"),
        (Match::verb(Verb::Other), "discovery failed"),
    ] {
        for effect in [
            Effect::internal_error(),
            Effect::Refuse,
            Effect::Undecodable,
            Effect::too_many_requests(),
        ] {
            let webhook = Webhook::new("");
            webhook.policy.remove();
            let fault = webhook.server.faults().add(broken.clone(), effect);
            let outcome = webhook.create(wrapper(vec![component(pod("p"))])).await;
            assert!(
                outcome.message().contains("could not check") && outcome.message().contains(told),
                "{}",
                outcome.message()
            );
            assert!(!outcome.message().contains("not authorized"));
            assert_eq!(outcome.response["status"]["code"], 503);
            fault.remove();
            webhook.server.faults().add(
                Match::verb(Verb::Create).resource(SARS),
                Effect::reply(|_| (201, json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {}, "status": {"allowed": true}}))),
            );
            assert!(webhook.create(wrapper(vec![component(pod("p"))])).await.allowed());
        }
    }
    // A fault of the object is told for what it is, whatever else fails.
    let webhook = Webhook::new("");
    webhook.server.faults().clear();
    webhook
        .server
        .faults()
        .add(Match::verb(Verb::Create), Effect::internal_error());
    let outcome = webhook
        .create(wrapper(vec![component(pod("p")), component(pod("p"))]))
        .await;
    assert_eq!(outcome.response["status"]["code"], 403);
}

#[tokio::test]
async fn a_kind_that_is_not_served_is_refused_and_never_asked_for_as_a_star() {
    let yaml = "appwrapper:\n  admission:\n    allowedKinds: [\"*\"]\n";
    let webhook = Webhook::new(yaml);
    let gadget = json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}});
    let outcome = webhook
        .create(wrapper(vec![component(pod("p")), component(gadget)]))
        .await;
    assert!(
        outcome.message().contains("serves no kind Gadget"),
        "{}",
        outcome.message()
    );
    // A kind of our own table may come before its definition: its right is asked for by its proper name.
    webhook.server.unregister("rayclusters");
    let ray = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": {
        "headGroupSpec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}});
    let outcome = webhook.create(wrapper(vec![component(ray)])).await;
    assert!(outcome.allowed(), "{}", outcome.message());
    assert!(outcome.warnings()[0].contains("does not serve kind RayCluster"));
    for review in webhook.reviews() {
        assert_ne!(review["resourceAttributes"]["resource"], "*");
    }
}

#[tokio::test]
async fn forged_labels_do_not_survive_creation_and_are_refused_without_the_mutating_webhook() {
    let webhook = Webhook::new("");
    let mut forged = wrapper(vec![component(pod("p"))]);
    forged["metadata"]["labels"] = json!({
        "workload.codeflare.dev/user": "root", "workload.codeflare.dev/userid": "0", "workload.codeflare.dev/slot": "3f",
    });
    assert!(webhook.create(forged.clone()).await.allowed(), "they are overwritten");
    let refused = webhook
        .post(VALIDATE, review("CREATE", &user(), &forged, &Value::Null))
        .await;
    assert_eq!(
        refused.fields(),
        [
            "metadata.labels[workload.codeflare.dev/user]",
            "metadata.labels[workload.codeflare.dev/userid]"
        ]
    );
    let bare = wrapper(vec![component(pod("p"))]);
    let refused = webhook
        .post(VALIDATE, review("CREATE", &user(), &bare, &Value::Null))
        .await;
    assert_eq!(refused.fields().len(), 3, "{}", refused.message());
}

#[tokio::test]
async fn strange_users_can_create_too() {
    let webhook = Webhook::new("");
    for username in [
        "system:serviceaccount:a:b",
        &"x".repeat(100),
        &"é".repeat(50),
        "---",
        "",
    ] {
        let strange = json!({"username": username, "uid": ""});
        let outcome = webhook.create_as(&strange, wrapper(vec![component(pod("p"))])).await;
        assert!(outcome.allowed(), "{username}: {}", outcome.message());
    }
}

#[tokio::test]
async fn doubtful_things_are_warned_of() {
    let webhook = Webhook::new("");
    let mut object = wrapper(vec![component(pod("p"))]);
    object["metadata"]["annotations"] = json!({"workload.codeflare.dev.appwrapper/successTTLDuration": "300h"});
    let outcome = webhook.create(object).await;
    assert!(outcome.allowed());
    assert_eq!(outcome.warnings().len(), 1, "{:?}", outcome.warnings());
}

#[tokio::test]
async fn an_update_changes_what_it_may_and_nothing_else() {
    let webhook = Webhook::new("");
    let mut old = wrapper(vec![component(job("j"))]);
    old["metadata"]["labels"] = json!({"workload.codeflare.dev/user": "ann", "workload.codeflare.dev/slot": "01"});
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!(["workload.codeflare.dev/finalizer"]);
    new["spec"]["suspend"] = true.into();
    assert!(webhook.update(&old, &new).await.allowed());
    new["spec"]["components"][0]["template"]["spec"]["parallelism"] = 2.into();
    new["metadata"]["labels"]["workload.codeflare.dev/user"] = "eve".into();
    let refused = webhook.update(&old, &new).await;
    assert_eq!(
        refused.fields(),
        [
            "spec.components[0].template.raw",
            "metadata.labels[workload.codeflare.dev/user]"
        ]
    );
    assert!(webhook.reviews().is_empty(), "an update asks for no rights");
    // What an older webhook let in can still lose its finalizer.
    let strange = wrapper(vec![component(
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}),
    )]);
    assert!(webhook.update(&strange, &strange).await.allowed());
}

#[tokio::test]
async fn an_old_object_that_cannot_be_taken_apart_can_still_lose_its_finalizer() {
    let webhook = Webhook::new("");
    let deep = |finalizers: &str| {
        let depth = 5000;
        format!(
            r#"{{"metadata":{{"name":"a","finalizers":{finalizers}}},"spec":{{"components":[{{"template":{}1{}}}]}}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    let body = |old: &str, new: &str| {
        let body = review("UPDATE", &user(), &json!("@new"), &json!("@old"));
        body.replace("\"@old\"", old).replace("\"@new\"", new)
    };
    let (old, new) = (deep(r#"["workload.codeflare.dev/finalizer"]"#), deep("[]"));
    let outcome = webhook.post(VALIDATE, body(&old, &new)).await;
    assert!(outcome.allowed(), "{}", outcome.message());
    let changed = new.replace("[1]", "[2]");
    assert!(!webhook.post(VALIDATE, body(&old, &changed)).await.allowed());
    let labelled = new.replace(
        "\"name\":\"a\"",
        "\"name\":\"a\",\"labels\":{\"workload.codeflare.dev/user\":\"eve\"}",
    );
    let refused = webhook.post(VALIDATE, body(&old, &labelled)).await;
    assert_eq!(refused.fields(), ["metadata.labels[workload.codeflare.dev/user]"]);
}

#[tokio::test]
async fn deletion_and_subresources_pass() {
    let webhook = Webhook::new("");
    for path in [MUTATE, VALIDATE] {
        let outcome = webhook
            .post(path, review("DELETE", &user(), &Value::Null, &wrapper(vec![])))
            .await;
        assert!(outcome.allowed(), "{}", outcome.text);
        assert!(outcome.response.get("patch").is_none());
    }
}

#[tokio::test]
async fn what_is_no_review_gets_a_code_and_no_decision() {
    let webhook = Webhook::new("");
    for body in ["", "{", "[]", "null", "{}", "\u{0}"] {
        assert_eq!(webhook.post(VALIDATE, body).await.code, 400, "{body:?}");
    }
    let large = vec![b' '; 8 * 1024 * 1024 + 1];
    assert_eq!(webhook.post(VALIDATE, large).await.code, 413);
    assert_eq!(webhook.post("/", "{}").await.code, 404);
    let get = Request::get(VALIDATE).body(Full::new(Bytes::new())).unwrap();
    assert_eq!(webhook.send(get).await.code, 405);
    let untyped = Request::post(VALIDATE).body(Full::new(Bytes::from("{}"))).unwrap();
    assert_eq!(webhook.send(untyped).await.code, 400);
    let page = webhook.metrics.registry().encode().unwrap();
    assert!(page.contains(&format!("requests_total{{code=\"413\",webhook=\"{VALIDATE}\"}} 1\n")));
    assert!(page.contains("controller_runtime_webhook_panics_total 0\n"));
}

#[tokio::test]
async fn decisions_are_counted_by_rule() {
    let webhook = Webhook::new("");
    webhook.create(wrapper(vec![component(pod("p"))])).await;
    webhook.create(wrapper(vec![component(service("s"))])).await;
    let page = webhook.metrics.registry().encode().unwrap();
    for (decision, reason) in [("allowed", "accepted"), ("denied", "pod_sets")] {
        let series = format!(
            "appwrapper_webhook_decisions_total{{decision=\"{decision}\",operation=\"CREATE\",reason=\"{reason}\",webhook=\"{VALIDATE}\"}} 1\n"
        );
        assert!(page.contains(&series), "{series}");
    }
}

#[tokio::test]
async fn a_draining_replica_answers_and_asks_for_a_new_connection() {
    let webhook = Webhook::new("");
    assert!(!webhook.create(wrapper(vec![component(pod("p"))])).await.close);
    webhook.service.drain();
    let outcome = webhook.create(wrapper(vec![component(pod("p"))])).await;
    assert!(outcome.allowed() && outcome.close);
}
