//! Rights: no rule is wider than it has to be.

use serde_json::Value;

use crate::overlay::{Overlay, list, name};

/// Roles of the two accounts; those of users are in the first file.
fn rules(overlay: &Overlay) -> Vec<(&str, &Value)> {
    let roles = overlay.of("ClusterRole").chain(overlay.of("Role"));
    roles
        .flat_map(|role| list(role, "/rules").map(move |rule| (name(role), rule)))
        .collect()
}

fn words<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    list(rule, &format!("/{field}")).filter_map(Value::as_str).collect()
}

#[tokio::test]
async fn no_rule_has_a_wildcard_or_lets_an_account_raise_itself() {
    for overlay in Overlay::all().await {
        for (role, rule) in rules(overlay) {
            let fields = ["apiGroups", "resources", "verbs", "nonResourceURLs"];
            let all: Vec<&str> = fields.iter().flat_map(|field| words(rule, field)).collect();
            let forbidden = |word: &&str| word.contains('*') || ["escalate", "bind", "impersonate"].contains(word);
            assert!(!all.iter().any(forbidden), "{}: {role}: {rule}", overlay.name);
        }
    }
}

#[tokio::test]
async fn secrets_and_webhook_configurations_are_only_given_by_name() {
    for overlay in Overlay::all().await {
        for (role, rule) in rules(overlay) {
            let by_name = [
                "secrets",
                "mutatingwebhookconfigurations",
                "validatingwebhookconfigurations",
            ];
            if words(rule, "resources")
                .iter()
                .any(|resource| by_name.contains(resource))
            {
                assert!(
                    !words(rule, "resourceNames").is_empty(),
                    "{}: {role}: {rule}",
                    overlay.name
                );
                // A create is not held to a name.
                assert!(
                    !words(rule, "verbs").contains(&"create"),
                    "{}: {role}: {rule}",
                    overlay.name
                );
            }
        }
    }
}

/// Both would be mounted into every pod that runs under the account.
#[tokio::test]
async fn tokens_are_mounted_only_where_a_pod_asks() {
    for overlay in Overlay::all().await {
        for account in overlay.of("ServiceAccount") {
            assert_eq!(
                account["automountServiceAccountToken"],
                false,
                "{}: {}",
                overlay.name,
                name(account)
            );
        }
        for (workload, template) in overlay.templates() {
            assert_eq!(
                template["spec"]["automountServiceAccountToken"], false,
                "{}: {workload}",
                overlay.name
            );
            assert_eq!(
                template["spec"]["enableServiceLinks"], false,
                "{}: {workload}",
                overlay.name
            );
        }
    }
}
