//! Metrics of others that our queries use: Prometheus itself and the API server.

use appwrapper_metrics::descriptor::{Descriptor, Kind, Label, Scope, Start, Values};

const fn row(name: &'static str, kind: Kind, labels: &'static [Label]) -> Descriptor {
    Descriptor {
        name,
        kind,
        labels,
        scope: Scope::Both,
        start: Start::OnUse,
        help: "Not ours.",
    }
}

const fn label(name: &'static str) -> Label {
    Label {
        name,
        values: Values::Open("not ours"),
    }
}

const NAME: Label = label("name");
const TYPE: Label = label("type");
const OPERATION: Label = label("operation");
const RESOURCE: Label = label("resource");

/// The rows, in the form of our own table.
pub const ALL: &[Descriptor] = &[
    row("up", Kind::Gauge, &[]),
    row(
        "ALERTS",
        Kind::Gauge,
        &[label("alertname"), label("alertstate"), label("severity")],
    ),
    row(
        "apiserver_admission_webhook_rejection_count",
        Kind::Counter,
        &[NAME, TYPE, OPERATION, label("error_type"), label("rejection_code")],
    ),
    row(
        "apiserver_admission_webhook_request_total",
        Kind::Counter,
        &[NAME, TYPE, OPERATION, label("code"), label("rejected")],
    ),
    row(
        "apiserver_admission_webhook_admission_duration_seconds",
        Kind::Histogram(&[0.005, 0.025, 0.1, 0.5, 1.0, 2.5]),
        &[NAME, TYPE, OPERATION, label("rejected")],
    ),
    row(
        "apiserver_admission_webhook_fail_open_count",
        Kind::Counter,
        &[NAME, TYPE],
    ),
    row(
        "apiserver_watch_cache_events_dispatched_total",
        Kind::Counter,
        &[label("group"), RESOURCE],
    ),
    row(
        "apiserver_request_duration_seconds",
        Kind::Histogram(&[1.0]),
        &[
            label("verb"),
            label("group"),
            label("version"),
            RESOURCE,
            label("scope"),
        ],
    ),
];
