//! Doubt never fails a workload: answers that prove nothing, copies of the AppWrapper that are old, limits (spec/lifecycle.md
//! 8.2 and 8.5; R01, R03).

use appwrapper_api::{Completion, ConditionType, Phase, PodPhase};
use appwrapper_reconciler::{Error, Requeue, observation::ConfirmationResult};
use rstest::rstest;

use crate::{
    fixtures::*,
    seed::confirmations,
    sim::{Pass, Sim, after},
    world::{Deed, Fault},
};

#[rstest]
#[case::forbidden("get Job train", Fault::Forbid)]
#[case::throttled("get Job train", Fault::Refuse("too many requests"))]
#[case::timeout("get Job train", Fault::Lose)]
#[case::not_served("get Job train", Fault::NotServed)]
#[case::wrapper("get AppWrapper", Fault::Lose)]
fn an_answer_that_proves_nothing_changes_nothing_and_is_asked_for_again_with_back_off(
    #[case] call: &str,
    #[case] fault: Fault,
) {
    let mut sim = Sim::new([job("train"), service("svc")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.forget_calls();
    sim.state().remove("train");
    sim.state().faults.add(call, fault, true);
    let delays: Vec<Pass> = [0, 1, 2, 4, 8, 16, 30, 30]
        .into_iter()
        .map(|delay| sim.later(delay))
        .collect();
    assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30, 30].map(after));
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.writes(), [""; 0]);
    assert!(sim.events().is_empty());
    assert!(
        confirmations(&sim)
            .iter()
            .all(|result| matches!(result, ConfirmationResult::Doubt(_)))
    );
    sim.state().faults.clear();
    sim.later(30);
    assert_eq!(sim.phase(), Phase::Failed);
}

#[test]
fn one_doubtful_answer_among_several_keeps_the_appwrapper_running() {
    let mut sim = Sim::new([job("a"), job("b")]).run();
    sim.state().remove("a");
    sim.state().remove("b");
    sim.state().faults.add("get Job b", Fault::Lose, false);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Failed);
}

#[rstest]
#[case::suspended(|wrapper: &mut appwrapper_api::AppWrapper| wrapper.spec.suspend = true)]
#[case::touched(|wrapper: &mut appwrapper_api::AppWrapper| wrapper.metadata.generation = Some(7))]
#[case::another_incarnation(|wrapper: &mut appwrapper_api::AppWrapper| wrapper.metadata.uid = Some("uid-new".into()))]
fn an_old_copy_of_the_appwrapper_never_fails_it(#[case] edit: fn(&mut appwrapper_api::AppWrapper)) {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().wrappers.held = true;
    sim.state().edit_wrapper(edit);
    sim.state().remove("train");
    assert!(matches!(sim.pass(), Pass::Rest(Requeue::After(_))));
    assert_eq!(confirmations(&sim), [ConfirmationResult::Outdated]);
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.writes(), [""; 0]);
}

#[rstest]
#[case::suspended(Deed::Suspend(true))]
#[case::deleted(Deed::DeleteAppWrapper)]
#[case::touched(Deed::Touch)]
fn a_change_between_the_confirmation_and_the_verdict_is_a_conflict(#[case] deed: Deed) {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().remove("train");
    sim.state().faults.add("status Failed", Fault::Meanwhile(deed), false);
    assert_eq!(sim.pass(), Pass::Error(Error::Conflict));
    assert_eq!(sim.phase(), Phase::Running);
    assert!(sim.events().is_empty());
}

#[test]
fn a_finished_phase_is_never_left_for_an_old_copy() {
    let mut sim = Sim::new([job("train")]).run();
    let running = sim.state().history.last().cloned().unwrap();
    sim.state().end("train", Completion::Complete);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Succeeded);
    sim.restart();
    sim.state().remove("train");
    sim.state().flow();
    for _ in 0..3 {
        sim.pass_on(Some(running.clone()));
        sim.world.advance(crate::sim::secs(10));
    }
    assert_eq!(sim.phase(), Phase::Succeeded);
    assert!(sim.state().rules.broken.is_empty());
}

#[test]
fn a_global_limit_puts_a_confirmation_off_and_fails_nothing() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().remove("train");
    sim.state().faults.add("admit", Fault::Refuse("full"), false);
    assert_eq!(sim.settle(), after(1));
    assert_eq!(confirmations(&sim), [ConfirmationResult::Deferred]);
    assert_eq!(sim.phase(), Phase::Running);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Failed);
}

#[test]
fn a_kind_whose_watch_fails_is_asked_about_past_the_cache() {
    let mut sim = Sim::new([job("train")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    for feed in sim.state().kinds.values_mut() {
        feed.synced = false;
        feed.unwatchable = true;
    }
    for _ in 0..30 {
        sim.later(1);
    }
    assert_eq!(sim.phase(), Phase::Running);
    assert!(sim.condition(ConditionType::PodsReady).starts_with("True"));
    assert!(sim.count("get Job") <= 4);
    sim.state().remove("train");
    sim.later(10);
    assert_eq!(sim.phase(), Phase::Failed);
}
