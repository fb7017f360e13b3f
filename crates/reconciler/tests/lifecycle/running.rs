//! Running: pods are counted, graces granted, and in the right order (spec/lifecycle.md section 3, steps 1 and 5 to 10).

use appwrapper_api::{ConditionType, Phase, PodPhase};
use appwrapper_reconciler::observed::NodeFaults;
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{Sim, after},
};

const READY: ConditionType = ConditionType::PodsReady;
const UNHEALTHY: ConditionType = ConditionType::Unhealthy;

#[test]
fn pods_become_ready_and_the_net_is_a_minute() {
    let mut sim = Sim::new([jobs("train", 2)]).run();
    assert_eq!(sim.pass(), after(5));
    assert_eq!(sim.condition(READY), "False Resuming: Suspend is false");
    sim.spawn("train", 2, PodPhase::Pending);
    assert_eq!(sim.settle(), after(5));
    sim.pod_phase("train-0", PodPhase::Running);
    assert_eq!(sim.settle(), after(5));
    assert!(sim.condition(READY).starts_with("False"));
    sim.pod_phase("train-1", PodPhase::Running);
    assert_eq!(sim.settle(), after(60));
    assert_eq!(
        sim.condition(READY),
        "True SufficientPodsReady: 2 pods running; 0 pods succeeded"
    );
    assert_eq!(sim.writes(), ["status Running"]);
    assert_eq!(sim.later(60), after(60));
    assert_eq!(sim.writes().len(), 1, "nothing changed, nothing is written");
    assert!(sim.events().is_empty());
}

#[test]
fn one_pod_running_and_one_succeeded_is_ready_and_not_finished() {
    let mut sim = Sim::new([jobs("train", 2)]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.pod_phase("train-1", PodPhase::Succeeded);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(
        sim.condition(READY),
        "True SufficientPodsReady: 1 pods running; 1 pods succeeded"
    );
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("True"));
}

#[rstest]
#[case::no_pods(0, 60)]
#[case::too_few(1, 60)]
#[case::all_pending(2, 300)]
fn missing_pods_have_the_admission_grace_and_pending_ones_the_warmup(#[case] pending: usize, #[case] grace: i64) {
    let mut sim = Sim::new([jobs("train", 2)]).run();
    sim.spawn("train", pending, PodPhase::Pending);
    sim.settle();
    assert_eq!(sim.later(grace - 2), after(2), "no later than the deadline");
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.writes(), [""; 0]);
    sim.later(2);
    assert_eq!(sim.phase(), Phase::Resetting);
    assert_eq!(sim.status().resetting_count, 1);
    let text = format!("{pending} pods pending; 0 pods running; 0 pods succeeded");
    assert_eq!(sim.condition(UNHEALTHY), format!("True InsufficientPodsReady: {text}"));
    assert_eq!(sim.notes(), [format!("Unhealthy: InsufficientPodsReady: {text}")]);
    assert!(sim.events()[0].warning);
}

