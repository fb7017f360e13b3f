//! Generated names: fixed and published before the create, so that a crash cannot make two objects (R05).

use appwrapper_api::{Completion, Phase, PodPhase};
use serde_json::{Value, json};

use crate::{
    fixtures::*,
    sim::{Pass, Sim},
    world::Fault,
};

fn generated() -> Value {
    let mut template = job("unused");
    template["metadata"] = json!({"generateName": "train-"});
    template
}

#[test]
fn a_generated_name_is_published_and_created() {
    let mut sim = Sim::new([generated(), generated()]);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    let names: Vec<_> = sim
        .status()
        .component_status
        .into_iter()
        .map(|component| component.name)
        .collect();
    assert!(
        names.iter().all(|name| name.starts_with("train-") && name.len() == 11),
        "{names:?}"
    );
    assert_ne!(names[0], names[1]);
    let mut objects = names.clone();
    objects.sort();
    assert_eq!(sim.objects(), objects);
}

#[test]
fn a_crash_between_create_and_status_leaves_one_object() {
    let mut sim = Sim::new([generated()]);
    sim.state().faults.add("create Job train-", Fault::Crash, false);
    assert_eq!(sim.pass(), Pass::Crashed);
    let recorded = sim.status().component_status[0].name.clone();
    assert_eq!(sim.objects(), std::slice::from_ref(&recorded));
    sim.restart();
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.objects(), [recorded]);
    sim.state().delete_wrapper();
    sim.settle();
    assert!(sim.objects().is_empty());
}

#[test]
fn a_crash_before_the_name_is_stored_costs_nothing() {
    let mut sim = Sim::new([generated()]);
    sim.state().faults.add("status Resuming", Fault::Lose, false);
    sim.pass();
    assert!(sim.objects().is_empty());
    sim.restart();
    sim.settle();
    assert_eq!(sim.objects().len(), 1);
}

#[test]
fn after_a_reset_the_name_is_another() {
    let annotations = [("failureGracePeriodDuration", "0s"), ("retryPausePeriodDuration", "1s")];
    let mut sim = Sim::with(&annotations, [generated()]).run();
    let first = sim.objects()[0].clone();
    sim.spawn(&first, 1, PodPhase::Failed);
    sim.settle();
    sim.state().collect();
    sim.settle();
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.objects().len(), 1);
    assert_ne!(sim.objects()[0], first);
    assert_eq!(sim.status().component_status[0].name, sim.objects()[0]);
}

#[test]
fn an_attempt_that_begins_within_the_same_second_has_names_of_its_own() {
    let mut sim = Sim::with(&[("retryPausePeriodDuration", "0s")], [generated()]).run();
    let first = sim.objects()[0].clone();
    sim.state().end(&first, Completion::Failed);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.status().resetting_count, 1);
    assert_ne!(sim.objects()[0], first);
}
