//! Resetting: deletion, then a pause counted from its end, then another attempt (spec/lifecycle.md 9, row 22; R06, C06).

use appwrapper_api::{ConditionType, Phase, PodPhase};

use crate::{
    fixtures::*,
    sim::{Sim, after},
};

const DEPLOYED: ConditionType = ConditionType::ResourcesDeployed;

/// Running, ready, and then a pod fails for longer than its grace.
fn failing(annotations: &[(&str, &str)]) -> Sim {
    let mut all = vec![("failureGracePeriodDuration", "1s")];
    all.extend_from_slice(annotations);
    let mut sim = Sim::with(&all, [jobs("train", 2), service("svc")]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.settle();
    sim.pod_phase("train-1", PodPhase::Failed);
    sim.settle();
    sim.forget_calls();
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Resetting);
    sim
}

#[test]
fn the_quota_stays_held_and_pods_are_no_longer_ready() {
    let mut sim = failing(&[]);
    assert_eq!(sim.pass(), after(5));
    assert_eq!(sim.condition(ConditionType::PodsReady), "False Resetting: ");
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("True"));
    assert!(
        sim.condition(ConditionType::Unhealthy)
            .starts_with("True FoundFailedPods")
    );
    assert!(sim.condition(DEPLOYED).starts_with("True"), "pods are left");
    sim.state().collect();
    assert_eq!(sim.settle(), after(90));
    assert_eq!(
        sim.condition(DEPLOYED),
        "False Resetting: Resources deleted for resetting AppWrapper"
    );
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("True"));
    sim.later(90);
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.entered().last(), Some(&Phase::Running));
}

#[test]
fn the_pause_is_counted_from_the_end_of_deletion() {
    let mut sim = failing(&[("retryPausePeriodDuration", "30s")]);
    for _ in 0..20 {
        assert_eq!(sim.later(5), after(5), "pods are left");
    }
    sim.state().collect();
    assert_eq!(sim.settle(), after(30));
    assert_eq!(sim.later(29), after(1));
    assert_eq!(sim.phase(), Phase::Resetting);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.condition(DEPLOYED), "True Resuming: Reset complete; resuming");
    assert_eq!(sim.since(DEPLOYED), 131);
}

#[test]
fn no_object_of_the_next_attempt_is_made_before_the_last_pod_of_this_one_is_gone() {
    let mut sim = failing(&[("retryPausePeriodDuration", "0s")]);
    sim.state().cached_pods.held = true;
    sim.state().remove_pod("train-0");
    sim.later(5);
    assert_eq!(sim.objects(), [""; 0]);
    sim.state().cached_pods.held = false;
    sim.state().cached_pods.flow();
    sim.state().cached_pods.held = true;
    sim.later(5);
    assert_eq!(sim.objects(), [""; 0]);
    sim.state().collect();
    sim.state().cached_pods.held = false;
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
}

#[test]
fn the_next_attempt_has_its_own_graces() {
    let mut sim = failing(&[("retryPausePeriodDuration", "0s"), ("warmupGracePeriodDuration", "2m")]);
    sim.state().collect();
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    sim.spawn("train", 2, PodPhase::Pending);
    sim.settle();
    assert_eq!(sim.condition(ConditionType::Unhealthy), "False FoundNoFailedPods: ");
    sim.later(119);
    assert_eq!(sim.phase(), Phase::Running);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Resetting);
    assert_eq!(sim.status().resetting_count, 2);
}

#[test]
fn an_instant_deletion_needs_no_second_pass() {
    let mut sim = Sim::with(
        &[
            ("retryPausePeriodDuration", "10s"),
            ("admissionGracePeriodDuration", "0s"),
        ],
        [job("train")],
    );
    sim.settle();
    assert_eq!(sim.phase(), Phase::Resetting, "no pods within no grace");
    assert_eq!(sim.objects(), [""; 0]);
    assert_eq!(sim.later(9), after(1));
}
