//! Why the last attempt failed stays readable when the next one clears `Unhealthy`; and each failed pod is told once.

use appwrapper_api::{Completion, ConditionType, Phase, PodPhase};

use crate::{
    fixtures::*,
    sim::{Sim, secs},
};

const LAST: ConditionType = ConditionType::LastFailure;

/// Running, with a pod that was killed on a node.
fn killed() -> Sim {
    let quick = [
        ("failureGracePeriodDuration", "10s"),
        ("retryPausePeriodDuration", "1s"),
    ];
    let mut sim = Sim::with(&quick, [jobs("train", 2)]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.settle();
    sim.state().edit_pod("train-1", |pod| {
        pod.phase = PodPhase::Failed;
        pod.node = Some("node-b".into());
        pod.exit_codes = vec![137];
    });
    sim
}

fn pod_events(sim: &Sim) -> Vec<String> {
    sim.notes()
        .into_iter()
        .filter(|note| note.starts_with("PodFailed"))
        .collect()
}

#[test]
fn a_failed_pod_is_told_once_with_its_node_and_exit_code() {
    let mut sim = killed();
    sim.settle();
    assert_eq!(
        pod_events(&sim),
        ["PodFailed: pod train-1 on node node-b, exit code 137"]
    );
    assert!(sim.events().iter().all(|event| event.warning));
    sim.later(5);
    sim.pod_phase("train-0", PodPhase::Succeeded);
    sim.settle();
    assert_eq!(pod_events(&sim).len(), 1, "the same fact is no news");
}

#[test]
fn the_reason_outlives_the_retry_that_it_caused() {
    let mut sim = killed();
    sim.settle();
    assert_eq!(sim.condition(LAST), "absent", "within the grace nothing has failed yet");
    sim.later(10);
    let failure = "True FoundFailedPods: 1 failed pods: pod train-1 on node node-b, exit code 137";
    assert_eq!(sim.condition(LAST), failure);
    sim.state().collect();
    sim.later(5);
    sim.later(2);
    assert_eq!(sim.phase(), Phase::Running);
    sim.spawn("train", 2, PodPhase::Running);
    sim.settle();
    assert!(sim.condition(ConditionType::Unhealthy).starts_with("False"));
    assert_eq!(sim.condition(LAST), failure);
    sim.restart();
    sim.pass();
    assert_eq!(sim.condition(LAST), failure);
}

#[test]
fn a_later_failure_takes_its_place_and_its_time() {
    let mut sim = killed();
    sim.settle();
    sim.later(10);
    let first = sim.since(LAST);
    sim.state().collect();
    sim.later(5);
    sim.later(2);
    sim.world.advance(secs(100));
    sim.state().end("train", Completion::Failed);
    sim.settle();
    assert_eq!(
        sim.condition(LAST),
        "True FailedComponent: Found 1 failed components: Job train"
    );
    assert!(sim.since(LAST) > first + 100);
}

#[test]
fn a_final_failure_is_one_as_well() {
    let mut sim = Sim::new([job("train"), service("svc")]).run();
    sim.state().remove("svc");
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(
        sim.condition(LAST),
        "True MissingComponent: Only found 1 deployed components, but was expecting 2"
    );
}
