//! Deletion of the AppWrapper, from every phase (spec/lifecycle.md section 6; R17, R19, R20).

use appwrapper_api::{ConditionType, FINALIZER, Phase, PodPhase, conditions};
use appwrapper_reconciler::Error;
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{ON_CHANGE, Pass, Sim, after, secs},
    world::Fault,
};

fn running() -> Sim {
    let mut sim = Sim::new([job("train"), service("svc")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.forget_calls();
    sim
}

#[test]
fn components_go_first_then_the_finalizer() {
    let mut sim = running();
    sim.world.advance(secs(10));
    sim.state().delete_wrapper();
    assert_eq!(sim.settle(), after(5));
    assert_eq!(sim.phase(), Phase::Terminating);
    assert_eq!(
        sim.condition(ConditionType::DeletingResources),
        "True DeletionInitiated: "
    );
    assert_eq!(sim.since(ConditionType::DeletingResources), 10);
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("True"));
    assert_eq!(
        sim.writes()[..3],
        ["status Terminating", "delete Job train", "delete Service svc"]
    );
    assert_eq!(sim.entered(), [Phase::Terminating]);
    assert_eq!(sim.later(5), after(5));
    assert_eq!(sim.entered(), [Phase::Terminating]);
    sim.state().collect();
    assert_eq!(sim.settle(), Pass::Absent);
    assert!(sim.state().wrapper.is_none());
    assert_eq!(sim.writes().last().unwrap(), "remove finalizer");
    let last = sim
        .state()
        .history
        .iter()
        .rev()
        .find(|copy| copy.status.phase == "Terminating")
        .cloned()
        .unwrap();
    let quota = conditions::find(&last.status.conditions, ConditionType::QuotaReserved).unwrap();
    assert_eq!((quota.status.as_str(), quota.reason.as_str()), ("False", "Terminating"));
    assert_eq!(quota.message, "No resources deployed");
    let deployed = conditions::find(&last.status.conditions, ConditionType::ResourcesDeployed).unwrap();
    assert_eq!(deployed.message, "Resources successfully deleted");
}

#[rstest]
#[case::resuming(Phase::Resuming)]
#[case::running(Phase::Running)]
#[case::resetting(Phase::Resetting)]
#[case::suspending(Phase::Suspending)]
#[case::failed(Phase::Failed)]
#[case::succeeded(Phase::Succeeded)]
fn deletion_works_from_every_phase_and_leaves_nothing(#[case] phase: Phase) {
    for suspend in [false, true] {
        let mut sim = running();
        sim.edit_status(|status| status.set_phase(phase));
        sim.state().suspend(suspend);
        sim.state().delete_wrapper();
        sim.settle();
        sim.state().collect();
        sim.settle();
        sim.later(5);
        assert!(sim.state().wrapper.is_none(), "{phase} {suspend}");
        assert!(sim.objects().is_empty());
        assert_eq!(sim.count("create"), 0);
    }
}

#[rstest]
#[case::suspended(Phase::Suspended)]
#[case::empty(Phase::Empty)]
fn nothing_was_deployed_so_the_finalizer_goes_at_once(#[case] phase: Phase) {
    let mut sim = Sim::new([job("train")]);
    sim.state().edit_wrapper(|wrapper| {
        wrapper.metadata.finalizers = Some(vec![FINALIZER.into()]);
        wrapper.status.set_phase(phase);
    });
    sim.state().delete_wrapper();
    sim.settle();
    assert!(sim.state().wrapper.is_none());
    assert_eq!(sim.calls(), ["remove finalizer"]);
}

#[test]
fn without_our_finalizer_nothing_is_done() {
    let mut sim = running();
    sim.state()
        .edit_wrapper(|wrapper| wrapper.metadata.finalizers = Some(vec!["other".into()]));
    sim.state().delete_wrapper();
    assert_eq!(sim.settle(), ON_CHANGE);
    assert_eq!(sim.calls(), [""; 0]);
}

#[test]
fn another_finalizer_keeps_the_appwrapper_and_costs_nothing() {
    let mut sim = running();
    sim.state()
        .edit_wrapper(|wrapper| wrapper.metadata.finalizers.get_or_insert_default().push("other".into()));
    sim.state().delete_wrapper();
    sim.settle();
    sim.state().collect();
    sim.settle();
    let finalizers = sim.state().wrapper.clone().unwrap().metadata.finalizers;
    assert_eq!(finalizers, Some(vec!["other".to_owned()]));
    sim.forget_calls();
    assert_eq!(sim.later(100), ON_CHANGE);
    assert_eq!(sim.calls(), [""; 0]);
}

#[test]
fn the_beginning_of_deletion_is_written_until_it_sticks() {
    let mut sim = running();
    sim.state().delete_wrapper();
    sim.state()
        .faults
        .add("status Terminating", Fault::Refuse("500"), false);
    assert!(matches!(sim.settle(), Pass::Error(Error::Api { .. })));
    assert_eq!(sim.count("delete"), 0, "nothing is deleted on a copy that may be old");
    sim.later(1);
    assert_eq!(sim.since(ConditionType::DeletingResources), 1);
    sim.later(50);
    assert_eq!(sim.since(ConditionType::DeletingResources), 1);
}

#[test]
fn a_stuck_pod_keeps_the_finalizer() {
    let mut sim = running();
    sim.state()
        .edit_pod("train-0", |pod| pod.finalizers = vec!["example.com/hold".into()]);
    sim.state().delete_wrapper();
    for _ in 0..10 {
        sim.state().collect();
        assert_eq!(sim.later(5), after(5));
    }
    assert_eq!(sim.phase(), Phase::Terminating);
    sim.state().edit_pod("train-0", |pod| pod.finalizers.clear());
    sim.state().collect();
    sim.settle();
    assert!(sim.state().wrapper.is_none());
}

#[test]
fn an_appwrapper_that_is_gone_behind_a_blind_cache_creates_nothing() {
    let mut sim = running();
    sim.state().wrappers.held = true;
    sim.state().store_wrapper(None);
    sim.state().collect();
    for _ in 0..20 {
        sim.later(30);
    }
    assert!(sim.objects().is_empty());
    assert_eq!(sim.count("create"), 0);
}

#[test]
fn an_appwrapper_of_the_same_name_that_is_made_anew_starts_from_nothing() {
    let mut sim = running();
    sim.state().delete_wrapper();
    sim.settle();
    sim.state().collect();
    sim.settle();
    let mut anew = wrapper([job("train")]);
    anew.metadata.uid = Some("uid-anew".into());
    sim.state().store_wrapper(Some(anew));
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
}
