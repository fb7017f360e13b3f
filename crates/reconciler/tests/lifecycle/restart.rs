//! Deadlines come from stored times: a process that remembers nothing gives the same verdict at the same moment (R15).

use appwrapper_api::{Completion, ConditionType, Phase, PodPhase};
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{Pass, Sim, after, secs},
    world::Fault,
};

const ALL: &[(&str, &str)] = &[
    ("admissionGracePeriodDuration", "20s"),
    ("warmupGracePeriodDuration", "40s"),
    ("failureGracePeriodDuration", "30s"),
    ("retryPausePeriodDuration", "50s"),
    ("deletionOnFailureGracePeriodDuration", "70s"),
    ("forcefulDeletionGracePeriodDuration", "60s"),
    ("successTTLDuration", "80s"),
    ("retryLimit", "1"),
];

fn running() -> Sim {
    Sim::with(ALL, [job("train")]).run()
}

fn with_pod(phase: PodPhase) -> Sim {
    let mut sim = running();
    sim.spawn("train", 1, phase);
    sim.settle();
    sim
}

fn refused() -> Sim {
    let mut sim = Sim::with(ALL, [job("train")]);
    sim.state().faults.add("create Job train", Fault::Refuse("quota"), true);
    sim.settle();
    sim
}

fn lost() -> Sim {
    let mut sim = with_pod(PodPhase::Running);
    sim.world.advance(secs(1));
    sim.state().remove_pod("train-0");
    sim.settle();
    sim
}

fn pausing() -> Sim {
    let mut sim = running();
    sim.state().end("train", Completion::Failed);
    sim.settle();
    sim
}

fn failed() -> Sim {
    let mut sim = running();
    sim.state().remove("train");
    sim.settle();
    sim
}

fn succeeded() -> Sim {
    let mut sim = running();
    sim.state().end("train", Completion::Complete);
    sim.settle();
    sim
}

fn deleting() -> Sim {
    let mut sim = with_pod(PodPhase::Running);
    sim.state().suspend(true);
    sim.settle();
    sim
}

/// What is to be seen once the deadline has passed.
type Seen = fn(&Sim) -> bool;

fn seen(seen: Seen) -> Seen {
    seen
}

#[rstest]
#[case::creation_refused(refused, 20, seen(|sim| sim.phase() == Phase::Resetting))]
#[case::no_pods(running, 20, seen(|sim| sim.phase() == Phase::Resetting))]
#[case::pods_pending(|| with_pod(PodPhase::Pending), 40, seen(|sim| sim.phase() == Phase::Resetting))]
#[case::pod_failed(|| with_pod(PodPhase::Failed), 30, seen(|sim| sim.phase() == Phase::Resetting))]
#[case::pod_lost(lost, 30, seen(|sim| sim.phase() == Phase::Resetting))]
#[case::retry_pause(pausing, 50, seen(|sim| sim.phase() == Phase::Running))]
#[case::deletion_delay(failed, 70, seen(|sim| sim.condition(ConditionType::DeletingResources).contains("DeletionComplete")))]
#[case::time_to_live(succeeded, 80, seen(|sim| sim.objects().is_empty()))]
#[case::forced_deletion(deleting, 60, seen(|sim| sim.count("delete pod") == 1))]
fn a_deadline_is_met_at_the_same_moment_with_and_without_a_restart(
    #[case] begin: fn() -> Sim,
    #[case] seconds: i64,
    #[case] is_seen: Seen,
) {
    for restart in [false, true] {
        for step in [1, 7] {
            let mut sim = begin();
            let mut passed = 0;
            while passed + step < seconds {
                if restart {
                    sim.restart();
                }
                sim.later(step);
                passed += step;
                assert!(!is_seen(&sim), "too early, after {passed} s (restart: {restart})");
            }
            if restart {
                sim.restart();
            }
            sim.later(seconds - passed);
            assert!(is_seen(&sim), "too late (restart: {restart})");
        }
    }
}

#[rstest]
#[case::no_pods(running)]
#[case::pod_failed(|| with_pod(PodPhase::Failed))]
#[case::pod_lost(lost)]
#[case::retry_pause(pausing)]
#[case::deletion_delay(failed)]
#[case::time_to_live(succeeded)]
#[case::ready(|| with_pod(PodPhase::Running))]
#[case::deleting(deleting)]
fn a_pass_that_changes_nothing_comes_back_at_the_same_time_and_writes_nothing(#[case] begin: fn() -> Sim) {
    let mut remembering = begin();
    remembering.world.advance(secs(3));
    let mut restarted = begin();
    restarted.world.advance(secs(3));
    restarted.restart();
    for sim in [&mut remembering, &mut restarted] {
        sim.forget_calls();
    }
    let (first, second) = (remembering.pass(), restarted.pass());
    assert_eq!(first, second);
    assert!(matches!(first, Pass::Rest(_)));
    assert_eq!(remembering.writes(), [""; 0]);
    assert_eq!(restarted.writes(), [""; 0]);
    assert!(restarted.events().is_empty(), "told before");
}

#[test]
fn a_cold_cache_is_no_missing_component() {
    let mut sim = with_pod(PodPhase::Running);
    sim.die();
    for feed in sim.state().kinds.values_mut() {
        *feed = crate::world::Feed::default();
    }
    assert_eq!(sim.settle(), after(60), "the kind is listed before it is judged");
    assert_eq!(sim.reads(), [""; 0]);
}
