//! The end of a workload: by the component's own word where it has one, else by its pods (design/decisions.md 13; R08, R09,
//! R11, R12, C08, C16; spec/lifecycle.md 9, row 26).

use appwrapper_api::{Completion, ConditionType, Phase, PodPhase};
use rstest::rstest;
use serde_json::Value;

use crate::{
    fixtures::*,
    sim::{Sim, after},
};

const QUOTA: ConditionType = ConditionType::QuotaReserved;

#[test]
fn a_complete_job_is_a_success_and_gives_the_quota_back() {
    let mut sim = Sim::new([jobs("train", 2)]).run();
    sim.spawn("train", 2, PodPhase::Succeeded);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running, "its pods alone prove nothing");
    sim.world.advance(crate::sim::secs(7));
    sim.state().end("train", Completion::Complete);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Succeeded);
    let text = "2 pods succeeded and no running, pending, or failed pods";
    assert_eq!(sim.condition(QUOTA), format!("False Succeeded: {text}"));
    assert_eq!(sim.since(QUOTA), 7);
    assert_eq!(
        sim.condition(ConditionType::ResourcesDeployed),
        format!("True Succeeded: {text}")
    );
    assert!(
        sim.condition(ConditionType::PodsReady).starts_with("True"),
        "stays as it was"
    );
    assert_eq!(sim.objects(), ["train"]);
    assert!(sim.events().is_empty());
}

#[test]
fn a_job_between_two_waves_of_pods_is_not_finished() {
    let mut template = jobs("train", 2);
    template["spec"]["completions"] = 4.into();
    let mut sim = Sim::new([template]).run();
    sim.spawn("train", 2, PodPhase::Succeeded);
    sim.settle();
    sim.later(3600);
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.status().resetting_count, 0);
}

#[test]
fn pods_that_were_collected_after_the_job_counted_them_are_not_lost() {
    let mut sim = Sim::with(&[("failureGracePeriodDuration", "0s")], [jobs("train", 2)]).run();
    sim.spawn("train", 2, PodPhase::Running);
    sim.settle();
    sim.pod_phase("train-0", PodPhase::Succeeded);
    sim.state()
        .edit_object("train", |object| object.facts.counts.succeeded_pods = Some(1));
    sim.settle();
    sim.state().remove_pod("train-0");
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    sim.state().remove_pod("train-1");
    sim.state()
        .edit_object("train", |object| object.facts.counts.succeeded_pods = Some(2));
    sim.state().end("train", Completion::Complete);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Succeeded);
    assert_eq!(sim.status().resetting_count, 0);
    assert_eq!(
        sim.condition(QUOTA),
        "False Succeeded: 2 pods succeeded and no running, pending, or failed pods"
    );
}

#[rstest]
#[case::jobset_success_policy_any(jobset("c"))]
#[case::pytorch_clean_up_policy_all(pytorch("c"))]
#[case::rayjob(rayjob("c"))]
#[case::job(job("c"))]
fn the_components_own_word_is_enough_whatever_its_pods_do(#[case] template: Value) {
    for pods in [None, Some(PodPhase::Running), Some(PodPhase::Failed)] {
        let mut sim = Sim::new([template.clone()]).run();
        if let Some(phase) = pods {
            sim.spawn("c", 1, phase);
        }
        sim.state().end("c", Completion::Complete);
        sim.settle();
        assert_eq!(sim.phase(), Phase::Succeeded, "{pods:?}");
        assert_eq!(sim.status().resetting_count, 0);
    }
}

#[test]
fn a_job_that_is_removed_after_its_success_was_no_failure() {
    for blind in [false, true] {
        let mut sim = Sim::new([job("train"), service("svc")]).run();
        sim.state().end("train", Completion::Complete);
        if blind {
            sim.state().flow();
        }
        sim.state().remove("train");
        sim.settle();
        assert_eq!(sim.phase(), Phase::Succeeded, "seen before: {blind}");
    }
}

#[test]
fn one_component_that_ended_well_is_written_down_while_others_run() {
    let mut sim = Sim::new([job("first"), job("second")]).run();
    sim.state().end("first", Completion::Complete);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.component(0), "True ComponentSucceeded");
    sim.state().remove("first");
    sim.restart();
    sim.later(30);
    assert_eq!(
        sim.phase(),
        Phase::Running,
        "its removal is no failure, also for another process"
    );
    assert_eq!(sim.reads(), [""; 0]);
    sim.state().end("second", Completion::Complete);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Succeeded);
}

#[test]
fn succeeded_pods_of_one_component_do_not_make_another_one_ready() {
    let mut sim = Sim::new([jobs("first", 2), deployment("web", 2)]).run();
    sim.spawn("first", 2, PodPhase::Succeeded);
    sim.state().end("first", Completion::Complete);
    assert_eq!(sim.settle(), after(5));
    assert!(sim.condition(ConditionType::PodsReady).starts_with("False"));
    sim.spawn("web", 2, PodPhase::Running);
    assert_eq!(sim.settle(), after(60));
    assert!(sim.condition(ConditionType::PodsReady).starts_with("True"));
}

#[test]
fn a_deployment_does_not_succeed_by_pods_that_are_being_deleted() {
    let mut sim = Sim::new([deployment("web", 2)]).run();
    sim.spawn("web", 2, PodPhase::Running);
    sim.settle();
    for name in ["web-0", "web-1"] {
        sim.state().edit_pod(name, |pod| {
            pod.phase = PodPhase::Succeeded;
            pod.terminating = true;
        });
    }
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
}

#[rstest]
#[case::pod(pod("c"), "c")]
#[case::widget(widget("c"), "c-0")]
fn other_kinds_end_with_their_pods(#[case] template: Value, #[case] name: &str) {
    let mut sim = Sim::new([template, service("svc")]).run();
    if name != "c" {
        sim.spawn("c", 1, PodPhase::Pending);
    }
    sim.settle();
    for phase in [PodPhase::Pending, PodPhase::Running] {
        sim.pod_phase(name, phase);
        sim.settle();
        assert_eq!(sim.phase(), Phase::Running);
    }
    sim.pod_phase(name, PodPhase::Succeeded);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Succeeded);
    assert_eq!(
        sim.condition(QUOTA),
        "False Succeeded: 1 pods succeeded and no running, pending, or failed pods"
    );
}

#[rstest]
#[case::nothing_but_a_service(service("c"))]
#[case::no_replicas(deployment("c", 0))]
fn a_workload_without_pods_succeeds_at_once(#[case] template: Value) {
    let mut sim = Sim::new([template]);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Succeeded);
}

#[test]
fn a_cache_behind_our_own_create_does_not_finish_a_workload() {
    let mut sim = Sim::with(&[("retryPausePeriodDuration", "0s")], [job("train")]).run();
    sim.state().end("train", Completion::Complete);
    sim.state().suspend(true);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Suspended);
    sim.state().hold_components(true);
    sim.state().suspend(false);
    sim.settle();
    sim.later(3);
    assert_eq!(
        sim.phase(),
        Phase::Running,
        "the Job that the cache remembers as complete was another one"
    );
}
