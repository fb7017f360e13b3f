//! What names something names something that is there.

use serde_json::{Value, json};

use crate::overlay::{Overlay, has_port, list, name, ports};

/// Objects that are on every cluster, or on those with what a component is for.
const GIVEN: [(&str, &str); 3] = [
    ("ConfigMap", "kube-root-ca.crt"),
    ("ServiceAccount", "kube-state-metrics"),
    ("ServiceAccount", "prometheus-k8s"),
];

fn is_there(overlay: &Overlay, kind: &str, wanted: &Value) -> bool {
    let given = GIVEN.iter().any(|(of, name)| *of == kind && wanted == name);
    // cert-manager makes a Secret for each Certificate.
    let issued = kind == "Secret"
        && overlay
            .of("Certificate")
            .any(|one| one["spec"]["secretName"] == *wanted);
    given || issued || overlay.has(kind, wanted)
}

#[tokio::test]
async fn services_select_pods_that_have_their_ports() {
    for overlay in Overlay::all().await {
        for service in overlay.of("Service") {
            let selected = overlay.selected(&service["spec"]["selector"]);
            assert_eq!(
                selected.len(),
                1,
                "{}: Service {} selects {selected:?}",
                overlay.name,
                name(service)
            );
            for port in list(service, "/spec/ports") {
                let known = has_port(selected[0].1, &port["targetPort"]);
                assert!(known, "{}: Service {}: {port}", overlay.name, name(service));
            }
        }
    }
}

#[tokio::test]
async fn deployments_and_budgets_select_the_pods_that_they_mean() {
    for overlay in Overlay::all().await {
        for deployment in overlay.of("Deployment") {
            let selected = overlay.selected(&deployment["spec"]["selector"]["matchLabels"]);
            let names: Vec<&str> = selected.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [name(deployment)], "{}", overlay.name);
            let spread = list(deployment, "/spec/template/spec/topologySpreadConstraints");
            let affinity = "/spec/template/spec/affinity/podAntiAffinity";
            let required = format!("{affinity}/requiredDuringSchedulingIgnoredDuringExecution");
            let preferred = format!("{affinity}/preferredDuringSchedulingIgnoredDuringExecution");
            let preferred = list(deployment, &preferred).map(|one| &one["podAffinityTerm"]);
            for term in spread.chain(list(deployment, &required)).chain(preferred) {
                let selected = overlay.selected(&term["labelSelector"]["matchLabels"]);
                let names: Vec<&str> = selected.iter().map(|(name, _)| *name).collect();
                assert_eq!(names, [name(deployment)], "{}: {term}", overlay.name);
            }
        }
        for budget in overlay.of("PodDisruptionBudget") {
            let selected = overlay.selected(&budget["spec"]["selector"]["matchLabels"]);
            let names: Vec<&str> = selected.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, [name(budget)], "{}", overlay.name);
        }
    }
}

