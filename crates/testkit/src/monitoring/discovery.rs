//! Finds our processes by their logs: each says there where it serves its metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::config::JOBS;

/// How often the logs are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Keeps the files up to date that Prometheus takes its targets from.
pub struct Discovery {
    logs: PathBuf,
    files: PathBuf,
    task: JoinHandle<()>,
}

impl Discovery {
    /// Looks through the logs in one folder and writes into another until it is dropped.
    pub fn start(logs: PathBuf, files: PathBuf) -> Self {
        let (from, to) = (logs.clone(), files.clone());
        let task = tokio::spawn(async move {
            let mut before = BTreeMap::new();
            loop {
                let found = found(&from);
                if found != before {
                    write(&to, &found);
                    before = found;
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        Self { logs, files, task }
    }

    /// Writes what there is now.
    pub fn write_now(&self) {
        write(&self.files, &found(&self.logs));
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Scheme and address of each process, by job.
type Targets = BTreeMap<&'static str, BTreeSet<(String, String)>>;

fn found(logs: &Path) -> Targets {
    let mut targets: Targets = JOBS.iter().map(|job| (*job, BTreeSet::new())).collect();
    for entry in fs::read_dir(logs).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        // The last one holds: a process that was started again goes on in the same log.
        if let Some((job, target)) = text.lines().rev().find_map(target) {
            targets.entry(job).or_default().insert(target);
        }
    }
    targets
}

fn target(line: &str) -> Option<(&'static str, (String, String))> {
    if !line.contains("\"serving\"") {
        return None;
    }
    let line: Value = serde_json::from_str(line).ok()?;
    let text = |field: &str| line.get(field).and_then(Value::as_str).map(str::to_owned);
    let program = text("target")?.split("::").next()?.replace('_', "-");
    let job = JOBS.into_iter().find(|job| *job == program)?;
    (text("what")? == "metrics").then_some((job, (text("scheme")?, text("address")?)))
}

fn write(files: &Path, targets: &Targets) {
    for (job, targets) in targets {
        let groups: Vec<Value> = targets
            .iter()
            .map(|(scheme, address)| json!({"targets": [address], "labels": {"__scheme__": scheme}}))
            .collect();
        let (new, file) = (files.join(format!("{job}.new")), files.join(format!("{job}.json")));
        // In one step: Prometheus may be reading it.
        if fs::write(&new, json!(groups).to_string()).is_ok() {
            let _ = fs::rename(new, file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_what_it_says_last() {
        let folder = std::env::temp_dir().join(format!("appwrapper-discovery-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let line = |target: &str, what: &str, address: &str| {
            json!({"message": "serving", "target": target, "what": what, "scheme": "https", "address": address})
                .to_string()
        };
        let log = [
            line("appwrapper_controller::run", "probes", "1"),
            line("appwrapper_controller::run", "metrics", "2"),
            "not json, but \"serving\"".to_owned(),
            line("appwrapper_controller::run", "metrics", "3"),
        ];
        fs::write(folder.join("a.log"), log.join("\n")).unwrap();
        fs::write(folder.join("b.log"), line("appwrapper_webhook::run", "metrics", "4")).unwrap();
        let targets = found(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let one = |address: &str| BTreeSet::from([("https".to_owned(), address.to_owned())]);
        assert_eq!(
            targets,
            BTreeMap::from([("appwrapper-controller", one("3")), ("appwrapper-webhook", one("4"))])
        );
    }
}
