//! The object that is created for a component, outside its pod templates (spec/components.md section 4).

use appwrapper_api::{
    APPWRAPPER_LABEL, AppWrapper, AppWrapperStatus, ComponentRef, Phase, SLOT_LABEL, Slot, config::AppWrapperConfig,
};
use appwrapper_reconciler::{Defaults, Policy, render, status::init_components};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{fixtures::*, sim::Sim};

pub fn policy(config: &AppWrapperConfig) -> Policy {
    Defaults::new(config).resolve(&appwrapper_api::Annotations::default()).0
}

pub fn status_of(wrapper: &AppWrapper) -> AppWrapperStatus {
    let mut status = AppWrapperStatus::default();
    init_components(wrapper, &mut status).unwrap();
    status
}

/// Renders the component at `position` under the name of its template, or `generated`.
pub fn rendered(wrapper: &AppWrapper, position: usize, policy: &Policy) -> Result<Value, String> {
    let head = wrapper.spec.components[position].template.head().unwrap();
    let component = ComponentRef {
        position,
        type_ref: head.type_ref.clone(),
        name: head.name.clone().unwrap_or_else(|| "generated".into()),
    };
    render::component(wrapper, &status_of(wrapper), &component, policy).map_err(|error| error.to_string())
}

fn plain(template: Value) -> Result<Value, String> {
    rendered(&wrapper([template]), 0, &policy(&AppWrapperConfig::default()))
}

fn with_metadata(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
}

#[test]
fn namespace_label_slot_and_owner_are_added() {
    let object = plain(with_metadata(json!({"name": "svc"}))).unwrap();
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "svc", "namespace": "ns",
                "labels": {APPWRAPPER_LABEL: "aw", SLOT_LABEL: Slot::of("ns", "aw").to_string()},
                "ownerReferences": [{
                    "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "aw", "uid": "uid-aw",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
        })
    );
}

#[test]
fn the_slot_is_the_appwrappers() {
    let mut wrapper = wrapper([job("train")]);
    wrapper
        .metadata
        .labels
        .get_or_insert_default()
        .insert(SLOT_LABEL.into(), "2a".into());
    let object = rendered(&wrapper, 0, &policy(&AppWrapperConfig::default())).unwrap();
    assert_eq!(object["metadata"]["labels"][SLOT_LABEL], "2a");
    assert_eq!(object["spec"]["template"]["metadata"]["labels"][SLOT_LABEL], "2a");
}

#[test]
fn the_templates_own_metadata_survives() {
    let object = plain(with_metadata(json!({
        "name": "svc", "namespace": "ns", "labels": {"app": "x", APPWRAPPER_LABEL: "mine"}, "annotations": {"note": "y"},
    })))
    .unwrap();
    assert_eq!(object["metadata"]["labels"]["app"], "x");
    assert_eq!(
        object["metadata"]["labels"][APPWRAPPER_LABEL], "mine",
        "an existing value is kept"
    );
    assert_eq!(object["metadata"]["annotations"], json!({"note": "y"}));
}

#[rstest]
#[case::null_labels(json!({"name": "svc", "labels": null}))]
#[case::odd_labels(json!({"name": "svc", "labels": "odd"}))]
#[case::a_label_of_null(json!({"name": "svc", "labels": {APPWRAPPER_LABEL: null}}))]
#[case::null_owners(json!({"name": "svc", "ownerReferences": null}))]
#[case::empty_namespace(json!({"name": "svc", "namespace": ""}))]
fn what_is_null_or_odd_is_as_if_absent(#[case] metadata: Value) {
    let object = plain(with_metadata(metadata)).unwrap();
    assert_eq!(object["metadata"]["labels"][APPWRAPPER_LABEL], "aw");
    assert_eq!(object["metadata"]["namespace"], "ns");
    assert_eq!(object["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
}

#[test]
fn a_generated_name_replaces_its_prefix() {
    let object = plain(with_metadata(json!({"generateName": "svc-"}))).unwrap();
    assert_eq!(object["metadata"]["name"], "generated");
    assert!(object["metadata"].get("generateName").is_none());
}

#[test]
fn what_only_the_server_writes_is_left_out() {
    let object = plain(with_metadata(json!({
        "name": "svc", "uid": "u", "resourceVersion": "1", "generation": 3, "creationTimestamp": null,
        "deletionTimestamp": "2026-01-01T00:00:00Z", "managedFields": [],
    })))
    .unwrap();
    let keys: Vec<_> = object["metadata"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["labels", "name", "namespace", "ownerReferences"]);
}

#[test]
fn another_namespace_is_refused_by_name() {
    let error = plain(with_metadata(json!({"name": "svc", "namespace": "other"}))).unwrap_err();
    assert!(error.contains("\"other\"") && error.contains("\"ns\""), "{error}");
}

#[test]
fn other_owners_stay_and_an_old_reference_to_us_is_replaced() {
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"});
    let old = json!({"apiVersion": "workload.codeflare.dev/v1", "kind": "AppWrapper", "name": "aw", "uid": "old", "controller": true});
    let object = plain(with_metadata(
        json!({"name": "svc", "ownerReferences": [other.clone(), old]}),
    ))
    .unwrap();
    let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!(owners.len(), 2);
    assert_eq!(owners[0], other);
    assert_eq!(owners[1]["uid"], "uid-aw");
}

#[test]
fn another_controller_is_refused_by_name_and_fails_the_appwrapper() {
    let controller =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "w", "controller": true});
    let template = with_metadata(json!({"name": "svc", "ownerReferences": [controller]}));
    let error = plain(template.clone()).unwrap_err();
    assert!(error.contains("Deployment web"), "{error}");
    let mut sim = Sim::new([template, job("train")]);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.status().resetting_count, 0);
}

#[test]
fn a_repeated_rendering_is_the_same_to_the_byte() {
    let wrapper = wrapper([jobset("set")]);
    let policy = policy(&AppWrapperConfig::default());
    let once = rendered(&wrapper, 0, &policy).unwrap().to_string();
    assert_eq!(once, rendered(&wrapper, 0, &policy).unwrap().to_string());
}

#[test]
fn the_created_object_is_the_rendered_one() {
    let mut sim = Sim::new([job("train")]);
    sim.settle();
    let created = sim.state().objects.values().next().unwrap().body.clone();
    assert_eq!(created, plain(job("train")).unwrap());
}
