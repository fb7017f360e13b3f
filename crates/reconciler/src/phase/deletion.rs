//! Deleting the components of an AppWrapper, for every phase that does (spec/lifecycle.md section 4).
//!
//! Deletion is finished when no recorded component and no pod of the AppWrapper is left, by the API server's own word:
//! the quota is handed on then, and a cache that lags would hand it on while pods still run.

use appwrapper_api::{
    AppWrapperStatus, ConditionStatus, ConditionType, PodFacts,
    conditions::{self, truncate},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    cluster::{Deleted, Grace},
    deadline,
    decide::{after, until},
    decision::{Action, Effect, Question, Step},
    evidence::{Presence, confirm::may_be_ours},
    observation::{Event, Observation},
    observed::{Evidence, Observed, PodEvidence, RecentDeletes},
    policy::Policy,
    status::{Recorded, component_reason, record, recorded, set_condition},
};

/// How deletion stands.
#[derive(Debug)]
pub(crate) enum Deletion {
    /// A step has to be taken first.
    Step(Box<Step>),
    /// Nothing is left. The status says so.
    Finished(Box<AppWrapperStatus>),
}

/// What is known of one component that is to be deleted.
enum State {
    Gone,
    Present,
    Unknown,
    Delete(Effect),
}

pub(crate) fn delete_components(observed: &Observed<'_>, policy: &Policy, now: Timestamp) -> Deletion {
    let mut step = Step::new(observed.status.clone());
    let type_ = ConditionType::DeletingResources;
    set_condition(
        &mut step.status,
        type_,
        ConditionStatus::True,
        "DeletionInitiated",
        "",
        now,
    );
    let expired = until(deadline::forced_deletion(&step.status, policy, now), now).is_none();
    let mut present = Vec::new();
    for position in 0..step.status.component_status.len() {
        let Some(component) = step.status.component_status.get_mut(position) else {
            continue;
        };
        if recorded(component) == Recorded::Absent {
            continue;
        }
        match state(observed, position, expired, now) {
            State::Gone => record(component, ConditionStatus::False, component_reason::DELETED, now),
            State::Present => present.push(position),
            State::Unknown => return take(step, Action::Confirm(Question::Deleted)),
            State::Delete(effect) => return take(step, Action::Do(effect)),
        }
    }
    if !present.is_empty() && !expired {
        return take(step, after(RecentDeletes::INTERVAL));
    }
    judge_pods(observed, step, &present, expired, now)
}

fn take(step: Step, action: Action) -> Deletion {
    Deletion::Step(Box::new(step.then(action)))
}

fn state(observed: &Observed<'_>, position: usize, expired: bool, now: Timestamp) -> State {
    if position >= observed.wrapper.spec.components.len() {
        // The spec says what there is; a status that somebody has made longer would be waited for in vain.
        return State::Gone;
    }
    match observed.outcomes.deleted.get(&position) {
        Some(Deleted::Gone) => return State::Gone,
        Some(Deleted::Terminating | Deleted::Refused(_)) => return State::Present,
        None => {}
    }
    let Some(presence) = observed.components.presences().get(position) else {
        return State::Present;
    };
    if let Some(facts) = presence.facts() {
        if observed.recent_deletes.is_recent(&facts.uid, now) {
            return State::Present;
        }
        // While it is being deleted there is nothing to ask for again, until time is up.
        if facts.terminating && !expired {
            // Of one that has ended well the cache may be telling its last state: it can be gone since.
            let may_be_gone =
                matches!(presence, Presence::Finished(_)) && !matches!(observed.components, Evidence::Uncached(_));
            return if may_be_gone { State::Unknown } else { State::Present };
        }
        let grace = if expired { Grace::Zero } else { Grace::Own };
        return State::Delete(Effect::Delete {
            position,
            uid: facts.uid.clone(),
            grace,
        });
    }
    match observed.components {
        Evidence::Uncached(_) => State::Gone,
        Evidence::Doubt(_) => State::Present,
        Evidence::Cached(_) | Evidence::Deferred(..) => State::Unknown,
    }
}

/// No component is left, or time is up: what about the pods?
fn judge_pods(observed: &Observed<'_>, mut step: Step, present: &[usize], expired: bool, now: Timestamp) -> Deletion {
    let uid = observed.uid();
    let left: Vec<PodFacts> = match observed.pods {
        PodEvidence::Doubt(delay) => return take(step, after(*delay)),
        PodEvidence::NoneLeft(_) if present.is_empty() => {
            conditions::clear(
                &mut step.status.conditions,
                ConditionType::DeletingResources,
                "DeletionComplete",
                "",
                now,
            );
            return Deletion::Finished(Box::new(step.status));
        }
        PodEvidence::NoneLeft(_) => Vec::new(),
        PodEvidence::Left(pods) => pods.to_vec(),
        PodEvidence::Cached(Some(pods)) => {
            let pods: Vec<PodFacts> = pods.iter().filter(|pod| may_be_ours(pod, &uid)).cloned().collect();
            if pods.is_empty() {
                return take(step, Action::Confirm(Question::PodsLeft));
            }
            pods
        }
        PodEvidence::Cached(None) => return take(step, Action::Confirm(Question::PodsLeft)),
    };
    if expired {
        if let Some(event) = stuck(observed, present, &left) {
            step = step.event(event).tell(Observation::Forced);
        }
        let forcible: Vec<PodFacts> = left
            .into_iter()
            .filter(|pod| may_be_forced(pod) && !observed.recent_deletes.is_recent(&pod.uid, now))
            .collect();
        if !forcible.is_empty() && !observed.outcomes.pods_forced {
            return take(step, Action::Do(Effect::ForcePods(forcible)));
        }
    }
    take(step, after(RecentDeletes::INTERVAL))
}

/// A pod is deleted by force only if it is ours for certain, or if its owner is gone and it is being deleted anyway.
fn may_be_forced(pod: &PodFacts) -> bool {
    match pod.lineage {
        appwrapper_api::Lineage::Component { .. } => true,
        appwrapper_api::Lineage::Broken => pod.terminating,
        _ => false,
    }
}

/// Says what keeps a deletion from ending, once its time is up: whoever owns the finalizer has to act.
fn stuck(observed: &Observed<'_>, present: &[usize], pods: &[PodFacts]) -> Option<Event> {
    let mut parts: Vec<String> = pods
        .iter()
        .take(5)
        .map(|pod| describe(&format!("pod {}", pod.name), &pod.finalizers))
        .collect();
    for position in present {
        let name = observed
            .status
            .component_status
            .get(*position)
            .map(|component| component.name.as_str());
        let facts = observed.components.presences().get(*position).and_then(Presence::facts);
        let finalizers = facts.map(|facts| facts.finalizers.as_slice()).unwrap_or_default();
        parts.push(describe(&format!("component {}", name.unwrap_or_default()), finalizers));
    }
    if parts.is_empty() {
        return None;
    }
    let note = format!(
        "deletion takes longer than the forceful deletion grace; still there: {}",
        parts.join(", ")
    );
    Some(Event::warning("DeletionForced", truncate(&note, 900)))
}

fn describe(what: &str, finalizers: &[String]) -> String {
    if finalizers.is_empty() {
        what.to_owned()
    } else {
        format!("{what} (finalizers: {})", finalizers.join(", "))
    }
}

/// Comes back after a deadline at the latest.
pub(crate) fn wait(step: Step, delay: SignedDuration) -> Step {
    step.then(after(delay))
}
