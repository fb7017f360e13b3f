//! A component of that name exists already (design/decisions.md 5, spec/lifecycle.md 9, rows 13 and 14).

use appwrapper_api::{API_VERSION, ConditionType, ControllerRef, KIND, Phase, TypeRef, Uid};
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{Sim, after},
    world::Fault,
};

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> ControllerRef {
    ControllerRef {
        type_ref: TypeRef::new(api_version, kind),
        name: name.into(),
        uid: Uid::new(uid),
    }
}

/// A Job `train` of somebody is there before the AppWrapper is.
fn with_existing(controller: Option<ControllerRef>, terminating: bool) -> Sim {
    let mut sim = Sim::new([job("train")]);
    sim.state().faults.add("create Job train", Fault::DropAnswer, false);
    sim.pass();
    sim.state().edit_object("train", |object| {
        object.facts.controller = controller;
        object.facts.terminating = terminating;
    });
    sim.state().rules.broken.clear();
    sim
}

#[test]
fn ours_by_uid_is_adopted() {
    let mut sim = with_existing(Some(owner(API_VERSION, KIND, "aw", "uid-aw")), false);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.component(0), "True ComponentCreatedSuccessfully");
    assert_eq!(sim.reads(), ["get Job train"]);
}

#[test]
fn what_was_adopted_is_known_by_its_uid_afterwards() {
    let mut sim = with_existing(Some(owner(API_VERSION, KIND, "aw", "uid-aw")), false);
    sim.later(1);
    sim.state()
        .replace("train", Some(owner(API_VERSION, KIND, "aw", "uid-aw")));
    sim.settle();
    assert_eq!(sim.phase(), Phase::Failed, "another object took its place");
}

#[test]
fn ours_but_on_its_way_out_is_waited_for() {
    let mut sim = with_existing(Some(owner(API_VERSION, KIND, "aw", "uid-aw")), true);
    assert_eq!(sim.later(1), after(1));
    assert_eq!(sim.phase(), Phase::Resuming);
    sim.state().remove("train");
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
}

#[test]
fn what_an_earlier_appwrapper_of_this_name_left_is_waited_for() {
    let mut sim = with_existing(Some(owner(API_VERSION, KIND, "aw", "uid-of-the-earlier")), false);
    assert_eq!(sim.later(1), after(1));
    let notes = sim.notes();
    assert!(
        notes
            .iter()
            .any(|note| note.contains("earlier AppWrapper of this name")),
        "{notes:?}"
    );
    sim.state().collect();
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
    assert_eq!(sim.status().resetting_count, 0);
}

#[rstest]
#[case::nobody(None, "nothing")]
#[case::a_deployment(Some(owner("apps/v1", "Deployment", "web", "u")), "Deployment web")]
#[case::another_appwrapper(Some(owner(API_VERSION, KIND, "other", "u")), "AppWrapper other")]
#[case::another_group(Some(owner("example.com/v1", KIND, "aw", "uid-x")), "AppWrapper aw")]
fn somebody_elses_is_fatal_names_its_owner_and_is_never_touched(
    #[case] controller: Option<ControllerRef>,
    #[case] named: &str,
) {
    let mut sim = with_existing(controller, false);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Failed);
    let condition = sim.condition(ConditionType::Unhealthy);
    assert!(
        condition.contains("resource Job train exists, but is not controlled by appwrapper")
            && condition.contains(named),
        "{condition}"
    );
    assert_eq!(sim.component(0), "False ComponentCreationErrored");
    assert_eq!(sim.count("delete"), 0);
    assert_eq!(sim.objects(), ["train"]);
    assert!(sim.condition(ConditionType::QuotaReserved).starts_with("False Failed"));
}

#[rstest]
#[case::forbidden(Fault::Forbid)]
#[case::no_answer(Fault::Lose)]
#[case::not_served(Fault::NotServed)]
fn a_look_that_proves_nothing_is_repeated(#[case] fault: Fault) {
    let mut sim = with_existing(Some(owner(API_VERSION, KIND, "aw", "uid-aw")), false);
    sim.state().faults.add("get Job train", fault, false);
    assert_eq!(sim.later(1), after(1));
    assert_eq!(sim.phase(), Phase::Resuming);
    sim.later(1);
    assert_eq!(sim.phase(), Phase::Running);
}
