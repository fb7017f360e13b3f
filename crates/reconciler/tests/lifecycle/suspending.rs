//! Suspending: runs to its end, gives the quota back last, keeps the count of retries.

use appwrapper_api::{ConditionType, Phase, PodPhase};
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{ON_CHANGE, Sim, after},
    world::Fault,
};

#[test]
fn suspension_deletes_components_waits_for_pods_and_gives_the_quota_back() {
    let mut sim = Sim::new([jobs("train", 2), service("svc")]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.settle();
    sim.forget_calls();
    sim.world.advance(crate::sim::secs(20));
    sim.state().suspend(true);
    assert_eq!(sim.settle(), after(5));
    assert_eq!(sim.phase(), Phase::Suspending);
    assert!(
        sim.condition(ConditionType::QuotaReserved).starts_with("True"),
        "pods are left"
    );
    assert!(sim.condition(ConditionType::ResourcesDeployed).starts_with("True"));
    assert_eq!(
        sim.condition(ConditionType::DeletingResources),
        "True DeletionInitiated: "
    );
    assert_eq!(sim.component(0), "False CompononetDeleted");
    assert_eq!(
        sim.writes()[..3],
        ["status Suspending", "delete Job train", "delete Service svc"]
    );
    sim.state().collect();
    assert_eq!(sim.settle(), ON_CHANGE);
    assert_eq!(sim.phase(), Phase::Suspended);
    assert_eq!(
        sim.condition(ConditionType::QuotaReserved),
        "False Suspended: Suspend is true"
    );
    assert_eq!(
        sim.condition(ConditionType::ResourcesDeployed),
        "False Suspended: Suspend is true"
    );
    assert_eq!(sim.condition(ConditionType::PodsReady), "False Suspended: ");
    assert!(
        sim.condition(ConditionType::Unhealthy).starts_with("False Resuming"),
        "was not true: left alone"
    );
    assert_eq!(
        sim.condition(ConditionType::DeletingResources),
        "False DeletionComplete: "
    );
}

#[test]
fn suspension_is_not_turned_back_halfway() {
    let mut sim = Sim::new([job("train")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    let first = sim.state().objects.values().next().unwrap().facts.uid.clone();
    sim.state().suspend(true);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspending);
    sim.state().suspend(false);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspending);
    sim.forget_calls();
    sim.state().collect();
    sim.settle();
    assert_eq!(sim.entered(), [Phase::Suspended, Phase::Resuming, Phase::Running]);
    assert_ne!(sim.state().objects.values().next().unwrap().facts.uid, first);
}

#[test]
fn a_retry_count_is_kept_over_suspensions_and_unhealthy_is_cleared() {
    let mut sim = Sim::with(&[("retryPausePeriodDuration", "1h")], [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    sim.later(60);
    assert_eq!(sim.status().resetting_count, 1);
    sim.state().suspend(true);
    sim.settle();
    sim.state().collect();
    sim.settle();
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Suspended);
    assert_eq!(sim.status().resetting_count, 1);
    assert_eq!(sim.condition(ConditionType::Unhealthy), "False Suspended: ");
}

#[test]
fn a_blind_pod_cache_does_not_give_the_quota_back() {
    let mut sim = Sim::new([jobs("train", 2)]).run();
    sim.state().cached_pods.held = true;
    sim.spawn("train", 2, PodPhase::Running);
    sim.state().suspend(true);
    assert_eq!(sim.pass(), after(5));
    assert_eq!(sim.phase(), Phase::Suspending);
    assert_eq!(sim.count("list pods"), 1);
    sim.state().collect();
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Suspended);
}

#[test]
fn suspended_before_anything_was_deployed_needs_no_deletion() {
    let mut sim = Sim::with(
        &[("retryPausePeriodDuration", "1h"), ("failureGracePeriodDuration", "0s")],
        [job("train")],
    )
    .run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    sim.state().collect();
    sim.settle();
    assert!(
        sim.condition(ConditionType::ResourcesDeployed)
            .starts_with("False Resetting")
    );
    sim.forget_calls();
    sim.state().suspend(true);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
    assert_eq!(
        sim.notes(),
        ["Suspending: Externally suspended while in the Resetting phase"]
    );
    assert_eq!(sim.writes(), ["status Suspended"]);
    assert_eq!(sim.reads(), [""; 0]);
}

#[rstest]
#[case::forbidden(Fault::Refuse("forbidden"))]
#[case::no_answer(Fault::Lose)]
fn a_pod_list_that_fails_is_not_an_empty_one(#[case] fault: Fault) {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().faults.add("list pods", fault, true);
    sim.state().suspend(true);
    assert_eq!(sim.pass(), after(1));
    assert_eq!(sim.later(1), after(2), "with back-off");
    assert_eq!(sim.phase(), Phase::Suspending);
    sim.state().faults.clear();
    sim.later(2);
    assert_eq!(sim.phase(), Phase::Suspended);
}

#[test]
fn twenty_flips_of_suspend_leak_nothing_and_end_where_they_should() {
    let mut sim = Sim::new([jobs("train", 2), service("svc")]);
    for flip in 0..20 {
        sim.state().suspend(flip % 2 == 0);
        sim.pass();
        if flip % 3 == 0 && sim.objects().contains(&"train".to_owned()) {
            sim.spawn("train", 1, PodPhase::Running);
        }
        sim.state().collect();
        sim.later(1);
    }
    for _ in 0..5 {
        sim.state().collect();
        sim.later(5);
    }
    assert_eq!(sim.phase(), Phase::Running, "the last flip resumed");
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("True"));
    assert_eq!(sim.objects(), ["train", "svc"]);
}