#[tokio::test]
async fn probes_ask_ports_that_are_there() {
    for overlay in Overlay::all().await {
        for (workload, template) in overlay.templates() {
            for container in list(template, "/spec/containers") {
                for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                    let port = &container[probe]["httpGet"]["port"];
                    assert!(
                        has_port(template, port),
                        "{}: {workload}: {probe} asks {port}",
                        overlay.name
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn volumes_accounts_and_bindings_are_of_objects_that_are_there() {
    for overlay in Overlay::all().await {
        for (workload, template) in overlay.templates() {
            let account = &template["spec"]["serviceAccountName"];
            assert!(
                is_there(overlay, "ServiceAccount", account),
                "{}: {workload}",
                overlay.name
            );
            for volume in list(template, "/spec/volumes") {
                let projected = list(volume, "/projected/sources");
                for source in projected.chain([volume]) {
                    for (kind, field) in [("ConfigMap", "/configMap/name"), ("Secret", "/secret/secretName")] {
                        if let Some(wanted) = source.pointer(field) {
                            assert!(
                                is_there(overlay, kind, wanted),
                                "{}: {workload}: {volume}",
                                overlay.name
                            );
                        }
                    }
                }
            }
            for container in list(template, "/spec/containers") {
                for mount in list(container, "/volumeMounts") {
                    let mut volumes = list(template, "/spec/volumes");
                    assert!(
                        volumes.any(|volume| volume["name"] == mount["name"]),
                        "{}: {mount}",
                        overlay.name
                    );
                }
            }
        }
        for binding in overlay.of("ClusterRoleBinding").chain(overlay.of("RoleBinding")) {
            let role = &binding["roleRef"];
            let known = is_there(overlay, role["kind"].as_str().unwrap(), &role["name"]);
            assert!(known, "{}: {} binds {role}", overlay.name, name(binding));
            for subject in list(binding, "/subjects") {
                let known = is_there(overlay, "ServiceAccount", &subject["name"]);
                assert!(known, "{}: {} is for {subject}", overlay.name, name(binding));
            }
        }
        for schema in overlay.of("FlowSchema") {
            for subject in list(schema, "/spec/rules/0/subjects") {
                let account = &subject["serviceAccount"]["name"];
                assert!(
                    is_there(overlay, "ServiceAccount", account),
                    "{}: {subject}",
                    overlay.name
                );
            }
        }
    }
}

#[tokio::test]
async fn webhooks_call_a_service_that_is_there() {
    for overlay in Overlay::all().await {
        let configurations = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
        for webhook in configurations
            .iter()
            .flat_map(|kind| overlay.of(kind))
            .flat_map(|one| list(one, "/webhooks"))
        {
            let service = &webhook["clientConfig"]["service"];
            let of = overlay
                .of("Service")
                .find(|one| one["metadata"]["name"] == service["name"]);
            let of = of.unwrap_or_else(|| panic!("{}: {service}", overlay.name));
            assert_eq!(of["metadata"]["namespace"], service["namespace"]);
            // The default port of such a reference.
            assert!(
                list(of, "/spec/ports").any(|port| port["port"] == 443),
                "{}: {of}",
                overlay.name
            );
            assert_eq!(webhook["failurePolicy"], "Fail");
            assert!(webhook["timeoutSeconds"].as_u64() <= Some(10));
        }
    }
}

#[tokio::test]
async fn monitors_select_services_and_policies_allow_what_is_used() {
    let overlay = Overlay::render("tests/tests/manifests/overlays/everything").await;
    let mut monitors = 0;
    for monitor in overlay.of("ServiceMonitor") {
        monitors += 1;
        let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        let has = |service: &&Value| {
            wanted
                .iter()
                .all(|(key, value)| service["metadata"]["labels"][key] == *value)
        };
        let services: Vec<&Value> = overlay.of("Service").filter(has).collect();
        assert_eq!(services.len(), 1, "{monitor}");
        for endpoint in list(monitor, "/spec/endpoints") {
            // What rules and dashboards expect of the scrape.
            let workload = services[0]["metadata"]["labels"]["app.kubernetes.io/component"]
                .as_str()
                .unwrap();
            let job = json!({"targetLabel": "job", "replacement": format!("appwrapper-{workload}")});
            assert!(list(endpoint, "/relabelings").any(|one| *one == job), "{endpoint}");
            assert_eq!(endpoint["honorLabels"], true, "{endpoint}");
            assert!(
                list(services[0], "/spec/ports").any(|port| port["name"] == endpoint["port"]),
                "{endpoint}"
            );
        }
    }
    assert_eq!(monitors, 2);

    let everything = json!({});
    for (workload, template) in overlay.templates() {
        let labels = &template["metadata"]["labels"];
        let selects = |policy: &&Value| {
            let wanted = policy["spec"]["podSelector"].get("matchLabels").unwrap_or(&everything);
            wanted
                .as_object()
                .unwrap()
                .iter()
                .all(|(key, value)| labels[key] == *value)
        };
        let policies: Vec<&Value> = overlay.of("NetworkPolicy").filter(selects).collect();
        let allowed = |rules: &str| -> Vec<&Value> {
            let rules = policies.iter().flat_map(|policy| list(policy, rules));
            rules
                .flat_map(|rule| list(rule, "/ports"))
                .map(|port| &port["port"])
                .collect()
        };
        let incoming = allowed("/spec/ingress");
        for port in ports(template) {
            // Those are asked by the kubelet alone.
            let open = incoming.contains(&&port["name"]);
            assert_eq!(open, port["name"] != "health", "{workload}: {port}");
        }
        assert!(incoming.iter().all(|port| port.is_string()), "{incoming:?}");
        assert!(
            allowed("/spec/egress").contains(&&json!(443)),
            "{workload} cannot reach the API server"
        );
    }
}
