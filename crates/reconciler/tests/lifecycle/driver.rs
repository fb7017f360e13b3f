//! The driver: what is written when, what is told when, and what happens if the answer is not the one hoped for.

use appwrapper_api::{Completion, ConditionType, Phase, PodPhase};
use appwrapper_reconciler::{Error, observation::Observation};
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{Pass, Sim, after},
    world::Fault,
};

#[test]
fn a_conflict_ends_the_pass_quietly_and_tells_nothing_of_what_was_not_written() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().end("train", Completion::Failed);
    sim.state().flow();
    sim.state().wrappers.held = true;
    sim.state()
        .edit_wrapper(|wrapper| wrapper.metadata.generation = Some(2));
    assert_eq!(sim.pass(), Pass::Error(Error::Conflict));
    let told = sim.told();
    assert!(told.iter().any(|told| matches!(told, Observation::Conflict)));
    assert!(sim.events().is_empty());
    assert!(sim.entered().is_empty());
    sim.state().wrappers.held = false;
    sim.pass();
    assert_eq!(sim.notes(), ["Unhealthy: FailedComponent: Found 1 failed components"]);
}

#[test]
fn our_own_write_counts_before_the_watch_brings_it() {
    let mut sim = Sim::new([job("train")]);
    sim.state().flow();
    sim.state().wrappers.held = true;
    assert_eq!(sim.pass(), after(1), "the cache is behind the create");
    for _ in 0..5 {
        assert_eq!(sim.pass(), after(5));
    }
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.writes().len(), 4, "{:?}", sim.writes());
}

#[test]
fn an_event_that_comes_twice_changes_nothing() {
    let mut sim = Sim::new([job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    sim.forget_calls();
    for _ in 0..5 {
        sim.pass();
    }
    assert_eq!(sim.calls(), [""; 0]);
    assert!(sim.events().is_empty());
}

#[rstest]
#[case::resuming("status Resuming")]
#[case::running("status Running")]
fn a_status_write_without_an_answer_is_made_up_for(#[case] write: &str) {
    for fault in [Fault::DropAnswer, Fault::Lose, Fault::Crash] {
        let mut sim = Sim::new([job("train"), service("svc")]);
        sim.state().faults.add(write, fault.clone(), false);
        sim.settle();
        sim.settle();
        sim.later(1);
        assert_eq!(sim.phase(), Phase::Running, "{fault:?}");
        assert_eq!(sim.objects().len(), 2);
        assert_eq!(sim.status().resetting_count, 0);
    }
}

#[test]
fn a_crash_after_every_single_write_makes_three_components_exactly_once() {
    for blind in [false, true] {
        for crash in 0..8 {
            let mut sim = Sim::new([job("a"), job("b"), service("c")]);
            sim.state().faults.crash_in = Some(crash);
            sim.settle();
            if blind {
                sim.state().hold_components(true);
                sim.die();
            } else {
                sim.restart();
            }
            sim.settle();
            sim.later(1);
            sim.later(1);
            assert_eq!(sim.phase(), Phase::Running, "crash after write {crash}");
            let uids: Vec<_> = sim
                .state()
                .objects
                .values()
                .map(|object| object.facts.uid.clone())
                .collect();
            assert_eq!(uids.len(), 3);
            assert_eq!(sim.count("delete"), 0);
            sim.later(20);
            let later: Vec<_> = sim
                .state()
                .objects
                .values()
                .map(|object| object.facts.uid.clone())
                .collect();
            assert_eq!(uids, later);
        }
    }
}

#[test]
fn a_crash_after_every_single_write_of_a_deletion_leaves_nothing() {
    for crash in 0..8 {
        let mut sim = Sim::new([job("a"), service("b")]).run();
        sim.spawn("a", 1, PodPhase::Running);
        sim.settle();
        sim.state().faults.crash_in = Some(crash);
        sim.state().delete_wrapper();
        for _ in 0..8 {
            sim.settle();
            sim.state().collect();
            sim.world.advance(crate::sim::secs(5));
        }
        assert!(sim.state().wrapper.is_none(), "crash after write {crash}");
        assert!(sim.objects().is_empty());
    }
}

#[test]
fn an_event_is_told_again_in_another_attempt_but_not_within_one() {
    let annotations = [("failureGracePeriodDuration", "0s"), ("retryPausePeriodDuration", "0s")];
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    for _ in 0..2 {
        sim.spawn("train", 1, PodPhase::Failed);
        sim.settle();
        sim.state().collect();
        sim.settle();
        sim.settle();
    }
    for reason in ["Unhealthy", "PodFailed"] {
        let told = sim.events().iter().filter(|event| event.reason == reason).count();
        assert_eq!(told, 2, "{reason}");
    }
}

#[test]
fn a_change_of_counts_alone_waits_a_moment_for_something_that_matters() {
    let mut sim = Sim::new([jobs("train", 5)]).run();
    sim.spawn("train", 5, PodPhase::Running);
    sim.settle();
    sim.forget_calls();
    for pod in 0..4 {
        sim.pod_phase(&format!("train-{pod}"), PodPhase::Succeeded);
        sim.later(1);
    }
    assert_eq!(sim.writes(), [""; 0]);
    assert_eq!(sim.pass(), after(2));
    sim.later(2);
    assert_eq!(sim.writes(), ["status Running"], "but not for ever");
    assert_eq!(
        sim.condition(ConditionType::PodsReady),
        "True SufficientPodsReady: 1 pods running; 4 pods succeeded"
    );
    assert_eq!(sim.later(60), after(60));
    assert_eq!(sim.writes().len(), 1);
}

#[test]
fn a_stale_event_does_not_lead_back_to_an_older_copy() {
    let mut sim = Sim::new([job("train")]).run();
    let resuming = {
        let state = sim.state();
        state
            .history
            .iter()
            .rfind(|copy| copy.status.phase == "Resuming")
            .cloned()
    };
    sim.state().suspend(true);
    sim.settle();
    sim.settle();
    sim.forget_calls();
    sim.pass_on(resuming);
    assert_eq!(sim.calls(), [""; 0]);
    assert!(sim.objects().is_empty());
}

#[test]
fn what_was_known_of_an_appwrapper_proves_nothing_of_the_next_one_of_its_name() {
    let mut sim = Sim::new([job("train")]).run();
    let mut resuming = {
        let state = sim.state();
        let copy = state
            .history
            .iter()
            .rfind(|copy| copy.status.phase == "Resuming")
            .cloned();
        (*copy.unwrap()).clone()
    };
    resuming.metadata.uid = Some("uid-next".into());
    sim.state().store_wrapper(None);
    sim.state().collect();
    sim.state().store_wrapper(Some(resuming));
    let old = sim.state().history.last().cloned();
    sim.state().suspend(true);
    sim.forget_calls();
    assert_eq!(sim.pass_on(old), Pass::Error(Error::Conflict));
    assert_eq!(sim.calls(), ["get AppWrapper"]);
}