#[test]
fn a_lost_pod_has_the_failure_grace_from_the_moment_of_its_loss() {
    let mut sim = Sim::with(&[("failureGracePeriodDuration", "5s")], [jobs("train", 2)]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.settle();
    sim.later(1000);
    sim.state().remove_pod("train-1");
    assert_eq!(sim.settle(), after(5));
    assert_eq!(
        sim.condition(READY),
        "False InsufficientPodsReady: 0 pods pending; 1 pods running; 0 pods succeeded"
    );
    sim.later(3);
    sim.spawn("train", 2, PodPhase::Running);
    assert_eq!(sim.settle(), after(60));
    assert!(sim.condition(READY).starts_with("True"));
    assert_eq!(sim.status().resetting_count, 0);
    sim.later(100);
    sim.pod_phase("train-1", PodPhase::Pending);
    assert_eq!(sim.settle(), after(5), "a second loss has a grace of its own");
    sim.later(5);
    assert_eq!(sim.phase(), Phase::Resetting);
    assert_eq!(sim.status().resetting_count, 1);
    assert_eq!(sim.notes().len(), 1);
}

#[test]
fn a_loss_in_the_very_second_of_the_start_has_the_grace_of_a_loss() {
    let mut sim = Sim::with(&[("failureGracePeriodDuration", "3s")], [jobs("train", 2)]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.settle();
    sim.state().remove_pod("train-1");
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    sim.later(4);
    assert_eq!(sim.status().resetting_count, 1, "the grace of a start is a minute");
}

#[test]
fn a_loss_of_an_earlier_attempt_is_forgotten_by_the_next() {
    let annotations = [("failureGracePeriodDuration", "0s"), ("retryPausePeriodDuration", "0s")];
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.world.advance(crate::sim::secs(1));
    sim.state().remove_pod("train-0");
    sim.settle();
    sim.settle();
    assert_eq!(sim.status().resetting_count, 1, "only the loss itself");
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.later(30), after(5));
    assert_eq!(sim.phase(), Phase::Running);
}

#[test]
fn a_failed_pod_has_the_failure_grace_and_then_costs_a_retry() {
    let mut sim = Sim::new([job("train")]).run();
    sim.world.advance(crate::sim::secs(10));
    sim.spawn("train", 1, PodPhase::Failed);
    assert_eq!(sim.settle(), after(60));
    assert_eq!(sim.condition(UNHEALTHY), "True FoundFailedPods: ");
    assert_eq!(sim.since(UNHEALTHY), 10);
    let pod = "PodFailed: pod train-0 on node node-a";
    assert_eq!(sim.notes(), [pod]);
    assert_eq!(sim.later(59), after(1));
    assert_eq!(sim.writes(), ["status Running"]);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Resetting);
    assert_eq!(sim.notes(), [pod, "Unhealthy: FoundFailedPods: 1 failed pods"]);
}

