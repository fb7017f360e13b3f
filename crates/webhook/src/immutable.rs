//! What may not change once an AppWrapper exists.
//!
//! Paths are spelled as the Go controller spells them. Values are compared, not bytes: the order of keys and `1` against
//! `1.0` make no difference. Writes of the controller pass through here too; they alter none of this.

use appwrapper_api::{AppWrapper, Component, SLOT_LABEL, USER_ID_LABEL, USER_LABEL};
use serde_json::{Number, Value};

use crate::labels::{label, slot_of};

const IMMUTABLE: &str = "attempt to change immutable field";

/// A change that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Path of the field.
    pub field: String,
    /// Why not, and what to do instead.
    pub message: &'static str,
}

/// Every change from `old` to `new` that is not allowed.
pub fn changes(old: &AppWrapper, new: &AppWrapper) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut refuse = |field: String, message| changes.push(Change { field, message });
    let (before, after) = (&old.spec.components, &new.spec.components);
    if before.len() == after.len() {
        for (position, (before, after)) in before.iter().zip(after).enumerate() {
            component_changes(&format!("spec.components[{position}]"), before, after, &mut refuse);
        }
        // Placement belongs to an admission by Kueue, which writes it while the AppWrapper is suspended or together with
        // the change of suspend. At any other time it would lead a retry away from the quota that was given.
        if !old.spec.suspend && !new.spec.suspend {
            for (position, _) in before
                .iter()
                .zip(after)
                .enumerate()
                .filter(|(_, (b, a))| b.pod_set_infos != a.pod_set_infos)
            {
                refuse(
                    format!("spec.components[{position}].podSetInfos"),
                    "placement may change only while the AppWrapper is suspended; set spec.suspend in the same update",
                );
            }
        }
    } else {
        refuse("spec.components".into(), IMMUTABLE);
    }
    for key in [USER_LABEL, USER_ID_LABEL] {
        if label(old, key) != label(new, key) {
            refuse(format!("metadata.labels[{key}]"), IMMUTABLE);
        }
    }
    // A missing or impossible slot may be filled in, once.
    if let Some(slot) = slot_of(old)
        && slot_of(new) != Some(slot)
    {
        refuse(format!("metadata.labels[{SLOT_LABEL}]"), IMMUTABLE);
    }
    if old.spec.managed_by != new.spec.managed_by {
        refuse("spec.managedBy".into(), IMMUTABLE);
    }
    changes
}

fn component_changes(field: &str, old: &Component, new: &Component, refuse: &mut impl FnMut(String, &'static str)) {
    if old.template != new.template {
        let same = match (old.template.object(), new.template.object()) {
            (Ok(old), Ok(new)) => same_value(&Value::Object(old), &Value::Object(new)),
            _ => false,
        };
        if !same {
            refuse(format!("{field}.template.raw"), IMMUTABLE);
        }
    }
    if old.pod_sets.len() != new.pod_sets.len() {
        return refuse(format!("{field}.podsets"), IMMUTABLE);
    }
    for (index, (old, new)) in old.pod_sets.iter().zip(&new.pod_sets).enumerate() {
        if old.replicas.unwrap_or(1) != new.replicas.unwrap_or(1) {
            refuse(format!("{field}.podsets[{index}].replicas"), IMMUTABLE);
        }
        if old.path != new.path {
            refuse(format!("{field}.podsets[{index}].path"), IMMUTABLE);
        }
    }
}

fn same_value(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Number(old), Value::Number(new)) => same_number(old, new),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same_value(old, new))
        }
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len()
                && old
                    .iter()
                    .all(|(key, old)| new.get(key).is_some_and(|new| same_value(old, new)))
        }
        (old, new) => old == new,
    }
}

