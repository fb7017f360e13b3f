//! Waits until an AppWrapper is in a phase.

use std::time::Duration;

use anyhow::{Context, bail};
use appwrapper_api::{AppWrapper, Phase};
use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::time::timeout;

use crate::{args::Goal, session::Session};

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is as was waited for.
    Reached,
    /// Time is up.
    TimedOut,
    /// It cannot become so any more.
    OutOfReach,
}

impl Ended {
    /// The exit code that says so.
    pub fn code(self) -> u8 {
        match self {
            Self::Reached => 0,
            Self::TimedOut => 3,
            Self::OutOfReach => 4,
        }
    }
}

/// What a copy of the AppWrapper (none if it is gone) means for the goal; none if it has to be waited for.
pub fn judge(goal: Goal, wrapper: Option<&AppWrapper>) -> Option<Ended> {
    let Some(wrapper) = wrapper else {
        return Some(if goal == Goal::Deleted {
            Ended::Reached
        } else {
            Ended::OutOfReach
        });
    };
    let phase = wrapper.status.phase()?;
    let is_deleted = wrapper.metadata.deletion_timestamp.is_some();
    match goal {
        Goal::Phase(wanted) if wanted == phase => Some(Ended::Reached),
        Goal::Deleted | Goal::Phase(Phase::Terminating) => None,
        Goal::Finished => phase
            .is_finished()
            .then_some(Ended::Reached)
            .or_else(|| is_deleted.then_some(Ended::OutOfReach)),
        // Phases that end are never left, but for deletion.
        Goal::Phase(_) => (phase.is_finished() || is_deleted).then_some(Ended::OutOfReach),
    }
}

/// Waits, and answers how it ended and in which phase.
pub async fn wait(
    session: &Session,
    name: &str,
    goal: Goal,
    limit: Option<Duration>,
) -> anyhow::Result<(Ended, String)> {
    // An AppWrapper that was never there is a mistake, not an end; but what is to be deleted may be gone already.
    if goal != Goal::Deleted {
        session.wrapper(name).await?;
    }
    let watching = watch(session, name, goal);
    let Some(limit) = limit else {
        return watching.await;
    };
    if let Ok(ended) = timeout(limit, watching).await {
        return ended;
    }
    let now = session.wrappers().get_opt(name).await.ok().flatten();
    Ok((Ended::TimedOut, phase(now.as_ref())))
}

async fn watch(session: &Session, name: &str, goal: Goal) -> anyhow::Result<(Ended, String)> {
    let mut copies = watcher::watch_object(session.wrappers(), name)
        .default_backoff()
        .boxed();
    while let Some(copy) = copies.next().await {
        let copy = match copy {
            Ok(copy) => copy,
            Err(watcher::Error::InitialListFailed(kube::Error::Api(status))) if status.code == 403 => {
                return Err(kube::Error::Api(status)).context("cannot watch AppWrappers");
            }
            // The watch begins anew by itself.
            Err(_) => continue,
        };
        if let Some(ended) = judge(goal, copy.as_ref()) {
            return Ok((ended, phase(copy.as_ref())));
        }
    }
    bail!("the watch of AppWrapper {name} ended")
}

fn phase(wrapper: Option<&AppWrapper>) -> String {
    match wrapper {
        None => "deleted".to_owned(),
        Some(wrapper) if wrapper.status.phase.is_empty() => "new".to_owned(),
        Some(wrapper) => wrapper.status.phase.clone(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const RUNNING: Goal = Goal::Phase(Phase::Running);
    const SUCCEEDED: Goal = Goal::Phase(Phase::Succeeded);

    #[rstest]
    #[case::not_yet(RUNNING, "Resuming", false, None)]
    #[case::there(RUNNING, "Running", false, Some(Ended::Reached))]
    #[case::past(RUNNING, "Succeeded", false, Some(Ended::OutOfReach))]
    #[case::failed_instead(SUCCEEDED, "Failed", false, Some(Ended::OutOfReach))]
    #[case::deleted_meanwhile(SUCCEEDED, "Running", true, Some(Ended::OutOfReach))]
    #[case::finished(Goal::Finished, "Failed", false, Some(Ended::Reached))]
    #[case::finished_not_yet(Goal::Finished, "Resetting", false, None)]
    #[case::finished_never(Goal::Finished, "Running", true, Some(Ended::OutOfReach))]
    #[case::terminating_can_come_after_any(Goal::Phase(Phase::Terminating), "Failed", true, None)]
    #[case::terminating(Goal::Phase(Phase::Terminating), "Terminating", true, Some(Ended::Reached))]
    #[case::deletion_takes_time(Goal::Deleted, "Terminating", true, None)]
    #[case::unknown_phase(RUNNING, "Odd", false, None)]
    fn a_copy_decides(#[case] goal: Goal, #[case] phase: &str, #[case] deleted: bool, #[case] expected: Option<Ended>) {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        let wrapper = serde_json::from_value(json!({
            "metadata": {"name": "a", "deletionTimestamp": deleted}, "status": {"phase": phase}
        }))
        .unwrap();
        assert_eq!(judge(goal, Some(&wrapper)), expected);
    }

    #[test]
    fn gone_is_an_end_for_every_goal() {
        assert_eq!(judge(Goal::Deleted, None), Some(Ended::Reached));
        assert_eq!(judge(Goal::Finished, None), Some(Ended::OutOfReach));
    }
}
