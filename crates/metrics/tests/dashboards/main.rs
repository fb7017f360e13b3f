//! Dashboards, rules and runbooks agree with the table of metrics and with each other.
//!
//! Dashboards are written from `content.rs`: `UPDATE_DASHBOARDS=1 cargo test -p appwrapper-metrics --test dashboards`. Rules,
//! their promtool tests and runbooks are kept by hand in `dashboards/`, and only checked here.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod content;
mod external;
mod grafana;
mod lint;
mod promql;
mod promtool;
mod rules;

use std::path::PathBuf;

/// Alerts as annotations of the dashboards.
const ALERTS: &str = "ALERTS{alertname=~\"AppWrapper.*\", alertstate=\"firing\", cluster=~\"$cluster\"}";
/// Changes of owner as annotations of the dashboards.
const OWNERS: &str =
    "sum by (shard) (increase(appwrapper_shard_transitions_total{kind=\"acquired\", cluster=~\"$cluster\"}[1m])) > 0";

/// `dashboards/` of the repository.
fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dashboards"))
}
