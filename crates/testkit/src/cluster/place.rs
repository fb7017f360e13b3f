//! A cluster's folder, and who answers for it.
//!
//! The folder is `clusters/NAME` in the cache, or `nodes/NAME` for a [real node](crate::real_node). Beside it lies a lock file, held by the process that started the cluster
//! for as long as that process lives. So a folder whose lock is free and that is not marked as kept belongs to a
//! process that was killed, and [`sweep`] ends that cluster. The lock is taken before the folder is made: a sweep never
//! meets a folder in the making.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use super::{Component, guests};
use crate::programs::cache_dir;

/// How many of a log's last lines an error shows.
const LOG_LINES: usize = 8;

/// The folder of the clusters of processes.
pub const CLUSTERS: &str = "clusters";
/// The folder of the real nodes.
pub const REAL_NODES: &str = "nodes";

/// Where a cluster keeps its files.
#[derive(Debug, Clone)]
pub struct Place {
    name: String,
    down: &'static str,
    dir: PathBuf,
}

/// The lock that says a living process answers for the cluster.
pub struct Owner {
    _lock: File,
}

impl Place {
    pub fn named(folder: &'static str, name: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(plain) {
            bail!("cluster name {name:?}: only lower-case letters, digits and hyphens");
        }
        Ok(Self {
            name: name.to_owned(),
            down: if folder == REAL_NODES { " --real-node" } else { "" },
            dir: cache_dir()?.join(folder).join(name),
        })
    }

    /// Makes the folder, and answers for it.
    pub fn take(&self) -> Result<Owner> {
        fs::create_dir_all(self.dir.parent().context("a cluster's folder is in another")?)?;
        let lock = File::options().create(true).append(true).open(self.lock_path())?;
        let taken = lock.try_lock().is_ok();
        if !taken || self.exists() {
            bail!(
                "cluster {0:?} exists; end it with: cargo xtask cluster down{1} --name {0}",
                self.name,
                self.down
            );
        }
        fs::create_dir_all(self.dir.join("home"))?;
        Ok(Owner { _lock: lock })
    }

    /// Lets the cluster outlive this process.
    pub fn mark_kept(&self) -> Result<()> {
        File::create(self.keep_mark()).context("marking the cluster as kept")?;
        Ok(())
    }

    pub fn exists(&self) -> bool {
        self.dir.is_dir()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    pub fn logs(&self) -> PathBuf {
        self.kwok_dir().join("logs")
    }

    pub fn pid_file(&self, component: Component) -> PathBuf {
        self.kwok_dir()
            .join("pids")
            .join(component.name())
            .with_extension("pid")
    }

    /// kwokctl, made to keep everything in this folder.
    pub fn kwokctl(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("HOME", self.dir.join("home"))
            .env("KWOK_WORKDIR", self.dir.join("kwok"));
        command
    }

    /// Ends the cluster without a runtime and without failing, as a drop must.
    pub fn end(&self, kwokctl: &Path) {
        guests::end(&self.dir);
        let mut command = self.kwokctl(kwokctl);
        command
            .args(["delete", "cluster", "--name", &self.name, "--kubeconfig"])
            .arg(self.kubeconfig());
        match command.as_std_mut().output() {
            Ok(output) if output.status.success() => drop(self.remove()),
            Ok(output) => eprintln!(
                "cluster {}: {}",
                self.name,
                String::from_utf8_lossy(&output.stderr).trim()
            ),
            Err(error) => eprintln!("cluster {}: running kwokctl: {error}", self.name),
        }
    }

    /// Removes what is on disk.
    pub fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.dir).with_context(|| format!("removing {}", self.dir.display()))?;
        let _ = fs::remove_file(self.lock_path());
        Ok(())
    }

    /// The last lines of every component's log.
    pub fn log_tails(&self) -> String {
        log_tails(&self.logs(), Component::ALL.map(Component::name))
    }

    fn kwok_dir(&self) -> PathBuf {
        self.dir.join("kwok/clusters").join(&self.name)
    }

    fn lock_path(&self) -> PathBuf {
        self.dir.with_extension("lock")
    }

    fn keep_mark(&self) -> PathBuf {
        self.dir.join("keep")
    }
}

/// The last lines of the logs of programs.
pub fn log_tails<'n>(folder: &Path, programs: impl IntoIterator<Item = &'n str>) -> String {
    let tail = |program: &str| {
        let text = fs::read_to_string(folder.join(program).with_extension("log")).unwrap_or_default();
        let mut lines: Vec<&str> = text.lines().rev().take(LOG_LINES).collect();
        lines.reverse();
        format!("--- {program}:\n{}", lines.join("\n"))
    };
    let tails: Vec<String> = programs.into_iter().map(tail).collect();
    tails.join("\n")
}

/// The names of all clusters in a folder.
pub fn names(folder: &str) -> Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(cache_dir()?.join(folder)) else {
        return Ok(Vec::new());
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Ends the clusters of processes that are no more.
pub fn sweep(folder: &'static str, end: impl Fn(&Place)) -> Result<()> {
    for name in names(folder)? {
        let place = Place::named(folder, &name)?;
        let Ok(lock) = File::options().create(true).append(true).open(place.lock_path()) else {
            continue;
        };
        match lock.try_lock() {
            Ok(()) if place.exists() && !place.keep_mark().exists() => end(&place),
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).context("locking a cluster's folder"),
        }
    }
    Ok(())
}
