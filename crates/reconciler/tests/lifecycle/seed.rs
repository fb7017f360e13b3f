//! A component that the cache misses is a question, never a verdict (spec/lifecycle.md section 8; R01, R02, R03).

use appwrapper_api::{API_VERSION, Completion, ConditionType, ControllerRef, KIND, Phase, PodPhase, TypeRef, Uid};
use appwrapper_reconciler::observation::{CachedResult, ConfirmationResult, Missing, Observation};
use rstest::rstest;
use serde_json::Value;

use crate::{
    fixtures::*,
    sim::Sim,
    world::{Deed, Fault},
};

/// An AppWrapper whose component caches see nothing from here on, and did not see the creation.
fn blind(templates: impl IntoIterator<Item = Value>) -> Sim {
    let mut wrapper = wrapper(templates);
    wrapper.spec.suspend = true;
    let mut sim = Sim::of(wrapper);
    sim.settle();
    let types: Vec<TypeRef> = sim
        .state()
        .wrapper
        .clone()
        .unwrap()
        .spec
        .components
        .iter()
        .map(|component| component.template.head().unwrap().type_ref.clone())
        .collect();
    for type_ref in types {
        sim.state().list_kind(&type_ref);
    }
    sim.state().hold_components(true);
    sim.state().suspend(false);
    sim.settle();
    assert_eq!(sim.phase(), Phase::Running);
    sim
}

pub fn confirmations(sim: &Sim) -> Vec<ConfirmationResult> {
    let told = sim.told();
    told.into_iter()
        .filter_map(|observation| match observation {
            Observation::Confirmed { result, .. } => Some(result),
            _ => None,
        })
        .collect()
}

#[rstest]
#[case::job(job("c"))]
#[case::jobset(jobset("c"))]
#[case::raycluster(raycluster("c"))]
#[case::deployment(deployment("c", 1))]
#[case::pod(pod("c"))]
#[case::unknown_kind(widget("c"))]
fn a_cached_miss_alone_never_fails_a_running_appwrapper(#[case] template: Value) {
    let mut sim = blind([template]);
    assert_eq!(sim.reads(), [""; 0], "a cache is given a moment to see our own write");
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
    assert!(sim.condition(ConditionType::Unhealthy).starts_with("False"));
    assert_eq!(sim.count("get AppWrapper"), 1);
    assert_eq!(sim.reads().len(), 2, "exactly one read of the component");
    assert_eq!(confirmations(&sim), [ConfirmationResult::Live]);
    let survived = sim
        .told()
        .iter()
        .any(|told| matches!(told, Observation::RaceSurvived { live: Some(_), .. }));
    assert!(survived);
    assert!(sim.events().is_empty());
}

#[test]
fn a_component_that_the_cache_never_sees_costs_one_confirmation_in_ten_seconds() {
    let mut sim = blind([job("train")]);
    sim.spawn("train", 1, PodPhase::Running);
    for _ in 0..100 {
        sim.later(1);
    }
    assert_eq!(sim.phase(), Phase::Running);
    assert!(sim.condition(ConditionType::PodsReady).starts_with("True"));
    assert!(sim.count("get Job") <= 11, "{}", sim.count("get Job"));
}

