//! Defaulting at creation: queue name, identity labels, slot. `suspend` is Kueue's and not touched.
//!
//! The answer is a JSON patch of label operations and nothing else, so that it composes with whatever other webhooks do to
//! the rest of the object.

use appwrapper_api::{QUEUE_NAME_LABEL, SLOT_LABEL};
use appwrapper_metrics::labels::AdmissionOperation;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{labels, review::Request, verdict::Verdict};

/// The part of an AppWrapper that defaulting reads.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: Option<String>,
    labels: Option<Map<String, Value>>,
}

/// Answers the mutating webhook.
pub fn mutate(request: &Request<'_>, default_queue: &str) -> Verdict {
    if request.operation() != Some(AdmissionOperation::Create) {
        return Verdict::default();
    }
    let metadata = match request.decode_object::<Head>() {
        Ok(head) => head.metadata,
        Err(denial) => return Verdict::denied(denial),
    };
    let name = metadata.name.unwrap_or_default();
    let slot = labels::slot(&request.namespace, &name, &request.uid);
    let mut wanted = labels::identity(&request.user_info).to_vec();
    wanted.push((SLOT_LABEL, slot.to_string()));
    // An empty queue name is a choice: the key counts, not the value.
    let has_queue = metadata
        .labels
        .as_ref()
        .is_some_and(|labels| labels.contains_key(QUEUE_NAME_LABEL));
    if !default_queue.is_empty() && !has_queue {
        wanted.push((QUEUE_NAME_LABEL, default_queue.to_owned()));
    }
    Verdict {
        patch: patch(metadata.labels.as_ref(), wanted),
        ..Verdict::default()
    }
}

fn patch(labels: Option<&Map<String, Value>>, wanted: Vec<(&'static str, String)>) -> Vec<Value> {
    let Some(labels) = labels else {
        let labels: Map<_, _> = wanted
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect();
        return vec![json!({"op": "add", "path": "/metadata/labels", "value": labels})];
    };
    let missing = wanted
        .into_iter()
        .filter(|(key, value)| labels.get(*key).and_then(Value::as_str) != Some(value));
    missing
        .map(|(key, value)| {
            let pointer = key.replace('~', "~0").replace('/', "~1");
            json!({"op": "add", "path": format!("/metadata/labels/{pointer}"), "value": value})
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::review;

    fn mutated(mut object: Value, queue: &str, operation: &str) -> Value {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u-1", "operation": operation, "namespace": "ns", "object": object,
            "resource": {"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"},
            "userInfo": {"username": "system:serviceaccount:ns:bot", "uid": "7f/8"},
        }})
        .to_string();
        let verdict = mutate(&review::parse(body.as_bytes()).unwrap(), queue);
        assert_eq!(verdict.denial, None);
        let patch: json_patch::Patch = serde_json::from_value(Value::from(verdict.patch)).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        object
    }

    fn own_labels(name: &str) -> Value {
        json!({
            "workload.codeflare.dev/user": "system_serviceaccount_ns_bot",
            "workload.codeflare.dev/userid": "7f_8",
            "workload.codeflare.dev/slot": labels::slot("ns", name, "u-1").to_string(),
        })
    }

    #[rstest]
    #[case::no_labels(json!({"metadata": {"name": "a"}}))]
    #[case::null_labels(json!({"metadata": {"name": "a", "labels": null}}))]
    #[case::forged(json!({"metadata": {"name": "a", "labels": {
        "workload.codeflare.dev/user": "root", "workload.codeflare.dev/userid": "0", "workload.codeflare.dev/slot": "zz"}}}))]
    fn identity_and_slot_are_set_whatever_was_sent(#[case] object: Value) {
        assert_eq!(mutated(object, "", "CREATE")["metadata"]["labels"], own_labels("a"));
    }

    #[test]
    fn nothing_but_labels_is_touched() {
        let object =
            json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"components": [], "suspend": false}});
        let after = mutated(object.clone(), "", "CREATE");
        assert_eq!(after["spec"], object["spec"]);
        assert_eq!(after["metadata"]["labels"]["x"], "y");
    }

    #[test]
    fn a_name_to_be_generated_takes_its_slot_from_the_call() {
        let after = mutated(json!({"metadata": {"generateName": "a-"}}), "", "CREATE");
        assert_eq!(after["metadata"]["labels"], own_labels(""));
    }

    #[rstest]
    #[case(json!({}), "team", json!("team"))]
    #[case(json!({"kueue.x-k8s.io/queue-name": "mine"}), "team", json!("mine"))]
    #[case(json!({"kueue.x-k8s.io/queue-name": ""}), "team", json!(""))]
    #[case(json!({}), "", json!(null))]
    fn the_default_queue_fills_an_absent_key_only(#[case] labels: Value, #[case] queue: &str, #[case] expected: Value) {
        let after = mutated(json!({"metadata": {"name": "a", "labels": labels}}), queue, "CREATE");
        assert_eq!(after["metadata"]["labels"][QUEUE_NAME_LABEL], expected);
    }

    #[test]
    fn an_update_is_left_alone_and_a_right_object_needs_no_patch() {
        let object = json!({"metadata": {"name": "a", "labels": {"workload.codeflare.dev/user": "x"}}});
        assert_eq!(mutated(object.clone(), "team", "UPDATE"), object);
        let right = json!({"metadata": {"name": "a", "labels": own_labels("a")}});
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u-1", "operation": "CREATE", "namespace": "ns", "object": right,
            "resource": {"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"},
            "userInfo": {"username": "system:serviceaccount:ns:bot", "uid": "7f/8"},
        }})
        .to_string();
        assert!(mutate(&review::parse(body.as_bytes()).unwrap(), "").patch.is_empty());
    }
}
