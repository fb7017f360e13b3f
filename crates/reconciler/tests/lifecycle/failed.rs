//! Failed: deletion at once or after a delay counted from the failure; never left (spec/lifecycle.md 9, rows 20 and 21).

use appwrapper_api::{ConditionType, Phase, PodPhase};

use crate::{
    fixtures::*,
    sim::{ON_CHANGE, Sim, after},
};

const DELETING: ConditionType = ConditionType::DeletingResources;
const DEPLOYED: ConditionType = ConditionType::ResourcesDeployed;
const QUOTA: ConditionType = ConditionType::QuotaReserved;

/// Failed at second 10 of its life, with one pod left.
fn failed(delay: Option<&str>) -> Sim {
    let mut annotations = vec![("failureGracePeriodDuration", "0s"), ("retryLimit", "0")];
    annotations.extend(delay.map(|delay| ("deletionOnFailureGracePeriodDuration", delay)));
    let mut sim = Sim::with(&annotations, [job("train"), service("svc")]).run();
    sim.world.advance(crate::sim::secs(10));
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    sim
}

#[test]
fn resources_are_deleted_then_the_quota_is_given_back_and_that_is_the_end() {
    let mut sim = failed(None);
    assert_eq!(sim.pass(), after(5));
    assert_eq!(sim.objects(), [""; 0]);
    assert!(sim.condition(QUOTA).starts_with("True"));
    assert!(sim.condition(DEPLOYED).starts_with("True"));
    sim.state().collect();
    assert_eq!(sim.settle(), ON_CHANGE);
    assert_eq!(sim.condition(QUOTA), "False Failed: No resources deployed");
    assert_eq!(
        sim.condition(DEPLOYED),
        "False Failed: Resources deleted for failed AppWrapper"
    );
    assert_eq!(sim.condition(DELETING), "False DeletionComplete: ");
    assert!(
        sim.condition(ConditionType::Unhealthy)
            .starts_with("True FoundFailedPods"),
        "the reason stays readable"
    );
    sim.forget_calls();
    for suspend in [true, false] {
        sim.state().suspend(suspend);
        assert_eq!(sim.later(1000), ON_CHANGE);
    }
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(sim.calls(), [""; 0]);
}

#[test]
fn a_deletion_delay_keeps_everything_and_is_waited_once() {
    let mut sim = failed(Some("90s"));
    assert_eq!(sim.pass(), after(90));
    assert_eq!(sim.objects(), ["train", "svc"]);
    assert_eq!(
        sim.condition(DELETING),
        "False DeletionPaused: workload.codeflare.dev.appwrapper/deletionOnFailureGracePeriodDuration has value 1m30s"
    );
    assert_eq!(sim.since(DELETING), 10);
    assert!(sim.condition(QUOTA).starts_with("True"));
    sim.forget_calls();
    assert_eq!(sim.later(89), after(1));
    assert_eq!(sim.writes(), [""; 0]);
    assert_eq!(sim.later(1), after(5));
    assert_eq!(sim.objects(), [""; 0]);
    assert_eq!(sim.condition(DELETING), "True DeletionInitiated: ");
    assert_eq!(sim.later(5), after(5), "the delay is over for good");
    assert_eq!(sim.since(DELETING), 100, "so that the forceful grace can end");
    sim.state().collect();
    sim.settle();
    assert_eq!(
        sim.condition(DEPLOYED),
        "False Failed: Resources deleted for failed AppWrapper"
    );
}

#[test]
fn suspension_ends_the_delay() {
    let mut sim = failed(Some("1h"));
    sim.state().suspend(true);
    sim.settle();
    assert_eq!(sim.objects(), [""; 0]);
    sim.state().collect();
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed);
    assert_eq!(
        sim.condition(DEPLOYED),
        "False Failed: Kueue forced resource deletion by suspending AppWrapper"
    );
    assert!(sim.condition(QUOTA).starts_with("False Failed"));
}

#[test]
fn the_delay_is_counted_from_the_failure_and_not_from_an_earlier_retry() {
    let annotations = [
        ("failureGracePeriodDuration", "0s"),
        ("retryLimit", "1"),
        ("retryPausePeriodDuration", "0s"),
        ("deletionOnFailureGracePeriodDuration", "60s"),
    ];
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    sim.state().collect();
    sim.settle();
    assert_eq!(sim.condition(DELETING), "False DeletionComplete: ");
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.later(500);
    sim.pod_phase("train-0", PodPhase::Failed);
    assert_eq!(sim.settle(), after(60));
    assert_eq!(sim.since(DELETING), 500);
    sim.restart();
    assert_eq!(sim.later(59), after(1));
    assert_eq!(sim.objects(), ["train"]);
}

#[test]
fn a_status_without_conditions_is_cleaned_up_all_the_same() {
    let mut sim = failed(Some("1h"));
    sim.edit_status(|status| status.conditions.clear());
    assert_eq!(sim.settle(), after(3600));
    sim.state().suspend(true);
    sim.settle();
    sim.state().collect();
    sim.settle();
    assert!(sim.condition(QUOTA).starts_with("False Failed"));
    assert!(sim.condition(DEPLOYED).starts_with("False Failed"));
}
