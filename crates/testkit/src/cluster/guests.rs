//! Programs of ours that run against a cluster and end with it: a controller that a demo leaves running, or one whose
//! starter was killed and could not end it.
//!
//! Each is noted in the cluster's folder by process id and start time, so that a process which has got the same id
//! since is left alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::Cluster;

/// How long a program may take to end when asked to.
const PATIENCE: Duration = Duration::from_secs(10);

impl Cluster {
    /// Has a running program end with the cluster, however the cluster ends.
    ///
    /// # Errors
    ///
    /// When it does not run, or cannot be noted.
    pub fn adopt(&self, pid: u32) -> Result<()> {
        let start = start_time(pid).with_context(|| format!("process {pid} does not run"))?;
        let folder = folder(self.dir());
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(pid.to_string()), start).context("noting a program")
    }

    /// Ends the programs that were adopted, the cluster's own not among them.
    pub fn end_guests(&self) {
        end(self.dir());
    }
}

/// Ends every program noted in the folder of a cluster.
pub(super) fn end(dir: &Path) {
    let Ok(notes) = fs::read_dir(folder(dir)) else { return };
    let guests: Vec<(u32, String, PathBuf)> = notes
        .flatten()
        .filter_map(|note| {
            let pid = note.file_name().to_str()?.parse().ok()?;
            Some((pid, fs::read_to_string(note.path()).ok()?, note.path()))
        })
        .collect();
    let alive = |(pid, start, _): &&(u32, String, PathBuf)| start_time(*pid).as_ref() == Some(start);
    for guest in guests.iter().filter(alive) {
        signal(guest.0, Signal::TERM);
    }
    let until = Instant::now() + PATIENCE;
    while guests.iter().any(|guest| alive(&guest)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    for guest in guests.iter().filter(alive) {
        signal(guest.0, Signal::KILL);
    }
    for (_, _, note) in &guests {
        let _ = fs::remove_file(note);
    }
}

fn folder(dir: &Path) -> PathBuf {
    dir.join("guests")
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// When the process started, in the kernel's own count; none if there is no such process or it only waits to be reaped.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it is in parentheses and may hold anything.
    let mut fields = stat.rsplit(") ").next()?.split(' ');
    let state = fields.next()?;
    // The state is field 3 of proc_pid_stat(5), the start time field 22.
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18).map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noted_program_ends_and_another_that_has_its_id_does_not() {
        let dir = std::env::temp_dir().join(format!("guests-{}", std::process::id()));
        fs::create_dir_all(folder(&dir)).unwrap();
        let sleeper = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (mut ours, mut other) = (sleeper(), sleeper());
        let note = |pid: u32, start: String| fs::write(folder(&dir).join(pid.to_string()), start).unwrap();
        note(ours.id(), start_time(ours.id()).unwrap());
        note(other.id(), "another time".to_owned());

        end(&dir);
        assert!(start_time(ours.id()).is_none());
        assert!(start_time(other.id()).is_some());
        other.kill().unwrap();
        other.wait().unwrap();
        ours.wait().unwrap();
        fs::remove_dir_all(dir).unwrap();
    }
}
