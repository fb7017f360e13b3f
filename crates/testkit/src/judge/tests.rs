//! Each claim, kept and broken, in events as the API server writes them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{End, Heard};

/// What was heard, and the version of the last write.
#[derive(Default)]
struct Story {
    heard: Heard,
    version: u64,
}

impl Story {
    /// A and B have Leases of their own, and A holds the shard.
    fn begin() -> Self {
        let mut story = Self::default();
        for writer in ["a", "b"] {
            let name = format!("appwrapper-member-{writer}");
            story.write(writer, "patch", "leases", &lease(&name, writer, 0), &Value::Null);
        }
        story.claim("a", 1);
        story
    }

    fn write(&mut self, writer: &str, verb: &str, resource: &str, object: &Value, request: &Value) {
        self.version += 1;
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.event(writer, verb, resource, &object, request);
    }

    fn event(&mut self, writer: &str, verb: &str, resource: &str, object: &Value, request: &Value) {
        let group = if resource == "appwrappers" {
            "workload.codeflare.dev"
        } else {
            ""
        };
        let time = format!("2026-01-01T00:00:{:02}Z", self.version);
        let event = json!({
            "auditID": self.version.to_string(), "verb": verb, "requestURI": "/",
            "user": {
                "username": "system:serviceaccount:appwrapper-system:appwrapper-controller-manager",
                "extra": {"authentication.kubernetes.io/credential-id": [format!("JTI={writer}")]},
            },
            "objectRef": {"resource": resource, "apiGroup": group, "name": object["metadata"]["name"]},
            "responseStatus": {"code": 200}, "requestObject": request, "responseObject": object,
            "requestReceivedTimestamp": time, "stageTimestamp": time,
        });
        self.heard.hear(&serde_json::from_value(event).unwrap());
    }

    fn claim(&mut self, writer: &str, transitions: i64) {
        let claim = json!({"spec": {"acquireTime": "2026-01-01T00:00:00.000000Z"}});
        let lease = lease("appwrapper-shard-0-of-8", writer, transitions);
        self.write(writer, "patch", "leases", &lease, &claim);
    }

    fn status(&mut self, writer: &str, phase: &str, retries: i64) {
        self.write(writer, "patch", "appwrappers", &wrapper(phase, retries), &Value::Null);
    }

    fn create(&mut self, writer: &str, name: &str) {
        self.write(writer, "create", "jobs", &job(name), &Value::Null);
    }

    fn delete(&mut self, writer: &str, name: &str) {
        self.version += 1;
        let gone = json!({"kind": "Status", "metadata": {"name": name}});
        self.event(writer, "delete", "jobs", &gone, &Value::Null);
    }

    fn violations(&self) -> Vec<String> {
        self.heard.verdict(&BTreeMap::new()).violations
    }
}

fn lease(name: &str, holder: &str, transitions: i64) -> Value {
    let holder = format!("{holder}_uid_1");
    json!({"metadata": {"name": name, "uid": "u"}, "spec": {"holderIdentity": holder, "leaseTransitions": transitions}})
}

fn wrapper(phase: &str, retries: i64) -> Value {
    json!({
        "metadata": {"name": "w", "uid": "w-1", "labels": {"workload.codeflare.dev/slot": "08"}},
        "spec": {"components": [{"template": {"kind": "Job"}}]},
        "status": {"phase": phase, "resettingCount": retries},
    })
}

fn job(name: &str) -> Value {
    json!({
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {"workload.codeflare.dev/slot": "08"},
            "ownerReferences": [{"kind": "AppWrapper", "uid": "w-1"}],
        },
    })
}

