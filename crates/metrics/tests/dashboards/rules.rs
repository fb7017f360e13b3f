//! The rules as they are on disk.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::directory;

#[derive(Deserialize)]
struct File {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

/// A recording or alerting rule.
#[derive(Debug, Deserialize)]
pub struct Rule {
    pub record: Option<String>,
    pub alert: Option<String>,
    pub expr: String,
    #[serde(rename = "for")]
    pub hold: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// All rules of one file of `dashboards/rules`.
pub fn read(name: &str) -> Vec<Rule> {
    let text = std::fs::read_to_string(directory().join("rules").join(name)).unwrap();
    let file: File = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    file.groups.into_iter().flat_map(|group| group.rules).collect()
}

/// A file of promtool tests.
#[derive(Deserialize)]
pub struct Tests {
    pub rule_files: Vec<String>,
    pub tests: Vec<Case>,
}

/// One story.
#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    #[serde(default)]
    pub input_series: Vec<Series>,
    #[serde(default)]
    pub alert_rule_test: Vec<Moment>,
}

/// A made-up series.
#[derive(Deserialize)]
pub struct Series {
    pub series: String,
}

/// What is expected at one minute of a story.
#[derive(Deserialize)]
pub struct Moment {
    pub alertname: String,
    #[serde(default)]
    pub exp_alerts: Vec<Expected>,
}

/// An alert that should fire.
#[derive(Deserialize)]
pub struct Expected {
    #[serde(default)]
    pub exp_labels: BTreeMap<String, String>,
}

/// All files of `dashboards/tests`.
pub fn tests() -> Vec<Tests> {
    let mut files: Vec<_> = std::fs::read_dir(directory().join("tests"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect()
}
