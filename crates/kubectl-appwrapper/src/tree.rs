//! An AppWrapper, its components and their pods as a tree.

use std::fmt::Write;

use jiff::{SignedDuration, Timestamp};

use crate::{
    report::{Component, Kueue, Place, Pod, Reason, Report},
    style::{Paint, age, span},
};

/// The whole report for a person.
pub fn text(report: &Report, now: Timestamp, paint: Paint) -> String {
    let mut lines = vec![head(report, now, paint)];
    let mut field = |name: &str, value: String| lines.push(format!("  {} {value}", paint.dim(&format!("{name}:"))));
    if let Some(manager) = &report.managed_by {
        field("managed by", manager.clone());
    }
    for (name, reason) in [("reason", &report.reason), ("last failure", &report.last_failure)] {
        if let Some(reason) = reason {
            field(name, said(reason, now));
        }
    }
    field("retries", format!("{} of {}", report.retries, report.retry_limit));
    if let Some(next) = &report.next {
        let left = SignedDuration::from_secs(next.in_seconds);
        let when = if next.in_seconds > 0 {
            format!("in {}", span(left))
        } else {
            "now".to_owned()
        };
        field("next", format!("{when} {} ({})", next.what, next.at));
    }
    if let Some(place) = &report.place {
        field("shard", held(place));
    }
    if let Some(queue) = &report.queue {
        field("queue", queued(queue, &report.kueue));
    }
    for (index, component) in report.components.iter().enumerate() {
        let last = index + 1 == report.components.len() && report.other_pods.is_empty();
        branch(
            &mut lines,
            last,
            &component_line(component, paint),
            &component.pods,
            paint,
        );
    }
    if !report.other_pods.is_empty() {
        branch(
            &mut lines,
            true,
            &paint.dim("pods of no component"),
            &report.other_pods,
            paint,
        );
    }
    for unknown in &report.unknown {
        lines.push(paint.dim(&format!("not known: {unknown}")));
    }
    lines.join("\n") + "\n"
}

fn head(report: &Report, now: Timestamp, paint: Paint) -> String {
    let phase = if report.phase.is_empty() { "new" } else { &report.phase };
    let name = paint.bold(&format!("AppWrapper {}/{}", report.namespace, report.name));
    let age = report
        .created
        .map_or_else(String::new, |created| format!("  {} old", age(created, now)));
    let deleting = if report.deleting { ", being deleted" } else { "" };
    let suspend = if report.suspend { ", spec.suspend is true" } else { "" };
    format!("{name}  {}{deleting}{suspend}{age}", paint.state(phase))
}

fn said(reason: &Reason, now: Timestamp) -> String {
    let message = if reason.message.is_empty() {
        String::new()
    } else {
        format!(": {}", reason.message)
    };
    format!("{}{message} ({} ago)", reason.reason, age(reason.since, now))
}

fn held(place: &Place) -> String {
    let shard = place.shard.as_deref().unwrap_or("none");
    let holder = match (&place.holder, place.renewed_seconds_ago) {
        (None, _) => "held by nobody".to_owned(),
        (Some(holder), None) => format!("held by {holder}"),
        (Some(holder), Some(seconds)) => {
            let overdue = if place.overdue { ", overdue" } else { "" };
            format!("held by {holder} (renewed {seconds}s ago{overdue})")
        }
    };
    let slot = place
        .slot
        .as_ref()
        .map_or_else(String::new, |slot| format!(", slot {slot}"));
    format!("{shard}{slot}, {holder}")
}

fn queued(queue: &str, kueue: &Kueue) -> String {
    match kueue {
        Kueue::Unknown => queue.to_owned(),
        Kueue::Absent => format!("{queue} (the cluster has no Kueue)"),
        Kueue::NoWorkload => format!("{queue} (no Workload)"),
        Kueue::Workload(workload) => {
            let by = workload
                .cluster_queue
                .as_ref()
                .map_or_else(String::new, |queue| format!(" by {queue}"));
            let state = if workload.admitted {
                format!("admitted{by}")
            } else if workload.quota_reserved {
                format!("quota reserved{by}, not admitted")
            } else if workload.inactive {
                "deactivated".to_owned()
            } else {
                "waits for quota".to_owned()
            };
            format!("{queue}, Workload {}: {state}", workload.name)
        }
    }
}

fn component_line(component: &Component, paint: Paint) -> String {
    let name = if component.name.is_empty() {
        "(name not known yet)"
    } else {
        &component.name
    };
    let pods = if component.expected_pods == 0 && component.pods.is_empty() {
        String::new()
    } else {
        format!("  {}/{} pods", component.pods.len(), component.expected_pods)
    };
    let kind = paint.bold(&format!("{} {name}", component.kind));
    format!("{kind}  {}{pods}", paint.state(component.state.as_str()))
}

