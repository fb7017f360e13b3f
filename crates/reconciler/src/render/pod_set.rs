//! Injection into one pod template (spec/components.md section 5).

use std::collections::BTreeMap;

use appwrapper_api::{APPWRAPPER_LABEL, PodSetInfo, SLOT_LABEL, Slot};
use serde_json::{Map, Value};

use super::{RenderError, affinity, ensure_map};
use crate::policy::Policy;

/// Puts labels, placement and scheduling of `info` and of the policy into the pod template.
pub(super) fn inject(
    template: &mut Map<String, Value>,
    info: &PodSetInfo,
    name: &str,
    slot: Slot,
    policy: &Policy,
) -> Result<(), RenderError> {
    let metadata = ensure_map(template, "metadata");
    if !info.annotations.is_empty() {
        unite(ensure_map(metadata, "annotations"), &info.annotations, "annotations")?;
    }
    let mut labels = info.labels.clone();
    labels.entry(APPWRAPPER_LABEL.into()).or_insert_with(|| name.to_owned());
    let own = ensure_map(metadata, "labels");
    unite(own, &labels, "labels")?;
    own.insert(SLOT_LABEL.into(), slot.to_string().into());

    let spec = ensure_map(template, "spec");
    if !info.node_selector.is_empty() {
        unite(ensure_map(spec, "nodeSelector"), &info.node_selector, "nodeSelector")?;
    }
    for toleration in &info.tolerations {
        ensure_list(spec, "tolerations").push(serde_json::to_value(toleration).unwrap_or_default());
    }
    for gate in &info.scheduling_gates {
        let gates = ensure_list(spec, "schedulingGates");
        if !gates
            .iter()
            .any(|own| own.get("name").and_then(Value::as_str) == Some(&gate.name))
        {
            gates.push(serde_json::to_value(gate).unwrap_or_default());
        }
    }
    let has_scheduler = spec
        .get("schedulerName")
        .and_then(Value::as_str)
        .is_some_and(|own| !own.is_empty());
    if !policy.scheduler_name.is_empty() && !has_scheduler {
        spec.insert("schedulerName".into(), (*policy.scheduler_name).into());
    }
    if let Some(autopilot) = &policy.anti_affinity {
        affinity::inject(spec, autopilot);
    }
    Ok(())
}

/// Adds entries to a map of strings; equal ones are no conflict. What the template holds is made text first, as the Go
/// controller does.
fn unite(own: &mut Map<String, Value>, more: &BTreeMap<String, String>, what: &'static str) -> Result<(), RenderError> {
    for value in own.values_mut() {
        match value {
            Value::Bool(_) | Value::Number(_) => *value = Value::String(value.to_string()),
            _ => {}
        }
    }
    for (key, value) in more {
        match own.get(key).and_then(Value::as_str) {
            Some(existing) if existing != value => {
                return Err(RenderError::Conflict {
                    what,
                    key: key.clone(),
                    own: existing.to_owned(),
                    other: value.clone(),
                });
            }
            _ => {
                own.insert(key.clone(), value.as_str().into());
            }
        }
    }
    Ok(())
}

/// The list under `key`, made if absent, null or of another type.
fn ensure_list<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Vec<Value> {
    let child = parent.entry(key).or_insert_with(|| Value::Array(Vec::new()));
    if !child.is_array() {
        *child = Value::Array(Vec::new());
    }
    match child {
        Value::Array(child) => child,
        _ => unreachable!("made an array above"),
    }
}
