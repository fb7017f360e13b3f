//! Succeeded: components live for a time that is counted from success (design/decisions.md 12, R15, C04).

use appwrapper_api::{Completion, ConditionType, Phase, PodPhase};
use rstest::rstest;

use crate::{
    fixtures::*,
    sim::{ON_CHANGE, Sim, after, secs},
};

const DEPLOYED: ConditionType = ConditionType::ResourcesDeployed;
const WEEK: i64 = 7 * 24 * 3600;

/// Succeeded after an hour of work.
fn succeeded(ttl: Option<&str>) -> Sim {
    let annotations: Vec<_> = ttl.map(|ttl| ("successTTLDuration", ttl)).into_iter().collect();
    let mut sim = Sim::with(&annotations, [job("train")]).run();
    sim.spawn("train", 1, PodPhase::Running);
    sim.settle();
    sim.world.advance(secs(3600));
    sim.pod_phase("train-0", PodPhase::Succeeded);
    sim.state().end("train", Completion::Complete);
    sim.state().flow();
    sim.pass();
    assert_eq!(sim.phase(), Phase::Succeeded);
    sim.forget_calls();
    sim
}

#[test]
fn the_time_to_live_is_counted_from_success_and_not_from_deployment() {
    let mut sim = succeeded(Some("60s"));
    assert_eq!(sim.settle(), after(60));
    assert_eq!(sim.later(59), after(1));
    assert_eq!(sim.calls(), [""; 0], "waiting costs nothing");
    assert_eq!(sim.objects(), ["train"]);
    assert_eq!(sim.later(1), after(5));
    sim.state().collect();
    assert_eq!(sim.settle(), ON_CHANGE);
    assert_eq!(sim.phase(), Phase::Succeeded);
    assert_eq!(sim.objects(), [""; 0]);
    assert_eq!(
        sim.condition(DEPLOYED),
        "False Succeeded: Time to live after success of 1m0s expired"
    );
    assert!(
        sim.condition(ConditionType::QuotaReserved)
            .starts_with("False Succeeded")
    );
    sim.forget_calls();
    assert_eq!(sim.later(WEEK), ON_CHANGE);
    assert_eq!(sim.calls(), [""; 0]);
}

#[test]
fn suspension_has_no_say() {
    let mut sim = succeeded(Some("60s"));
    sim.state().suspend(true);
    assert_eq!(sim.settle(), after(60));
    assert_eq!(sim.objects(), ["train"]);
}

#[rstest]
#[case::none(None)]
#[case::zero(Some("0s"))]
#[case::negative(Some("-5s"))]
#[case::too_long(Some("200h"))]
fn a_time_to_live_that_is_not_within_the_configured_one_is_the_configured_one(#[case] ttl: Option<&str>) {
    let mut sim = succeeded(ttl);
    assert_eq!(sim.settle(), after(WEEK));
    assert_eq!(sim.later(WEEK - 1), after(1));
    sim.later(1);
    sim.state().collect();
    sim.settle();
    assert_eq!(
        sim.condition(DEPLOYED),
        "False Succeeded: Time to live after success of 168h0m0s expired"
    );
}

#[test]
fn a_process_that_starts_after_the_deadline_deletes_at_once() {
    let mut sim = succeeded(Some("20s"));
    sim.settle();
    sim.world.advance(secs(40));
    sim.restart();
    sim.pass();
    assert_eq!(sim.objects(), [""; 0]);
}

#[test]
fn a_status_without_the_moment_of_success_counts_from_now() {
    let mut sim = succeeded(Some("60s"));
    sim.edit_status(|status| status.conditions.retain(|condition| condition.type_ != "QuotaReserved"));
    assert_eq!(sim.settle(), after(60));
    sim.restart();
    assert_eq!(sim.later(30), after(30));
}

#[test]
fn a_component_that_is_gone_already_ends_the_deletion_at_once() {
    let mut sim = succeeded(Some("60s"));
    sim.state().remove("train");
    sim.state().collect();
    assert_eq!(sim.settle(), after(60));
    assert_eq!(sim.later(60), ON_CHANGE);
    assert!(sim.condition(DEPLOYED).starts_with("False Succeeded"));
    assert_eq!(sim.phase(), Phase::Succeeded);
}

/// Deleted in the foreground, an object is seen being deleted before it goes. What the cache remembers of it is not the
/// object.
#[test]
fn a_component_that_is_gone_and_was_last_seen_being_deleted_is_not_waited_for() {
    let mut sim = succeeded(Some("60s"));
    sim.state().terminate("train");
    sim.settle();
    sim.state().remove("train");
    sim.state().collect();
    sim.settle();
    sim.later(60);
    assert!(sim.condition(DEPLOYED).starts_with("False Succeeded"));
}

#[test]
fn a_finished_component_that_is_still_being_deleted_is_waited_for() {
    let mut sim = succeeded(Some("60s"));
    sim.state().terminate("train");
    sim.settle();
    sim.later(60);
    sim.later(5);
    assert!(sim.condition(DEPLOYED).starts_with("True"));
    assert_eq!(sim.count("delete"), 0, "it is being deleted already");
}
