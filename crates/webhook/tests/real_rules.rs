//! The rules on a real kube-apiserver: fields in refusals, rights held in different ways, updates, repeated applies. Skipped,
//! with a line that says so, where the programs of a control plane are not at hand.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::{Duration, Instant};

use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use common::{component, job, live::*, pod, service};
use kube::{
    Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rules_hold_on_a_real_api_server() {
    if !is_built() {
        return;
    }
    let cluster = Cluster::start(ClusterOptions::unique("webhook-rules").nodes(0, 0))
        .await
        .unwrap();
    let admin = cluster.client();
    let balancer = Balancer::default();
    install(&admin, balancer.start().await).await;
    let refused = create(&admin, &wrapper("early", vec![component(pod("p"))]))
        .await
        .unwrap_err();
    assert!(refused.contains("failed calling webhook"), "{refused}");

    let launcher = Launcher::new(&cluster, OPEN, &[]).await;
    let replica = launcher.start();
    balancer.add(&replica);
    replica.ready().await;
    wait_until_served(&admin).await;

    // What is right, and what becomes of it.
    let made = create(
        &admin,
        &wrapper("good", vec![component(pod("p")), component(service("s"))]),
    )
    .await
    .unwrap();
    let labels = made.metadata.labels.unwrap();
    assert!(labels["workload.codeflare.dev/user"].contains("admin"), "{labels:?}");
    assert_eq!(labels["workload.codeflare.dev/slot"].len(), 2);
    assert!(made.data["spec"].get("suspend").is_none());
    let made = create(&admin, &wrapper("generated-", vec![component(job("j"))]))
        .await
        .unwrap();
    assert!(made.metadata.name.unwrap().starts_with("generated-"));
    create(
        &admin,
        &wrapper(
            "early-ray",
            vec![component(
                json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"},
        "spec": {"headGroupSpec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}}),
            )],
        ),
    )
    .await
    .unwrap();

    // What is wrong, with its field.
    let edited = |mut object: Value, edit: fn(&mut Value)| {
        edit(&mut object);
        object
    };
    let cases: Vec<(&str, Value, &str)> = vec![
        (
            "nothing",
            wrapper("a", vec![]),
            "spec.components: Invalid value: components contains no podspecs",
        ),
        (
            "no pods",
            wrapper("a", vec![component(service("s"))]),
            "spec.components: Invalid value: components contains no podspecs",
        ),
        (
            "nine",
            wrapper("a", (0..9).map(|i| component(pod(&format!("p{i}")))).collect()),
            "components contains 9 podspecs; at most 8",
        ),
        (
            "nested",
            wrapper(
                "a",
                vec![component(pod("p")), component(wrapper("b", vec![component(pod("q"))]))],
            ),
            "spec.components[1].template: Forbidden: Nested AppWrappers are forbidden",
        ),
        (
            "namespace",
            wrapper(
                "a",
                vec![component(edited(pod("p"), |p| {
                    p["metadata"]["namespace"] = "other".into();
                }))],
            ),
            "spec.components[0].template.metadata.namespace: Forbidden",
        ),
        (
            "owner",
            wrapper(
                "a",
                vec![component(edited(pod("p"), |p| {
                    p["metadata"]["ownerReferences"] =
                        json!([{"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "u"}]);
                }))],
            ),
            "spec.components[0].template.metadata.ownerReferences: Forbidden",
        ),
        (
            "finalizer",
            wrapper(
                "a",
                vec![component(edited(pod("p"), |p| {
                    p["metadata"]["finalizers"] = json!(["a/b"]);
                }))],
            ),
            "spec.components[0].template.metadata.finalizers: Forbidden",
        ),
        (
            "label",
            wrapper(
                "a",
                vec![component(edited(pod("p"), |p| {
                    p["metadata"]["labels"] = json!({"workload.codeflare.dev/appwrapper": "b"});
                }))],
            ),
            "spec.components[0].template.metadata.labels[workload.codeflare.dev/appwrapper]: Forbidden",
        ),
        (
            "twice",
            wrapper("a", vec![component(pod("p")), component(pod("p"))]),
            "spec.components[1].template.metadata.name: Invalid value",
        ),
        (
            "path",
            wrapper(
                "a",
                vec![json!({"template": pod("p"), "podSets": [{"path": "template.metadata"}]})],
            ),
            "spec.components[0].podSets[0].path: Invalid value: path does not refer to a v1.PodSpecTemplate",
        ),
        (
            "typo",
            wrapper(
                "a",
                vec![component(edited(pod("p"), |p| {
                    p["spec"]["containers"][0]["imagee"] = "i".into();
                }))],
            ),
            "spec.containers[0].imagee",
        ),
        (
            "unknown kind",
            wrapper(
                "a",
                vec![
                    component(pod("p")),
                    component(json!({"apiVersion": "e.c/v1", "kind": "Gadget", "metadata": {"name": "g"}})),
                ],
            ),
            "the cluster serves no kind Gadget",
        ),
        (
            "cluster-scoped",
            wrapper(
                "a",
                vec![
                    component(pod("p")),
                    component(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}})),
                ],
            ),
            "PersistentVolume is cluster-scoped",
        ),
        (
            "long",
            wrapper(&"a".repeat(64), vec![component(pod("p"))]),
            "metadata.name labels every component",
        ),
    ];
    for (case, object, told) in cases {
        let refused = create(&admin, &object).await.unwrap_err();
        // Some are the definition's own to refuse, before a validating webhook is asked.
        let by = if matches!(case, "nothing" | "nested" | "long") {
            "is invalid: "
        } else {
            "admission webhook \"vappwrapper.workload.codeflare.dev\" denied the request: "
        };
        assert!(refused.contains(by), "{case}: {refused}");
        assert!(refused.contains(told), "{case}: {refused}");
    }

    rights(&cluster).await;
    updates(&admin).await;

    // Many components, one question per kind, within the time of the call.
    let many = (0..300)
        .map(|i| component(service(&format!("s{i}"))))
        .chain([component(pod("p"))])
        .collect();
    let begun = Instant::now();
    create(&admin, &wrapper("many", many)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());

    let log = std::fs::read_to_string(cluster.dir().join("webhook-0.log")).unwrap();
    assert!(
        !log.to_lowercase().contains("forbidden:") && !log.contains(" 403"),
        "the account's rights suffice:\n{log}"
    );
    cluster.stop().await.unwrap();
}

/// Users who hold their rights in different ways.
async fn rights(cluster: &Cluster) {
    let member = as_user(cluster, "mia", &["team"]);
    create(&member, &wrapper("by-group", vec![component(pod("p"))]))
        .await
        .unwrap();
    let refused = create(&member, &wrapper("x", vec![component(pod("p")), component(job("j"))]))
        .await
        .unwrap_err();
    assert!(
        refused
            .contains("spec.components[1].template: Forbidden: User mia is not authorized to create jobs.batch in ns"),
        "{refused}"
    );
    assert!(!refused.contains("components[0]"), "{refused}");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let refused = create(&member, &wrapper("x", vec![component(deployment)]))
        .await
        .unwrap_err();
    assert!(
        refused.contains("deployments.apps"),
        "reading is not creating: {refused}"
    );

    // All rights in one namespace, so also that of creating a Namespace "in" it: the scope decides.
    let namespace_admin = as_user(cluster, "namespace-admin", &[]);
    create(&namespace_admin, &wrapper("by-admin", vec![component(pod("p"))]))
        .await
        .unwrap();
    for (api_version, kind) in [
        ("v1", "Namespace"),
        ("v1", "PersistentVolume"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "escape"}});
        let refused = create(
            &namespace_admin,
            &wrapper("x", vec![component(pod("p")), component(object)]),
        )
        .await
        .unwrap_err();
        assert!(
            refused.contains(&format!(
                "spec.components[1].template: Forbidden: {kind} is cluster-scoped"
            )),
            "{refused}"
        );
    }

    for strange in ["system:serviceaccount:a:b", &"x".repeat(100), &"e".repeat(70), "---"] {
        let user = as_user(cluster, strange, &["team"]);
        let mut object = wrapper("strange-", vec![component(pod("p"))]);
        object["metadata"]["labels"] =
            json!({"workload.codeflare.dev/user": "root", "workload.codeflare.dev/slot": "zz"});
        let made = create(&user, &object).await.unwrap();
        assert_ne!(made.metadata.labels.unwrap()["workload.codeflare.dev/user"], "root");
    }
}

