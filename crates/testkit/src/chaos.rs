//! Replicas of our controller under faults, on a real control plane, with the audit log as the judge.
//!
//! Three replicas, each behind a proxy of its own, work on a steady stream of AppWrappers. A round is one [`Fault`] at some
//! moment of the stream. After it every AppWrapper must have come to its end, every shard must be held by somebody who is
//! there, and the [`Judge`] must have nothing to say. The choices of a round follow from a seed; the timing of processes does
//! not.

mod clock;
mod fault;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

pub use fault::Fault;

use crate::cluster::{Cluster, ClusterOptions, Component};
use crate::controller::{ControllerOptions, install};
use crate::fleet::{Fleet, Ring};
use crate::judge::{End, Judge, POLICY, Verdict};
use crate::load::Load;
use crate::programs::{cache_dir, controlplane_dir};
use crate::wrappers;

/// Where the AppWrappers are.
const NAMESPACE: &str = "chaos";
/// How many replicas there are.
const REPLICAS: usize = 3;
/// From one AppWrapper to the next.
const EVERY: Duration = Duration::from_millis(200);
/// How long it may take until every shard is held, after a fault is over, beside a Lease that runs out.
const HELD: Duration = Duration::from_secs(60);
/// How long AppWrappers may take to end after a fault is over.
const END: Duration = Duration::from_secs(120);
/// How long the last round's may take to be gone.
const GONE: Duration = Duration::from_secs(60);

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the controllers are started. Their names, pods and servers are given here.
    pub controller: ControllerOptions,
    /// How long their Leases last.
    pub lease: Duration,
    /// What all choices follow from.
    pub seed: u64,
}

/// A run under way.
pub struct Chaos<'c> {
    cluster: &'c Cluster,
    fleet: Fleet<'c>,
    judge: Judge,
    ends: BTreeMap<String, End>,
    random: StdRng,
    lease: Duration,
    rounds: usize,
}

/// What a round came to.
#[derive(Debug)]
pub struct Round {
    /// Its number, from 1.
    pub number: usize,
    /// What was done, and to whom.
    pub deed: String,
    /// How long it took.
    pub took: Duration,
    /// How many AppWrappers it had.
    pub wrappers: usize,
    /// The longest that one of them waited to be Running.
    pub longest_wait: Duration,
    /// What the judge says about everything so far.
    pub verdict: Verdict,
}

/// A cluster whose audit log can be judged.
///
/// # Errors
///
/// When it does not start.
pub async fn cluster(name: &str) -> Result<Cluster> {
    let options = ClusterOptions::unique(name)
        .audited_by(controlplane_dir().join(POLICY))
        // With the default the log is begun anew at 100 MB, behind the judge's back.
        .extra_arg(Component::KubeApiserver, "audit-log-maxsize", "10000");
    let cluster = Cluster::start(options).await?;
    install(&cluster).await?;
    wrappers::namespace(&cluster.client(), NAMESPACE).await?;
    Ok(cluster)
}

impl<'c> Chaos<'c> {
    /// Starts the replicas on a cluster made by [`cluster`].
    ///
    /// # Errors
    ///
    /// When they do not work in time.
    pub async fn start(cluster: &'c Cluster, options: Options) -> Result<Self> {
        let lease = format!("--lease-duration={}s", options.lease.as_secs());
        let mut fleet = Fleet::new(cluster, options.controller.arg(lease)).proxied();
        for _ in 0..REPLICAS {
            fleet.add().await?;
        }
        fleet.settled().await?;
        Ok(Self {
            cluster,
            fleet,
            judge: Judge::new(cluster)?,
            ends: BTreeMap::new(),
            random: StdRng::seed_from_u64(options.seed),
            lease: options.lease,
            rounds: 0,
        })
    }

    /// One fault, and what comes of it. What the judge finds is in the answer.
    ///
    /// # Errors
    ///
    /// When an AppWrapper does not come to its end, or a shard to a holder; with what was done and the ends of the logs.
    pub async fn round(&mut self, fault: Fault) -> Result<Round> {
        self.rounds += 1;
        let started = Instant::now();
        let mut deed = fault.to_string();
        let played = self.play(fault, &mut deed).await;
        let (wrappers, longest_wait) = match played {
            Ok(played) => played,
            Err(error) => {
                let logs = self.fleet.log_tails();
                return Err(error.context(format!("round {}, {deed}; {logs}", self.rounds)));
            }
        };
        Ok(Round {
            number: self.rounds,
            deed,
            took: started.elapsed(),
            wrappers,
            longest_wait,
            verdict: self.judge.verdict(&self.ends)?,
        })
    }

    async fn play(&mut self, fault: Fault, deed: &mut String) -> Result<(usize, Duration)> {
        let client = self.cluster.client();
        self.held().await?;
        fault.prepare(self).await?;
        let prefix = format!("r{}-", self.rounds);
        let load = Load::start(&client, NAMESPACE, &prefix, EVERY, work::wrapper).await?;
        let pause = self.random.random_range(500..2_500);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        *deed = fault.befall(self).await.with_context(|| deed.clone())?;
        self.held().await?;
        let lives = load.finish(END).await?;
        let ends = lives.keys().map(|name| (name.clone(), work::end(name)));
        self.ends.extend(ends);
        for (name, life) in &lives {
            let failed = life.end() == Some(appwrapper_api::Phase::Failed);
            if failed != work::end(name).fails {
                return Err(anyhow!("AppWrapper {name} ended as {:?}", life.end()));
            }
        }
        wrappers::delete_all(&client, NAMESPACE, GONE).await?;
        let longest = lives.values().filter_map(crate::load::Life::until_running).max();
        Ok((lives.len(), longest.unwrap_or_default()))
    }

    /// Waits until every shard is held by a replica that is there.
    async fn held(&self) -> Result<Ring> {
        let names = self.fleet.names();
        let limit = self.lease * 2 + HELD;
        self.fleet
            .until("every shard is held", limit, |ring| ring.is_held(&names))
            .await
    }

    /// Copies the logs to where they outlive the cluster.
    ///
    /// # Errors
    ///
    /// When they cannot be copied.
    pub fn keep_logs(&self) -> Result<PathBuf> {
        let folder = cache_dir()?.join("chaos").join(self.cluster.name());
        std::fs::create_dir_all(&folder)?;
        let ours = std::fs::read_dir(self.cluster.dir())?.flatten().map(|file| file.path());
        let logs = ours.filter(|path| path.extension().is_some_and(|ending| ending == "log"));
        for log in logs.chain(self.cluster.audit_log()) {
            let name = log.file_name().context("a log has a name")?;
            std::fs::copy(&log, folder.join(name))?;
        }
        Ok(folder)
    }

    /// Ends the replicas in order.
    ///
    /// # Errors
    ///
    /// When one does not end in order.
    pub async fn end(self) -> Result<()> {
        self.fleet.stop().await
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            deed,
            took,
            wrappers,
            longest_wait,
            verdict,
        } = self;
        write!(
            f,
            "round {number}, {deed}: {:.1} s, {wrappers} AppWrappers, the longest wait {:.2} s; so far {verdict}",
            took.as_secs_f32(),
            longest_wait.as_secs_f32()
        )
    }
}
