//! The table of metrics and a real scrape say the same.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::{BTreeMap, BTreeSet};

use appwrapper_metrics::descriptor::{Descriptor, Kind, Scope, Start, Values};
use appwrapper_metrics::{capped, table};
use support::{Family, parse};

const SHARDS: u32 = 16;

fn scraped(scope: Scope, used: bool) -> (BTreeMap<String, Family>, usize) {
    let page = if scope == Scope::Controller {
        let metrics = support::controller(SHARDS);
        if used {
            support::use_controller(&metrics, 3);
        }
        metrics.registry().encode().unwrap()
    } else {
        let metrics = support::webhook();
        if used {
            support::use_webhook(&metrics);
        }
        metrics.registry().encode().unwrap()
    };
    parse(&page)
}

fn rows(scope: Scope) -> BTreeMap<&'static str, &'static Descriptor> {
    table::all()
        .filter(|row| row.is_for(scope))
        .map(|row| (row.name, row))
        .collect()
}

#[test]
fn every_row_is_exported_and_everything_exported_has_a_row() {
    for scope in [Scope::Controller, Scope::Webhook] {
        let rows = rows(scope);
        let (families, _) = scraped(scope, true);
        let expected: BTreeSet<&str> = rows.keys().copied().collect();
        let found: BTreeSet<&str> = families.keys().map(String::as_str).collect();
        assert_eq!(expected, found, "{scope:?}");
        for (name, family) in &families {
            let row = rows[name.as_str()];
            assert_eq!(family.kind, row.kind.as_str(), "{name}");
            assert_eq!(family.help, row.help, "{name}");
            let mut labels = row.label_names();
            labels.sort_unstable();
            for (series, _) in &family.series {
                assert_eq!(series.keys().collect::<Vec<_>>(), labels, "{name}");
                for label in row.labels {
                    let value = series[label.name].as_str();
                    let known = match label.values {
                        Values::Closed(values) => values.contains(&value),
                        Values::Shard => value.parse::<u32>().is_ok_and(|shard| shard < SHARDS),
                        Values::Namespace => value.starts_with("team-") || value == capped::OVERFLOW,
                        Values::Open(_) => true,
                    };
                    assert!(known, "{name}: {}={value}", label.name);
                }
            }
            if let Kind::Histogram(buckets) = row.kind {
                assert_eq!(family.buckets.len(), buckets.len() + 1, "{name}");
            }
        }
    }
}

#[test]
fn series_with_known_labels_exist_at_zero_before_anything_happened() {
    for scope in [Scope::Controller, Scope::Webhook] {
        let (families, _) = scraped(scope, false);
        for row in rows(scope).values() {
            let family = families.get(row.name);
            match row.start {
                Start::OnUse => continue,
                Start::Possible => assert!(family.is_some_and(|family| !family.series.is_empty()), "{}", row.name),
                Start::Zero => {
                    let family = family.unwrap_or_else(|| panic!("{} does not start at 0", row.name));
                    let expected: BTreeSet<Vec<String>> = row
                        .combinations(SHARDS)
                        .unwrap_or_else(|| panic!("{} cannot", row.name))
                        .into_iter()
                        .collect();
                    let found: BTreeSet<Vec<String>> = family
                        .series
                        .iter()
                        .map(|(series, _)| row.labels.iter().map(|label| series[label.name].clone()).collect())
                        .collect();
                    assert_eq!(expected, found, "{}", row.name);
                }
            }
            // The process collector measures before the first scrape.
            if row.kind == Kind::Counter && !row.name.starts_with("process_") {
                let moved = family.unwrap().series.iter().any(|(_, value)| *value != 0.0);
                assert!(!moved, "{} does not start at 0", row.name);
            }
        }
    }
}

#[test]
fn a_counter_with_a_closed_label_set_never_starts_on_use() {
    for row in table::all().filter(|row| !matches!(row.kind, Kind::Gauge)) {
        let closed = row.combinations(1).is_some();
        assert_eq!(closed, row.start != Start::OnUse, "{}", row.name);
    }
}

#[test]
fn names_follow_the_rules() {
    let mut seen = BTreeSet::new();
    for row in table::all() {
        assert!(seen.insert(row.name), "{} is there twice", row.name);
        assert_eq!(row.name.ends_with("_total"), row.kind == Kind::Counter, "{}", row.name);
        assert!(row.help.ends_with('.') && row.help.len() > 15, "{}", row.name);
        assert!(!row.label_names().contains(&"le"), "{}", row.name);
        if let Kind::Histogram(buckets) = row.kind {
            assert!(row.name.ends_with("_seconds"), "{}", row.name);
            assert!(
                buckets.len() <= 13 && buckets.windows(2).all(|pair| pair[0] < pair[1]),
                "{}",
                row.name
            );
        }
        for label in row.labels {
            let forbidden = [
                "name", "pod", "uid", "user", "image", "error", "message", "instance", "job",
            ];
            // The two names are those of queues and elections, kept for compatibility.
            let kept = row.name.starts_with("workqueue_") || row.name == "leader_election_master_status";
            assert!(
                !forbidden.contains(&label.name) || (kept && label.name == "name"),
                "{} {}",
                row.name,
                label.name
            );
        }
    }
}

#[test]
fn names_that_operators_already_use_are_kept() {
    let labels = |name: &str| table::all().find(|row| row.name == name).map(Descriptor::label_names);
    assert_eq!(labels("appwrapper_phase_total").unwrap(), ["namespace", "phase"]);
    assert_eq!(
        labels("controller_runtime_reconcile_total").unwrap(),
        ["controller", "result"]
    );
    assert_eq!(
        labels("controller_runtime_reconcile_time_seconds").unwrap(),
        ["controller"]
    );
    assert_eq!(
        labels("controller_runtime_webhook_requests_total").unwrap(),
        ["webhook", "code"]
    );
    assert_eq!(
        labels("rest_client_requests_total").unwrap(),
        ["code", "method", "host"]
    );
    assert_eq!(labels("workqueue_depth").unwrap(), ["name", "controller"]);
    assert_eq!(labels("leader_election_master_status").unwrap(), ["name"]);
}

#[test]
fn a_pod_stays_under_four_thousand_series() {
    let metrics = support::controller(SHARDS);
    // Every namespace goes through every phase, every reason of failure and every kind of missing component.
    support::use_controller(&metrics, 200);
    let (families, count) = parse(&metrics.registry().encode().unwrap());
    assert!(count < 4000, "{count} series");
    let folded = &families["appwrapper_namespaces_folded"];
    let folded = |metric: &str| {
        folded
            .series
            .iter()
            .find(|(labels, _)| labels["metric"] == metric)
            .unwrap()
            .1
    };
    assert!(folded("appwrapper_phase_total") < 1.0);
    assert!(folded("appwrapper_missing_component_verdicts_total") > 0.0);
    let total = |name: &str| families[name].series.iter().map(|(_, value)| value).sum::<f64>();
    assert!(
        (total("appwrapper_missing_component_verdicts_total") - 200.0 * 15.0).abs() < 0.5,
        "folding loses nothing"
    );
}

#[test]
fn the_page_of_metrics_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/METRICS.md");
    let page = table::markdown();
    if std::env::var_os("UPDATE_METRICS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == page,
        "METRICS.md differs from the table: run with UPDATE_METRICS=1 to write it"
    );
}
