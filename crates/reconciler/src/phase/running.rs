//! Running: components exist and are watched over (spec/lifecycle.md section 3, with the seed of section 8).
//!
//! The order of the checks is upstream's: suspended, component missing, component failed, finished, pods failed, node to be
//! left, pods ready. A component that a cache misses is a question, never a verdict: only a survey of uncached reads
//! yields the proof that `missing_component` takes.

use appwrapper_api::{
    AppWrapperStatus, Completion, ComponentFacts, ConditionStatus, ConditionType, OwnCounts, Phase, TemplateHead, Uid,
    conditions::{self, truncate},
    kinds::{self, Ending},
    podsets,
};
use jiff::{SignedDuration, Timestamp};

use super::{Failure, fail, reset_or_fail, suspend};
use crate::{
    deadline::{self, LOST},
    decide::{after, until},
    decision::{Action, Question, Step},
    evidence::{ConfirmedAbsent, Presence},
    memory::Confirmations,
    observation::Event,
    observed::{Evidence, Observed, PodEvidence, expected_pods},
    pods::{Owners, PodSummary},
    policy::Policy,
    status::{
        attempt_start, clear_condition, component_reason, init_components, is_component_finished, record, repair,
        set_condition, unhealthy,
    },
};

/// How long a cache that is behind our own write may take before the API server is asked. Most caches take milliseconds,
/// so the steady state costs no uncached read.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(1);
/// Net for missed events, once pods are ready.
const NET: SignedDuration = SignedDuration::from_secs(60);
/// While pods are not ready.
const POLL: SignedDuration = SignedDuration::from_secs(5);
/// While a cache misses what the API server has.
const RECHECK: SignedDuration = Confirmations::INTERVAL;

pub(crate) fn decide(observed: &Observed<'_>, policy: &Policy, now: Timestamp) -> Step {
    let mut step = Step::new(observed.status.clone());
    if observed.wrapper.spec.suspend {
        return suspend(step, Phase::Running);
    }
    repair(&mut step.status, now);
    if let Err((position, error)) = init_components(observed.wrapper, &mut step.status) {
        let message = truncate(&format!("spec.components[{position}]: {error}"), 2_000);
        return step.event(Event::warning("InvalidComponent", message)).then(after(NET));
    }
    // When to look again at the latest, because a cache cannot answer for a component.
    let recheck = match observed.components {
        Evidence::Cached(survey) => match survey.doubt(now, PATIENCE) {
            None => None,
            Some(suspicion) if suspicion.changes.is_empty() => suspicion.settled_at.map(|at| at.duration_since(now)),
            Some(suspicion) => return step.then(Action::Confirm(Question::Missing(suspicion))),
        },
        Evidence::Uncached(survey) => match survey.confirmed_absent() {
            Some(proof) => return missing_component(step, &proof, now),
            None => Some(RECHECK),
        },
        Evidence::Deferred(_, until) => Some(until.duration_since(now)),
        Evidence::Doubt(delay) => return step.then(after(*delay)),
    };
    let PodEvidence::Cached(Some(pods)) = observed.pods else {
        return step.then(after(SignedDuration::from_secs(1)));
    };
    let presences = observed.components.presences();
    record_finished(&mut step, presences, now);
    let uid = observed.uid();
    let owners = owners(&uid, presences, observed.components.uids());
    let summary = PodSummary::count(pods, &owners, policy, observed.nodes);
    let workload = Workload {
        observed,
        presences,
        pods: &summary,
    };
    let step = workload.judge(step, policy, now);
    match (recheck, step.action) {
        (Some(recheck), Action::After(delay)) => Step {
            action: after(delay.min(recheck)),
            ..step
        },
        (_, action) => Step { action, ..step },
    }
}

/// The one way to fail for a missing component: it takes the proof, which no cached read can give.
fn missing_component(mut step: Step, proof: &ConfirmedAbsent, now: Timestamp) -> Step {
    const REASON: &str = "MissingComponent";
    let message = format!(
        "Only found {} deployed components, but was expecting {}",
        proof.found(),
        proof.expected()
    );
    unhealthy(&mut step.status, REASON, &message, now);
    let step = step.event(unhealthy_event(format!("{REASON}: {message}")));
    fail(step, &Failure::of(REASON, message), now)
}

/// A message with the objects that it is about.
fn with_names(message: String, components: &[String], pods: &[String]) -> String {
    let names: Vec<&str> = components.iter().chain(pods).map(String::as_str).collect();
    if names.is_empty() {
        return message;
    }
    format!("{message}: {}", names.join("; "))
}

/// Pods of a workload that was ready are not ready any more. The times of conditions are whole seconds, so a loss in the very
/// second of the start is written down as one second later: the grace of a loss is not that of a start.
fn lose(status: &mut AppWrapperStatus, message: &str, now: Timestamp) {
    let ready = ConditionType::PodsReady;
    if !conditions::is_true(&status.conditions, ready) {
        return;
    }
    clear_condition(status, ready, LOST, message, now);
    let after_start = attempt_start(status, now).checked_add(SignedDuration::from_secs(1));
    conditions::restart(&mut status.conditions, ready, after_start.unwrap_or(now).max(now));
}

