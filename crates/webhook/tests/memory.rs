//! Bodies that are small as text and large in memory, and many at once: the process stays far below what its pod may have.
//! Alone in its file, since it looks at the whole process.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::sync::Arc;

use common::*;
use serde_json::{Value, json};

/// Most that it may take beyond what it begins with, in KiB; the pod may have 128 MiB.
const LIMIT: u64 = 90 * 1024;

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

/// What is resident at most from now on is counted anew.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn with_spec(text: &str) -> String {
    review("CREATE", &user(), &json!("@"), &Value::Null).replace("\"@\"", text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_takes_more_memory_than_the_pod_has() {
    let webhook = Arc::new(Webhook::new(""));
    let fill = |unit: &str, bytes: usize| vec![unit; bytes / (unit.len() + 1)].join(",");
    let template = |inside: &str| {
        format!(
            r#"{{"metadata":{{"name":"a","labels":{{}}}},"spec":{{"components":[{{"template":{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p"}},"spec":{inside}}}}}]}}}}"#
        )
    };
    let keys: Vec<_> = (0..700_000).map(|index| format!("\"{index:x}\":0")).collect();
    for (name, spec) in [
        ("arrays", template(&format!("[{}]", fill("[0]", 7 << 20)))),
        ("keys", template(&format!("{{{}}}", keys.join(",")))),
        (
            "components",
            format!(
                r#"{{"metadata":{{"name":"a"}},"spec":{{"components":[{}]}}}}"#,
                fill(r#"{"template":{}}"#, 7 << 20)
            ),
        ),
        (
            "labels",
            format!(
                r#"{{"metadata":{{"name":"a","labels":{{{}}}}},"spec":{{"components":[]}}}}"#,
                keys.join(",").replace(":0", ":\"\"")
            ),
        ),
        ("text", template(&format!("\"{}\"", "x".repeat(7 << 20)))),
    ] {
        let body = with_spec(&spec);
        drop(spec);
        // What the mutating webhook looks at are the labels.
        for path in [VALIDATE, MUTATE]
            .into_iter()
            .take(if name == "labels" { 2 } else { 1 })
        {
            let body = body.clone();
            reset_peak();
            let before = status("VmRSS:");
            let outcome = webhook.post(path, body).await;
            let grown = status("VmHWM:").saturating_sub(before);
            assert!(
                outcome.code == 200 && (path == MUTATE || !outcome.allowed()),
                "{name}: {outcome:?}"
            );
            assert!(grown < LIMIT, "{name} at {path}: {grown} KiB");
        }
    }

    // Large ones at once: they share what is held of bodies, and wait for one another.
    let body: hyper::body::Bytes = with_spec(&template(&format!("\"{}\"", "x".repeat(4 << 20)))).into();
    reset_peak();
    let before = status("VmRSS:");
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (webhook, body) = (Arc::clone(&webhook), body.clone());
        answers.spawn(async move { webhook.post(&format!("{VALIDATE}?timeout=30s"), body).await.code });
    }
    while let Some(code) = answers.join_next().await {
        assert!(matches!(code.unwrap(), 200 | 400 | 503));
    }
    let grown = status("VmHWM:").saturating_sub(before);
    assert!(grown < LIMIT, "forty at once: {grown} KiB");
}
