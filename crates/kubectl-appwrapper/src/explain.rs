//! Why an AppWrapper is not running, in plain words. Pure: a report in, findings out.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use appwrapper_api::Phase;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::{
    report::{Component, Event, Kueue, Report, State, Workload},
    style::{age, span},
};

/// How many pods and events are named one by one.
const SHOWN: usize = 5;

/// One thing to know, and what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What is the matter.
    pub cause: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    fn new(cause: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            remedy: None,
        }
    }

    fn with(cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// Why it does not run, most important first.
pub fn explain(report: &Report, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(other) = &report.managed_by {
        findings.push(Finding::new(format!(
            "spec.managedBy is {other:?}: that controller is in charge, and this one leaves the AppWrapper alone."
        )));
        return findings;
    }
    let phase = Phase::parse(&report.phase);
    if report.deleting {
        findings.push(deleting(report, "It is being deleted"));
    } else {
        match phase {
            Some(Phase::Empty) => empty(report, &mut findings),
            Some(Phase::Suspended) => suspended(report, &mut findings),
            Some(Phase::Resuming) => resuming(report, &mut findings),
            Some(Phase::Running) => running(report, now, &mut findings),
            Some(Phase::Suspending) => findings.push(deleting(report, "It was suspended")),
            Some(Phase::Resetting) => resetting(report, &mut findings),
            Some(Phase::Succeeded) => findings.push(Finding::new(format!("It has succeeded{}.", said(report)))),
            Some(Phase::Failed) => failed(report, &mut findings),
            Some(Phase::Terminating) | None => findings.push(Finding::with(
                format!("Its phase is {:?}, which no controller writes for it.", report.phase),
                "Somebody has edited its status; delete it and create it anew.",
            )),
        }
    }
    let is_over = phase.is_some_and(Phase::is_finished);
    if !is_over {
        findings.extend(unattended(report));
    }
    if let Some(next) = &report.next {
        let left = SignedDuration::from_secs(next.in_seconds);
        let when = if next.in_seconds > 0 {
            format!("In {}", span(left))
        } else {
            "Any moment now".to_owned()
        };
        findings.push(Finding::new(format!("{when} {}.", next.what)));
    }
    for missing in &report.unknown {
        findings.push(Finding::new(format!("Not known: {missing}.")));
    }
    findings
}

fn said(report: &Report) -> String {
    match &report.reason {
        Some(reason) if reason.message.is_empty() => format!(": {}", reason.reason),
        Some(reason) => format!(": {}: {}", reason.reason, reason.message.trim_end_matches('.')),
        None => String::new(),
    }
}

/// No replica of the controller looks after it.
fn unattended(report: &Report) -> Option<Finding> {
    let place = report.place.as_ref()?;
    match (&place.shard, &place.holder) {
        (None, _) if place.slot.is_none() => Some(Finding::with(
            "It has no slot, so no shard of the controller looks after it yet.",
            "The leader fills slots in within a minute; if not, see whether the controller runs.",
        )),
        (None, _) => Some(Finding::with(
            "The controller has not laid out its shards.",
            "See whether its pods run: kubectl get pods in its namespace.",
        )),
        (Some(shard), None) => Some(Finding::with(
            format!("No replica of the controller holds shard {shard}, to which it belongs."),
            "A hand-over takes about a second; if it lasts, see whether the controller's pods are ready.",
        )),
        (Some(shard), Some(holder)) if place.overdue => {
            let seconds = place.renewed_seconds_ago.unwrap_or_default();
            Some(Finding::with(
                format!("Replica {holder} holds shard {shard} but has not renewed its Lease for {seconds}s."),
                "Another replica takes over when it has listed the shard; see whether the controller's pods are ready.",
            ))
        }
        _ => None,
    }
}

fn empty(report: &Report, findings: &mut Vec<Finding>) {
    findings.push(match &report.reason {
        Some(_) => Finding::with(
            format!("It cannot be started{}.", said(report)),
            "Correct the component and apply it again.",
        ),
        None => Finding::new("The controller has not looked at it yet."),
    });
}

fn suspended(report: &Report, findings: &mut Vec<Finding>) {
    if !report.suspend {
        findings.push(Finding::new("It is about to start: spec.suspend is false."));
        return;
    }
    let Some(queue) = &report.queue else {
        findings.push(Finding::with(
            "spec.suspend is true, and it names no queue, so nobody will start it.",
            "Set spec.suspend to false, or give it the label kueue.x-k8s.io/queue-name before you create it.",
        ));
        return;
    };
    findings.push(Finding::new(format!(
        "It waits in queue {queue:?} until Kueue admits it."
    )));
    match &report.kueue {
        Kueue::Absent => findings.push(Finding::with(
            "The cluster has no Kueue, so nobody will admit it.",
            "Install Kueue, or set spec.suspend to false.",
        )),
        Kueue::NoWorkload => findings.push(Finding::with(
            "Kueue has made no Workload for it.",
            "See whether Kueue runs with the integration workload.codeflare.dev/appwrapper switched on, and manages this namespace.",
        )),
        Kueue::Workload(workload) => queued(workload, findings),
        Kueue::Unknown => {}
    }
}

fn queued(workload: &Workload, findings: &mut Vec<Finding>) {
    if workload.inactive {
        findings.push(Finding::with(
            format!("Workload {} is deactivated (spec.active is false).", workload.name),
            format!(
                "Activate it: kubectl patch workload {} --type merge -p '{{\"spec\":{{\"active\":true}}}}'",
                workload.name
            ),
        ));
    }
    if let Some(why) = workload.why.as_ref().filter(|_| !workload.admitted) {
        let remedy = match why.reason.as_str() {
            "Preempted" => {
                Some("It comes back when there is quota again; a higher priority would keep it from being preempted.")
            }
            "PodsReadyTimeout" => Some("Its pods were not ready in time; Kueue puts it back into the queue."),
            "Inadmissible" => Some("See whether the LocalQueue and its ClusterQueue exist and are active."),
            _ if why.message.contains("insufficient") => {
                Some("It waits for others to end; or ask for less, or have the quota raised.")
            }
            _ => None,
        };
        findings.push(Finding {
            cause: format!("Kueue: {}: {}", why.reason, why.message),
            remedy: remedy.map(str::to_owned),
        });
    }
    for check in &workload.checks {
        findings.push(Finding::new(format!("Kueue: admission check {check}")));
    }
}

fn resuming(report: &Report, findings: &mut Vec<Finding>) {
    findings.push(Finding::new("Its components are being created."));
    let refused = last_warning(report, "CreateFailed");
    if let Some(event) = refused {
        findings.push(refusal(report, &event.note));
    } else {
        findings.extend(rights(report));
    }
}

/// What the API server says of a create, and what that means.
fn refusal(report: &Report, text: &str) -> Finding {
    let remedy = if text.contains("forbidden") && text.contains("exceeded quota") {
        "The ResourceQuota of the namespace is used up: delete something, or have it raised."
    } else if text.contains("forbidden") {
        return rights(report).unwrap_or_else(|| Finding::with(text, RIGHTS));
    } else if text.contains("admission webhook") {
        "A webhook refuses the component; its text says why."
    } else {
        "Correct the component, and create the AppWrapper anew."
    };
    Finding::with(text, remedy)
}

const RIGHTS: &str = "The controller lacks the right to create that kind: an administrator can add a ClusterRole with the \
    label workload.codeflare.dev/aggregate-to-manager: \"true\".";

fn rights(report: &Report) -> Option<Finding> {
    (!report.forbidden_kinds.is_empty()).then(|| {
        Finding::with(
            format!("The controller may not create {}.", report.forbidden_kinds.join(", ")),
            RIGHTS,
        )
    })
}

fn running(report: &Report, now: Timestamp, findings: &mut Vec<Finding>) {
    if report.pods_ready
        && report
            .reason
            .as_ref()
            .is_none_or(|reason| reason.reason == "SufficientPodsReady")
    {
        findings.push(Finding::new(format!("It is running{}.", said(report))));
        return;
    }
    let since = report
        .reason
        .as_ref()
        .map_or_else(String::new, |reason| format!(" for {}", age(reason.since, now)));
    findings.push(Finding::new(format!(
        "It was started but is not well{since}{}.",
        said(report)
    )));
    for component in &report.components {
        findings.extend(component_trouble(component));
    }
}

fn component_trouble(component: &Component) -> Vec<Finding> {
    let name = format!("{} {}", component.kind, component.name);
    let mut findings = Vec::new();
    match component.state {
        State::Failed => findings.push(Finding::new(format!("{name} has failed by its own word."))),
        State::Missing => findings.push(Finding::with(
            format!("{name} was created but does not exist any more."),
            "Somebody has deleted it: the AppWrapper fails.",
        )),
        State::Deleting => findings.push(Finding::new(format!("{name} is being deleted."))),
        State::Suspended => findings.push(Finding::with(
            format!("{name} is suspended by its own spec, so it makes no pods."),
            "Kueue suspends a component whose AppWrapper it has not admitted; or somebody has. Set its suspend to false.",
        )),
        _ => {}
    }
    let present = i64::try_from(component.pods.len()).unwrap_or(i64::MAX);
    if component.state == State::Active && present < component.expected_pods {
        findings.push(Finding::with(
            format!("{name} has {present} of {} pods.", component.expected_pods),
            format!(
                "See why its controller makes no more: kubectl describe {} {}",
                component.kind.to_lowercase(),
                component.name
            ),
        ));
    }
    let troubled: Vec<_> = component
        .pods
        .iter()
        .filter(|pod| !matches!(pod.phase.as_str(), "Running" | "Succeeded"))
        .collect();
    for pod in troubled.iter().take(SHOWN) {
        let node = pod
            .node
            .as_ref()
            .map_or_else(String::new, |node| format!(" on node {node}"));
        let codes: Vec<String> = pod.exit_codes.iter().map(i32::to_string).collect();
        let codes = if codes.is_empty() {
            String::new()
        } else {
            format!(" with exit code {}", codes.join(", "))
        };
        let why = pod
            .why
            .as_ref()
            .map_or_else(String::new, |why| format!(": {}", why.trim_end_matches('.')));
        findings.push(Finding::new(format!(
            "Pod {} is {}{node}{codes}{why}.",
            pod.name, pod.phase
        )));
    }
    if troubled.len() > SHOWN {
        findings.push(Finding::new(format!(
            "And {} more pods like these.",
            troubled.len() - SHOWN
        )));
    }
    findings
}

/// Why an earlier attempt failed.
fn earlier(report: &Report) -> Option<Finding> {
    let failure = report.last_failure.as_ref()?;
    Some(Finding::new(format!(
        "The last attempt failed: {}: {}.",
        failure.reason,
        failure.message.trim_end_matches('.')
    )))
}

fn resetting(report: &Report, findings: &mut Vec<Finding>) {
    findings.push(Finding::new(format!(
        "It is being tried again (retry {} of {}){}.",
        report.retries,
        report.retry_limit,
        said(report)
    )));
    findings.extend(earlier(report));
    findings.extend(still_there(report));
}

fn failed(report: &Report, findings: &mut Vec<Finding>) {
    let what = format!(
        "It has failed for good after {} of {} retries{}.",
        report.retries,
        report.retry_limit,
        said(report)
    );
    let remedy = format!(
        "Try it again: kubectl appwrapper retry {} -n {}",
        report.name, report.namespace
    );
    findings.push(Finding::with(what, remedy));
    findings.extend(earlier(report));
    findings.extend(last_warnings(report));
    findings.extend(rights(report));
}

fn deleting(report: &Report, why: &str) -> Finding {
    still_there(report)
        .unwrap_or_else(|| Finding::new(format!("{why}; its components are gone.")))
        .prefixed(why)
}

fn still_there(report: &Report) -> Option<Finding> {
    let components = report
        .components
        .iter()
        .filter(|component| {
            matches!(
                component.state,
                State::Active | State::Suspended | State::Deleting | State::Failed | State::Unreadable
            )
        })
        .map(|component| format!("{} {}", component.kind, component.name));
    let pods = report
        .components
        .iter()
        .flat_map(|component| &component.pods)
        .map(|pod| format!("pod {}", pod.name));
    let left: Vec<String> = components.chain(pods).collect();
    if left.is_empty() {
        return None;
    }
    let more = if left.len() > SHOWN {
        format!(" and {} more", left.len() - SHOWN)
    } else {
        String::new()
    };
    let named: Vec<String> = left.into_iter().take(SHOWN).collect();
    Some(Finding::with(
        format!("Still there: {}{more}.", named.join(", ")),
        "What does not go by itself may have a finalizer: kubectl get -o yaml shows it.",
    ))
}

impl Finding {
    fn prefixed(self, why: &str) -> Self {
        if self.cause.starts_with(why) {
            return self;
        }
        Self {
            cause: format!("{why}. {}", self.cause),
            ..self
        }
    }
}

fn last_warning<'a>(report: &'a Report, reason: &str) -> Option<&'a Event> {
    report
        .events
        .iter()
        .rev()
        .find(|event| event.warning && event.reason == reason)
}

fn last_warnings(report: &Report) -> Vec<Finding> {
    let warnings = report.events.iter().rev().filter(|event| event.warning);
    let mut last: Vec<Finding> = warnings
        .take(SHOWN)
        .map(|event| Finding::new(format!("{}: {}", event.reason, event.note)))
        .collect();
    last.reverse();
    last
}

/// The findings as text.
pub fn text(report: &Report, findings: &[Finding]) -> String {
    let phase = if report.phase.is_empty() { "new" } else { &report.phase };
    let mut text = format!("AppWrapper {}/{}: {phase}\n", report.namespace, report.name);
    // Writing into a String cannot fail.
    for finding in findings {
        let _ = writeln!(text, "- {}", finding.cause);
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "  -> {remedy}");
        }
    }
    text
}
