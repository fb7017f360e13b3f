//! What operators look at, against the real thing: a real Prometheus scrapes real processes while [`story`] makes things
//! happen, and then every query of every panel and rule finds numbers.
//!
//! A metric that is renamed in a program, or that nothing sets, leaves a query without an answer. What the story does not
//! bring about is in [`NOT_TOLD`], each with the reason.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod queries;
mod story;

use std::time::{Duration, SystemTime};

use appwrapper_testkit::monitoring::{Monitoring, Options, PROMETHEUS, Span};
use appwrapper_tests::World;
use queries::{Query, panels, rules};

/// From one scrape to the next. Windows of queries are thirty of them.
const INTERVAL: Duration = Duration::from_secs(1);

/// Text in a query, and why nothing in the story answers it.
const NOT_TOLD: &[(&str, &str)] = &[
    ("appwrapper_webhook_", "no webhook runs in this story"),
    ("controller_runtime_webhook_", "no webhook runs in this story"),
    ("apiserver_admission_webhook_", "no webhook is called in this story"),
    ("appwrapper_admission_errors", "recorded from the calls of webhooks"),
    ("job=\"appwrapper-webhook\"", "no webhook runs in this story"),
    (
        "(appwrapper_memory_limit_bytes{",
        "the process runs in no container, so it has no limit",
    ),
    (" offset 1", "the story is shorter"),
];

async fn answered(monitoring: &Monitoring, query: &Query, span: Span) -> Result<(), String> {
    let range = span.end.duration_since(span.start).unwrap().as_secs();
    let answer = monitoring.range(&query.expression(range), span).await;
    match answer {
        Err(error) => Err(format!("{query}: {error:#}")),
        Ok(series) if series.iter().any(|series| !series.values.is_empty()) => Ok(()),
        Ok(series) => Err(format!("{query}: {} series without a number", series.len())),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_of_every_panel_and_rule_finds_numbers() {
    if let Err(missing) = PROMETHEUS.find() {
        assert!(std::env::var_os("CI").is_none(), "{missing:#}");
        eprintln!("skipped: {missing:#}");
        return;
    }
    let mut world = World::start("observed").await;
    let options = Options {
        interval: INTERVAL,
        pages: None,
    };
    let monitoring = Monitoring::start(&world.cluster, &options).await.unwrap();
    let start = SystemTime::now();
    Box::pin(story::tell(&mut world, &monitoring)).await;
    // What was counted last has to be scraped, and be rated over a whole window.
    tokio::time::sleep(30 * INTERVAL).await;
    let span = Span {
        start,
        end: SystemTime::now(),
        step: INTERVAL,
    };

    let queries: Vec<Query> = panels().into_iter().chain(rules()).collect();
    assert!(queries.len() > 150, "{} queries", queries.len());
    let mut faults = Vec::new();
    let mut told = vec![0; NOT_TOLD.len()];
    for query in &queries {
        match NOT_TOLD.iter().position(|(text, _)| query.contains(text)) {
            Some(reason) => told[reason] += 1,
            None => faults.extend(answered(&monitoring, query, span).await.err()),
        }
    }
    assert!(
        faults.is_empty(),
        "of {} queries:\n{}",
        queries.len(),
        faults.join("\n")
    );
    for (count, (text, _)) in told.iter().zip(NOT_TOLD) {
        assert!(*count > 0, "no query needs the excuse for {text}");
    }
    // A metric that is renamed in the program is one that a query asks for in vain.
    for renamed in ["appwrapper_appwrappers", "workqueue_depth", "appwrapper_shard_owned"] {
        let query = queries.iter().find(|query| query.contains(renamed)).unwrap();
        let query = query.replace(renamed, &format!("{renamed}_before"));
        assert!(answered(&monitoring, &query, span).await.is_err(), "{query}");
    }
    drop(monitoring);
    world.end().await;
}
