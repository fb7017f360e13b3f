//! Bodies, templates and paths that nobody means well with: no panic, always an answer, and no answer that lets them in
//! where a rule forbids it. Limited in time, so that it can run with the other tests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

mod common;

use std::time::{Duration, Instant};

use common::*;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};

/// For each of the tests here.
const TIME: Duration = Duration::from_secs(4);

/// Runs `check` with a webhook and generated values until the time is over.
fn run<T: std::fmt::Debug>(yaml: &str, strategy: impl Strategy<Value = T>, check: impl AsyncFn(&Webhook, T)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let webhook = runtime.block_on(async { Webhook::new(yaml) });
    let mut runner = TestRunner::deterministic();
    let begun = Instant::now();
    let mut cases = 0;
    while begun.elapsed() < TIME {
        runtime.block_on(check(&webhook, strategy.new_tree(&mut runner).unwrap().current()));
        cases += 1;
    }
    assert!(cases > 50, "only {cases} cases in {TIME:?}");
}

/// Any JSON, with the keys that mean something to us among others.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[ -~é]{0,12}".prop_map(Value::from),
        prop_oneof![
            Just("v1"),
            Just("batch/v1"),
            Just("Job"),
            Just("Pod"),
            Just("template"),
            Just("template.spec[0]"),
            Just("AppWrapper"),
            Just("workload.codeflare.dev/v1beta2")
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let key = prop_oneof![
            Just("metadata"),
            Just("spec"),
            Just("components"),
            Just("template"),
            Just("podSets"),
            Just("podSetInfos"),
            Just("path"),
            Just("replicas"),
            Just("labels"),
            Just("annotations"),
            Just("kind"),
            Just("apiVersion"),
            Just("name"),
            Just("generateName"),
            Just("namespace"),
            Just("containers"),
            Just("parallelism"),
            Just("completions"),
            Just("items"),
            Just("replicatedJobs"),
            Just("suspend"),
            Just("managedBy"),
            Just("status"),
            Just("x"),
        ]
        .prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn answered(outcome: &Outcome) {
    assert!(matches!(outcome.code, 200 | 400 | 413), "{outcome:?}");
    if outcome.code == 200 {
        assert!(outcome.response["allowed"].is_boolean(), "{outcome:?}");
        assert!(outcome.message().len() < 5000);
    }
}

#[test]
fn any_object_gets_a_decision_from_both_webhooks() {
    run(
        "",
        (json_value(), json_value(), any::<bool>()),
        async |webhook, (object, old, update)| {
            let operation = if update { "UPDATE" } else { "CREATE" };
            for path in [MUTATE, VALIDATE] {
                answered(&webhook.post(path, review(operation, &user(), &object, &old)).await);
            }
        },
    );
}

#[test]
fn any_template_gets_a_decision() {
    let yaml = "appwrapper:\n  admission:\n    allowedKinds: [\"*\"]\n";
    let pod_sets = prop::collection::vec(("template[.\\[\\]a-z0-9+-]{0,30}", any::<Option<i32>>()), 0..4);
    run(yaml, (json_value(), pod_sets), async |webhook, (template, pod_sets)| {
        let pod_sets: Vec<_> = pod_sets
            .into_iter()
            .map(|(path, replicas)| json!({"path": path, "replicas": replicas}))
            .collect();
        let mut object = wrapper(vec![json!({"template": template, "podSets": pod_sets})]);
        for kind in [
            Value::Null,
            json!(["batch/v1", "Job"]),
            json!(["jobset.x-k8s.io/v1alpha2", "JobSet"]),
            json!(["ray.io/v1", "RayJob"]),
        ] {
            let component = &mut object["spec"]["components"][0]["template"];
            if let (Value::Object(template), [api_version, kind]) =
                (component, kind.as_array().map_or(&[][..], Vec::as_slice))
            {
                template.insert("apiVersion".into(), api_version.clone());
                template.insert("kind".into(), kind.clone());
            }
            answered(&webhook.create(object.clone()).await);
        }
    });
}

#[test]
fn any_bytes_get_a_code() {
    let valid = review("CREATE", &user(), &wrapper(vec![component(pod("p"))]), &Value::Null).into_bytes();
    let noise = prop::collection::vec(any::<u8>(), 0..300);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6);
    run(
        "",
        (noise, damage, any::<prop::sample::Index>()),
        async |webhook, (noise, damage, end)| {
            answered(&webhook.post(VALIDATE, noise).await);
            let mut body = valid.clone();
            for (at, byte) in damage {
                let at = at.index(body.len());
                body[at] = byte;
            }
            answered(&webhook.post(VALIDATE, body.clone()).await);
            body.truncate(end.index(valid.len()));
            answered(&webhook.post(MUTATE, body).await);
        },
    );
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
