//! What the accounts of the two workloads did with their rights, by the audit log, in all that the other tests did to them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::installation::{Installation, NAMESPACE, OVERLAY};

/// What the webhook's account may do and did not, as verb, group and resource: what it is there for all the same.
const UNUSED: [(&str, &str); 1] = [
    // To judge who scrapes the metrics.
    ("create authentication.k8s.io/tokenreviews", "nobody scraped"),
];

pub async fn no_request_was_refused_for_want_of_rights(installation: &Installation) {
    for account in ["appwrapper-controller-manager", "appwrapper-webhook"] {
        let requests = requests(installation, account);
        assert!(requests.len() > 10, "{account} asked for nothing");
        let refused = requests
            .iter()
            .filter(|event| event["annotations"]["authorization.k8s.io/decision"] == "forbid");
        let refused: BTreeSet<String> = refused.map(right).collect();
        assert!(refused.is_empty(), "{account}: {refused:#?}");
    }
}

pub async fn the_webhook_has_no_right_that_it_does_not_use(installation: &Installation) {
    let account = "appwrapper-webhook";
    let used: BTreeSet<String> = requests(installation, account).iter().map(right).collect();
    let granted = granted(installation, account).await;
    let unused: BTreeSet<&str> = granted.difference(&used).map(String::as_str).collect();
    let known: BTreeSet<&str> = UNUSED.iter().map(|(right, _)| *right).collect();
    assert_eq!(unused, known);
}

/// A right as it stands in a role: verb, group, resource.
fn right(event: &Value) -> String {
    let field = |name: &str| event["objectRef"][name].as_str().unwrap_or_default();
    let subresource = match field("subresource") {
        "" => String::new(),
        some => format!("/{some}"),
    };
    let verb = event["verb"].as_str().unwrap();
    format!("{verb} {}/{}{subresource}", field("apiGroup"), field("resource"))
}

/// The audited requests of an account.
fn requests(installation: &Installation, account: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(installation.node.audit_log()).unwrap();
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events
        .filter(|event| event["user"]["username"] == user.as_str())
        .collect()
}

/// The rights that the roles of the overlay give to an account.
async fn granted(installation: &Installation, account: &str) -> BTreeSet<String> {
    let objects = installation.get(&["-k", OVERLAY]).await;
    let objects = objects["items"].as_array().unwrap();
    let is_for = |binding: &&Value| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        subjects.into_iter().any(|subject| subject["name"] == account)
    };
    let mut rights = BTreeSet::new();
    for binding in objects.iter().filter(is_for) {
        let role = &binding["roleRef"];
        let is_role = |one: &&Value| one["kind"] == role["kind"] && one["metadata"]["name"] == role["name"];
        let role = objects.iter().find(is_role).unwrap();
        for rule in role["rules"].as_array().into_iter().flatten() {
            let words = |field: &str| rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            for (verb, group) in words("verbs").flat_map(|verb| words("apiGroups").map(move |group| (verb, group))) {
                rights.extend(words("resources").map(|resource| format!("{verb} {group}/{resource}")));
            }
        }
    }
    rights
}