fn branch(lines: &mut Vec<String>, last: bool, head: &str, pods: &[Pod], paint: Paint) {
    let (mark, rail) = if last { ("└─", "  ") } else { ("├─", "│ ") };
    lines.push(format!("{mark} {head}"));
    for (index, pod) in pods.iter().enumerate() {
        let mark = if index + 1 == pods.len() { "└─" } else { "├─" };
        lines.push(format!("{rail} {mark} {}", pod_line(pod, paint)));
    }
}

fn pod_line(pod: &Pod, paint: Paint) -> String {
    // Writing into a String cannot fail.
    let mut line = format!("{}  {}", pod.name, paint.state(&pod.phase));
    if let Some(node) = &pod.node {
        let _ = write!(line, "  on {node}");
    }
    if !pod.exit_codes.is_empty() {
        let codes: Vec<String> = pod.exit_codes.iter().map(i32::to_string).collect();
        let _ = write!(line, "  exit code {}", codes.join(", "));
    }
    if pod.restarts > 0 {
        let _ = write!(line, "  {} restarts", pod.restarts);
    }
    if let Some(why) = &pod.why {
        let _ = write!(line, "  {}", paint.dim(why));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Next, State, Workload};

    #[test]
    fn a_report_is_a_tree() {
        let at = |second: i64| Timestamp::from_second(1_767_225_600 + second).unwrap();
        let report = Report {
            namespace: "team".into(),
            name: "train".into(),
            phase: "Running".into(),
            created: Some(at(-600)),
            reason: Some(Reason {
                reason: "FoundFailedPods".into(),
                message: String::new(),
                since: at(-18),
            }),
            last_failure: Some(Reason {
                reason: "FailedComponent".into(),
                message: "Found 1 failed components: Job train".into(),
                since: at(-3_600),
            }),
            retries: 1,
            retry_limit: 3,
            next: Some(Next {
                at: at(42),
                in_seconds: 42,
                what: "the failed pods cost a retry",
            }),
            place: Some(Place {
                slot: Some("1f".into()),
                shard: Some("7-of-8".into()),
                holder: Some("a".into()),
                renewed_seconds_ago: Some(1),
                overdue: false,
            }),
            queue: Some("user-queue".into()),
            kueue: Kueue::Workload(Workload {
                name: "w".into(),
                admitted: true,
                cluster_queue: Some("cq".into()),
                ..Workload::default()
            }),
            components: vec![
                Component {
                    kind: "Job".into(),
                    name: "train".into(),
                    state: State::Active,
                    expected_pods: 2,
                    pods: vec![
                        Pod {
                            name: "train-0".into(),
                            phase: "Running".into(),
                            node: Some("node-a".into()),
                            restarts: 2,
                            ..Pod::default()
                        },
                        Pod {
                            name: "train-1".into(),
                            phase: "Failed".into(),
                            exit_codes: vec![137],
                            why: Some("OOMKilled".into()),
                            ..Pod::default()
                        },
                    ],
                },
                Component {
                    kind: "Service".into(),
                    name: "svc".into(),
                    state: State::Active,
                    ..Component::default()
                },
            ],
            unknown: vec!["its events: forbidden".into()],
            ..Report::default()
        };
        let expected = "\
AppWrapper team/train  Running  10m old
  reason: FoundFailedPods (18s ago)
  last failure: FailedComponent: Found 1 failed components: Job train (1h ago)
  retries: 1 of 3
  next: in 42s the failed pods cost a retry (2026-01-01T00:00:42Z)
  shard: 7-of-8, slot 1f, held by a (renewed 1s ago)
  queue: user-queue, Workload w: admitted by cq
├─ Job train  Active  2/2 pods
│  ├─ train-0  Running  on node-a  2 restarts
│  └─ train-1  Failed  exit code 137  OOMKilled
└─ Service svc  Active
not known: its events: forbidden
";
        assert_eq!(text(&report, at(0), Paint::PLAIN), expected);
    }

    #[test]
    fn what_is_not_there_is_not_printed() {
        let report = Report {
            namespace: "n".into(),
            name: "a".into(),
            suspend: true,
            deleting: true,
            ..Report::default()
        };
        let text = text(&report, Timestamp::UNIX_EPOCH, Paint::PLAIN);
        assert_eq!(
            text,
            "AppWrapper n/a  new, being deleted, spec.suspend is true\n  retries: 0 of 0\n"
        );
    }
}