fn unhealthy_event(note: String) -> Event {
    Event::warning(ConditionType::Unhealthy.as_str(), note)
}

/// Writes down which components have ended well, if others still run: their removal afterwards is then no failure.
fn record_finished(step: &mut Step, presences: &[Presence], now: Timestamp) {
    if presences
        .iter()
        .all(|presence| matches!(presence, Presence::Finished(_)))
    {
        return;
    }
    for (component, presence) in step.status.component_status.iter_mut().zip(presences) {
        if matches!(presence, Presence::Finished(_)) && !is_component_finished(component) {
            record(component, ConditionStatus::True, component_reason::SUCCEEDED, now);
        }
    }
}

fn owners<'a>(wrapper: &'a Uid, presences: &[Presence], uids: &'a [Option<Uid>]) -> Owners<'a> {
    let is_finished = |presence: &Presence| matches!(presence, Presence::Finished(_));
    let known = || presences.iter().zip(uids);
    let all_known = known().all(|(presence, uid)| uid.is_some() || is_finished(presence));
    Owners {
        wrapper,
        current: all_known.then(|| uids.iter().flatten().collect()),
        finished: known()
            .filter(|(presence, _)| is_finished(presence))
            .filter_map(|(_, uid)| uid.as_ref())
            .collect(),
    }
}

/// Components and pods of a Running AppWrapper, seen together.
struct Workload<'a> {
    observed: &'a Observed<'a>,
    presences: &'a [Presence],
    pods: &'a PodSummary,
}

