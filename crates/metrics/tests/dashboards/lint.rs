//! The checks themselves.

use std::collections::{BTreeMap, BTreeSet};

use appwrapper_metrics::table;
use promql_parser::parser;

use super::promql::Checker;
use super::{ALERTS, OWNERS, content, directory, external, rules};

/// Metrics that nothing shows, with the reason.
const NOT_SHOWN: &[(&str, &str)] = &[(
    "process_virtual_memory_bytes",
    "says nothing about memory in use; the process collector exports it anyway",
)];

/// The one rule that must look at a counter as it is: a series that is new has no increase yet.
const RAW_COUNTER: &str = "cluster_namespace_resource:appwrapper_missing_component_verdicts:";

/// Grafana's variables, as Prometheus will see them.
fn substituted(query: &str) -> String {
    query.replace("$__rate_interval", "5m").replace("$__range", "1h")
}

/// A checker that knows the recording rules and has seen every query of rules and dashboards.
fn all_queries() -> (Checker, Vec<String>) {
    let mut checker = Checker::default();
    let mut faults = Vec::new();
    for rule in rules::read("recording.yaml") {
        let name = rule.record.expect("recording.yaml holds recording rules");
        checker.raw_counters = name.starts_with(RAW_COUNTER);
        faults.extend(
            checker
                .record(&name, &rule.expr)
                .err()
                .map(|fault| format!("{name}: {fault}")),
        );
    }
    checker.raw_counters = false;
    for rule in rules::read("alerts.yaml") {
        let name = rule.alert.expect("alerts.yaml holds alerts");
        faults.extend(checker.check(&rule.expr).err().map(|fault| format!("{name}: {fault}")));
    }
    for dashboard in content::all() {
        for panel in &dashboard.panels {
            for (query, _) in &panel.queries {
                let place = format!("{} / {}", dashboard.uid, panel.title);
                faults.extend(
                    checker
                        .check(&substituted(query))
                        .err()
                        .map(|fault| format!("{place}: {fault}")),
                );
            }
        }
        for variable in dashboard.variables {
            faults.extend(checker.check_variable(variable.metric, variable.name).err());
        }
    }
    for query in [ALERTS, OWNERS] {
        faults.extend(checker.check(query).err());
    }
    (checker, faults)
}

impl Checker {
    /// A variable takes the values of a label of a metric, and a name alone may be a counter there.
    fn check_variable(&mut self, metric: &str, label: &str) -> Result<(), String> {
        self.raw_counters = true;
        let labels = self.check(metric)?.unwrap_or_default();
        self.raw_counters = false;
        if labels.contains(label) {
            Ok(())
        } else {
            Err(format!("{metric} has no label {label}"))
        }
    }
}

