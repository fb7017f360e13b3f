//! An AppWrapper that has ended is deleted itself when its time is over, if it has one; by default it has none.

use appwrapper_api::{Completion, ConditionType, Phase, PodPhase};
use appwrapper_reconciler::Error;
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{ON_CHANGE, Pass, Sim, after, secs},
    world::Fault,
};

const TTL: (&str, &str) = ("finishedTTLDuration", "100s");

/// Succeeded at a whole second.
fn succeeded(annotations: &[(&str, &str)]) -> Sim {
    let mut sim = Sim::with(annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.pod_phase("train-0", PodPhase::Succeeded);
    sim.state().end("train", Completion::Complete);
    sim.state().flow();
    sim.pass();
    assert_eq!(sim.phase(), Phase::Succeeded);
    sim.forget_calls();
    sim
}

/// Failed, with nothing left.
fn failed(annotations: &[(&str, &str)]) -> Sim {
    let mut all = vec![("failureGracePeriodDuration", "0s"), ("retryLimit", "0")];
    all.extend(annotations);
    let mut sim = Sim::with(&all, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    sim.pass();
    sim
}

fn is_gone(sim: &Sim) -> bool {
    sim.state().wrapper.is_none()
}

fn deletes(sim: &Sim) -> usize {
    sim.count("delete appwrapper")
}

#[test]
fn a_succeeded_one_goes_with_its_components_when_its_time_is_over() {
    let mut sim = succeeded(&[TTL]);
    assert_eq!(sim.settle(), after(100));
    assert_eq!(sim.later(99), after(1));
    assert_eq!(deletes(&sim), 0);
    sim.later(1);
    assert_eq!(deletes(&sim), 1);
    sim.settle();
    assert_eq!(sim.objects(), [""; 0], "its finalizer sees to its components");
    sim.state().collect();
    sim.later(5);
    assert!(is_gone(&sim));
    let told: Vec<_> = sim
        .notes()
        .into_iter()
        .filter(|note| note.starts_with("Expired"))
        .collect();
    assert_eq!(
        told,
        ["Expired: Deleted because its time to live after its end, 1m40s, is over"]
    );
}

#[test]
fn a_failed_one_is_kept_until_its_components_are_gone_and_its_time_is_over() {
    let mut sim = failed(&[TTL, ("deletionOnFailureGracePeriodDuration", "300s")]);
    sim.later(299);
    assert_eq!(deletes(&sim), 0, "its components are kept to be looked at");
    sim.later(1);
    sim.state().collect();
    sim.later(5);
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("False"));
    sim.later(90);
    assert_eq!(deletes(&sim), 0);
    sim.later(20);
    assert_eq!(deletes(&sim), 1);
    sim.settle();
    assert!(is_gone(&sim));
}

#[rstest]
#[case::not_given(&[])]
#[case::zero(&[("finishedTTLDuration", "0s")])]
#[case::negative(&[("finishedTTLDuration", "-1s")])]
#[case::malformed(&[("finishedTTLDuration", "soon")])]
fn without_a_time_it_is_kept_for_ever(#[case] annotations: &[(&str, &str)]) {
    let mut sim = failed(annotations);
    sim.state().collect();
    sim.settle();
    assert_eq!(sim.later(1_000_000), ON_CHANGE);
    assert_eq!(deletes(&sim), 0);
    let mut sim = succeeded(annotations);
    sim.later(1_000_000);
    assert_eq!(deletes(&sim), 0);
}

#[test]
fn a_process_that_starts_after_the_deadline_deletes_at_once() {
    let mut sim = succeeded(&[TTL]);
    sim.settle();
    sim.world.advance(secs(150));
    sim.restart();
    sim.pass();
    assert_eq!(deletes(&sim), 1);
}

#[test]
fn an_appwrapper_that_was_changed_meanwhile_is_looked_at_anew() {
    let mut sim = succeeded(&[TTL]);
    sim.settle();
    sim.world.advance(secs(150));
    let old = sim.state().cached_wrapper();
    sim.state().edit_wrapper(|wrapper| {
        wrapper
            .metadata
            .labels
            .get_or_insert_default()
            .insert("by".into(), "hand".into());
    });
    assert_eq!(
        sim.pass_on(old),
        Pass::Error(Error::Conflict),
        "the version is a precondition"
    );
    assert!(!is_gone(&sim));
}

#[test]
fn a_deletion_that_is_refused_is_tried_again() {
    let mut sim = succeeded(&[TTL]);
    sim.settle();
    sim.world.advance(secs(150));
    sim.state().faults.add("delete appwrapper", Fault::Refuse("no"), false);
    assert!(matches!(
        sim.pass(),
        Pass::Error(Error::Api {
            operation: "delete",
            ..
        })
    ));
    sim.pass();
    assert_eq!(deletes(&sim), 2);
}
