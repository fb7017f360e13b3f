//! What makes a value a usable pod template: an object with a `spec` that is strictly a core/v1 `PodSpec`.
//!
//! serde ignores unknown fields, so strictness is built: the spec is decoded, encoded again, and whatever did not come
//! back is unknown. A misspelled field would otherwise be dropped by the wrapped kind's own controller in silence.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;

use crate::path::type_name;

/// Checks that `value` is a pod template; the error says where it is not.
pub fn check(value: &Value) -> Result<(), String> {
    let object = value
        .as_object()
        .ok_or_else(|| format!("expected a pod template, found {}", type_name(value)))?;
    let spec = object
        .get("spec")
        .filter(|spec| spec.is_object())
        .ok_or("the pod template has no object \"spec\"")?;
    let mut spec = spec.clone();
    drop_nulls(&mut spec);
    quantities_to_text(&mut spec);
    let decoded: PodSpec = serde_json::from_value(spec.clone()).map_err(|error| format!("spec: {error}"))?;
    let encoded = serde_json::to_value(&decoded).map_err(|error| format!("spec: {error}"))?;
    match first_lost(&spec, &encoded, "spec") {
        Some(place) => Err(format!("unknown field {place:?}")),
        None => Ok(()),
    }
}

/// Null means absent to the API server.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Quantities may be written as numbers; the typed form holds text.
fn quantities_to_text(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match (name.as_str(), &mut *field) {
                    ("limits" | "requests" | "overhead", Value::Object(quantities)) => {
                        quantities.values_mut().for_each(number_to_text);
                    }
                    ("sizeLimit" | "divisor", quantity) => number_to_text(quantity),
                    _ => quantities_to_text(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(quantities_to_text),
        _ => {}
    }
}

fn number_to_text(value: &mut Value) {
    if let Value::Number(number) = value {
        *value = Value::String(number.to_string());
    }
}

/// The place of the first field of `before` that is missing from `after`.
fn first_lost(before: &Value, after: &Value, place: &str) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => before.iter().find_map(|(name, field)| {
            let place = format!("{place}.{name}");
            match after.get(name) {
                Some(kept) => first_lost(field, kept, &place),
                None => Some(place),
            }
        }),
        (Value::Array(before), Value::Array(after)) => before
            .iter()
            .zip(after)
            .enumerate()
            .find_map(|(index, (item, kept))| first_lost(item, kept, &format!("{place}[{index}]"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"spec": {"containers": [{"name": "a", "image": "i"}]}}))]
    #[case(json!({"metadata": {"anything": 1}, "spec": {"containers": [{"name": "a"}], "tolerations": null}}))]
    #[case(json!({"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": 1, "nvidia.com/gpu": 4}}}]}}))]
    #[case(json!({"spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {}}}))]
    fn a_pod_template_is_usable(#[case] value: Value) {
        assert_eq!(check(&value), Ok(()));
    }

    #[rstest]
    #[case(json!(null), "found null")]
    #[case(json!({"metadata": {}}), "no object \"spec\"")]
    #[case(json!({"spec": []}), "no object \"spec\"")]
    #[case(json!({"spec": {"containers": [{"name": "a", "imagee": "i"}]}}), "spec.containers[0].imagee")]
    #[case(json!({"spec": {"containers": "x"}}), "spec:")]
    #[case(json!({"spec": {"containers": [], "bogus": 1}}), "spec.bogus")]
    fn what_is_none_says_where(#[case] value: Value, #[case] part: &str) {
        let error = check(&value).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
