//! Deleting components, as every phase does it (spec/lifecycle.md section 4 and section 9, rows 3, 11, 31; R18).

use appwrapper_api::{ConditionType, Lineage, Phase, PodPhase, Uid};
use appwrapper_reconciler::Error;
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{Pass, Sim, after},
    world::Fault,
};

/// Asked to suspend, nothing done yet.
fn suspending(templates: impl IntoIterator<Item = serde_json::Value>) -> Sim {
    let sim = Sim::new(templates).run();
    sim.state().suspend(true);
    sim
}

#[test]
fn components_are_deleted_in_order_and_one_refusal_does_not_stop_the_others() {
    let mut sim = suspending([service("b"), job("a"), service("c")]);
    sim.state()
        .faults
        .add("delete Job a", Fault::Refuse("forbidden"), false);
    assert_eq!(sim.settle(), after(5));
    assert_eq!(
        sim.writes()[1..4],
        ["delete Service b", "delete Job a", "delete Service c"]
    );
    assert_eq!(sim.objects(), ["a"]);
    assert_eq!(sim.component(1), "True ComponentCreatedSuccessfully");
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Suspended);
}

#[test]
fn what_is_being_deleted_is_not_deleted_again() {
    let mut sim = suspending([job("train")]);
    sim.state()
        .edit_object("train", |object| object.facts.finalizers = vec!["hold".into()]);
    for _ in 0..10 {
        assert_eq!(sim.later(5), after(5));
    }
    assert_eq!(sim.count("delete"), 1);
    assert_eq!(sim.phase(), Phase::Suspending);
    sim.state().release("train");
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
}

#[test]
fn a_cache_that_has_not_seen_the_delete_does_not_cause_another_at_once() {
    let mut sim = suspending([job("train")]);
    sim.spawn("train", 1, PodPhase::Running);
    sim.state().flow();
    sim.state().hold_components(true);
    sim.settle();
    for _ in 0..4 {
        sim.later(1);
    }
    assert_eq!(sim.count("delete"), 1);
    sim.later(1);
    assert!(sim.count("delete") <= 2);
}

#[test]
fn a_component_that_the_cache_misses_is_looked_for_before_it_counts_as_gone() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().edit_object("train", |object| object.labelled = false);
    sim.settle();
    sim.state().suspend(true);
    sim.settle();
    assert!(sim.objects().is_empty(), "the label was stripped, the object was there");
    assert_eq!(sim.phase(), Phase::Suspended);
}

#[rstest]
#[case::timeout(Fault::Lose)]
#[case::forbidden(Fault::Forbid)]
#[case::throttled(Fault::Refuse("too many requests"))]
fn a_look_that_proves_nothing_is_not_an_absence(#[case] fault: Fault) {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().edit_object("train", |object| object.labelled = false);
    sim.settle();
    sim.state().suspend(true);
    sim.state().faults.add("get Job train", fault, true);
    sim.settle();
    for _ in 0..5 {
        sim.later(5);
    }
    assert_eq!(sim.phase(), Phase::Suspending);
    assert_eq!(sim.component(0), "True ComponentCreatedSuccessfully");
    sim.state().faults.clear();
    sim.later(5);
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Suspended);
}

#[test]
fn a_kind_outside_our_roles_holds_neither_quota_nor_finalizer() {
    let limits = [("admissionGracePeriodDuration", "4s"), ("retryLimit", "0")];
    let mut sim = Sim::with(&limits, [job("made"), job("refused")]);
    sim.state()
        .faults
        .add("create Job refused", Fault::Refuse("no such right"), true);
    sim.state().faults.add("get Job refused", Fault::Forbid, true);
    sim.settle();
    for _ in 0..8 {
        sim.later(5);
    }
    assert_eq!(sim.phase(), Phase::Failed);
    assert!(sim.objects().is_empty());
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("False"));
    sim.state().delete_wrapper();
    sim.settle();
    assert!(sim.state().wrapper.is_none());
}

