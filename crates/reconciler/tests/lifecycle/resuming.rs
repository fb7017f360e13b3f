//! Resuming: components are created in order, what may exist is written down before, refusals cost time and then a retry.

use appwrapper_api::{ConditionType, Phase, TypeRef, config::AppWrapperConfig};
use appwrapper_reconciler::observation::Observation;
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    fixtures::*,
    sim::{Pass, Sim},
    world::Fault,
};

#[test]
fn intents_are_written_in_one_patch_and_components_created_in_order() {
    let mut sim = Sim::new([service("b"), job("a"), pod("c")]);
    sim.settle();
    assert_eq!(
        sim.writes(),
        [
            "add finalizer",
            "status Resuming",
            "create Service b",
            "create Job a",
            "create Pod c",
            "status Running"
        ]
    );
    assert_eq!(sim.phase(), Phase::Running);
    let status = sim.status();
    let named: Vec<_> = status
        .component_status
        .iter()
        .map(|component| format!("{}/{} {}", component.api_version, component.kind, component.name))
        .collect();
    assert_eq!(named, ["v1/Service b", "batch/v1/Job a", "v1/Pod c"]);
    assert!((0..3).all(|position| sim.component(position) == "True ComponentCreatedSuccessfully"));
    assert_eq!(sim.entered(), [Phase::Suspended, Phase::Resuming, Phase::Running]);
    assert_eq!(sim.reads(), [""; 0]);
}

#[test]
fn before_the_first_create_every_component_is_recorded_as_unknown() {
    let mut sim = Sim::new([job("a"), service("b")]);
    sim.state().faults.add("create Job a", Fault::Crash, false);
    assert_eq!(sim.pass(), Pass::Crashed);
    assert_eq!(sim.component(0), "Unknown ComponentCreationInitiated");
    assert_eq!(sim.component(1), "Unknown ComponentCreationInitiated");
    assert_eq!(sim.status().component_status[1].name, "b");
    sim.restart();
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.count("create Service b"), 1);
}

#[test]
fn a_create_that_can_never_succeed_fails_at_once_whatever_the_limit() {
    let mut sim = Sim::new([pod("first"), pod("second")]);
    sim.state().faults.add(
        "create Pod second",
        Fault::Never("Pod is invalid: spec.containers[0].image"),
        false,
    );
    sim.state().faults.add("delete", Fault::Refuse("not now"), true);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.status().resetting_count, 0);
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("True"));
    assert!(sim.condition(ConditionType::ResourcesDeployed).starts_with("True"));
    assert!(sim.condition(ConditionType::PodsReady).starts_with("False"));
    assert_eq!(sim.component(1), "False ComponentCreationErrored");
    assert_eq!(sim.objects(), ["first"]);
    assert_eq!(
        sim.notes(),
        ["Unhealthy: CreateFailed: error creating components: Pod is invalid: spec.containers[0].image"]
    );
    assert!(
        sim.told()
            .iter()
            .any(|told| matches!(told, Observation::Failed("CreateFailed")))
    );
}

#[test]
fn a_kind_that_is_not_served_fails_at_once() {
    let mut sim = Sim::new([widget("w")]);
    sim.state().faults.add("create Widget w", Fault::NotServed, false);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("False Failed"));
}

/// The webhook was away, or let it in by another configuration.
#[rstest]
#[case::not_listed(widget("w"), "kind example.com/Widget may not be wrapped")]
#[case::privileged(
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "w"}}),
    "create RoleBinding directly"
)]
fn a_kind_that_the_configuration_forbids_is_named_and_nothing_is_created(#[case] forbidden: Value, #[case] told: &str) {
    let wrapper = wrapper([job("first"), forbidden]);
    let mut sim = Sim::configured(&AppWrapperConfig::default(), wrapper);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.status().resetting_count, 0);
    assert_eq!(sim.objects(), [""; 0]);
    let notes = sim.notes();
    assert!(
        notes[0].starts_with("Unhealthy: CreateFailed: error creating components: spec.components[1].template: ")
            && notes[0].contains(told),
        "{notes:?}"
    );
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("False"));
}

#[test]
fn suspended_while_resuming() {
    let mut sim = Sim::new([job("a"), job("b")]);
    sim.state().faults.add("create Job b", Fault::Refuse("quota"), true);
    sim.settle();
    sim.forget_calls();
    sim.state().suspend(true);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
    assert_eq!(
        sim.notes(),
        ["Suspending: Externally suspended while in the Resuming phase"]
    );
    assert!(!sim.events()[0].warning);
    assert_eq!(sim.objects(), [""; 0]);
}

#[test]
fn a_deletion_while_resuming_creates_nothing_more() {
    let mut sim = Sim::new([job("a"), job("b")]);
    sim.state()
        .faults
        .add("create Job b", Fault::Refuse("namespace is terminating"), true);
    sim.settle();
    sim.forget_calls();
    sim.state().delete_wrapper();
    sim.settle();
    sim.later(5);
    assert!(sim.state().wrapper.is_none());
    assert_eq!(sim.count("create"), 0);
    assert_eq!(sim.objects(), [""; 0]);
}

#[test]
fn a_spec_that_breaks_a_rule_fails_before_anything_is_created() {
    let mut foreign = service("svc");
    foreign["metadata"]["namespace"] = json!("elsewhere");
    for (templates, part) in [
        (vec![job("train"), job("train")], "wrapped twice"),
        (vec![job("train"), foreign], "elsewhere"),
        (
            vec![
                job("train"),
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {}}),
            ],
            "name",
        ),
    ] {
        let mut sim = Sim::new(templates);
        sim.settle();
        assert_eq!(sim.phase(), Phase::Failed);
        let condition = sim.condition(ConditionType::Unhealthy);
        assert!(
            condition.starts_with("True CreateFailed") && condition.contains(part),
            "{condition}"
        );
        assert_eq!(sim.count("create"), 0);
    }
}

#[test]
fn a_hundred_components_are_created_and_deleted_in_bounded_steps() {
    let mut sim = Sim::new(
        (0..100)
            .map(|index| service(&format!("s{index:03}")))
            .chain([job("train")]),
    );
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.count("status"), 2);
    sim.state().delete_wrapper();
    sim.settle();
    assert!(sim.state().wrapper.is_none());
    assert!(sim.objects().is_empty());
}

#[test]
fn an_error_text_of_the_api_server_is_cut() {
    let long: &'static str = Box::leak("x".repeat(100_000).into_boxed_str());
    let mut sim = Sim::new([job("train")]);
    sim.state().faults.add("create Job train", Fault::Never(long), false);
    sim.settle();
    assert!(sim.condition(ConditionType::Unhealthy).len() < 3_000);
}

#[test]
fn a_status_without_conditions_or_components_is_put_right() {
    let mut sim = Sim::new([job("train")]);
    sim.edit_status(|status| status.set_phase(Phase::Resuming));
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(
        sim.condition(ConditionType::QuotaReserved),
        "True Resuming: Suspend is false"
    );
}

#[test]
fn an_old_copy_that_wants_to_resume_creates_nothing() {
    let mut sim = Sim::new([job("train")]).run();
    let resuming = sim
        .state()
        .history
        .iter()
        .rfind(|copy| copy.status.phase == "Resuming")
        .cloned()
        .unwrap();
    sim.state().suspend(true);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
    sim.restart();
    sim.forget_calls();
    sim.pass_on(Some(resuming));
    assert_eq!(sim.objects(), [""; 0]);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
    assert!(
        sim.state().kinds[&TypeRef::new("batch/v1", "Job")]
            .get("train")
            .is_none()
    );
}
