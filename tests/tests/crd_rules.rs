//! What the CustomResourceDefinition refuses by itself, on a real API server without any webhook, and what it must not
//! stand in the way of: whatever the Go controller accepts, and objects that are older than the rules.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "tests"
)]

use appwrapper_api::crd;
use appwrapper_testkit::cluster::apply::apply_yaml;
use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Error};
use serde_json::{Value, json};

const RULES: &str = "x-kubernetes-validations";

fn pod(name: &str) -> Value {
    json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {}}})
}

fn config_map(index: usize) -> Value {
    json!({"template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c-{index}")}}})
}

fn nested(api_version: &str) -> Value {
    json!({"template": {"apiVersion": api_version, "kind": "AppWrapper", "metadata": {"name": "inner"}}})
}

/// A component that declares so many pod sets.
fn declaring(count: usize) -> Value {
    let mut component = pod("p");
    component["podSets"] = (0..count)
        .map(|index| json!({"path": format!("template.pods[{index}]")}))
        .collect();
    component
}

fn wrapper(name: &str, spec: Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

fn with(name: &str, components: Vec<Value>) -> DynamicObject {
    wrapper(name, json!({"components": components}))
}

fn appwrappers(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("workload.codeflare.dev", "v1beta2", "AppWrapper");
    Api::namespaced_with(client.clone(), "default", &ApiResource::from_gvk(&kind))
}

/// The definition as of before there were rules.
fn without_rules(node: &mut Value) {
    match node {
        Value::Object(fields) => {
            fields.remove(RULES);
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

async fn refusal(answer: impl Future<Output = kube::Result<DynamicObject>>, case: &str) -> String {
    match answer.await {
        Err(Error::Api(status)) if status.code == 422 => status.message,
        other => panic!("{case}: {other:?}"),
    }
}

/// Applies a definition, and waits until the API server goes by it, of which `holds` is the sign.
async fn define(client: &Client, definition: &Value, holds: impl AsyncFn(&Api<DynamicObject>) -> bool) {
    apply_yaml(client, &definition.to_string()).await.unwrap();
    let api = appwrappers(client);
    for _ in 0..200 {
        if holds(&api).await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the API server does not go by the definition after ten seconds");
}

async fn is_accepted(api: &Api<DynamicObject>, object: &DynamicObject) -> kube::Result<DynamicObject> {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    api.create(&dry, object).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_definition_refuses_by_itself_what_no_webhook_would_let_in() {
    let cluster = Cluster::start(ClusterOptions::unique("crd-rules").nodes(0, 0))
        .await
        .unwrap();
    let client = cluster.client();
    let api = appwrappers(&client);
    let long = "n".repeat(64);

    // Objects that are older than the rules.
    let mut bare = crd::manifest();
    without_rules(&mut bare);
    define(&client, &bare, async |api| {
        is_accepted(api, &with("probe", vec![])).await.is_ok()
    })
    .await;
    let old = [
        with("empty", vec![]),
        with(&long, vec![pod("p")]),
        with("nested", vec![pod("p"), nested("workload.codeflare.dev/v1beta2")]),
        with("pod-sets", vec![declaring(19)]),
    ];
    for object in &old {
        api.create(&PostParams::default(), object).await.unwrap();
    }

    let definition = crd::manifest();
    define(&client, &definition, async |api| {
        is_accepted(api, &with("probe", vec![])).await.is_err()
    })
    .await;

    for (case, object) in [
        ("one", with("a", vec![pod("p")])),
        ("63", with(&"n".repeat(63), vec![pod("p")])),
        (
            "nested in another version",
            with("a", vec![nested("workload.codeflare.dev/v1")]),
        ),
        (
            "an AppWrapper of another group",
            with("a", vec![nested("example.com/v1beta2")]),
        ),
        ("18", with("a", vec![declaring(9), pod("q"), declaring(9)])),
        (
            "without a name",
            with("a", vec![json!({"template": {"apiVersion": "v1", "kind": "Pod"}})]),
        ),
        // As large as an object can be: the cost of a rule is limited too.
        ("many", with("a", (0..15_000).map(config_map).collect())),
    ] {
        if let Err(error) = is_accepted(&api, &object).await {
            panic!("{case}: {:.500}", error.to_string());
        }
    }
    for (case, object, told) in [
        ("none", with("a", vec![]), "spec.components: Invalid value"),
        (
            "64",
            with(&long[..], vec![pod("p")]),
            "metadata.name labels every component and may have at most 63",
        ),
        (
            "nested",
            with("a", vec![pod("p"), nested("workload.codeflare.dev/v1beta2")]),
            "spec.components[1].template: Forbidden: Nested AppWrappers are forbidden",
        ),
        (
            "19",
            with("a", vec![declaring(10), declaring(9)]),
            "spec.components: Invalid value",
        ),
    ] {
        let refused = refusal(is_accepted(&api, &object), case).await;
        assert!(refused.contains(told), "{case}: {refused}");
    }

    changes(&api).await;

    // Older objects go on to their ends: status, finalizer, suspension.
    for object in &old {
        let name = object.metadata.name.as_deref().unwrap();
        let params = PatchParams::default();
        let status = Patch::Merge(json!({"status": {"phase": "Failed"}}));
        api.patch_status(name, &params, &status).await.unwrap();
        for patch in [
            json!({"metadata": {"finalizers": ["workload.codeflare.dev/finalizer"]}}),
            json!({"spec": {"suspend": true}}),
            json!({"metadata": {"finalizers": null}}),
        ] {
            api.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
        }
    }
    cluster.stop().await.unwrap();
}

/// What may not change, without a webhook that says so.
async fn changes(api: &Api<DynamicObject>) {
    let own = "workload.codeflare.dev/appwrapper";
    let managed = |name: &str, manager: Value| wrapper(name, json!({"components": [pod("p")], "managedBy": manager}));
    api.create(&PostParams::default(), &managed("managed", json!(own)))
        .await
        .unwrap();
    api.create(&PostParams::default(), &with("unmanaged", vec![pod("p")]))
        .await
        .unwrap();
    let change = async |name: &str, spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        api.patch(name, &PatchParams::default(), &patch).await
    };
    for (name, spec, field) in [
        ("managed", json!({"managedBy": "example.com/other"}), "spec.managedBy"),
        ("managed", json!({"managedBy": null}), "spec.managedBy"),
        ("unmanaged", json!({"managedBy": ""}), "spec.managedBy"),
        (
            "unmanaged",
            json!({"components": [pod("p"), pod("q")]}),
            "spec.components",
        ),
    ] {
        let case = spec.to_string();
        let refused = refusal(change(name, spec), &case).await;
        let told = format!("{field}: Forbidden: attempt to change immutable field");
        assert!(refused.contains(&told), "{case}: {refused}");
    }
    for (name, spec) in [
        ("managed", json!({"managedBy": own, "suspend": true})),
        ("managed", json!({"suspend": null})),
        ("unmanaged", json!({"suspend": true})),
    ] {
        change(name, spec).await.unwrap();
    }
}