#[test]
fn a_status_that_tells_of_more_components_than_the_spec_is_not_waited_for() {
    let mut sim = Sim::new([job("train")]).run();
    sim.edit_status(|status| {
        let more = status.component_status[0].clone();
        status.component_status.push(more);
        status.set_phase(Phase::Failed);
    });
    sim.settle();
    sim.later(5);
    assert!(sim.objects().is_empty());
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("False"));
}

#[test]
fn a_foreign_object_of_that_name_is_never_deleted_and_does_not_hold_the_quota() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().replace("train", None);
    sim.state().suspend(true);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
    assert_eq!(sim.objects(), ["train"]);
    assert_eq!(sim.count("delete"), 0);
}

#[test]
fn an_object_of_ours_that_is_not_the_one_we_made_is_deleted_too() {
    let mut sim = Sim::new([job("train")]).run();
    let controller = sim.state().objects.values().next().unwrap().facts.controller.clone();
    sim.state().replace("train", controller);
    sim.state().suspend(true);
    sim.settle();
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Suspended);
    assert!(sim.objects().is_empty());
}

#[rstest]
#[case::ours(Lineage::Component { component: Uid::new("gone"), owner: Uid::new("uid-aw") }, false)]
#[case::owner_gone(Lineage::Broken, false)]
#[case::not_looked_up(Lineage::Unresolved, false)]
#[case::foreign(Lineage::Foreign, true)]
#[case::another_appwrapper(Lineage::Component { component: Uid::new("uid-other-job"), owner: Uid::new("uid-other") }, true)]
fn a_labelled_pod_holds_the_quota_unless_it_is_certainly_foreign(#[case] lineage: Lineage, #[case] released: bool) {
    let mut sim = suspending([job("train")]);
    sim.state().add_pod("p", Uid::new("p"), &Uid::new("x"), &Uid::new("y"));
    sim.state().edit_pod("p", |pod| pod.lineage = lineage);
    sim.settle();
    assert_eq!(sim.phase() == Phase::Suspended, released);
}

#[test]
fn an_old_uid_in_a_cache_does_not_hide_the_object_that_has_the_name_now() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().hold_components(true);
    let controller = sim.state().objects.values().next().unwrap().facts.controller.clone();
    sim.state().replace("train", controller);
    sim.die();
    sim.state().suspend(true);
    assert_eq!(sim.settle(), after(5));
    assert_eq!(sim.phase(), Phase::Suspending);
    sim.state().hold_components(false);
    sim.settle();
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Suspended);
    assert!(sim.objects().is_empty());
}

#[test]
fn a_conflict_before_the_first_delete_deletes_nothing() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().suspend(true);
    sim.state().flow();
    sim.state().wrappers.held = true;
    sim.state().suspend(false);
    assert_eq!(sim.pass(), Pass::Error(Error::Conflict));
    assert_eq!(sim.objects(), ["train"]);
    sim.state().wrappers.held = false;
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.count("delete"), 0);
}

#[test]
fn an_old_copy_that_wants_a_deletion_deletes_nothing_of_the_next_attempt() {
    let annotations = [("failureGracePeriodDuration", "0s"), ("retryPausePeriodDuration", "1s")];
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Resetting);
    let resetting = sim.state().history.last().cloned().unwrap();
    sim.state().collect();
    sim.settle();
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
    sim.spawn("train", 1, PodPhase::Running);
    sim.restart();
    sim.forget_calls();
    sim.world.advance(crate::sim::secs(60));
    sim.pass_on(Some(resetting));
    assert_eq!(sim.objects(), ["train"]);
    assert_eq!(sim.count("delete"), 0);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
}

#[test]
fn an_error_that_ends_the_pass_is_returned_and_the_rest_is_done_later() {
    let mut sim = suspending([job("train")]);
    sim.state().faults.add("status Suspending", Fault::Lose, false);
    assert!(matches!(sim.pass(), Pass::Error(Error::Api { .. })));
    assert_eq!(sim.condition(ConditionType::DeletingResources), "absent");
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
}
