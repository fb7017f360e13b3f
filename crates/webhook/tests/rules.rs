//! Every rule of creation with a right and a wrong case, through the real service.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::*;
use serde_json::{Value, json};

/// Rules of a new AppWrapper: what is wrong, and the fields that the refusal must name, exactly.
#[tokio::test]
async fn every_rule_of_creation_names_its_field() {
    let with = |mut template: Value, path: &str, value: Value| {
        *pointer(&mut template, path) = value;
        template
    };
    let declared = |template: Value, pod_sets: Value| json!({"template": template, "podSets": pod_sets});
    let named = |name: &str, object: Value| with(object, "/metadata/name", json!(name));
    let cases: Vec<(&str, Value, &[&str])> = vec![
        ("no components", wrapper(vec![]), &["spec.components"]),
        (
            "only a Service",
            wrapper(vec![component(service("s"))]),
            &["spec.components"],
        ),
        (
            "nine pods",
            wrapper((0..9).map(|i| component(pod(&format!("p{i}")))).collect()),
            &["spec.components"],
        ),
        (
            "no object",
            wrapper(vec![component(json!("x")), component(pod("p"))]),
            &["spec.components[0].template"],
        ),
        (
            "no kind",
            wrapper(vec![component(json!({"apiVersion": "v1"})), component(pod("p"))]),
            &["spec.components[0].template"],
        ),
        (
            "nested",
            wrapper(vec![
                component(pod("p")),
                component(named("n", wrapper(vec![component(pod("q"))]))),
            ]),
            &["spec.components[1].template"],
        ),
        (
            "nested, other version",
            wrapper(vec![
                component(pod("p")),
                component(
                    json!({"apiVersion": "workload.codeflare.dev/v2", "kind": "AppWrapper", "metadata": {"name": "x"}}),
                ),
            ]),
            &["spec.components[1].template"],
        ),
        (
            "a list",
            wrapper(vec![
                component(pod("p")),
                component(json!({"apiVersion": "v1", "kind": "List", "metadata": {"name": "l"}, "items": [pod("q")]})),
            ]),
            &["spec.components[1].template"],
        ),
        (
            "other namespace",
            wrapper(vec![component(with(pod("p"), "/metadata/namespace", json!("other")))]),
            &["spec.components[0].template.metadata.namespace"],
        ),
        (
            "no name",
            wrapper(vec![component(with(pod("p"), "/metadata/name", json!("")))]),
            &["spec.components[0].template.metadata"],
        ),
        (
            "owner",
            wrapper(vec![component(with(
                pod("p"),
                "/metadata/ownerReferences",
                json!([{"uid": "x", "kind": "Pod", "name": "q", "apiVersion": "v1"}]),
            ))]),
            &["spec.components[0].template.metadata.ownerReferences"],
        ),
        (
            "finalizer",
            wrapper(vec![component(with(pod("p"), "/metadata/finalizers", json!(["x/y"])))]),
            &["spec.components[0].template.metadata.finalizers"],
        ),
        (
            "status",
            wrapper(vec![component(with(pod("p"), "/status", json!({"phase": "Running"})))]),
            &["spec.components[0].template.status"],
        ),
        (
            "somebody's label",
            wrapper(vec![component(with(
                pod("p"),
                "/metadata/labels",
                json!({"workload.codeflare.dev/appwrapper": "b"}),
            ))]),
            &["spec.components[0].template.metadata.labels[workload.codeflare.dev/appwrapper]"],
        ),
        (
            "somebody's label on pods",
            wrapper(vec![component(with(
                job("j"),
                "/spec/template/metadata",
                json!({"labels": {"workload.codeflare.dev/appwrapper": "b"}}),
            ))]),
            &["spec.components[0].template.spec.template.metadata.labels[workload.codeflare.dev/appwrapper]"],
        ),
        (
            "twice",
            wrapper(vec![component(pod("p")), component(pod("p"))]),
            &["spec.components[1].template.metadata.name"],
        ),
        (
            "RBAC",
            wrapper(vec![
                component(pod("p")),
                component(
                    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "r"}}),
                ),
            ]),
            &["spec.components[1].template"],
        ),
        (
            "not on the list",
            wrapper(vec![
                component(pod("p")),
                component(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})),
            ]),
            &["spec.components[1].template"],
        ),
        (
            "no path",
            wrapper(vec![declared(pod("p"), json!([{"path": ""}]))]),
            &[
                "spec.components[0].podSets[0].path",
                "spec.components[0].podSets[0].path",
                "spec.components[0].podSets",
            ],
        ),
        (
            "no pod template",
            wrapper(vec![declared(service("s"), json!([{"path": "template.metadata"}]))]),
            &["spec.components[0].podSets[0].path"],
        ),
        (
            "missing field",
            wrapper(vec![declared(service("s"), json!([{"path": "template.spec.tmpl"}]))]),
            &["spec.components[0].podSets[0].path"],
        ),
        (
            "index of a map",
            wrapper(vec![declared(service("s"), json!([{"path": "template.spec[0]"}]))]),
            &["spec.components[0].podSets[0].path"],
        ),
        (
            "index out of range",
            wrapper(vec![declared(
                service("s"),
                json!([{"path": "template.spec.ports[1]"}]),
            )]),
            &["spec.components[0].podSets[0].path"],
        ),
        (
            "negative replicas",
            wrapper(vec![declared(
                with(service("s"), "/spec", json!({"spec": {"containers": []}})),
                json!([{"path": "template.spec", "replicas": -1}]),
            )]),
            &["spec.components[0].podSets[0].replicas"],
        ),
        (
            "declared twice",
            wrapper(vec![declared(
                pod("p"),
                json!([{"path": "template"}, {"path": "template"}]),
            )]),
            &["spec.components[0].podSets"],
        ),
        (
            "count differs",
            wrapper(vec![declared(
                job("j"),
                json!([{"path": "template.spec.template"}, {"path": "template.spec.template"}]),
            )]),
            &["spec.components[0].podSets"],
        ),
        (
            "replicas differ",
            wrapper(vec![declared(
                job("j"),
                json!([{"path": "template.spec.template", "replicas": 2}]),
            )]),
            &["spec.components[0].podSets"],
        ),
        (
            "cannot be inferred",
            wrapper(vec![component(with(job("j"), "/spec/template/spec/bogus", json!(1)))]),
            &["spec.components[0].template", "spec.components"],
        ),
        (
            "overflow",
            wrapper(vec![component(
                json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}, "spec": {"replicatedJobs": [
            {"replicas": 65_536, "template": {"spec": {"parallelism": 65_536, "template": {"spec": {"containers": []}}}}}]}}),
            )]),
            &["spec.components[0].template", "spec.components"],
        ),
        (
            "a long name",
            {
                let mut long = wrapper(vec![component(pod("p"))]);
                long["metadata"]["name"] = "a".repeat(64).into();
                long
            },
            &["metadata.name"],
        ),
    ];
    let webhook = Webhook::new("");
    for (case, object, fields) in cases {
        let outcome = webhook.create(object).await;
        assert!(!outcome.allowed(), "{case}: {}", outcome.text);
        assert_eq!(outcome.fields(), fields, "{case}: {}", outcome.message());
        assert_eq!(outcome.response["status"]["code"], 403, "{case}");
        assert_eq!(outcome.response["status"]["reason"], "Forbidden", "{case}");
        let longest = outcome.message().len() / fields.len();
        assert!(
            longest < 420,
            "{case}: {} bytes a fault: {}",
            longest,
            outcome.message()
        );
    }
}

