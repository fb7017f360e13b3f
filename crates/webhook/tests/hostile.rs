//! Reviews that nobody means well with: always an answer, in time, and no answer that lets them in where a rule forbids it.
//! What is made at random is in `fuzz.rs`, what takes a network in `neighbours.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

mod common;

use std::time::{Duration, Instant};

use common::*;
use rstest::rstest;
use serde_json::{Value, json};

fn answered(outcome: &Outcome) {
    assert!(matches!(outcome.code, 200 | 400 | 413), "{outcome:?}");
    if outcome.code == 200 {
        assert!(outcome.response["allowed"].is_boolean(), "{outcome:?}");
        assert!(outcome.message().len() < 5000);
    }
}

#[tokio::test]
async fn depth_and_length_are_bounded() {
    let webhook = Webhook::new("");
    for depth in [60, 200, 10_000, 300_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            let object = wrapper(vec![component(pod("p"))])
                .to_string()
                .replace("\"image\":\"i\"", &format!("\"image\":{deep}"));
            let body = review("CREATE", &user(), &json!("@"), &Value::Null).replace("\"@\"", &object);
            let outcome = webhook.post(VALIDATE, body).await;
            answered(&outcome);
            assert!(!outcome.allowed(), "{depth}");
        }
    }
    let path = format!("template{}", "[0]".repeat(100_000));
    let object = wrapper(vec![json!({"template": pod("p"), "podSets": [{"path": path}]})]);
    let outcome = webhook.create(object).await;
    assert!(
        outcome.message().contains("300008 bytes; at most 1024"),
        "{}",
        outcome.message()
    );
    // Many declared pod sets that all point to one large template must not be multiplied.
    let mut large = pod("p");
    large["spec"]["containers"] = (0..2000)
        .map(|i| json!({"name": format!("c{i}"), "image": "i"}))
        .collect();
    let pod_sets: Vec<_> = (0..20_000).map(|_| json!({"path": "template"})).collect();
    let begun = Instant::now();
    let outcome = webhook
        .create(wrapper(vec![json!({"template": large, "podSets": pod_sets})]))
        .await;
    assert!(
        !outcome.allowed() && begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
}

/// What would be let in or passed over if it were read in any other way than the API server reads it.
#[rstest]
#[case::core_in_disguise("/v1", "Pod", "is no API version; write v1 or group/v1")]
#[case::no_version("apps/", "Deployment", "is no API version")]
#[case::two_groups("a/b/v1", "Pod", "is no API version")]
#[case::upper_case("Batch/v1", "Job", "is no API version")]
#[case::upper_case_privileged("RBAC.authorization.k8s.io/v1", "RoleBinding", "is no API version")]
#[case::leaving_the_path("apps/../../v1", "Pod", "is no API version")]
#[case::other_letters("bаtch/v1", "Job", "is no API version")]
#[case::subresource("v1", "Pod/exec", "the cluster serves no kind Pod/exec")]
#[case::case_of_the_kind("v1", "pod", "the cluster serves no kind pod")]
#[case::list("v1", "List", "is a list")]
#[case::list_of_pods("v1", "PodList", "is a list")]
#[tokio::test]
async fn a_type_is_what_it_says_or_refused(#[case] api_version: &str, #[case] kind: &str, #[case] told: &str) {
    let webhook = Webhook::new("appwrapper:\n  admission:\n    allowedKinds: [\"*\"]\n");
    let mut template = pod("p");
    template["apiVersion"] = api_version.into();
    template["kind"] = kind.into();
    if kind.ends_with("List") {
        template["items"] = json!([pod("q")]);
    }
    let outcome = webhook
        .create(wrapper(vec![component(pod("other")), component(template)]))
        .await;
    assert!(!outcome.allowed(), "{outcome:?}");
    assert!(outcome.message().contains(told), "{}", outcome.message());
    assert!(
        outcome
            .fields()
            .iter()
            .all(|field| field.starts_with("spec.components[1].template")),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_request_from_nobody_or_nowhere_is_not_let_in() {
    let webhook = Webhook::with_policy("", |spec| spec["user"] != "");
    let object = wrapper(vec![component(pod("p"))]);
    assert!(!webhook.create_as(&json!({}), object.clone()).await.allowed());
    assert!(
        !webhook
            .create_as(&json!({"username": "", "groups": ["team"]}), object.clone())
            .await
            .allowed()
    );
    let body = review("CREATE", &user(), &object, &Value::Null);
    for (good, bad) in [
        ("\"namespace\":\"ns\",\"object\"", "\"namespace\":\"\",\"object\""),
        ("\"CREATE\"", "\"create\""),
        ("\"CREATE\"", "\"\""),
        ("admission.k8s.io/v1", "admission.k8s.io/v1beta1"),
        (
            "\"group\":\"workload.codeflare.dev\"",
            "\"group\":\"WORKLOAD.codeflare.dev\"",
        ),
    ] {
        let changed = body.replace(good, bad);
        assert_ne!(changed, body, "{good}");
        for path in [MUTATE, VALIDATE] {
            let outcome = webhook.post(path, changed.clone()).await;
            assert_eq!(outcome.code, 400, "{bad}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_dry_run_is_judged_like_any_other() {
    let webhook = Webhook::new("");
    let mut nested = wrapper(vec![component(wrapper(vec![]))]);
    nested["metadata"]["name"] = json!(null);
    nested["metadata"]["generateName"] = "a-".into();
    let body = review("CREATE", &user(), &nested, &Value::Null).replace("\"dryRun\":false", "\"dryRun\":true");
    assert!(!webhook.post(VALIDATE, body).await.allowed());
}

/// The panic of one request is counted, costs that request alone, and is no answer that lets anything in.
#[tokio::test]
async fn a_panic_is_answered_and_counted() {
    let webhook = Webhook::new("");
    let body = http_body_util::StreamBody::new(futures::stream::poll_fn(
        |_| -> std::task::Poll<Option<Result<hyper::body::Frame<hyper::body::Bytes>, std::convert::Infallible>>> {
            panic!("this test's own panic")
        },
    ));
    let request = hyper::Request::post(VALIDATE)
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    assert_eq!(webhook.service.answer(request).await.status(), 500);
    let page = webhook.metrics.registry().encode().unwrap();
    assert!(page.contains("controller_runtime_webhook_panics_total 1\n"), "{page}");
    assert!(webhook.create(wrapper(vec![component(pod("p"))])).await.allowed());
}
