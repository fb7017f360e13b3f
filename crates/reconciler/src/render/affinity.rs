//! Keeping pods off nodes that Autopilot has marked, for the resources they use (spec/components.md section 6).
//!
//! Expressions are sorted, so that a repeated attempt renders an identical object. An affinity of the wrong shape is
//! left to the API server's own validation.

use std::collections::{BTreeMap, BTreeSet};

use appwrapper_api::config::{AutopilotConfig, TaintEffect};
use serde_json::{Map, Value, json};

use super::ensure_map;

/// Adds the node affinity that `autopilot` asks for.
pub(super) fn inject(spec: &mut Map<String, Value>, autopilot: &AutopilotConfig) {
    let mut required = BTreeMap::<&str, BTreeSet<&str>>::new();
    let mut preferred = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (resource, taints) in &autopilot.resource_taints {
        if !uses(spec, resource) {
            continue;
        }
        for taint in taints {
            let group = match taint.effect {
                TaintEffect::NoExecute | TaintEffect::NoSchedule => &mut required,
                TaintEffect::PreferNoSchedule => &mut preferred,
            };
            group.entry(&taint.key).or_default().insert(&taint.value);
        }
    }
    if required.is_empty() && preferred.is_empty() {
        return;
    }
    if ["/affinity", "/affinity/nodeAffinity"]
        .iter()
        .any(|place| is_misshapen(spec, place))
    {
        return;
    }
    let node_affinity = ensure_map(ensure_map(spec, "affinity"), "nodeAffinity");
    if !required.is_empty() {
        require(node_affinity, &expressions(&required));
    }
    if !preferred.is_empty() {
        let term = json!({
            "weight": autopilot.prefer_no_schedule_weight.unwrap_or(1),
            "preference": {"matchExpressions": expressions(&preferred)},
        });
        match node_affinity
            .entry("preferredDuringSchedulingIgnoredDuringExecution")
            .or_insert(Value::Null)
        {
            Value::Array(terms) => terms.push(term),
            empty @ Value::Null => *empty = json!([term]),
            _ => {}
        }
    }
}

fn is_misshapen(spec: &Map<String, Value>, place: &str) -> bool {
    let found = place
        .split('/')
        .skip(1)
        .try_fold(None::<&Value>, |parent, key| match parent {
            None => spec.get(key).map(Some),
            Some(parent) => parent.get(key).map(Some),
        });
    found
        .flatten()
        .is_some_and(|value| !value.is_object() && !value.is_null())
}

fn expressions(values: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<Value> {
    values
        .iter()
        .map(|(key, values)| json!({"key": key, "operator": "NotIn", "values": values}))
        .collect()
}

/// Terms are alternatives, so each of them must carry the expressions. An empty list matches nothing and stays so.
fn require(node_affinity: &mut Map<String, Value>, expressions: &[Value]) {
    let selector = node_affinity
        .entry("requiredDuringSchedulingIgnoredDuringExecution")
        .or_insert_with(|| Value::Object(Map::new()));
    if selector.is_null() {
        *selector = Value::Object(Map::new());
    }
    let Some(selector) = selector.as_object_mut() else {
        return;
    };
    match selector.entry("nodeSelectorTerms").or_insert(Value::Null) {
        absent @ Value::Null => *absent = json!([{"matchExpressions": expressions}]),
        Value::Array(terms) => {
            for term in terms.iter_mut().filter_map(Value::as_object_mut) {
                match term.entry("matchExpressions").or_insert(Value::Null) {
                    Value::Array(own) => own.extend(expressions.iter().cloned()),
                    empty @ Value::Null => *empty = Value::Array(expressions.to_vec()),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// Whether a container or init container asks for the resource in a quantity other than zero.
fn uses(spec: &Map<String, Value>, resource: &str) -> bool {
    ["containers", "initContainers"]
        .iter()
        .filter_map(|list| spec.get(*list)?.as_array())
        .flatten()
        .any(|container| {
            ["limits", "requests"].iter().any(|kind| {
                match container.get("resources").and_then(|all| all.get(*kind)?.get(resource)) {
                    Some(Value::Number(number)) => number.as_i64().is_some_and(|count| count > 0),
                    Some(Value::String(quantity)) => is_non_zero(quantity),
                    _ => false,
                }
            })
        })
}

/// Whether a quantity such as `4`, `0`, `0.0` or `500m` is not zero: it is, if its number has no other digit than 0.
fn is_non_zero(quantity: &str) -> bool {
    let number = quantity
        .find(['e', 'E'])
        .map_or(quantity, |end| quantity.get(..end).unwrap_or_default());
    number.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}
