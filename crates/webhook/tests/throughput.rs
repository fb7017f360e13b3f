//! Latency of reviews with 1, 10 and 100 components, access review included but answered within the process. Run on demand:
//! `cargo test --release -p appwrapper-webhook --test throughput -- --ignored --nocapture`

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::{Duration, Instant};

use common::*;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn reviews_take_milliseconds() {
    let webhook = Webhook::new("");
    for count in [1, 10, 100] {
        let mut components: Vec<_> = (1..count).map(|i| component(service(&format!("s{i}")))).collect();
        components.push(component(job("j")));
        let mut object = wrapper(components);
        let mutated = webhook
            .post(MUTATE, review("CREATE", &user(), &object, &Value::Null))
            .await;
        apply(&mut object, &mutated.response);
        let body = review("CREATE", &user(), &object, &Value::Null);
        let (mut times, begun) = (Vec::new(), Instant::now());
        while begun.elapsed() < Duration::from_secs(3) {
            let asked = Instant::now();
            assert!(webhook.post(VALIDATE, body.clone()).await.allowed());
            times.push(asked.elapsed());
        }
        times.sort();
        let at = |share: usize| times[times.len() * share / 100];
        eprintln!(
            "{count} components, {} bytes: p50 {:?}, p99 {:?}, {} reviews a second one after another",
            body.len(),
            at(50),
            at(99),
            times.len() / 3
        );
        webhook.server.reset_requests();
    }
}
