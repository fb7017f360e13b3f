//! Prometheus' own tool on the rules, their tests, and a scrape. Skipped with a word where there is no promtool: `PROMTOOL`
//! names it, otherwise the search path is tried.

use std::io::Write;
use std::process::{Command, Stdio};

use appwrapper_metrics::{Build, Metrics, WebhookMetrics};

use super::directory;

fn promtool() -> Option<Command> {
    let name = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    match Command::new(&name).arg("--version").output() {
        Ok(output) if output.status.success() => Some(Command::new(name)),
        _ => {
            assert!(
                std::env::var_os("PROMTOOL").is_none(),
                "PROMTOOL names no working promtool"
            );
            eprintln!("skipped: no promtool in the search path; set PROMTOOL");
            None
        }
    }
}

fn files(name: &str) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(directory().join(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn run(mut command: Command) {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

#[test]
fn rules_are_valid() {
    let Some(mut promtool) = promtool() else { return };
    promtool.args(["check", "rules"]).args(files("rules"));
    run(promtool);
}

#[test]
fn alerts_fire_and_are_silent_at_the_right_minutes() {
    let Some(mut promtool) = promtool() else { return };
    promtool.args(["test", "rules"]).args(files("tests"));
    run(promtool);
}

#[test]
fn a_scrape_of_each_binary_is_well_formed() {
    let pages = [
        Metrics::new(&Build::default()).registry().encode().unwrap(),
        WebhookMetrics::new(&Build::default()).registry().encode().unwrap(),
    ];
    for page in pages {
        let Some(mut promtool) = promtool() else { return };
        let mut child = promtool
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        // Names that are kept for compatibility, or are not ours, may break a rule of naming.
        let ours: Vec<&str> = text.lines().filter(|line| line.starts_with("appwrapper_")).collect();
        assert!(ours.is_empty(), "{}", ours.join("\n"));
        assert!(!text.contains("error while linting"), "{text}");
    }
}
