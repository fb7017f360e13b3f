//! What a process costs, by the kernel's own books (`proc(5)`).

use std::fs;

use anyhow::{Context as _, Result};
use serde::Serialize;

/// What a process has used since its start.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Usage {
    /// CPU time in seconds, of user and system together.
    pub cpu_seconds: f64,
    /// The memory it has resident now, in MiB.
    pub rss_mib: f64,
    /// The most memory it ever had resident, in MiB.
    pub peak_rss_mib: f64,
}

/// What the process has used so far.
///
/// # Errors
///
/// When it does not run, or where there is no `/proc`.
pub fn of(pid: u32) -> Result<Usage> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        fs::read_to_string(&path).with_context(|| format!("reading {path}"))
    };
    let (stat, status) = (read("stat")?, read("status")?);
    Ok(Usage {
        cpu_seconds: cpu_seconds(&stat).context("no CPU time in /proc/PID/stat")?,
        rss_mib: mib(&status, "VmRSS:").context("no memory in /proc/PID/status")?,
        peak_rss_mib: mib(&status, "VmHWM:").context("no peak memory in /proc/PID/status")?,
    })
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name before it is in parentheses and may hold anything. After it the state is field 3, user time field 14.
    let mut fields = stat.rsplit(") ").next()?.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok().map(f64::from);
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

/// `USER_HZ`, which Linux has fixed for programs on every architecture we run on.
const TICKS_PER_SECOND: f64 = 100.0;

fn mib(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u32 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(f64::from(kibibytes) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_a_name_with_parentheses() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 1 0 99 1 2";
        assert!((cpu_seconds(stat).unwrap() - 2.0).abs() < f64::EPSILON);
        let status = "VmPeak:\t  9 kB\nVmHWM:\t   10240 kB\n";
        assert!((mib(status, "VmHWM:").unwrap() - 10.0).abs() < f64::EPSILON);
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(of(std::process::id()).unwrap().peak_rss_mib > 0.1);
    }
}
