//! Which pods count, and as what (spec/lifecycle.md 5b, design/decisions.md 1; C02, C05, R10).

use appwrapper_api::{ConditionType, Lineage, Phase, PodFacts, PodPhase, Uid};
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{Sim, after},
};

/// A pod that is not of the Job, beside one that is and runs.
fn beside(lineage: Lineage, phase: PodPhase) -> Sim {
    let mut sim = Sim::new([job("train")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.state()
        .add_pod("stranger", Uid::new("uid-stranger"), &Uid::new("x"), &Uid::new("x"));
    sim.state().edit_pod("stranger", |pod| {
        pod.lineage = lineage;
        pod.phase = phase;
        pod.exit_codes = vec![1];
    });
    sim
}

fn of(component: &str, owner: &str) -> Lineage {
    Lineage::Component {
        component: Uid::new(component),
        owner: Uid::new(owner),
    }
}

#[rstest]
#[case::label_alone(Lineage::Foreign)]
#[case::another_appwrapper(of("uid-other-job", "uid-other"))]
#[case::owner_gone(Lineage::Broken)]
#[case::an_earlier_attempt(of("uid-of-an-earlier-job", "uid-aw"))]
fn a_pod_that_is_not_of_a_component_counts_for_nothing(#[case] lineage: Lineage) {
    for phase in [
        PodPhase::Failed,
        PodPhase::Succeeded,
        PodPhase::Running,
        PodPhase::Pending,
    ] {
        let mut sim = beside(lineage.clone(), phase);
        assert_eq!(sim.settle(), after(60), "{phase:?}");
        assert_eq!(sim.phase(), Phase::Running);
        assert_eq!(
            sim.condition(ConditionType::PodsReady),
            "True SufficientPodsReady: 1 pods running; 0 pods succeeded"
        );
        assert!(sim.condition(ConditionType::Unhealthy).starts_with("False"));
    }
}

#[test]
fn a_pod_whose_owner_is_not_looked_up_yet_is_pending() {
    let mut sim = Sim::new([jobs("train", 2)]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.state().edit_pod("train-1", |pod| pod.lineage = Lineage::Unresolved);
    sim.settle();
    sim.later(299);
    assert_eq!(sim.phase(), Phase::Running, "the warm-up grace, as for a pending pod");
}

type Edit = fn(&mut PodFacts);

fn edit(edit: Edit) -> Edit {
    edit
}

#[rstest]
#[case::pending(edit(|pod| pod.phase = PodPhase::Pending), "1 pods pending; 1 pods running; 0 pods succeeded")]
#[case::pending_and_leaving(edit(|pod| { pod.phase = PodPhase::Pending; pod.terminating = true; }), "1 pods pending; 1 pods running; 0 pods succeeded")]
#[case::running_and_leaving(edit(|pod| pod.terminating = true), "0 pods pending; 1 pods running; 0 pods succeeded")]
#[case::unknown_is_not_lost(edit(|pod| pod.phase = PodPhase::Unknown), "1 pods pending; 1 pods running; 0 pods succeeded")]
fn a_pod_counts_by_its_phase(#[case] edit: Edit, #[case] text: &str) {
    let mut sim = Sim::new([jobs("train", 2)]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.settle();
    sim.state().edit_pod("train-1", edit);
    sim.settle();
    assert_eq!(
        sim.condition(ConditionType::PodsReady),
        format!("False InsufficientPodsReady: {text}")
    );
}

#[test]
fn a_failed_pod_that_is_being_deleted_has_failed() {
    let mut sim = Sim::new([job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.state().edit_pod("train-0", |pod| pod.terminating = true);
    sim.settle();
    assert_eq!(sim.condition(ConditionType::Unhealthy), "True FoundFailedPods: ");
}

#[test]
fn declared_and_inferred_pod_sets_are_expected_alike() {
    let mut sim = Sim::new([widget("w"), jobs("train", 2)]).run();
    sim.spawn("w", 1, PodPhase::Running);
    sim.spawn("train", 1, PodPhase::Running);
    assert_eq!(sim.settle(), after(5));
    sim.spawn("train", 2, PodPhase::Running);
    assert_eq!(sim.settle(), after(60));
}

#[test]
fn the_next_attempt_waits_until_a_blind_pod_cache_has_seen_the_end_of_the_last() {
    let annotations = [("failureGracePeriodDuration", "0s"), ("retryPausePeriodDuration", "0s")];
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.state().flow();
    sim.state().cached_pods.held = true;
    sim.settle();
    sim.state().collect();
    sim.later(5);
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Resetting);
    sim.state().cached_pods.held = false;
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    sim.later(5);
    assert_eq!(sim.status().resetting_count, 1);
}
