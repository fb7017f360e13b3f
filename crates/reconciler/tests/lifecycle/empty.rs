//! The empty phase, and what is left alone altogether (spec/lifecycle.md sections 2 and 3, R21, C07).

use appwrapper_api::{CONTROLLER_NAME, ConditionType, Phase};
use rstest::rstest;
use serde_json::json;

use crate::{
    fixtures::*,
    sim::{ON_CHANGE, Sim, after},
    world::Fault,
};

fn suspended(mut wrapper: appwrapper_api::AppWrapper) -> appwrapper_api::AppWrapper {
    wrapper.spec.suspend = true;
    wrapper
}

#[test]
fn a_new_appwrapper_becomes_suspended_with_all_its_pod_sets_and_no_condition() {
    let mut sim = Sim::of(suspended(wrapper([jobs("train", 3), service("svc"), jobset("set")])));
    assert_eq!(sim.settle(), ON_CHANGE);
    let status = sim.status();
    assert_eq!(status.phase(), Some(Phase::Suspended));
    assert!(status.conditions.is_empty());
    let sets: Vec<Vec<i32>> = status
        .component_status
        .iter()
        .map(|component| component.pod_sets.iter().map(|set| set.replicas.unwrap()).collect())
        .collect();
    assert_eq!(sets, [vec![3], vec![], vec![6, 1]]);
    assert!(
        status
            .component_status
            .iter()
            .all(|component| component.name.is_empty() && component.conditions.is_empty())
    );
    assert_eq!(sim.writes(), ["status Suspended"]);
    assert_eq!(sim.entered(), [Phase::Suspended]);
    assert!(sim.events().is_empty());
}

#[test]
fn the_hints_for_topology_are_published() {
    let mut sim = Sim::of(suspended(wrapper([jobset("set")])));
    sim.settle();
    let set = &sim.status().component_status[0].pod_sets[0];
    assert_eq!(set.path, "template.spec.replicatedJobs[0].template.spec.template");
    assert_eq!(
        set.annotations["workload.codeflare.dev.appwrapper/tas-sub-group-count"],
        "2"
    );
    assert_eq!(
        set.annotations["workload.codeflare.dev.appwrapper/tas-pod-index-label"],
        "batch.kubernetes.io/job-completion-index"
    );
}

#[test]
fn declared_pod_sets_are_kept_as_written() {
    let mut sim = Sim::of(suspended(wrapper([widget("w")])));
    sim.settle();
    let sets = serde_json::to_value(&sim.status().component_status[0].pod_sets).unwrap();
    assert_eq!(sets, json!([{"path": "template.spec.list[0].tpl", "replicas": 1}]));
}

#[test]
fn pod_sets_of_the_right_number_are_not_computed_again() {
    let mut sim = Sim::of(suspended(wrapper([jobs("train", 3)])));
    sim.edit_status(|status| {
        let mut component = appwrapper_api::ComponentStatus::default();
        component.pod_sets.push(appwrapper_api::PodSet {
            path: "template".into(),
            replicas: Some(9),
            ..Default::default()
        });
        status.component_status = vec![component];
    });
    sim.settle();
    assert_eq!(sim.status().component_status[0].pod_sets[0].replicas, Some(9));
}

#[test]
fn an_appwrapper_whose_pod_sets_cannot_be_told_says_so_once_and_waits_for_a_change() {
    let bad = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {}});
    let mut sim = Sim::new([service("svc"), bad]);
    assert_eq!(sim.settle(), after(600));
    assert_eq!(sim.phase(), Phase::Empty);
    let condition = sim.condition(ConditionType::Unhealthy);
    assert!(
        condition.starts_with("True InvalidComponent: spec.components[1]"),
        "{condition}"
    );
    assert!(
        sim.status().component_status.is_empty(),
        "published complete or not at all"
    );
    sim.later(600);
    sim.later(600);
    assert_eq!(sim.events().len(), 1);
    assert!(sim.events()[0].warning);
    assert_eq!(sim.writes(), ["status "]);
    sim.state()
        .edit_wrapper(|wrapper| wrapper.spec.components[1].template = appwrapper_api::Template::new(&job("train")));
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert!(sim.condition(ConditionType::Unhealthy).starts_with("False"));
}

#[test]
fn an_appwrapper_without_components_succeeds_at_once() {
    let mut sim = Sim::new([]);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Succeeded);
    assert_eq!(
        sim.condition(ConditionType::QuotaReserved),
        "False Succeeded: 0 pods succeeded and no running, pending, or failed pods"
    );
}

#[rstest]
#[case::multikueue("kueue.x-k8s.io/multikueue")]
#[case::nobody("")]
fn what_somebody_else_manages_is_not_touched_at_all(#[case] manager: &str) {
    let mut managed = wrapper([job("train")]);
    managed.spec.managed_by = Some(manager.to_owned());
    let mut sim = Sim::of(managed);
    assert_eq!(sim.settle(), ON_CHANGE);
    sim.edit_status(|status| status.set_phase(Phase::Running));
    assert_eq!(sim.settle(), ON_CHANGE);
    sim.state().delete_wrapper();
    sim.settle();
    assert!(sim.state().wrapper.is_none());
    assert_eq!(sim.calls(), [""; 0]);
    assert!(sim.told().is_empty());
}

#[test]
fn our_own_name_as_manager_changes_nothing() {
    let mut managed = wrapper([job("train")]);
    managed.spec.managed_by = Some(CONTROLLER_NAME.to_owned());
    let mut sim = Sim::of(managed);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
}

#[rstest]
#[case::unknown("Paused")]
#[case::terminating_without_deletion("Terminating")]
fn a_phase_that_can_only_have_been_put_there_by_hand_is_left_alone(#[case] phase: &str) {
    let mut sim = Sim::new([job("train")]);
    sim.edit_status(|status| phase.clone_into(&mut status.phase));
    assert_eq!(sim.settle(), ON_CHANGE);
    assert_eq!(sim.writes(), [""; 0]);
}

#[test]
fn a_malformed_annotation_is_told_once() {
    let mut sim = Sim::with(
        &[("warmupGracePeriodDuration", "222badTime"), ("retryLimit", "2")],
        [job("train")],
    );
    sim.settle();
    for _ in 0..5 {
        sim.later(5);
    }
    let notes = sim.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("warmupGracePeriodDuration") && notes[0].contains("222badTime"),
        "{notes:?}"
    );
    assert!(sim.events()[0].warning);
}

#[test]
fn a_malformed_annotation_is_told_although_the_first_write_met_a_conflict() {
    let mut sim = Sim::with(&[("retryLimit", "abc")], [job("train")]);
    sim.state()
        .faults
        .add("add finalizer", Fault::Refuse("conflict"), false);
    sim.settle();
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.events().len(), 1);
}