fn pointer<'a>(value: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('/').skip(1).fold(value, |value, key| {
        value.as_object_mut().unwrap().entry(key).or_insert(json!({}))
    })
}

#[tokio::test]
async fn right_cases_pass_without_a_word() {
    let mut named = pod("p");
    named["metadata"]["namespace"] = "ns".into();
    let declared = json!({"template": job("j"), "podSets": [{"path": "template.spec.template"}]});
    let mut generated = job("x");
    generated["metadata"] = json!({"generateName": "x-", "creationTimestamp": null});
    generated["status"] = json!({});
    let mut two_indices =
        json!({"template": service("lists"), "podSets": [{"path": "template.spec.list[1].tpl", "replicas": 2}]});
    two_indices["template"]["spec"]["list"] = json!([{}, {"tpl": {"spec": {"containers": [{"name": "c"}]}}}]);
    let webhook = Webhook::new("");
    for object in [
        wrapper(vec![component(pod("p"))]),
        wrapper(vec![component(named), component(service("s"))]),
        wrapper(vec![declared]),
        wrapper(vec![component(generated.clone()), component(generated)]),
        wrapper(vec![component(service("s")), two_indices]),
        wrapper((0..8).map(|i| component(pod(&format!("p{i}")))).collect()),
    ] {
        let outcome = webhook.create(object).await;
        assert!(outcome.allowed(), "{}", outcome.message());
        assert_eq!(outcome.warnings(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_limit_of_pod_sets_is_configured_and_named() {
    let pods = |count: usize| wrapper((0..count).map(|i| component(pod(&format!("p{i}")))).collect());
    for (yaml, limit) in [("", 8), ("appwrapper:\n  admission:\n    maxPodSets: 18\n", 18)] {
        let webhook = Webhook::new(yaml);
        assert!(webhook.create(pods(limit)).await.allowed());
        let refused = webhook.create(pods(limit + 1)).await;
        let count = format!(
            "contains {} podspecs; at most {limit} are allowed (appwrapper.admission.maxPodSets",
            limit + 1
        );
        assert!(refused.message().contains(&count), "{}", refused.message());
    }
}

#[tokio::test]
async fn the_list_of_kinds_is_configured_and_named() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let object = wrapper(vec![component(pod("p")), component(secret)]);
    let refused = Webhook::new("").create(object.clone()).await;
    assert!(
        refused.message().contains("appwrapper.admission.allowedKinds"),
        "{}",
        refused.message()
    );
    let webhook = Webhook::new("appwrapper:\n  admission:\n    allowedKinds: [Pod, Secret]\n");
    assert!(webhook.create(object).await.allowed());
    assert!(!webhook.create(wrapper(vec![component(job("j"))])).await.allowed());
}