fn same_number(old: &Number, new: &Number) -> bool {
    let whole = |number: &Number| {
        number
            .as_i64()
            .map(i128::from)
            .or_else(|| number.as_u64().map(i128::from))
    };
    match (whole(old), whole(new)) {
        (Some(old), Some(new)) => old == new,
        // At least one was written with a point or an exponent.
        _ => old.as_f64() == new.as_f64(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wrapper() -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "ns", "labels": {
                "workload.codeflare.dev/user": "ann", "workload.codeflare.dev/userid": "", "workload.codeflare.dev/slot": "07",
            }},
            "spec": {"components": [
                {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"x": 1, "y": [2, 3.5]}}},
                {"template": {"apiVersion": "e.c/v1", "kind": "W"}, "podSets": [{"path": "template.a"}, {"path": "template.b", "replicas": 2}]},
            ]},
        })
    }

    fn changed(edit: impl FnOnce(&mut Value)) -> Vec<String> {
        let (old, mut new) = (wrapper(), wrapper());
        edit(&mut new);
        compared(&old, &new)
    }

    fn compared(old: &Value, new: &Value) -> Vec<String> {
        let typed = |value: &Value| serde_json::from_str::<AppWrapper>(&value.to_string()).unwrap();
        changes(&typed(old), &typed(new))
            .into_iter()
            .map(|change| change.field)
            .collect()
    }

    type Edit = fn(&mut Value);

    #[test]
    fn what_may_change_may() {
        let edits: &[(&str, Edit)] = &[
            ("nothing", |_| {}),
            ("suspend", |w| w["spec"]["suspend"] = true.into()),
            ("suspend_with_placement", |w| {
                w["spec"]["suspend"] = true.into();
                w["spec"]["components"][0]["podSetInfos"] = json!([{}]);
            }),
            ("component_annotations", |w| {
                w["spec"]["components"][0]["annotations"] = json!({"a": "b"});
            }),
            ("pod_set_annotations", |w| {
                w["spec"]["components"][1]["podSets"][0]["annotations"] = json!({"a": "b"});
            }),
            ("metadata", |w| {
                w["metadata"]["finalizers"] = json!(["x"]);
                w["metadata"]["annotations"] = json!({"a": "b"});
                w["metadata"]["labels"]["q"] = "r".into();
            }),
            ("absent_replicas_are_one", |w| {
                w["spec"]["components"][1]["podSets"][0]["replicas"] = 1.into();
            }),
            ("absent_label_is_empty", |w| {
                w["metadata"]["labels"]
                    .as_object_mut()
                    .unwrap()
                    .remove("workload.codeflare.dev/userid");
            }),
            ("number_forms", |w| {
                w["spec"]["components"][0]["template"]["spec"] = json!({"y": [2.0, 3.5], "x": 1.0});
            }),
        ];
        for (name, edit) in edits {
            assert_eq!(changed(edit), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn what_may_not_change_is_refused_by_its_field() {
        let edits: &[(&str, Edit, &str)] = &[
            (
                "count",
                |w| {
                    w["spec"]["components"].as_array_mut().unwrap().pop();
                },
                "spec.components",
            ),
            (
                "template",
                |w| w["spec"]["components"][0]["template"]["spec"]["x"] = 2.into(),
                "spec.components[0].template.raw",
            ),
            (
                "template_field_gone",
                |w| w["spec"]["components"][0]["template"]["spec"] = json!({"x": 1}),
                "spec.components[0].template.raw",
            ),
            (
                "template_type",
                |w| w["spec"]["components"][0]["template"]["spec"]["x"] = "1".into(),
                "spec.components[0].template.raw",
            ),
            (
                "pod_set_count",
                |w| w["spec"]["components"][1]["podSets"] = json!([]),
                "spec.components[1].podsets",
            ),
            (
                "replicas",
                |w| w["spec"]["components"][1]["podSets"][1]["replicas"] = 3.into(),
                "spec.components[1].podsets[1].replicas",
            ),
            (
                "path",
                |w| w["spec"]["components"][1]["podSets"][0]["path"] = "template.c".into(),
                "spec.components[1].podsets[0].path",
            ),
            (
                "user",
                |w| w["metadata"]["labels"]["workload.codeflare.dev/user"] = "bob".into(),
                "metadata.labels[workload.codeflare.dev/user]",
            ),
            (
                "user_id",
                |w| w["metadata"]["labels"]["workload.codeflare.dev/userid"] = "1".into(),
                "metadata.labels[workload.codeflare.dev/userid]",
            ),
            (
                "slot",
                |w| w["metadata"]["labels"]["workload.codeflare.dev/slot"] = "08".into(),
                "metadata.labels[workload.codeflare.dev/slot]",
            ),
            (
                "slot_gone",
                |w| {
                    w["metadata"]["labels"]
                        .as_object_mut()
                        .unwrap()
                        .remove("workload.codeflare.dev/slot");
                },
                "metadata.labels[workload.codeflare.dev/slot]",
            ),
            ("managed_by", |w| w["spec"]["managedBy"] = "".into(), "spec.managedBy"),
            (
                "placement",
                |w| w["spec"]["components"][0]["podSetInfos"] = json!([{"nodeSelector": {"a": "b"}}]),
                "spec.components[0].podSetInfos",
            ),
        ];
        for (name, edit, field) in edits {
            assert_eq!(changed(edit), [*field], "{name}");
        }
    }

    #[test]
    fn kueue_starts_and_stops_in_one_update() {
        let mut suspended = wrapper();
        suspended["spec"]["suspend"] = true.into();
        let mut started = wrapper();
        started["spec"]["components"][0]["podSetInfos"] = json!([{"nodeSelector": {"a": "b"}}]);
        assert_eq!(compared(&suspended, &started), Vec::<String>::new());
        assert_eq!(compared(&started, &suspended), Vec::<String>::new());
    }

    #[test]
    fn a_missing_slot_may_be_filled_in() {
        let mut old = wrapper();
        old["metadata"]["labels"]["workload.codeflare.dev/slot"] = "ff".into();
        assert_eq!(compared(&old, &wrapper()), Vec::<String>::new());
    }

    #[test]
    fn large_numbers_are_compared_exactly() {
        let mut old = wrapper();
        old["spec"]["components"][0]["template"]["spec"]["x"] = 9_007_199_254_740_993_i64.into();
        let mut new = wrapper();
        new["spec"]["components"][0]["template"]["spec"]["x"] = 9_007_199_254_740_992_i64.into();
        assert_eq!(compared(&old, &new), ["spec.components[0].template.raw"]);
    }
}
