//! What a real API server says to the manifests, on one cluster of its own.

use std::time::Duration;

use appwrapper_testkit::cluster::apply::{apply_yaml, parse};
use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use appwrapper_tests::world::definition;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::OVERLAYS;
use crate::overlay::{Overlay, list, name, render, repository};

const NAMESPACE: &str = "appwrapper-system";
const CONTROLLER: &str = "system:serviceaccount:appwrapper-system:appwrapper-controller-manager";
const WEBHOOK: &str = "system:serviceaccount:appwrapper-system:appwrapper-webhook";

/// Kinds of operators that are not there; the API server then knows their names and nothing else of them.
const KINDS: [(&str, &str, &str, &str); 4] = [
    ("cert-manager.io", "v1", "Issuer", "issuers"),
    ("cert-manager.io", "v1", "Certificate", "certificates"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_api_server_takes_the_manifests_and_holds_the_accounts_to_their_rights() {
    let cluster = Cluster::start(ClusterOptions::unique("manifests")).await.unwrap();
    for (group, version, kind, plural) in KINDS {
        apply_yaml(&cluster.client(), &definition(group, version, kind, plural))
            .await
            .unwrap();
    }
    // What the rest lies in, and is of.
    let rendered = render("deploy/overlays/default").await;
    let first = ["Namespace", "CustomResourceDefinition"];
    let documents = rendered.split("\n---\n").filter(|text| {
        let objects = parse(text).unwrap();
        objects
            .iter()
            .any(|object| first.contains(&object.types.as_ref().unwrap().kind.as_str()))
    });
    let documents: Vec<&str> = documents.collect();
    apply_yaml(&cluster.client(), &documents.join("\n---\n")).await.unwrap();

    every_overlay_passes_a_strict_dry_run(&cluster).await;
    let applied = kubectl(&cluster, &["apply", "--server-side", "-k", "deploy/overlays/default"]).await;
    applied.unwrap();
    every_pod_passes_as_restricted(&cluster).await;
    the_accounts_may_do_this_and_not_that(&cluster).await;
    cluster.stop().await.unwrap();
}

async fn every_overlay_passes_a_strict_dry_run(cluster: &Cluster) {
    for overlay in OVERLAYS {
        let dry = [
            "apply",
            "--server-side",
            "--dry-run=server",
            "--validate=strict",
            "-k",
            overlay,
        ];
        let answer = kubectl(cluster, &dry).await;
        let answer = answer.unwrap_or_else(|error| panic!("{overlay}: {error}"));
        assert!(answer.contains("(server dry run)"), "{answer}");
    }
    // That it is strict.
    let path = cluster.dir().join("wrong.yaml");
    let wrong = render("deploy/overlays/default")
        .await
        .replace("enableServiceLinks:", "enableServiceLink:");
    std::fs::write(&path, wrong).unwrap();
    let dry = [
        "apply",
        "--server-side",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        &path.to_string_lossy(),
    ];
    let refused = kubectl(cluster, &dry).await.unwrap_err();
    assert!(refused.contains("enableServiceLink"), "{refused}");
}

/// As a Pod: a Deployment whose pods would be refused is only warned of.
async fn every_pod_passes_as_restricted(cluster: &Cluster) {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), NAMESPACE);
    accounts.get("appwrapper-webhook").await.unwrap();
    for overlay in Overlay::all().await {
        for (workload, template) in overlay.templates() {
            let answer = dry_create(cluster, workload, template.clone()).await;
            answer.unwrap_or_else(|error| panic!("{}: {workload}: {error}", overlay.name));
            let mut lax = template.clone();
            lax["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
            let refused = dry_create(cluster, workload, lax).await.unwrap_err();
            assert!(refused.to_string().contains("restricted"), "{refused}");
        }
    }
}

async fn dry_create(cluster: &Cluster, workload: &str, template: Value) -> kube::Result<Pod> {
    let mut pod = template;
    pod["metadata"]["name"] = json!(workload);
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    Api::namespaced(cluster.client(), NAMESPACE).create(&dry, &pod).await
}

/// One question about rights: account, verb, group, resource, subresource, namespace, name.
type Question = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const CERTIFICATE: &str = "appwrapper-webhook-server-cert";
const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";
const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const OURS: &str = "workload.codeflare.dev";

/// That these are allowed shows that the questions are asked rightly.
const ALLOWED: [Question; 9] = [
    (CONTROLLER, "create", "batch", "jobs", "", "team", ""),
    (CONTROLLER, "delete", "", "pods", "", "team", ""),
    (CONTROLLER, "delete", OURS, "appwrappers", "", "team", ""),
    (CONTROLLER, "patch", OURS, "appwrappers", "status", "team", ""),
    (CONTROLLER, "patch", "coordination.k8s.io", "leases", "", NAMESPACE, ""),
    (WEBHOOK, "patch", "", "secrets", "", NAMESPACE, CERTIFICATE),
    (
        WEBHOOK,
        "patch",
        ADMISSION,
        MUTATING,
        "",
        "",
        "appwrapper-mutating-webhook-configuration",
    ),
    (
        WEBHOOK,
        "create",
        "authorization.k8s.io",
        "subjectaccessreviews",
        "",
        "",
        "",
    ),
    (
        WEBHOOK,
        "patch",
        "coordination.k8s.io",
        "leases",
        "",
        NAMESPACE,
        "appwrapper-webhook-certificates",
    ),
];

const REFUSED: [Question; 46] = [
    // Secrets are none of the controller's business.
    (CONTROLLER, "get", "", "secrets", "", NAMESPACE, CERTIFICATE),
    (CONTROLLER, "list", "", "secrets", "", "", ""),
    (CONTROLLER, "watch", "", "secrets", "", "team", ""),
    (CONTROLLER, "create", "", "secrets", "", "team", ""),
    (
        CONTROLLER,
        "create",
        "",
        "serviceaccounts",
        "token",
        NAMESPACE,
        "appwrapper-webhook",
    ),
    // Nor is admission, nor are rights.
    (
        CONTROLLER,
        "get",
        ADMISSION,
        MUTATING,
        "",
        "",
        "appwrapper-mutating-webhook-configuration",
    ),
    (
        CONTROLLER,
        "patch",
        ADMISSION,
        VALIDATING,
        "",
        "",
        "appwrapper-validating-webhook-configuration",
    ),
    (CONTROLLER, "create", RBAC, "rolebindings", "", "team", ""),
    (CONTROLLER, "create", RBAC, "clusterroles", "", "", ""),
    (CONTROLLER, "escalate", RBAC, "clusterroles", "", "", ""),
    (CONTROLLER, "bind", RBAC, "clusterroles", "", "", "cluster-admin"),
    (CONTROLLER, "impersonate", "", "users", "", "", ""),
    (CONTROLLER, "impersonate", "", "groups", "", "", "system:masters"),
    // Components belong to their own controllers, AppWrappers to their users.
    (CONTROLLER, "update", "batch", "jobs", "", "team", ""),
    (CONTROLLER, "patch", "apps", "deployments", "", "team", ""),
    (CONTROLLER, "patch", "", "pods", "", "team", ""),
    (CONTROLLER, "create", "", "pods", "exec", "team", ""),
    (CONTROLLER, "create", OURS, "appwrappers", "", "team", ""),
    (CONTROLLER, "update", "", "nodes", "", "", ""),
    (
        CONTROLLER,
        "patch",
        "coordination.k8s.io",
        "leases",
        "",
        "kube-system",
        "",
    ),
    (CONTROLLER, "create", "", "namespaces", "", "", ""),
    (CONTROLLER, "create", "", "persistentvolumes", "", "", ""),
    (CONTROLLER, "deletecollection", "", "pods", "", "team", ""),
    // The webhook touches no workload.
    (WEBHOOK, "get", "", "pods", "", "team", ""),
    (WEBHOOK, "create", "", "pods", "", "team", ""),
    (WEBHOOK, "create", "batch", "jobs", "", "team", ""),
    (WEBHOOK, "get", OURS, "appwrappers", "", "team", ""),
    (WEBHOOK, "patch", OURS, "appwrappers", "", "team", ""),
    (WEBHOOK, "patch", OURS, "appwrappers", "status", "team", ""),
    (WEBHOOK, "list", "", "nodes", "", "", ""),
    // Of Secrets, configurations and Leases it has those by name.
    (WEBHOOK, "get", "", "secrets", "", NAMESPACE, "another"),
    (WEBHOOK, "get", "", "secrets", "", "team", CERTIFICATE),
    (WEBHOOK, "list", "", "secrets", "", NAMESPACE, ""),
    (WEBHOOK, "create", "", "secrets", "", NAMESPACE, ""),
    (WEBHOOK, "delete", "", "secrets", "", NAMESPACE, CERTIFICATE),
    (WEBHOOK, "get", ADMISSION, MUTATING, "", "", "another"),
    (WEBHOOK, "list", ADMISSION, VALIDATING, "", "", ""),
    (WEBHOOK, "create", ADMISSION, VALIDATING, "", "", ""),
    (
        WEBHOOK,
        "delete",
        ADMISSION,
        MUTATING,
        "",
        "",
        "appwrapper-mutating-webhook-configuration",
    ),
    (
        WEBHOOK,
        "patch",
        "coordination.k8s.io",
        "leases",
        "",
        NAMESPACE,
        "f134c674.codeflare.dev",
    ),
    (WEBHOOK, "create", "coordination.k8s.io", "leases", "", NAMESPACE, ""),
    (
        WEBHOOK,
        "list",
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "",
        "",
        "",
    ),
    (WEBHOOK, "create", RBAC, "rolebindings", "", NAMESPACE, ""),
    (WEBHOOK, "bind", RBAC, "clusterroles", "", "", "cluster-admin"),
    (WEBHOOK, "impersonate", "", "users", "", "", ""),
    (
        WEBHOOK,
        "create",
        "",
        "serviceaccounts",
        "token",
        NAMESPACE,
        "appwrapper-controller-manager",
    ),
];

async fn the_accounts_may_do_this_and_not_that(cluster: &Cluster) {
    // Roles come into force a moment after they are there.
    let until = Instant::now() + Duration::from_secs(30);
    for question in ALLOWED {
        while !may(cluster, question).await {
            assert!(Instant::now() < until, "refused: {question:?}");
            sleep(Duration::from_millis(100)).await;
        }
    }
    for question in REFUSED {
        assert!(!may(cluster, question).await, "allowed: {question:?}");
    }
    // Nobody has roles by group, which a review of the account alone would not show.
    let bindings = Overlay::render("deploy/overlays/default").await;
    for binding in bindings.of("ClusterRoleBinding").chain(bindings.of("RoleBinding")) {
        let only_accounts = list(binding, "/subjects").all(|subject| subject["kind"] == "ServiceAccount");
        assert!(only_accounts, "{}", name(binding));
    }
}

async fn may(cluster: &Cluster, (account, verb, group, resource, subresource, namespace, name): Question) -> bool {
    let review: SubjectAccessReview = serde_json::from_value(json!({
        "spec": {
            "user": account,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:appwrapper-system", "system:authenticated"],
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace, "name": name,
            },
        },
    }))
    .unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.client());
    reviews
        .create(&PostParams::default(), &review)
        .await
        .unwrap()
        .status
        .unwrap()
        .allowed
}

async fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Result<String, String> {
    let mut command = cluster.kubectl().unwrap();
    let output = command
        .args(arguments)
        .current_dir(repository())
        .output()
        .await
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}
