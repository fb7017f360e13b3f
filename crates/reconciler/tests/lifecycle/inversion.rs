//! A rule that cannot be broken shows nothing. Each is broken here on purpose, by a world that lies in one way, and by the
//! very runs of the property test; if none is found the test fails.

use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use crate::{
    course::Course,
    fixtures::*,
    interleavings::run,
    sim::{Pass, Sim, secs},
    world::{Deed, Fault, State},
};

/// Whether one of the runs finds a fault whose text has this part, in a world that was prepared like this.
fn is_found(part: &str, prepare: fn(&mut State)) -> bool {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    (0..1_500).any(|_| {
        let run = run().new_tree(&mut runner).unwrap().current();
        let course = Course::of(&run, |sim| prepare(&mut sim.state()));
        course.faults_found().iter().any(|fault| fault.contains(part))
    })
}

#[test]
fn an_uncached_reader_that_uses_the_cache_fails_workloads_whose_components_exist() {
    assert!(is_found("every component exists", |state| state
        .lies
        .reads_from_cache = true));
}

#[test]
fn writes_without_a_precondition_leave_finished_phases() {
    assert!(is_found("was left for", |state| state.lies.unconditional = true));
}

#[test]
fn an_uncached_pod_list_from_the_cache_gives_the_quota_back_too_early() {
    assert!(is_found("the quota was given back", |state| state
        .lies
        .pods_from_cache =
        true));
}

#[test]
fn a_server_that_forgets_names_ends_with_two_objects_for_one_component() {
    assert!(is_found("exists twice", |state| state.lies.same_name_twice = true));
}

#[test]
fn a_server_that_hides_the_deletion_timestamp_has_components_created_afterwards() {
    assert!(is_found("had met the deletion", |state| state.lies.hides_deletion = true));
}

#[test]
fn a_world_in_which_nothing_is_ever_missing_keeps_the_appwrapper_running() {
    assert!(is_found("a component was deleted and", |state| state
        .lies
        .denies_absence =
        true));
}

/// The seed, inverted: what the first test of `seed` shows is red without the confirmation.
#[test]
#[should_panic(expected = "failed for a missing component although every component exists")]
fn the_seed_inverted_fails_a_running_appwrapper_on_a_cached_miss() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().lies.reads_from_cache = true;
    sim.state().edit_object("train", |object| object.labelled = false);
    sim.settle();
}

#[test]
#[should_panic(expected = "was left for")]
fn without_a_precondition_a_late_pass_turns_a_success_into_something_else() {
    let mut sim = Sim::new([job("train")]).run();
    let running = sim.state().history.last().cloned().unwrap();
    sim.state().end("train", appwrapper_api::Completion::Complete);
    sim.settle();
    sim.restart();
    sim.state().lies.unconditional = true;
    sim.state().act(Deed::Suspend(true));
    let mut old = (*running).clone();
    old.spec.suspend = true;
    sim.pass_on(Some(std::sync::Arc::new(old)));
    sim.world.advance(secs(1));
    assert_ne!(sim.pass(), Pass::Crashed);
}

#[test]
#[should_panic(expected = "while pod train-0 is left")]
fn a_cached_pod_list_gives_the_quota_back_while_a_pod_is_left() {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().cached_pods.held = true;
    sim.state().lies.pods_from_cache = true;
    sim.spawn("train", 1, appwrapper_api::PodPhase::Running);
    sim.state().suspend(true);
    sim.settle();
}

#[test]
#[should_panic(expected = "no rest")]
fn a_test_that_spins_is_noticed() {
    let mut sim = Sim::new([job("train")]);
    sim.state().faults.add("status", Fault::Meanwhile(Deed::Touch), true);
    sim.settle();
}
