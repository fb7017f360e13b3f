//! Suspended: nothing moves until `suspend` is cleared, then the finalizer goes before everything.

use appwrapper_api::{ConditionStatus, ConditionType, FINALIZER, Phase, conditions};
use appwrapper_reconciler::Error;
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{ON_CHANGE, Pass, Sim},
    world::Fault,
};

fn suspended() -> Sim {
    let mut wrapper = wrapper([job("train")]);
    wrapper.spec.suspend = true;
    let mut sim = Sim::of(wrapper);
    sim.settle();
    sim.forget_calls();
    sim
}

#[test]
fn a_suspended_appwrapper_costs_nothing() {
    let mut sim = suspended();
    assert_eq!(sim.later(3600), ON_CHANGE);
    assert_eq!(sim.calls(), [""; 0]);
}

#[test]
fn resuming_adds_the_finalizer_and_sets_four_conditions() {
    let mut sim = suspended();
    sim.world.advance(crate::sim::secs(10));
    sim.state().faults.add("create", Fault::Refuse("quota"), true);
    sim.state().suspend(false);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Resuming);
    assert_eq!(
        sim.condition(ConditionType::QuotaReserved),
        "True Resuming: Suspend is false"
    );
    assert_eq!(
        sim.condition(ConditionType::ResourcesDeployed),
        "True Resuming: Suspend is false"
    );
    assert_eq!(
        sim.condition(ConditionType::PodsReady),
        "False Resuming: Suspend is false"
    );
    assert_eq!(
        sim.condition(ConditionType::Unhealthy),
        "False Resuming: Suspend is false"
    );
    assert_eq!(sim.since(ConditionType::ResourcesDeployed), 10);
    let wrapper = sim.state().wrapper.clone().unwrap();
    assert_eq!(wrapper.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
    assert!(!wrapper.spec.suspend);
    assert_eq!(
        sim.writes()[..3],
        ["add finalizer", "status Resuming", "create Job train"]
    );
}

#[test]
fn a_finalizer_that_is_there_is_not_added_again() {
    let mut sim = suspended();
    sim.state().edit_wrapper(|wrapper| {
        wrapper.metadata.finalizers = Some(vec!["other".into(), FINALIZER.into()]);
        wrapper.spec.suspend = false;
    });
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.count("add finalizer"), 0);
}

#[test]
fn a_foreign_finalizer_is_kept() {
    let mut sim = suspended();
    sim.state().edit_wrapper(|wrapper| {
        wrapper.metadata.finalizers = Some(vec!["other".into()]);
        wrapper.spec.suspend = false;
    });
    sim.settle();
    let finalizers = sim.state().wrapper.clone().unwrap().metadata.finalizers;
    assert_eq!(finalizers, Some(vec!["other".to_owned(), FINALIZER.to_owned()]));
}

#[test]
fn a_conflict_on_the_finalizer_ends_the_pass_and_nothing_else_happens() {
    let mut sim = suspended();
    sim.state().suspend(false);
    sim.state().flow();
    sim.state().wrappers.held = true;
    sim.state().edit_wrapper(|wrapper| wrapper.spec.managed_by = None);
    assert_eq!(sim.pass(), Pass::Error(Error::Conflict));
    assert_eq!(sim.writes(), ["add finalizer"]);
    sim.state().wrappers.held = false;
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
}

#[rstest]
#[case::crash(Fault::Crash)]
#[case::dropped_answer(Fault::DropAnswer)]
#[case::lost(Fault::Lose)]
fn a_finalizer_write_that_ends_badly_is_made_up_for(#[case] fault: Fault) {
    let mut sim = suspended();
    sim.state().suspend(false);
    sim.state().faults.add("add finalizer", fault, false);
    sim.settle();
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
}

#[test]
fn kinds_are_watched_before_the_first_create_and_not_while_suspended() {
    let mut sim = suspended();
    assert!(sim.state().kinds.values().all(|feed| !feed.synced));
    sim.state().suspend(false);
    sim.settle();
    let calls = sim.calls();
    let position = |call: &str| calls.iter().position(|found| found == call).unwrap();
    assert!(
        position("watch batch/v1:Job") < position("create Job train"),
        "{calls:?}"
    );
}

#[test]
fn what_a_restored_status_says_of_components_does_not_keep_them_from_being_created() {
    let mut sim = suspended();
    let now = crate::world::start();
    sim.edit_status(|status| {
        let component = &mut status.component_status[0];
        component.name = "train".into();
        let type_ = ConditionType::ResourcesDeployed;
        conditions::set(
            &mut component.conditions,
            type_,
            ConditionStatus::True,
            "ComponentCreatedSuccessfully",
            "",
            now,
        );
    });
    sim.state().suspend(false);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.objects(), ["train"]);
}

#[test]
fn suspended_with_a_deletion_timestamp_gives_up_the_finalizer_and_creates_nothing() {
    let mut sim = suspended();
    sim.state()
        .edit_wrapper(|wrapper| wrapper.metadata.finalizers = Some(vec![FINALIZER.into()]));
    sim.state().delete_wrapper();
    sim.state().suspend(false);
    sim.settle();
    assert!(sim.state().wrapper.is_none());
    assert_eq!(sim.writes(), ["remove finalizer"]);
}
