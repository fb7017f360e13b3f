use rstest::rstest;

use super::*;
use crate::report::{Place, Pod, Reason};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn report(phase: &str) -> Report {
    Report {
        namespace: "n".into(),
        name: "a".into(),
        phase: phase.into(),
        place: Some(Place {
            slot: Some("00".into()),
            shard: Some("0-of-1".into()),
            holder: Some("pod".into()),
            ..Place::default()
        }),
        ..Report::default()
    }
}

fn words(report: &Report) -> String {
    text(report, &explain(report, at(100)))
}

fn reason(reason: &str, message: &str) -> Reason {
    Reason {
        reason: reason.into(),
        message: message.into(),
        since: at(40),
    }
}

#[rstest]
#[case::new(Report { ..report("") }, &["has not looked at it yet"])]
#[case::invalid(Report { reason: Some(reason("InvalidComponent", "spec.components[0]: no")), ..report("") }, &["cannot be started: InvalidComponent: spec.components[0]: no"])]
#[case::suspended_for_good(Report { suspend: true, ..report("Suspended") }, &["names no queue", "spec.suspend to false"])]
#[case::no_kueue(Report { suspend: true, queue: Some("q".into()), kueue: Kueue::Absent, ..report("Suspended") }, &["has no Kueue"])]
#[case::no_workload(Report { suspend: true, queue: Some("q".into()), kueue: Kueue::NoWorkload, ..report("Suspended") }, &["made no Workload"])]
#[case::inactive(Report { suspend: true, queue: Some("q".into()), kueue: Kueue::Workload(Workload { inactive: true, ..Workload::default() }), ..report("Suspended") }, &["deactivated"])]
#[case::about_to_start(report("Suspended"), &["about to start"])]
#[case::healthy(Report { pods_ready: true, reason: Some(reason("SufficientPodsReady", "2 pods running")), ..report("Running") }, &["It is running: SufficientPodsReady: 2 pods running."])]
#[case::unwell(Report { reason: Some(reason("InsufficientPodsReady", "1 pods pending")), ..report("Running") }, &["not well for 1m: InsufficientPodsReady: 1 pods pending."])]
#[case::succeeded(Report { reason: Some(reason("Succeeded", "1 pods succeeded")), ..report("Succeeded") }, &["has succeeded"])]
#[case::failed(Report { retries: 3, retry_limit: 3, last_failure: Some(reason("FoundFailedPods", "1 failed pods: pod p")), ..report("Failed") },
    &["after 3 of 3 retries", "kubectl appwrapper retry a -n n", "The last attempt failed: FoundFailedPods: 1 failed pods: pod p."])]
#[case::elsewhere(Report { managed_by: Some("kueue.x-k8s.io/multikueue".into()), ..report("") }, &["that controller is in charge"])]
#[case::edited(report("Paused"), &["which no controller writes"])]
#[case::unattended(Report { place: Some(Place { shard: Some("1-of-8".into()), ..Place::default() }), ..report("Resuming") }, &["No replica of the controller holds shard 1-of-8"])]
#[case::overdue(Report { place: Some(Place { shard: Some("1-of-8".into()), holder: Some("p".into()), renewed_seconds_ago: Some(30), overdue: true, ..Place::default() }), ..report("Running") }, &["has not renewed its Lease for 30s"])]
#[case::no_slot(Report { place: Some(Place::default()), ..report("") }, &["no slot"])]
fn a_report_is_put_into_words(#[case] report: Report, #[case] parts: &[&str]) {
    let words = words(&report);
    for part in parts {
        assert!(words.contains(part), "{part:?} in\n{words}");
    }
}

#[rstest]
#[case("jobs.batch is forbidden: User x cannot create resource", "aggregate-to-manager")]
#[case("pods \"a\" is forbidden: exceeded quota: team", "ResourceQuota")]
#[case("admission webhook \"w\" denied the request", "A webhook refuses")]
#[case("Job.batch \"a\" is invalid", "Correct the component")]
fn a_refused_create_has_its_remedy(#[case] note: &str, #[case] remedy: &str) {
    let event = Event {
        at: at(1),
        warning: true,
        reason: "CreateFailed".into(),
        note: note.into(),
    };
    let report = Report {
        events: vec![event],
        ..report("Resuming")
    };
    let words = words(&report);
    assert!(words.contains(note) && words.contains(remedy), "{words}");
}

#[test]
fn troubled_pods_are_named_and_not_all_of_them() {
    let pods = (0..7)
        .map(|index| Pod {
            name: format!("p{index}"),
            phase: "Failed".into(),
            node: Some("n1".into()),
            exit_codes: vec![137],
            why: Some("OOMKilled".into()),
            ..Pod::default()
        })
        .collect();
    let component = Component {
        kind: "Job".into(),
        name: "j".into(),
        state: State::Active,
        expected_pods: 8,
        pods,
    };
    let report = Report {
        components: vec![component],
        ..report("Running")
    };
    let words = words(&report);
    for part in [
        "Job j has 7 of 8 pods",
        "Pod p0 is Failed on node n1 with exit code 137: OOMKilled.",
        "And 2 more pods",
    ] {
        assert!(words.contains(part), "{part:?} in\n{words}");
    }
    assert!(!words.contains("Pod p5"), "{words}");
}

#[test]
fn what_is_left_of_a_deletion_is_named() {
    let component = |state| Component {
        kind: "Job".into(),
        name: "j".into(),
        state,
        ..Component::default()
    };
    let leaving = |state| Report {
        deleting: true,
        components: vec![component(state)],
        ..report("Terminating")
    };
    assert!(words(&leaving(State::Deleting)).contains("It is being deleted. Still there: Job j."));
    assert!(words(&leaving(State::NotCreated)).contains("its components are gone"));
}
