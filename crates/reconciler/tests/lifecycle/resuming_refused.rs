//! Resuming: creates that are refused or not answered cost time and then a retry, and whatever they may have made is looked
//! for (spec/lifecycle.md 9, rows 15 and 16; R38, C11).

use appwrapper_api::{ConditionType, Phase};
use appwrapper_reconciler::observation::Observation;
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{Pass, Sim, after},
    world::Fault,
};

#[test]
fn a_refused_create_waits_within_the_admission_grace_and_writes_nothing() {
    let mut sim = Sim::new([service("svc"), job("train")]);
    sim.state()
        .faults
        .add("create Job train", Fault::Refuse("exceeded quota: pods"), true);
    assert_eq!(sim.settle(), after(1));
    assert_eq!(sim.phase(), Phase::Resuming);
    assert!(sim.condition(ConditionType::Unhealthy).starts_with("False Resuming"));
    assert_eq!(sim.component(0), "True ComponentCreatedSuccessfully");
    assert_eq!(sim.component(1), "Unknown ComponentCreationInitiated");
    sim.forget_calls();
    assert_eq!(sim.later(1), after(1));
    assert_eq!(
        sim.later(9),
        after(5),
        "later tries come after half the time that has passed"
    );
    assert_eq!(sim.writes(), ["create Job train", "create Job train"]);
    sim.state().faults.clear();
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.status().resetting_count, 0);
}

#[test]
fn the_reason_of_a_refusal_is_told_once() {
    let mut sim = Sim::new([job("train")]);
    sim.state()
        .faults
        .add("create Job train", Fault::Refuse("exceeded quota: pods"), true);
    sim.settle();
    for _ in 0..10 {
        sim.later(2);
    }
    let notes = sim.notes();
    assert_eq!(
        notes,
        ["CreateFailed: error creating components: exceeded quota: pods; trying again for 1m0s"]
    );
    assert!(sim.events()[0].warning);
}

#[test]
fn a_create_that_is_refused_for_long_costs_few_requests() {
    let mut sim = Sim::with(&[("admissionGracePeriodDuration", "1h")], [job("train")]);
    sim.state()
        .faults
        .add("create Job train", Fault::Refuse("exceeded quota"), true);
    sim.settle();
    let mut passed = 0;
    while passed < 60 {
        let Pass::Rest(appwrapper_reconciler::Requeue::After(delay)) = sim.pass() else {
            panic!()
        };
        sim.world.advance(delay);
        passed += delay.as_secs();
    }
    sim.forget_calls();
    while passed < 660 {
        let Pass::Rest(appwrapper_reconciler::Requeue::After(delay)) = sim.pass() else {
            panic!()
        };
        sim.world.advance(delay);
        passed += delay.as_secs();
    }
    assert!(sim.writes().len() <= 20, "{}", sim.writes().len());
    assert_eq!(sim.events().len(), 0, "told before");
}

#[test]
fn after_the_grace_a_refused_create_costs_a_retry_and_says_why() {
    let mut sim = Sim::with(
        &[("retryLimit", "1"), ("retryPausePeriodDuration", "5s")],
        [service("svc"), job("train")],
    );
    sim.state()
        .faults
        .add("create Job train", Fault::Refuse("exceeded quota"), true);
    sim.settle();
    sim.forget_calls();
    sim.later(60);
    assert_eq!(sim.phase(), Phase::Resetting);
    assert_eq!(sim.status().resetting_count, 1);
    assert_eq!(
        sim.condition(ConditionType::Unhealthy),
        "True CreateFailed: error creating components: exceeded quota"
    );
    assert_eq!(
        sim.notes(),
        ["Unhealthy: CreateFailed: error creating components: exceeded quota"]
    );
    assert!(
        sim.told()
            .iter()
            .any(|told| matches!(told, Observation::Retry("CreateFailed")))
    );
    assert_eq!(sim.objects(), [""; 0], "what was created before is deleted");
    assert_eq!(sim.count("delete"), 1, "what was never created is not");
    assert_eq!(sim.component(1), "False CompononetDeleted");
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Resuming);
    sim.later(60);
    assert_eq!(sim.phase(), Phase::Failed, "the limit is used up");
    assert_eq!(sim.status().resetting_count, 1);
    assert_eq!(sim.objects(), [""; 0]);
}

#[test]
fn with_no_grace_and_no_pause_every_retry_still_tries_to_create() {
    let annotations = [
        ("admissionGracePeriodDuration", "0s"),
        ("retryPausePeriodDuration", "0s"),
        ("retryLimit", "3"),
    ];
    let mut sim = Sim::with(&annotations, [job("train")]);
    sim.state()
        .faults
        .add("create Job train", Fault::Refuse("exceeded quota"), true);
    for _ in 0..10 {
        sim.later(5);
    }
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.status().resetting_count, 3);
    assert_eq!(sim.count("create Job train"), 4);
}

#[test]
fn a_component_made_again_in_the_same_pass_is_deleted_again() {
    let annotations = [
        ("admissionGracePeriodDuration", "0s"),
        ("retryPausePeriodDuration", "0s"),
        ("retryLimit", "1"),
    ];
    let mut sim = Sim::with(&annotations, [service("svc"), job("train")]);
    sim.state()
        .faults
        .add("create Job train", Fault::Refuse("exceeded quota"), true);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.count("create Service svc"), 2);
    assert_eq!(sim.objects(), [""; 0]);
}

#[rstest]
#[case::dropped_answer(Fault::DropAnswer)]
#[case::lost(Fault::Lose)]
fn a_create_without_an_answer_is_looked_into(#[case] fault: Fault) {
    let mut sim = Sim::new([job("train")]);
    sim.state().faults.add("create Job train", fault, false);
    assert_eq!(sim.pass(), after(1));
    assert_eq!(sim.component(0), "Unknown ComponentCreationInitiated");
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.objects(), ["train"]);
}

#[test]
fn what_may_exist_after_the_grace_is_looked_for_and_deleted() {
    let mut sim = Sim::with(
        &[("admissionGracePeriodDuration", "0s"), ("retryLimit", "0")],
        [job("train")],
    );
    sim.state().faults.add("create Job train", Fault::DropAnswer, false);
    sim.settle();
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.objects(), [""; 0]);
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("False Failed"));
}

#[test]
fn a_refusal_does_not_prove_that_an_earlier_try_made_nothing() {
    let mut sim = Sim::with(
        &[("admissionGracePeriodDuration", "10s"), ("retryLimit", "0")],
        [job("train")],
    );
    sim.state().faults.add("create Job train", Fault::Crash, false);
    assert_eq!(sim.pass(), Pass::Crashed);
    sim.state()
        .faults
        .add("create Job train", Fault::Refuse("exceeded quota"), true);
    sim.restart();
    sim.later(10);
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.objects(), [""; 0], "it was made by the try that ended in a crash");
}

#[test]
fn a_status_without_conditions_has_an_admission_grace_that_ends() {
    let mut sim = Sim::new([job("train")]);
    sim.state().faults.add("create Job train", Fault::Refuse("quota"), true);
    sim.settle();
    sim.edit_status(|status| status.conditions.clear());
    sim.later(10);
    sim.restart();
    sim.later(59);
    assert_eq!(sim.phase(), Phase::Resuming);
    sim.restart();
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Resetting);
}
