//! Components that say of themselves that they have failed (spec/lifecycle.md section 3, step 4; R08, R09).

use appwrapper_api::{Completion, ConditionType, Phase, PodPhase};
use rstest::rstest;
use serde_json::Value;

use crate::{fixtures::*, sim::Sim};

#[rstest]
#[case::job(job("c"))]
#[case::jobset(jobset("c"))]
#[case::pytorch(pytorch("c"))]
#[case::rayjob(rayjob("c"))]
fn a_component_that_failed_costs_a_retry_without_a_grace(#[case] template: Value) {
    let mut sim = Sim::new([template, service("svc")]).run();
    sim.state().end("c", Completion::Failed);
    sim.pass();
    assert_eq!(sim.phase(), Phase::Resetting);
    assert_eq!(sim.status().resetting_count, 1);
    assert_eq!(
        sim.condition(ConditionType::Unhealthy),
        "True FailedComponent: Found 1 failed components"
    );
    assert_eq!(sim.notes(), ["Unhealthy: FailedComponent: Found 1 failed components"]);
    assert_eq!(sim.reads(), ["list pods"], "the failure was taken from the cache");
}

#[test]
fn the_retries_of_a_failing_component_are_counted_to_the_limit() {
    let mut sim = Sim::with(
        &[("retryLimit", "2"), ("retryPausePeriodDuration", "5s")],
        [job("train")],
    )
    .run();
    for attempt in 1..=2 {
        sim.state().end("train", Completion::Failed);
        sim.settle();
        assert_eq!(sim.status().resetting_count, attempt);
        sim.later(5);
        assert_eq!(sim.phase(), Phase::Running);
    }
    sim.state().end("train", Completion::Failed);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.status().resetting_count, 2);
    assert_eq!(sim.objects(), [""; 0]);
    assert_eq!(
        sim.notes()
            .iter()
            .filter(|note| note.contains("FailedComponent"))
            .count(),
        3,
        "one event for each of the three failures"
    );
}

#[test]
fn a_terminal_exit_code_forbids_the_retry() {
    let mut sim = Sim::with(&[("terminalExitCodes", "42")], [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.state().edit_pod("train-0", |pod| pod.exit_codes = vec![42]);
    sim.state().end("train", Completion::Failed);
    sim.pass();
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.status().resetting_count, 0);
}

#[test]
fn a_failed_component_goes_before_failed_pods_and_before_success() {
    let mut sim = Sim::new([job("a"), job("b")]).run();
    sim.spawn("a", 1, PodPhase::Failed);
    sim.state().end("a", Completion::Failed);
    sim.state().end("b", Completion::Complete);
    sim.pass();
    assert!(
        sim.condition(ConditionType::Unhealthy)
            .starts_with("True FailedComponent: Found 1")
    );
}

#[test]
fn a_cache_that_still_shows_the_failed_job_of_the_last_attempt_does_not_fail_the_next() {
    let mut sim = Sim::with(&[("retryPausePeriodDuration", "0s")], [job("train")]).run();
    sim.state().end("train", Completion::Failed);
    sim.state().flow();
    sim.state().hold_components(true);
    sim.settle();
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.status().resetting_count, 1);
    sim.later(2);
    assert_eq!(sim.status().resetting_count, 1);
    assert_eq!(sim.phase(), Phase::Running);
}
