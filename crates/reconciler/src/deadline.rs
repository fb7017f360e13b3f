//! When something happens of itself: every deadline of the lifecycle, computed from times that the status stores.
//!
//! The phases decide by these functions, and whoever shows an AppWrapper to a person asks [`next`], so both tell one truth.

use appwrapper_api::{AppWrapper, AppWrapperStatus, ConditionType, GoDuration, Phase, conditions};
use jiff::Timestamp;

use crate::{
    policy::Policy,
    status::{attempt_start, is_deployed},
};

/// What happens at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Creating components is given up for this attempt.
    CreationGivenUp,
    /// Pods that are not there or not ready yet cost a retry.
    PodsGivenUp,
    /// Failed pods cost a retry.
    FailureCounted,
    /// Components are created again.
    Retry,
    /// What is still being deleted is deleted by force.
    DeletionForced,
    /// The components of a failed AppWrapper are deleted.
    FailedComponentsDeleted,
    /// The components of a succeeded AppWrapper are deleted.
    SucceededComponentsDeleted,
    /// The AppWrapper itself is deleted.
    Expired,
}

/// A deadline: when, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When.
    pub at: Timestamp,
    /// What happens then.
    pub due: Due,
}

impl Due {
    /// In words, after "at 12:00:00".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CreationGivenUp => "creating components is given up, which costs a retry",
            Self::PodsGivenUp => "pods that are still not ready cost a retry",
            Self::FailureCounted => "the failed pods cost a retry",
            Self::Retry => "components are created again",
            Self::DeletionForced => "deletion is forced",
            Self::FailedComponentsDeleted => "the components of the failed AppWrapper are deleted",
            Self::SucceededComponentsDeleted => "the components of the succeeded AppWrapper are deleted",
            Self::Expired => "the AppWrapper itself is deleted",
        }
    }
}

/// The next deadline of an AppWrapper, if one is set. `all_pods` says whether all expected pods exist, whatever their phase.
pub fn next(wrapper: &AppWrapper, policy: &Policy, all_pods: bool, now: Timestamp) -> Option<Deadline> {
    let status = &wrapper.status;
    let deletion = || conditions::is_true(&status.conditions, ConditionType::DeletingResources);
    let forced = || (forced_deletion(status, policy, now), Due::DeletionForced);
    let is_true = |type_| conditions::is_true(&status.conditions, type_);
    if wrapper.metadata.deletion_timestamp.is_some() {
        let (at, due) = deletion().then(forced)?;
        return Some(Deadline { at, due });
    }
    let of_phase = || -> Option<(Timestamp, Due)> {
        Some(match status.phase()? {
            Phase::Resuming => (creation(status, policy, now), Due::CreationGivenUp),
            Phase::Running if is_true(ConditionType::Unhealthy) => {
                (failed_pods(status, policy, now), Due::FailureCounted)
            }
            Phase::Running if !is_true(ConditionType::PodsReady) => {
                (missing_pods(status, policy, all_pods, now), Due::PodsGivenUp)
            }
            Phase::Resetting if !is_deployed(status) => (retry(status, policy, now), Due::Retry),
            Phase::Failed if is_deployed(status) && !deletion() => {
                (failed_components(status, policy, now), Due::FailedComponentsDeleted)
            }
            Phase::Succeeded if is_deployed(status) && !deletion() => (
                succeeded_components(status, policy, now),
                Due::SucceededComponentsDeleted,
            ),
            Phase::Suspending | Phase::Resetting | Phase::Failed | Phase::Succeeded | Phase::Terminating => {
                deletion().then(forced)?
            }
            Phase::Empty | Phase::Suspended | Phase::Running => return None,
        })
    };
    let expiry = expiry(status, policy).map(|at| (at, Due::Expired));
    let (at, due) = of_phase().into_iter().chain(expiry).min_by_key(|(at, _)| *at)?;
    Some(Deadline { at, due })
}

/// Until when components that could not be created are tried again.
pub(crate) fn creation(status: &AppWrapperStatus, policy: &Policy, now: Timestamp) -> Timestamp {
    end(attempt_start(status, now), policy.admission_grace)
}

/// Until when failed pods are waited for.
pub(crate) fn failed_pods(status: &AppWrapperStatus, policy: &Policy, now: Timestamp) -> Timestamp {
    end(since(status, ConditionType::Unhealthy, now), policy.failure_grace)
}

/// Until when pods may be missing or not ready: pods of a healthy workload that were lost have a grace of their own, from
/// the moment of the loss; before, all pods have to exist within the admission grace and to be ready within the warm-up grace.
pub(crate) fn missing_pods(status: &AppWrapperStatus, policy: &Policy, all_pods: bool, now: Timestamp) -> Timestamp {
    let start = attempt_start(status, now);
    let lost_at = conditions::find(&status.conditions, ConditionType::PodsReady)
        .filter(|condition| condition.reason == LOST && condition.last_transition_time.0 > start)
        .map(|condition| condition.last_transition_time.0);
    match lost_at {
        Some(lost_at) => end(lost_at, policy.failure_grace),
        None if all_pods => end(start, policy.warmup_grace),
        None => end(start, policy.admission_grace),
    }
}

/// Reason of PodsReady when a workload that was ready has lost pods.
pub(crate) const LOST: &str = "InsufficientPodsReady";

/// When the next attempt begins, counted from the end of deletion.
pub(crate) fn retry(status: &AppWrapperStatus, policy: &Policy, now: Timestamp) -> Timestamp {
    end(since(status, ConditionType::ResourcesDeployed, now), policy.retry_pause)
}

/// When a deletion that has begun is forced.
pub(crate) fn forced_deletion(status: &AppWrapperStatus, policy: &Policy, now: Timestamp) -> Timestamp {
    let since = since(status, ConditionType::DeletingResources, now);
    end(since, policy.forceful_deletion_grace)
}

/// Until when the components of a failed AppWrapper are kept, once that was written down.
pub(crate) fn failed_components(status: &AppWrapperStatus, policy: &Policy, now: Timestamp) -> Timestamp {
    let since = since(status, ConditionType::DeletingResources, now);
    end(since, policy.deletion_on_failure_grace)
}

/// Until when the components of a succeeded AppWrapper are kept. The quota is given back at the moment of success.
pub(crate) fn succeeded_components(status: &AppWrapperStatus, policy: &Policy, now: Timestamp) -> Timestamp {
    end(since(status, ConditionType::QuotaReserved, now), policy.success_ttl)
}

/// When the AppWrapper itself is deleted, if it has ended and is not to be kept: counted from the moment at which its quota
/// was given back, which for a failed one is when its components were gone.
pub(crate) fn expiry(status: &AppWrapperStatus, policy: &Policy) -> Option<Timestamp> {
    let ttl = policy.finished_ttl?;
    let ended = conditions::find(&status.conditions, ConditionType::QuotaReserved)
        .filter(|condition| condition.status == "False" && status.phase().is_some_and(Phase::is_finished))?;
    Some(end(ended.last_transition_time.0, ttl))
}

fn since(status: &AppWrapperStatus, type_: ConditionType, now: Timestamp) -> Timestamp {
    conditions::since(&status.conditions, type_).unwrap_or(now)
}

fn end(since: Timestamp, period: GoDuration) -> Timestamp {
    since.checked_add(period.signed()).unwrap_or(Timestamp::MAX)
}