#[test]
fn a_failed_pod_that_is_made_good_is_forgiven() {
    let mut sim = Sim::new([job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    sim.later(30);
    sim.pod_phase("train-0", PodPhase::Running);
    assert_eq!(sim.settle(), after(60));
    assert_eq!(sim.condition(UNHEALTHY), "False FoundNoFailedPods: ");
    sim.later(20);
    sim.pod_phase("train-0", PodPhase::Failed);
    assert_eq!(sim.settle(), after(60), "the grace begins anew");
}

#[test]
fn a_second_round_has_its_own_failure_grace() {
    let annotations = [
        ("failureGracePeriodDuration", "10s"),
        ("retryPausePeriodDuration", "1s"),
    ];
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    sim.later(10);
    sim.state().collect();
    sim.settle();
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
    assert!(sim.condition(UNHEALTHY).starts_with("False FoundNoFailedPods"));
    sim.spawn("train", 1, PodPhase::Failed);
    assert_eq!(sim.settle(), after(10));
    sim.later(9);
    assert_eq!(sim.phase(), Phase::Running);
}

#[test]
fn a_second_round_that_nobody_saw_healthy_has_its_own_failure_grace() {
    let annotations = [
        ("failureGracePeriodDuration", "10s"),
        ("retryPausePeriodDuration", "1s"),
    ];
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.settle();
    sim.later(10);
    sim.state().collect();
    sim.settle();
    sim.state().cached_pods.synced = false;
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
    assert!(sim.condition(UNHEALTHY).starts_with("True FoundFailedPods"));
    sim.state().cached_pods.synced = true;
    sim.spawn("train", 1, PodPhase::Failed);
    assert_eq!(sim.settle(), after(10));
    assert_eq!(sim.since(UNHEALTHY), 11);
    sim.later(9);
    assert_eq!(sim.phase(), Phase::Running);
}

#[rstest]
#[case::none_left("0", Phase::Failed)]
#[case::some_left("1", Phase::Resetting)]
#[case::negative_is_none("-1", Phase::Failed)]
fn without_retries_a_failed_pod_fails_the_appwrapper(#[case] limit: &str, #[case] expected: Phase) {
    let mut sim = Sim::with(
        &[("failureGracePeriodDuration", "0s"), ("retryLimit", limit)],
        [job("train")],
    )
    .run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.pass();
    assert_eq!(sim.phase(), expected);
    assert!(
        sim.condition(ConditionType::QuotaReserved).starts_with("True"),
        "pods are left"
    );
    assert!(sim.condition(ConditionType::ResourcesDeployed).starts_with("True"));
}

#[rstest]
#[case::terminal(&[("terminalExitCodes", "3, 42")], &[42], true)]
#[case::not_terminal(&[("terminalExitCodes", "3, 42")], &[137], false)]
#[case::terminal_wins(&[("terminalExitCodes", "42")], &[137, 42], true)]
#[case::retryable(&[("retryableExitCodes", "137,143")], &[137], false)]
#[case::not_retryable(&[("retryableExitCodes", "137,143")], &[1], true)]
#[case::evicted_without_codes(&[("retryableExitCodes", "137")], &[], false)]
fn exit_codes_decide_about_a_retry(#[case] codes: &[(&str, &str)], #[case] exits: &[i32], #[case] terminal: bool) {
    let mut annotations = vec![("failureGracePeriodDuration", "10s")];
    annotations.extend_from_slice(codes);
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Failed);
    sim.state().edit_pod("train-0", |pod| pod.exit_codes = exits.to_vec());
    assert_eq!(sim.settle(), after(10), "the grace holds for both");
    sim.restart();
    sim.later(10);
    assert_eq!(sim.phase(), if terminal { Phase::Failed } else { Phase::Resetting });
}

#[test]
fn a_node_to_be_left_costs_no_retry_but_needs_one_left() {
    for (limit, expected) in [("1", Phase::Resetting), ("0", Phase::Failed)] {
        let mut sim = Sim::with(&[("retryLimit", limit)], [jobs("train", 2)]).run();
        sim.spawn("train", 2, PodPhase::Running);
        for (name, node) in [("train-0", "node-b"), ("train-1", "node-a")] {
            sim.state().edit_pod(name, |pod| {
                pod.node = Some(node.into());
                pod.resources = vec!["nvidia.com/gpu".into()];
            });
        }
        sim.settle();
        let gpu = || vec!["nvidia.com/gpu".into()];
        sim.nodes = NodeFaults::from_iter([("node-a".into(), gpu()), ("node-b".into(), gpu())]);
        sim.pass();
        assert_eq!(sim.phase(), expected);
        assert_eq!(sim.status().resetting_count, 0);
        let text = "Workload contains pods using NoExecute resources on Nodes: map[node-a:{} node-b:{}]";
        assert_eq!(sim.condition(UNHEALTHY), format!("True AutopilotNoExecute: {text}"));
        assert_eq!(sim.notes(), [format!("Unhealthy: {text}")]);
    }
}

#[test]
fn a_failed_pod_goes_before_a_node_to_be_left() {
    let mut sim = Sim::new([jobs("train", 2)]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.state()
        .edit_pod("train-0", |pod| pod.resources = vec!["gpu".into()]);
    sim.pod_phase("train-1", PodPhase::Failed);
    sim.nodes = NodeFaults::from_iter([("node-a".into(), vec!["gpu".into()])]);
    assert_eq!(sim.settle(), after(60));
    assert_eq!(sim.condition(UNHEALTHY), "True FoundFailedPods: ");
}

#[test]
fn suspension_goes_before_everything() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().remove("train");
    sim.state().suspend(true);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
    assert_eq!(
        sim.notes(),
        ["Suspending: Externally suspended while in the Running phase"]
    );
    assert_eq!(sim.entered(), [Phase::Suspending, Phase::Suspended]);
}

#[test]
fn a_restored_status_without_conditions_is_put_right() {
    let mut sim = Sim::new([job("train")]).run();
    sim.world.advance(crate::sim::secs(500));
    sim.edit_status(|status| status.conditions.clear());
    assert_eq!(sim.settle(), after(5));
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(
        sim.condition(ConditionType::ResourcesDeployed),
        "True Resuming: Suspend is false"
    );
    assert_eq!(sim.since(ConditionType::ResourcesDeployed), 500);
    sim.spawn("train", 1, PodPhase::Running);
    assert_eq!(sim.settle(), after(60));
    assert!(sim.condition(READY).starts_with("True"));
}

#[test]
fn while_the_pod_cache_is_not_synced_nothing_is_judged() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().cached_pods.synced = false;
    assert_eq!(sim.later(1000), after(1));
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.writes(), [""; 0]);
}