#[test]
fn a_stripped_label_keeps_the_appwrapper_alive_also_for_another_process() {
    let mut sim = Sim::new([job("train")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.state().edit_object("train", |object| object.labelled = false);
    sim.settle();
    assert_eq!(confirmations(&sim), [ConfirmationResult::Live]);
    sim.restart();
    for _ in 0..60 {
        sim.later(2);
    }
    assert_eq!(sim.phase(), Phase::Running);
    assert!(sim.condition(ConditionType::PodsReady).starts_with("True"));
    assert_eq!(sim.status().resetting_count, 0);
}

#[rstest]
#[case::background(false)]
#[case::foreground(true)]
fn a_component_that_is_really_deleted_fails_the_appwrapper_at_once(#[case] foreground: bool) {
    let mut sim = Sim::new([job("train"), service("svc")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.forget_calls();
    if foreground {
        sim.state().terminate("train");
    } else {
        sim.state().remove("train");
    }
    sim.pass();
    assert_eq!(sim.phase(), Phase::Failed);
    let text = "Only found 1 deployed components, but was expecting 2";
    assert_eq!(
        sim.condition(ConditionType::Unhealthy),
        format!("True MissingComponent: {text}")
    );
    assert_eq!(sim.notes(), [format!("Unhealthy: MissingComponent: {text}")]);
    assert!(sim.events()[0].warning);
    assert_eq!(sim.status().resetting_count, 0);
    assert_eq!(confirmations(&sim), [ConfirmationResult::Missing]);
    let how = if foreground {
        Missing::Terminating
    } else {
        Missing::Absent
    };
    let told = sim
        .told()
        .iter()
        .any(|told| matches!(told, Observation::ConfirmedMissing { how: found, .. } if *found == how));
    assert!(told);
    if foreground {
        sim.state().release("train");
    }
    sim.state().collect();
    sim.settle();
    sim.later(5);
    assert_eq!(sim.objects(), [""; 0], "the other component is removed");
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("False Failed"));
    assert!(
        sim.condition(ConditionType::ResourcesDeployed)
            .starts_with("False Failed")
    );
    assert_eq!(sim.notes().len(), 1);
}

#[test]
fn a_component_that_is_deleted_behind_a_blind_cache_is_found_missing_as_well() {
    let mut sim = blind([job("train")]);
    sim.state().remove("train");
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Failed);
}

#[test]
fn a_deletion_that_the_cache_tells_is_asked_about_at_once_even_after_a_survived_race() {
    for foreground in [false, true] {
        let mut sim = blind([job("train")]);
        sim.later(1);
        assert_eq!(confirmations(&sim), [ConfirmationResult::Live]);
        sim.state().hold_components(false);
        if foreground {
            sim.state().terminate("train");
        } else {
            sim.state().remove("train");
        }
        sim.later(1);
        assert_eq!(sim.phase(), Phase::Failed, "foreground: {foreground}");
    }
}

#[test]
fn of_two_components_the_stale_one_is_kept_and_the_counts_are_the_live_ones() {
    let mut sim = blind([job("a"), job("b"), job("c")]);
    sim.state().remove("c");
    sim.later(1);
    let text = "Only found 2 deployed components, but was expecting 3";
    assert_eq!(
        sim.condition(ConditionType::Unhealthy),
        format!("True MissingComponent: {text}")
    );
}

#[rstest]
#[case::somebody_elses(None)]
#[case::ours_by_name_only(Some(ControllerRef { type_ref: TypeRef::new(API_VERSION, KIND), name: "aw".into(), uid: Uid::new("old") }))]
#[case::ours_but_not_the_one_we_made(Some(ControllerRef { type_ref: TypeRef::new(API_VERSION, KIND), name: "aw".into(), uid: Uid::new("uid-aw") }))]
fn another_object_of_that_name_is_a_missing_component(#[case] controller: Option<ControllerRef>) {
    let mut sim = Sim::new([job("train")]).run();
    sim.state().replace("train", controller);
    sim.pass();
    assert_eq!(sim.phase(), Phase::Failed);
    let how = |told: &Observation| {
        matches!(
            told,
            Observation::ConfirmedMissing {
                how: Missing::Replaced,
                ..
            }
        )
    };
    assert!(sim.told().iter().any(how));
}

#[test]
fn a_failure_that_only_the_fresh_read_shows_counts() {
    let mut sim = blind([job("train")]);
    sim.state().end("train", Completion::Failed);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Resetting);
    assert!(
        sim.condition(ConditionType::Unhealthy)
            .starts_with("True FailedComponent")
    );
}

#[test]
fn a_success_that_only_the_fresh_read_shows_counts() {
    let mut sim = blind([job("train")]);
    sim.state().end("train", Completion::Complete);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Succeeded);
}

#[test]
fn the_steady_state_reads_nothing_past_the_caches() {
    let mut sim = Sim::new([job("a"), deployment("b", 1), service("c")]).run();
    sim.spawn("a", 1, PodPhase::Running);
    sim.spawn("b", 1, PodPhase::Running);
    for _ in 0..100 {
        sim.later(60);
    }
    assert_eq!(sim.reads(), [""; 0]);
    let told = sim.told();
    let read = |kind: &str| {
        let hit = |told: &&Observation| matches!(told, Observation::CachedRead(type_ref, CachedResult::Present) if *type_ref.kind == *kind);
        told.iter().filter(hit).count()
    };
    assert!(read("Job") > 0 && read("Job") == read("Deployment") && read("Job") == read("Service"));
}

#[test]
fn a_component_that_is_deleted_while_it_is_confirmed_is_judged_by_what_was_read() {
    let mut sim = blind([job("train")]);
    sim.state()
        .faults
        .add("get Job train", Fault::Meanwhile(Deed::Remove(0)), false);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Failed);
}
