//! The processes of a cluster, and what a chaos test does to them: pause, resume, kill, start again.
//!
//! A process is known by the pid file that kwokctl keeps, and only processes of this cluster are ever signalled.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::Cluster;
use super::place::Place;

/// One program of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The store.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The controllers of the built-in kinds.
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// What plays nodes and pods.
    KwokController,
}

impl Component {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::KwokController,
    ];

    /// Its name, as kwokctl and its logs use it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::KwokController => "kwok-controller",
        }
    }
}

impl Cluster {
    /// Whether the component's process is there, running or paused.
    pub fn is_running(&self, component: Component) -> bool {
        self.pid(component).is_ok_and(is_alive)
    }

    /// Stops the component's process where it stands, as a machine that hangs; [`Cluster::resume`] lets it go on.
    ///
    /// # Errors
    ///
    /// When it does not run, or does not stop within ten seconds.
    pub async fn pause(&self, component: Component) -> Result<()> {
        let pid = self.pid(component)?;
        self.signal(component, Signal::STOP)?;
        // The signal is only on its way: on a busy machine a thread may still answer a request or two.
        settled(|| thread_states(pid).iter().all(|state| *state == 'T')).await
    }

    /// Lets a paused component go on.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn resume(&self, component: Component) -> Result<()> {
        self.signal(component, Signal::CONT)
    }

    /// Kills the component and waits until it is gone.
    ///
    /// # Errors
    ///
    /// When it did not run, or does not go within ten seconds.
    pub async fn kill(&self, component: Component) -> Result<()> {
        self.end_by(component, Signal::KILL).await
    }

    /// Asks the component to end and waits until it has.
    ///
    /// # Errors
    ///
    /// When it did not run, or does not end within ten seconds.
    pub async fn end(&self, component: Component) -> Result<()> {
        self.end_by(component, Signal::TERM).await
    }

    async fn end_by(&self, component: Component, signal: Signal) -> Result<()> {
        let pid = self.pid(component)?;
        self.signal(component, signal)?;
        settled(|| !is_alive(pid)).await?;
        std::fs::remove_file(self.place.pid_file(component))?;
        Ok(())
    }

    /// Starts again whatever was killed, and waits until the API server answers.
    ///
    /// # Errors
    ///
    /// When kwokctl cannot start them.
    pub async fn start_killed(&self) -> Result<()> {
        self.start_components().await
    }

    fn signal(&self, component: Component, signal: Signal) -> Result<()> {
        kill_process(self.pid(component)?, signal).with_context(|| format!("signalling {}", component.name()))
    }

    fn pid(&self, component: Component) -> Result<Pid> {
        pid(&self.place, component)
    }
}

/// Waits until the store or the API server has started and ended again; the others may come and go while it starts.
pub(super) async fn first_to_end(place: &Place) -> Component {
    loop {
        let ended = |component: &Component| pid(place, *component).is_ok_and(|pid| !is_alive(pid));
        if let Some(component) = [Component::Etcd, Component::KubeApiserver].into_iter().find(ended) {
            return component;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn pid(place: &Place, component: Component) -> Result<Pid> {
    let path = place.pid_file(component);
    let text = std::fs::read_to_string(&path).with_context(|| format!("{} does not run", component.name()))?;
    let pid = text.trim().parse().ok().and_then(Pid::from_raw);
    pid.with_context(|| format!("{} holds no process id", path.display()))
}

/// Waits until a signal has had its effect.
async fn settled(effect: impl Fn() -> bool) -> Result<()> {
    for _ in 0..1000 {
        if effect() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("a signal had no effect within ten seconds")
}

/// Whether the process is there and not merely waiting to be reaped.
fn is_alive(pid: Pid) -> bool {
    let states = thread_states(pid);
    let reaped = !states.is_empty() && states.iter().all(|state| matches!(state, 'Z' | 'X'));
    !reaped && test_kill_process(pid).is_ok()
}

/// The states of the process's threads, as `ps` shows them; none where there is no `/proc`.
fn thread_states(pid: Pid) -> Vec<char> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let state = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        // The name before it is in parentheses and may hold anything.
        stat.rsplit(") ").next()?.chars().next()
    };
    threads.flatten().filter_map(state).collect()
}
