//! Liveness and readiness of the process.
//!
//! Ready means: nobody holds a [`NotReady`] handle. Each part of the start takes one and drops it when it is done; a part
//! that has to withdraw later takes a new one. Alive means: every loop that registered has shown progress within its
//! deadline. Neither asks the API server: an outage of it must not restart the controllers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Health of the process. Clones share the same state.
#[derive(Clone, Default)]
pub struct Health {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    loops: BTreeMap<u64, Loop>,
}

struct Waiting {
    name: String,
    because: String,
}

struct Loop {
    name: String,
    deadline: Duration,
    last: Instant,
}

/// The answer to a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether the probe succeeds.
    pub ok: bool,
    /// One line per check, `[+]name ok` or `[-]name failed: why`, as the API server writes them.
    pub text: String,
}

impl Health {
    /// A healthy process that waits for nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The process is not ready until the handle is dropped.
    pub fn not_ready(&self, name: &str, because: &str) -> NotReady {
        let id = self.with(|state| {
            state.next += 1;
            let waiting = Waiting {
                name: name.to_owned(),
                because: because.to_owned(),
            };
            state.waiting.insert(state.next, waiting);
            state.next
        });
        NotReady {
            health: self.clone(),
            id,
        }
    }

    /// A loop promises to show progress at least once per `deadline`. It is watched until the handle is dropped.
    pub fn watch_loop(&self, name: &str, deadline: Duration) -> Progress {
        let id = self.with(|state| {
            state.next += 1;
            state.loops.insert(
                state.next,
                Loop {
                    name: name.to_owned(),
                    deadline,
                    last: Instant::now(),
                },
            );
            state.next
        });
        Progress {
            health: self.clone(),
            id,
        }
    }

    /// Whether the process is ready.
    pub fn ready(&self) -> Report {
        self.with(|state| {
            let failures = state
                .waiting
                .values()
                .map(|waiting| (waiting.name.as_str(), waiting.because.clone()));
            report("ready", failures)
        })
    }

    /// Whether the process makes progress.
    pub fn live(&self) -> Report {
        self.with(|state| {
            let failures = state.loops.values().filter_map(|watched| {
                let still = watched.last.elapsed();
                (still > watched.deadline).then(|| {
                    let because = format!(
                        "no progress for {}s, allowed are {}s",
                        still.as_secs(),
                        watched.deadline.as_secs()
                    );
                    (watched.name.as_str(), because)
                })
            });
            report("live", failures)
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn report<'a>(name: &str, failures: impl Iterator<Item = (&'a str, String)>) -> Report {
    let mut text = String::new();
    let mut ok = true;
    for (check, because) in failures {
        ok = false;
        // Writing into a String cannot fail.
        let _ = writeln!(text, "[-]{check} failed: {because}");
    }
    if ok {
        let _ = writeln!(text, "[+]{name} ok");
    }
    Report { ok, text }
}

/// Keeps the process from being ready.
#[must_use = "dropping it says that the part is ready"]
pub struct NotReady {
    health: Health,
    id: u64,
}

impl NotReady {
    /// Gives the present reason, such as whom the process waits for.
    pub fn because(&self, because: &str) {
        self.health.with(|state| {
            if let Some(waiting) = state.waiting.get_mut(&self.id) {
                because.clone_into(&mut waiting.because);
            }
        });
    }

    /// The part is ready. The same as dropping the handle, said aloud.
    pub fn ready(self) {}
}

impl Drop for NotReady {
    fn drop(&mut self) {
        self.health.with(|state| state.waiting.remove(&self.id));
    }
}

/// A loop that has to show progress.
#[must_use = "dropping it ends the watch over the loop"]
pub struct Progress {
    health: Health,
    id: u64,
}

impl Progress {
    /// The loop went round once more.
    pub fn made(&self) {
        self.health.with(|state| {
            if let Some(watched) = state.loops.get_mut(&self.id) {
                watched.last = Instant::now();
            }
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.health.with(|state| state.loops.remove(&self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_the_last_handle_is_dropped() {
        let health = Health::new();
        let certificates = health.not_ready("certificates", "certificates are not ready");
        let leader = health.not_ready("leader", "starting");
        leader.because("waits for pod-7");
        let report = health.ready();
        assert!(!report.ok);
        assert!(
            report
                .text
                .contains("[-]certificates failed: certificates are not ready\n"),
            "{}",
            report.text
        );
        assert!(report.text.contains("waits for pod-7"));
        leader.ready();
        assert!(!health.ready().ok);
        drop(certificates);
        assert_eq!(
            health.ready(),
            Report {
                ok: true,
                text: "[+]ready ok\n".to_owned()
            }
        );
        let _draining = health.not_ready("draining", "shutting down");
        assert!(!health.ready().ok);
        assert!(health.live().ok);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_without_progress_fails_liveness_after_its_deadline() {
        let health = Health::new();
        let lease = health.watch_loop("lease", Duration::from_secs(10));
        let _driver = health.watch_loop("driver", Duration::from_secs(3600));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(health.live().ok);
        lease.made();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(health.live().ok);
        tokio::time::advance(Duration::from_secs(2)).await;
        let report = health.live();
        assert_eq!(report.text, "[-]lease failed: no progress for 11s, allowed are 10s\n");
        assert!(health.ready().ok);
        drop(lease);
        assert!(health.live().ok);
    }
}
