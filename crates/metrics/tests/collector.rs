//! A collector of traces that is not there costs nothing but its spans. One test, since it sets variables of the process.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::time::{Duration, Instant};

use appwrapper_metrics::telemetry::{self, Format, Options};
use appwrapper_metrics::{Build, Metrics};
use tokio::net::TcpListener;

#[test]
fn a_collector_that_does_not_answer_slows_neither_work_nor_shutdown() {
    // Takes connections and never says a word: worse than one that refuses.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let silent = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = silent.local_addr().unwrap();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "spans_into_the_void", "--nocapture"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "512")
        .env("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "128")
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "run by the test above, with the variables set"]
fn spans_into_the_void() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let metrics = Metrics::new(&Build::default());
        let options = Options {
            format: Format::Json,
            verbosity: 0,
            filter: Some("warn".to_owned()),
            service: "appwrapper-test",
            version: "1".to_owned(),
        };
        let telemetry = telemetry::init(&options, &metrics.process).unwrap();
        assert!(telemetry.exports_traces());
        let begin = Instant::now();
        for number in 0..10_000_u32 {
            tracing::info_span!("AppWrapper reconcile", number).in_scope(|| tracing::info!("work"));
        }
        // Generous for a debug build on a busy machine; waiting for the collector even once would take 10 s.
        assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
        let page = metrics.registry().encode().unwrap();
        let dropped = page
            .lines()
            .find(|line| line.starts_with("appwrapper_trace_spans_dropped_total "))
            .unwrap();
        let dropped: u32 = dropped.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(
            (9_000..=9_600).contains(&dropped),
            "{dropped} of 10,000 spans dropped, the queue holds 512"
        );
        let begin = Instant::now();
        telemetry.shutdown(Duration::from_secs(1)).await;
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    });
    // As a binary does at its end: the flush that hangs on its own thread is not waited for.
    runtime.shutdown_background();
}