impl Workload<'_> {
    fn judge(&self, mut step: Step, policy: &Policy, now: Timestamp) -> Step {
        let total = self.pods.total;
        let failed_components = self.failed_components();
        if failed_components > 0 {
            const REASON: &str = "FailedComponent";
            let message = format!("Found {failed_components} failed components");
            unhealthy(&mut step.status, REASON, &message, now);
            step = step.event(unhealthy_event(format!("{REASON}: {message}")));
            let failure = Failure {
                terminal: self.pods.terminal,
                ..Failure::of(
                    REASON,
                    with_names(message, &self.failed_names(), &self.pods.describe_failed()),
                )
            };
            return reset_or_fail(step, policy, &failure, now);
        }
        if self.is_finished() {
            let message = format!(
                "{} pods succeeded and no running, pending, or failed pods",
                self.succeeded().saturating_add(self.succeeded_of_finished())
            );
            for (type_, status) in [
                (ConditionType::QuotaReserved, ConditionStatus::False),
                (ConditionType::ResourcesDeployed, ConditionStatus::True),
            ] {
                set_condition(&mut step.status, type_, status, "Succeeded", &message, now);
            }
            return step.enter(Phase::Succeeded);
        }
        if total.failed > 0 {
            return self.failed_pods(step, policy, now);
        }
        if !self.pods.no_execute.is_empty() {
            let nodes: Vec<String> = self.pods.no_execute.iter().map(|node| format!("{node}:{{}}")).collect();
            let message = format!(
                "Workload contains pods using NoExecute resources on Nodes: map[{}]",
                nodes.join(" ")
            );
            unhealthy(&mut step.status, "AutopilotNoExecute", &message, now);
            step = step.event(unhealthy_event(message.clone()));
            let failure = Failure {
                increment: 0,
                ..Failure::of("AutopilotNoExecute", message)
            };
            return reset_or_fail(step, policy, &failure, now);
        }
        clear_condition(&mut step.status, ConditionType::Unhealthy, "FoundNoFailedPods", "", now);
        self.readiness(step, policy, now)
    }

    /// The components that say of themselves that they have failed.
    fn failed_names(&self) -> Vec<String> {
        let status = &self.observed.status.component_status;
        let failed = |presence: &Presence| matches!(presence, Presence::Present(facts) if facts.completion == Completion::Failed);
        self.presences
            .iter()
            .zip(status)
            .filter(|(presence, _)| failed(presence))
            .map(|(_, component)| format!("{} {}", component.kind, component.name))
            .collect()
    }

    fn failed_components(&self) -> usize {
        match self.observed.components {
            Evidence::Cached(survey) | Evidence::Deferred(survey, _) => survey.failed(),
            Evidence::Uncached(survey) => survey.failed(),
            Evidence::Doubt(_) => 0,
        }
    }

    fn failed_pods(&self, mut step: Step, policy: &Policy, now: Timestamp) -> Step {
        const REASON: &str = "FoundFailedPods";
        let is_news = unhealthy(&mut step.status, REASON, "", now);
        let pods = self.pods.describe_failed();
        let left = until(deadline::failed_pods(&step.status, policy, now), now);
        // When the first one fails, and at the end of the grace those that have failed since. In between a process that
        // has just started could not tell what is news.
        if is_news || left.is_none() {
            for pod in &pods {
                step = step.event(Event::warning("PodFailed", pod.clone()));
            }
        }
        if let Some(left) = left {
            return step.then(after(left));
        }
        let message = format!("{} failed pods", self.pods.total.failed);
        step = step.event(unhealthy_event(format!("{REASON}: {message}")));
        let failure = Failure {
            terminal: self.pods.terminal,
            ..Failure::of(REASON, with_names(message, &[], &pods))
        };
        reset_or_fail(step, policy, &failure, now)
    }

    /// Steps 9 and 10: enough pods, or a grace period for them.
    fn readiness(&self, mut step: Step, policy: &Policy, now: Timestamp) -> Step {
        const REASON: &str = LOST;
        let wanted = self.wanted();
        let (pending, running, active) = (self.pods.total.pending, self.pods.total.running, self.succeeded());
        let succeeded = active.saturating_add(self.succeeded_of_finished());
        if running.saturating_add(active) >= wanted {
            let message = format!("{running} pods running; {succeeded} pods succeeded");
            set_condition(
                &mut step.status,
                ConditionType::PodsReady,
                ConditionStatus::True,
                "SufficientPodsReady",
                &message,
                now,
            );
            return step.then(after(NET));
        }
        let message = format!("{pending} pods pending; {running} pods running; {succeeded} pods succeeded");
        lose(&mut step.status, &message, now);
        let all_pods = pending.saturating_add(running).saturating_add(active) >= wanted;
        if let Some(left) = until(deadline::missing_pods(&step.status, policy, all_pods, now), now) {
            return step.then(after(POLL.min(left)));
        }
        unhealthy(&mut step.status, REASON, &message, now);
        step = step.event(unhealthy_event(format!("{REASON}: {message}")));
        reset_or_fail(step, policy, &Failure::of(REASON, message), now)
    }

    /// Components in the order of the spec, with their presence.
    fn components(&self) -> impl Iterator<Item = (usize, &Presence)> {
        self.presences.iter().enumerate()
    }

    /// What the template of a component names.
    fn head(&self, position: usize) -> Option<&TemplateHead> {
        self.observed
            .wrapper
            .spec
            .components
            .get(position)?
            .template
            .head()
            .ok()
    }

    fn expected_of(&self, position: usize) -> i64 {
        self.observed
            .status
            .component_status
            .get(position)
            .map_or(0, expected_pods)
    }

    /// Pods that components which have not ended want just now.
    fn wanted(&self) -> i64 {
        self.components()
            .filter(|(_, presence)| !matches!(presence, Presence::Finished(_)))
            .fold(0, |sum, (position, presence)| {
                sum.saturating_add(self.wanted_of(position, presence))
            })
    }

    fn wanted_of(&self, position: usize, presence: &Presence) -> i64 {
        let row = self.head(position).and_then(|head| kinds::lookup(&head.type_ref));
        let counts = presence.facts().map_or_else(OwnCounts::default, |facts| facts.counts);
        let status = self.observed.status.component_status.get(position);
        status.map_or(0, |status| podsets::wanted_pods(status, row, counts))
    }

    /// Succeeded pods of components that have not ended, those included that a component has counted itself and that
    /// are gone since.
    fn succeeded(&self) -> i64 {
        let counted_elsewhere: i64 = self
            .presences
            .iter()
            .filter(|presence| !matches!(presence, Presence::Finished(_)))
            .filter_map(Presence::facts)
            .map(|facts| self.succeeded_by(facts) - self.pods.of(&facts.uid).succeeded)
            .sum();
        self.pods.total.succeeded + counted_elsewhere
    }

    /// Succeeded pods of components that have ended. They are told, but make no other component ready.
    fn succeeded_of_finished(&self) -> i64 {
        self.presences
            .iter()
            .filter(|presence| matches!(presence, Presence::Finished(_)))
            .filter_map(Presence::facts)
            .map(|facts| self.succeeded_by(facts))
            .sum()
    }

    /// Succeeded pods of a component, by its own count or by ours, whichever has seen more.
    fn succeeded_by(&self, facts: &ComponentFacts) -> i64 {
        let own = facts.counts.succeeded_pods.map_or(0, i64::from);
        own.max(self.pods.of(&facts.uid).succeeded)
    }

    /// Whether every component has ended well. A kind that tells its end itself is believed and nothing else is; of
    /// any other kind all pods must have succeeded.
    fn is_finished(&self) -> bool {
        self.components().all(|(position, presence)| match presence {
            Presence::Finished(_) => true,
            Presence::Present(facts) => {
                let Some(head) = self.head(position) else {
                    return false;
                };
                if head.declared.tells_end(&head.type_ref) {
                    return false;
                }
                let pods = self.pods.of(&facts.uid);
                let ends = kinds::lookup(&head.type_ref).is_none_or(|row| row.ending == Ending::WithPods);
                let succeeded = if ends { pods.succeeded } else { pods.succeeded_for_good };
                succeeded >= self.expected_of(position) && pods.unfinished() == 0 && pods.failed == 0
            }
            _ => false,
        })
    }
}