#[test]
fn every_query_names_metrics_labels_and_values_that_exist() {
    let (_, faults) = all_queries();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_metric_is_in_a_panel_or_a_rule_or_has_a_reason_not_to_be() {
    let (checker, _) = all_queries();
    let reasons: BTreeMap<&str, &str> = NOT_SHOWN.iter().copied().collect();
    for row in table::all() {
        let (used, excused) = (checker.used.contains(row.name), reasons.contains_key(row.name));
        assert!(used || excused, "{} is in no panel and no rule", row.name);
        assert!(!(used && excused), "{} is excused although it is used", row.name);
    }
    for name in reasons.keys() {
        assert!(
            table::all().any(|row| row.name == *name),
            "{name} is excused and does not exist"
        );
    }
}

#[test]
fn recording_rules_are_all_used() {
    let alerts: String = rules::read("alerts.yaml").into_iter().map(|rule| rule.expr).collect();
    let panels: String = content::all()
        .iter()
        .flat_map(|dashboard| {
            dashboard
                .panels
                .iter()
                .flat_map(|panel| panel.queries.iter().map(|(query, _)| query.clone()))
        })
        .collect();
    for rule in rules::read("recording.yaml") {
        let name = rule.record.unwrap();
        assert!(
            alerts.contains(&name) || panels.contains(&name),
            "{name} is used by nothing"
        );
    }
}

#[test]
fn every_alert_is_complete() {
    let panels: BTreeSet<(&str, &str)> = content::all()
        .iter()
        .flat_map(|dashboard| dashboard.panels.iter().map(|panel| (dashboard.uid, panel.title)))
        .collect();
    for rule in rules::read("alerts.yaml") {
        let name = rule.alert.as_deref().unwrap();
        assert!(name.starts_with("AppWrapper"), "{name}");
        let severity = rule.labels.get("severity").map(String::as_str);
        assert!(
            matches!(severity, Some("info" | "warning" | "critical")),
            "{name}: {severity:?}"
        );
        for (label, value) in &rule.labels {
            assert!(
                !value.contains("$value"),
                "{name}: a value in label {label} makes a new alert of each value"
            );
        }
        for key in ["summary", "description", "runbook_url", "dashboard", "panel"] {
            assert!(
                rule.annotations.get(key).is_some_and(|text| !text.is_empty()),
                "{name} has no {key}"
            );
        }
        assert_eq!(rule.annotations["runbook_url"], format!("runbooks/{name}.md"));
        let panel = (
            rule.annotations["dashboard"].as_str(),
            rule.annotations["panel"].as_str(),
        );
        assert!(panels.contains(&panel), "{name}: there is no panel {panel:?}");
        let compares = [" > ", " < ", " >= ", " == "]
            .iter()
            .any(|operator| rule.expr.contains(operator));
        assert!(
            compares || rule.expr.starts_with("absent("),
            "{name} compares with nothing"
        );
        assert!(
            !rule.expr.contains("topk") && !rule.expr.contains("bottomk"),
            "{name}: its series change all the time"
        );
        if rule.expr.contains("absent(") {
            assert!(
                rule.hold.as_deref().is_some_and(|hold| hold != "0m"),
                "{name} fires at each start of Prometheus"
            );
        }
        for window in rule.expr.split('[').skip(1).filter_map(|rest| rest.split(']').next()) {
            let short = window.ends_with('s') || window == "1m";
            assert!(!short, "{name}: [{window}] is fewer than four scrapes of 30 s");
        }
    }
}

#[test]
fn every_alert_has_minutes_in_which_it_fires_and_minutes_in_which_it_is_silent() {
    let (mut fires, mut silent) = (BTreeSet::new(), BTreeSet::new());
    let mut checker = Checker::default();
    checker.raw_counters = true;
    for file in rules::tests() {
        assert_eq!(file.rule_files.len(), 2);
        for case in &file.tests {
            for series in &case.input_series {
                // A made-up series that nothing exports would test nothing.
                checker
                    .check(&series.series)
                    .unwrap_or_else(|fault| panic!("{}: {fault}", case.name));
            }
            for moment in &case.alert_rule_test {
                if moment.exp_alerts.is_empty() {
                    silent.insert((moment.alertname.clone(), String::new()));
                }
                for expected in &moment.exp_alerts {
                    let part = |name: &str| expected.exp_labels.get(name).cloned().unwrap_or_default();
                    fires.insert((moment.alertname.clone(), part("severity") + &part("window")));
                }
            }
        }
    }
    for rule in rules::read("alerts.yaml") {
        let name = rule.alert.clone().unwrap();
        let part = |name: &str| rule.labels.get(name).cloned().unwrap_or_default();
        let variant = part("severity") + &part("window");
        assert!(
            fires.contains(&(name.clone(), variant.clone())),
            "no test lets {name} {variant} fire"
        );
        assert!(
            silent.contains(&(name.clone(), String::new())),
            "no test expects {name} to be silent"
        );
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let alerts: BTreeSet<String> = rules::read("alerts.yaml")
        .into_iter()
        .filter_map(|rule| rule.alert)
        .collect();
    let directory = directory().join("runbooks");
    let files: BTreeSet<String> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name != "README")
        .collect();
    assert_eq!(alerts, files);
    let (mut checker, _) = all_queries();
    // A person at the prompt may look at a counter as it is.
    checker.raw_counters = true;
    for name in files {
        let text = std::fs::read_to_string(directory.join(format!("{name}.md"))).unwrap();
        let heads: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(
            heads,
            ["Meaning", "Impact", "Diagnosis", "Mitigation", "False alarm?"],
            "{name}"
        );
        assert!(text.contains("```promql\n"), "{name} has no query to look at");
        for block in text.split("```promql\n").skip(1) {
            for query in block
                .split("```")
                .next()
                .unwrap()
                .lines()
                .filter(|line| !line.is_empty())
            {
                checker.check(query).unwrap_or_else(|fault| panic!("{name}: {fault}"));
            }
        }
    }
}

#[test]
fn dashboards_are_well_formed() {
    let units = ["none", "s", "ops", "bytes", "percentunit", "bool_yes_no"];
    let mut uids = BTreeSet::new();
    let (mut checker, _) = all_queries();
    for dashboard in content::all() {
        assert!(uids.insert(dashboard.uid));
        let mut titles = BTreeSet::new();
        for panel in &dashboard.panels {
            let place = format!("{} / {}", dashboard.uid, panel.title);
            assert!(titles.insert(panel.title), "{place} is there twice");
            if panel.kind == "row" {
                continue;
            }
            assert!(!panel.queries.is_empty(), "{place} shows nothing");
            assert!(panel.description.ends_with('.'), "{place} has no description");
            assert!(units.contains(&panel.unit), "{place}: unit {}", panel.unit);
            for (query, legend) in &panel.queries {
                assert!(
                    query.contains("cluster=~\"$cluster\""),
                    "{place} does not follow the cluster: {query}"
                );
                let moment = panel.kind == "stat" || panel.kind == "table";
                let expected = if moment { "$__range" } else { "$__rate_interval" };
                for window in query.split('[').skip(1).filter_map(|rest| rest.split(']').next()) {
                    // A class of characters is no window; a budget has its own.
                    let is_window = window.starts_with('$') || window.starts_with(|c: char| c.is_ascii_digit());
                    assert!(!is_window || window == expected || window == "30d", "{place}: {query}");
                }
                legend_resolves(&mut checker, &place, &substituted(query), legend);
            }
        }
    }
}

/// Each `{{label}}` of a legend must be a label of the result.
fn legend_resolves(checker: &mut Checker, place: &str, query: &str, legend: &str) {
    let labels = checker.check(query).unwrap().unwrap_or_default();
    assert!(!legend.is_empty(), "{place} has no legend");
    for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
        assert!(
            labels.contains(label) || label == "le",
            "{place}: the result has no {label}"
        );
    }
    parser::parse(query).unwrap();
}

#[test]
fn the_dashboards_on_disk_are_up_to_date() {
    let directory = directory().join("grafana");
    let update = std::env::var_os("UPDATE_DASHBOARDS").is_some();
    let mut expected = BTreeSet::new();
    for dashboard in content::all() {
        let name = format!("{}.json", dashboard.uid);
        let text = dashboard.json();
        if update {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(&name), &text).unwrap();
        }
        let committed = std::fs::read_to_string(directory.join(&name)).unwrap_or_default();
        assert!(
            committed == text,
            "{name} differs: run with UPDATE_DASHBOARDS=1 to write it"
        );
        no_overlap(&text);
        expected.insert(name);
    }
    let found: BTreeSet<String> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(expected, found);
}

fn no_overlap(text: &str) {
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{}", panel["title"]);
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{} lies on another panel", panel["title"]);
            }
        }
    }
}

#[test]
fn metrics_of_others_are_all_used() {
    let runbooks: String = std::fs::read_dir(directory().join("runbooks"))
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let (checker, _) = all_queries();
    for row in external::ALL {
        assert!(
            checker.used.contains(row.name) || runbooks.contains(row.name),
            "{} is used by nothing",
            row.name
        );
    }
}
