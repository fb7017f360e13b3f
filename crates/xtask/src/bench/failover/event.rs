//! What befalls replicas, and how soon their shards should be acted on again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use appwrapper_testkit::fleet::{Fleet, Ring};
use jiff::Timestamp;

use crate::bench::times::Spread;

/// How long a take-over may take before the benchmark gives up.
const TAKEN: Duration = Duration::from_secs(60);

/// An event of a benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A replica is asked to end, and another one takes its place.
    Terminate,
    /// A replica is killed, and another one takes its place.
    Kill,
    /// A replica is killed, and its process starts again in its pod at once.
    Restart,
    /// All replicas are replaced by those of a new template, one after the other, each new one before an old one ends.
    Rollout,
}

/// When the event began.
pub struct Begun {
    pub at: Timestamp,
}

impl Event {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 4] = [
        ("terminate", Self::Terminate),
        ("kill", Self::Kill),
        ("restart", Self::Restart),
        ("rollout", Self::Rollout),
    ];

    /// What is to be reached.
    pub fn target(self) -> &'static str {
        match self {
            Self::Terminate => "p99 below 0.5 s after SIGTERM",
            Self::Kill => "at most the lease and 1 s after SIGKILL, every time",
            Self::Restart => "below 2 s after the start of the process, every time",
            Self::Rollout => "at most 0.5 s after the release, every time",
        }
    }

    /// Whether it is reached.
    pub fn is_met(self, acted: &Spread, lease: Duration) -> bool {
        match self {
            Self::Terminate => acted.p99 < 0.5,
            Self::Kill => acted.max <= lease.as_secs_f64() + 1.0,
            Self::Restart => acted.max < 2.0,
            Self::Rollout => acted.max <= 0.5,
        }
    }

    /// A rollout gives shards away at several times, so each counts from its own release.
    pub fn counts_from_release(self) -> bool {
        self == Self::Rollout
    }

    /// Does it.
    pub async fn befall(self, fleet: &mut Fleet<'_>, ring: &Ring) -> Result<Begun> {
        // In turn, since the oldest goes and the youngest comes; one that holds nothing would say nothing.
        let names: Vec<String> = fleet.names().into_iter().map(str::to_owned).collect();
        let whom = names.iter().find(|name| !ring.held_by(name).is_empty());
        let whom = whom.context("somebody holds a shard")?;
        let mut at = Timestamp::now();
        match self {
            Self::Terminate => {
                fleet.replica(whom)?.terminate();
                fleet.remove(whom).await?;
                fleet.add().await?;
            }
            Self::Kill => {
                fleet.replica_mut(whom)?.kill()?;
                fleet.add().await?;
                // Its pod stays for as long as it is named: nobody knows yet that it is dead.
                let gone = |ring: &Ring| ring.held_by(whom).is_empty();
                fleet.until("its shards are taken over", TAKEN, gone).await?;
                fleet.remove(whom).await?;
            }
            Self::Restart => {
                fleet.replica_mut(whom)?.kill()?;
                at = Timestamp::now();
                fleet.restart(whom).await?;
            }
            Self::Rollout => {
                let template = format!("--pod-template-hash=t{}", at.as_millisecond());
                let options = fleet.options().clone().arg(template);
                *fleet.options() = options;
                for old in &names {
                    fleet.add().await?;
                    fleet.until_all_work().await?;
                    fleet.replica(old)?.terminate();
                    fleet.remove(old).await?;
                }
            }
        }
        Ok(Begun { at })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, event)| event == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        let names = || Self::ALL.map(|(name, _)| name).join(", ");
        found
            .map(|(_, event)| *event)
            .ok_or_else(|| format!("{text} is no event; there are {}", names()))
    }
}