#[test]
fn a_hand_over_in_order_is_fine() {
    let mut story = Story::begin();
    story.status("a", "Resuming", 0);
    story.create("a", "j");
    story.claim("b", 2);
    story.status("b", "Running", 0);
    story.delete("b", "j");
    story.claim("a", 3);
    story.status("a", "Succeeded", 0);
    assert_eq!(story.violations(), Vec::<String>::new());
    let verdict = story.heard.verdict(&BTreeMap::new());
    assert_eq!((verdict.writes, verdict.tenures, verdict.created), (5, 3, 1));
}

#[test]
fn a_write_after_the_successors_first_is_found() {
    let mut story = Story::begin();
    story.status("a", "Resuming", 0);
    story.claim("b", 2);
    // Late, but nobody has begun yet.
    story.create("a", "j");
    assert_eq!(story.violations(), Vec::<String>::new());
    story.status("b", "Running", 0);
    story.status("a", "Running", 0);
    assert_eq!(story.violations().len(), 1);
    story.delete("a", "j");
    let violations = story.violations();
    assert_eq!(violations.len(), 2);
    assert!(
        violations
            .iter()
            .all(|violation| violation.contains("a_uid_1 after its successor"))
    );
}

#[test]
fn a_write_of_somebody_who_never_held_the_shard_is_found() {
    let mut story = Story::begin();
    story.status("b", "Running", 0);
    story.delete("b", "x");
    story.create("c", "j");
    let violations = story.violations();
    assert_eq!(violations.len(), 2, "{violations:?}");
    assert!(violations[0].contains("b_uid_1 without holding it"));
    assert!(violations[1].contains("a process without a Lease"));
}

#[test]
fn one_epoch_of_two_holders_is_found() {
    let mut story = Story::begin();
    story.claim("b", 1);
    assert!(story.violations()[0].contains("one epoch of two holders"));
}

#[test]
fn a_claim_whose_answer_was_an_error_is_seen_by_its_renewal() {
    let mut story = Story::begin();
    story.status("b", "Running", 0);
    let renewed = lease("appwrapper-shard-0-of-8", "b", 2);
    story.write("b", "patch", "leases", &renewed, &json!({"spec": {"renewTime": "now"}}));
    assert_eq!(story.violations(), Vec::<String>::new());
}

#[test]
fn a_component_that_is_created_twice_in_one_attempt_is_found() {
    let mut story = Story::begin();
    story.status("a", "Resuming", 0);
    story.create("a", "j-1");
    story.status("a", "Resuming", 1);
    story.create("a", "j-1");
    story.status("a", "Succeeded", 1);
    let retried = End {
        fails: false,
        retries: 1,
    };
    let ends = BTreeMap::from([("w".to_owned(), retried)]);
    assert_eq!(story.heard.verdict(&ends).violations, Vec::<String>::new());
    story.create("a", "j-2");
    let violations = story.heard.verdict(&ends).violations;
    assert_eq!(
        violations,
        ["AppWrapper w, attempt 1: 2 of Job were created for 1 components"]
    );
}

#[test]
fn a_failure_or_retry_that_should_not_be_is_found() {
    let mut story = Story::begin();
    story.status("a", "Resetting", 1);
    assert_eq!(story.violations(), ["AppWrapper w was retried 1 times, not 0"]);
    story.status("a", "Failed", 1);
    assert_eq!(story.violations().len(), 2);
    let failing = End {
        fails: true,
        retries: 1,
    };
    let ends = BTreeMap::from([("w".to_owned(), failing)]);
    assert_eq!(story.heard.verdict(&ends).violations, Vec::<String>::new());
}

#[test]
fn a_patch_that_changes_nothing_is_no_write() {
    let mut story = Story::begin();
    story.status("a", "Running", 0);
    let same = story.version;
    story.claim("b", 2);
    let version = std::mem::replace(&mut story.version, same);
    let mut object = wrapper("Running", 0);
    object["metadata"]["resourceVersion"] = json!(same.to_string());
    story.event("b", "patch", "appwrappers", &object, &Value::Null);
    story.version = version;
    assert_eq!(story.violations(), Vec::<String>::new());
}
