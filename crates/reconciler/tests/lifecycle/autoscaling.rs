//! A workload that its own autoscaler makes smaller has lost nothing (C15).

use appwrapper_api::{ConditionType, OwnCounts, Phase, PodPhase};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    fixtures::*,
    sim::{Sim, after},
};

const READY: ConditionType = ConditionType::PodsReady;

/// The spec of a Ray cluster with a head and three workers in two groups.
fn ray() -> Value {
    let group = |replicas: i32| json!({"replicas": replicas, "template": pod_template()});
    json!({"headGroupSpec": {"template": pod_template()}, "workerGroupSpecs": [group(2), group(1)]})
}

fn of(kind: &str) -> Value {
    let spec = match kind {
        "RayCluster" => ray(),
        "RayJob" => json!({"rayClusterSpec": ray(), "submissionMode": "HTTPMode"}),
        _ => json!({"rayClusterConfig": ray()}),
    };
    json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "ray"}, "spec": spec})
}

fn running(kind: &str) -> Sim {
    let mut sim = Sim::with(&[("failureGracePeriodDuration", "5s")], [of(kind)]).run();
    sim.spawn("ray", 4, PodPhase::Running);
    assert_eq!(sim.settle(), after(60));
    sim.later(1000);
    sim
}

fn wants(sim: &Sim, desired_workers: Option<i32>) {
    sim.state().edit_object("ray", |object| {
        object.facts.counts = OwnCounts {
            desired_workers,
            ..OwnCounts::default()
        };
    });
}

#[rstest]
fn workers_that_the_autoscaler_took_away_are_not_missing(
    #[values("RayCluster", "RayJob", "RayService")] kind: &str,
    #[values(0, 1, 2)] workers: usize,
) {
    let mut sim = running(kind);
    wants(&sim, i32::try_from(workers).ok());
    for index in 1 + workers..4 {
        sim.state().remove_pod(&format!("ray-{index}"));
    }
    // Only the message has changed, which is not worth a write at once.
    sim.settle();
    assert_eq!(sim.later(5), after(60));
    sim.later(3600);
    assert_eq!((sim.phase(), sim.status().resetting_count), (Phase::Running, 0));
    assert!(
        sim.condition(READY).starts_with("True SufficientPodsReady"),
        "{}",
        sim.condition(READY)
    );
}

#[rstest]
#[case::nothing_said(None, 1)]
#[case::all_are_wanted(Some(3), 1)]
#[case::more_than_declared(Some(9), 1)]
#[case::one_too_few(Some(2), 2)]
#[case::the_head(Some(0), 4)]
#[case::nonsense(Some(-5), 4)]
fn a_pod_that_is_wanted_is_missed(#[case] workers: Option<i32>, #[case] lost: usize) {
    let mut sim = running("RayCluster");
    wants(&sim, workers);
    for index in 4 - lost..4 {
        sim.state().remove_pod(&format!("ray-{index}"));
    }
    assert_eq!(sim.settle(), after(5));
    assert!(sim.condition(READY).starts_with("False"), "{}", sim.condition(READY));
    sim.later(5);
    assert_eq!(sim.status().resetting_count, 1);
}

#[test]
fn workers_that_the_autoscaler_adds_are_not_waited_for() {
    let mut sim = running("RayCluster");
    wants(&sim, Some(9));
    assert_eq!(sim.settle(), after(60));
    sim.later(3600);
    assert!(sim.condition(READY).starts_with("True"), "{}", sim.condition(READY));
    assert_eq!(sim.status().resetting_count, 0);
}

#[test]
fn a_worker_that_is_gone_before_the_status_says_so_is_forgiven_within_the_grace() {
    let mut sim = running("RayCluster");
    sim.state().remove_pod("ray-3");
    assert_eq!(sim.settle(), after(5));
    assert!(sim.condition(READY).starts_with("False"));
    wants(&sim, Some(2));
    assert_eq!(sim.settle(), after(60));
    assert!(sim.condition(READY).starts_with("True"));
    sim.later(3600);
    assert_eq!(sim.status().resetting_count, 0);
}