/// What may change afterwards, and applying the same manifest again.
async fn updates(admin: &Client) {
    let mut manifest = wrapper("kept", vec![component(job("j"))]);
    manifest["spec"]["components"][0]["template"]["spec"]["parallelism"] = 1.into();
    let apply = |text: String| async move {
        let object: Value = serde_json::from_str(&text).unwrap();
        let params = PatchParams::apply("test").force();
        appwrappers(admin)
            .patch("kept", &params, &Patch::Apply(&object))
            .await
            .map_err(|error| error.to_string())
    };
    apply(manifest.to_string()).await.unwrap();
    apply(manifest.to_string()).await.unwrap();
    apply(manifest.to_string().replace("\"parallelism\":1", "\"parallelism\":1.0"))
        .await
        .unwrap();
    change(
        admin,
        "kept",
        json!({"metadata": {"finalizers": ["workload.codeflare.dev/finalizer"]}}),
    )
    .await
    .unwrap();
    change(admin, "kept", json!({"spec": {"suspend": true}})).await.unwrap();

    let refused = apply(manifest.to_string().replace("\"parallelism\":1", "\"parallelism\":2"))
        .await
        .unwrap_err();
    assert!(
        refused.contains("spec.components[0].template.raw: Forbidden: attempt to change immutable field"),
        "{refused}"
    );
    for (patch, field) in [
        (
            json!({"metadata": {"labels": {"workload.codeflare.dev/user": "eve"}}}),
            "metadata.labels[workload.codeflare.dev/user]",
        ),
        (
            json!({"metadata": {"labels": {"workload.codeflare.dev/slot": null}}}),
            "metadata.labels[workload.codeflare.dev/slot]",
        ),
        (
            json!({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}),
            "spec.managedBy",
        ),
    ] {
        let refused = change(admin, "kept", patch).await.unwrap_err();
        assert!(
            refused.contains(&format!("{field}: Forbidden: attempt to change immutable field")),
            "{refused}"
        );
    }

    // Placement as Kueue writes it: with the start, not later.
    let components = |selector: Value| {
        let mut component = manifest["spec"]["components"][0].clone();
        component["podSetInfos"] = json!([{"nodeSelector": selector}]);
        json!([component])
    };
    change(
        admin,
        "kept",
        json!({"spec": {"suspend": null, "components": components(json!({"pool": "a"}))}}),
    )
    .await
    .unwrap();
    let refused = change(
        admin,
        "kept",
        json!({"spec": {"components": components(json!({"pool": "b"}))}}),
    )
    .await
    .unwrap_err();
    assert!(
        refused.contains("spec.components[0].podSetInfos: Forbidden"),
        "{refused}"
    );
    change(admin, "kept", json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    appwrappers(admin)
        .delete("kept", &DeleteParams::default())
        .await
        .unwrap();
}

/// Sends the API server's patch of a user's second thoughts.
async fn change(client: &Client, name: &str, patch: Value) -> Result<DynamicObject, String> {
    let params = PatchParams::default();
    appwrappers(client)
        .patch(name, &params, &Patch::Merge(patch))
        .await
        .map_err(|error| error.to_string())
}

fn as_user(cluster: &Cluster, user: &str, groups: &[&str]) -> Client {
    let mut config = cluster.config().clone();
    config.auth_info.impersonate = Some(user.into());
    config.auth_info.impersonate_groups = Some(groups.iter().map(|group| (*group).to_owned()).collect());
    Client::try_from(config).unwrap()
}
