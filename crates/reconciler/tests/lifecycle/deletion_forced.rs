//! Deletion that takes too long (spec/lifecycle.md section 4, steps 3 to 7; section 9, rows 25, 28, 30, 32; R17).

use appwrapper_api::{ConditionType, Lineage, Phase, PodPhase, Uid};
use appwrapper_reconciler::observation::Observation;

use crate::{
    fixtures::*,
    sim::{Sim, after},
};

const GRACE: &[(&str, &str)] = &[("forcefulDeletionGracePeriodDuration", "10s")];

/// Suspended with a pod that does not go by itself.
fn stuck() -> Sim {
    let mut sim = Sim::with(GRACE, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.forget_calls();
    sim.state().suspend(true);
    sim.settle();
    sim
}

#[test]
fn pods_are_deleted_by_force_once_the_grace_is_over() {
    let mut sim = stuck();
    sim.later(5);
    assert_eq!(sim.count("delete pod"), 0);
    sim.later(5);
    assert_eq!(sim.count("delete pod train-0"), 1);
    sim.settle();
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Suspended);
}

#[test]
fn a_pod_that_a_finalizer_holds_is_named_once_and_tried_at_most_every_five_seconds() {
    let mut sim = stuck();
    sim.state()
        .edit_pod("train-0", |pod| pod.finalizers = vec!["example.com/hold".into()]);
    for _ in 0..60 {
        sim.later(1);
    }
    let deletes = sim.count("delete pod");
    assert!((8..=11).contains(&deletes), "{deletes}");
    let notes: Vec<_> = sim
        .notes()
        .into_iter()
        .filter(|note| note.starts_with("DeletionForced"))
        .collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("pod train-0") && notes[0].contains("example.com/hold"),
        "{notes:?}"
    );
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("True"));
    assert_eq!(sim.phase(), Phase::Suspending);
    sim.state().edit_pod("train-0", |pod| pod.finalizers.clear());
    sim.state().collect();
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
}

#[test]
fn that_deletion_is_forced_is_told_once_a_pass() {
    let mut sim = stuck();
    sim.later(10);
    let forced = sim
        .told()
        .iter()
        .filter(|told| matches!(told, Observation::Forced))
        .count();
    assert_eq!(forced, 1);
}

#[test]
fn a_component_is_deleted_with_no_grace_and_named_while_its_finalizer_holds_it() {
    let mut sim = Sim::with(GRACE, [service("svc"), job("train")]).run();
    sim.state()
        .edit_object("svc", |object| object.facts.finalizers = vec!["example.com/lb".into()]);
    sim.state().suspend(true);
    sim.settle();
    assert_eq!(sim.count("delete Service svc at once"), 0);
    for _ in 0..6 {
        sim.later(5);
    }
    let forced = sim.count("delete Service svc at once");
    assert!((4..=5).contains(&forced), "{forced}");
    let notes = sim.notes();
    assert!(
        notes
            .iter()
            .any(|note| note.contains("component svc") && note.contains("example.com/lb")),
        "{notes:?}"
    );
    assert_eq!(sim.phase(), Phase::Suspending);
    sim.state().release("svc");
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
}

#[test]
fn a_strangers_pod_with_the_label_is_never_deleted_by_force() {
    let mut sim = stuck();
    for (name, lineage, terminating) in [
        ("foreign", Lineage::Foreign, true),
        ("unresolved", Lineage::Unresolved, true),
        ("broken", Lineage::Broken, false),
        ("broken-leaving", Lineage::Broken, true),
    ] {
        sim.state()
            .add_pod(name, Uid::new(name), &Uid::new("x"), &Uid::new("y"));
        sim.state().edit_pod(name, |pod| {
            pod.lineage = lineage;
            pod.terminating = terminating;
        });
    }
    sim.later(10);
    let deleted: Vec<_> = sim
        .writes()
        .into_iter()
        .filter(|call| call.starts_with("delete pod"))
        .collect();
    assert_eq!(deleted, ["delete pod broken-leaving", "delete pod train-0"]);
}

#[test]
fn the_deadline_survives_a_restart() {
    let mut sim = stuck();
    sim.later(5);
    sim.restart();
    sim.later(4);
    assert_eq!(sim.count("delete pod"), 0);
    sim.restart();
    sim.later(1);
    assert_eq!(sim.count("delete pod"), 1);
}

#[test]
fn the_deadline_of_a_deletion_is_its_own() {
    let annotations = [
        ("forcefulDeletionGracePeriodDuration", "10s"),
        ("failureGracePeriodDuration", "0s"),
        ("retryPausePeriodDuration", "0s"),
    ];
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    sim.state().collect();
    sim.settle();
    sim.later(100);
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.state().suspend(true);
    assert_eq!(sim.settle(), after(5));
    assert_eq!(sim.count("delete pod"), 0);
}
