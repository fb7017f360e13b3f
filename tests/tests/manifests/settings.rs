//! Values that a cluster accepts and that are wrong all the same.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::overlay::{Overlay, list, name};

#[tokio::test]
async fn budgets_let_one_pod_go_and_keep_one() {
    for overlay in Overlay::all().await {
        for budget in overlay.of("PodDisruptionBudget") {
            let replicas =
                overlay.of("Deployment").find(|one| name(one) == name(budget)).unwrap()["spec"]["replicas"].as_u64();
            let replicas = replicas.unwrap();
            let spec = &budget["spec"];
            let kept = spec["minAvailable"]
                .as_u64()
                .or(spec["maxUnavailable"].as_u64().map(|away| replicas - away));
            assert!(
                kept.is_some_and(|kept| 0 < kept && kept < replicas),
                "{}: {spec}",
                overlay.name
            );
            // Else a pod that cannot start keeps its node from being drained.
            assert_eq!(spec["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{}", overlay.name);
        }
    }
}

#[tokio::test]
async fn images_have_a_fixed_tag() {
    for overlay in Overlay::all().await {
        for (workload, template) in overlay.templates() {
            for container in list(template, "/spec/containers") {
                let image = container["image"].as_str().unwrap();
                let tag = image.rsplit('/').next().unwrap().split_once([':', '@']);
                assert!(
                    tag.is_some_and(|(_, tag)| tag != "latest"),
                    "{}: {workload}: {image}",
                    overlay.name
                );
            }
        }
    }
}

#[tokio::test]
async fn containers_have_requests_and_a_limit_of_memory() {
    for overlay in Overlay::all().await {
        for (workload, template) in overlay.templates() {
            for container in list(template, "/spec/containers") {
                let resources = &container["resources"];
                assert!(resources["requests"]["cpu"].is_string(), "{}: {workload}", overlay.name);
                assert_eq!(
                    resources["requests"]["memory"], resources["limits"]["memory"],
                    "{}: {workload}",
                    overlay.name
                );
                assert!(
                    resources["limits"]["memory"].is_string(),
                    "{}: {workload}",
                    overlay.name
                );
                assert!(resources["limits"]["cpu"].is_null(), "{}: {workload}", overlay.name);
            }
        }
    }
}

/// The object in which all names are looked for is one of ours, once, and where it should be.
#[tokio::test]
async fn every_object_is_ours_and_there_once() {
    for overlay in Overlay::all().await {
        let mut seen = BTreeSet::new();
        for object in &overlay.objects {
            let key = ["kind", "apiVersion"].map(|field| object[field].to_string()).join(" ") + name(object);
            assert!(seen.insert(key.clone()), "{}: twice: {key}", overlay.name);
            let labels = &object["metadata"]["labels"];
            assert_eq!(
                labels["app.kubernetes.io/name"], "appwrapper",
                "{}: {key}",
                overlay.name
            );
            let namespace = &object["metadata"]["namespace"];
            let ours = [json!(null), json!("appwrapper-system"), json!("kube-system")];
            assert!(ours.contains(namespace), "{}: {key}", overlay.name);
        }
        assert!(seen.len() >= 3, "{}", overlay.name);
    }
}

/// What Kueue, dashboards and users of the Go controller know by name.
#[tokio::test]
async fn names_that_others_rely_on_stay() {
    let overlay = Overlay::render("deploy/overlays/default").await;
    for (kind, name) in [
        ("Namespace", "appwrapper-system"),
        ("CustomResourceDefinition", "appwrappers.workload.codeflare.dev"),
        ("Deployment", "appwrapper-controller-manager"),
        ("ServiceAccount", "appwrapper-controller-manager"),
        ("ConfigMap", "appwrapper-operator-config"),
        ("Secret", "appwrapper-webhook-server-cert"),
        ("Service", "appwrapper-webhook-service"),
        ("Service", "appwrapper-controller-manager-metrics-service"),
        (
            "MutatingWebhookConfiguration",
            "appwrapper-mutating-webhook-configuration",
        ),
        (
            "ValidatingWebhookConfiguration",
            "appwrapper-validating-webhook-configuration",
        ),
        ("ClusterRole", "appwrapper-manager-role"),
        ("ClusterRole", "appwrapper-metrics-reader"),
        ("ClusterRole", "appwrapper-editor-role"),
        ("ClusterRole", "appwrapper-viewer-role"),
        ("ClusterRole", "appwrapper-user-role"),
        ("Lease", "f134c674.codeflare.dev"),
    ] {
        assert!(overlay.has(kind, &json!(name)), "{kind} {name}");
    }
    let manager = overlay
        .of("Deployment")
        .find(|one| name(one) == "appwrapper-controller-manager")
        .unwrap();
    let labels = &manager["spec"]["selector"]["matchLabels"];
    assert_eq!(*labels, json!({"control-plane": "controller-manager"}));
    let containers: Vec<&Value> = list(manager, "/spec/template/spec/containers").collect();
    assert_eq!(containers.len(), 1);
    assert_eq!(containers[0]["name"], "manager");
}
