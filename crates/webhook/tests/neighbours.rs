//! Somebody else in the cluster network, who needs no right to reach the webhook: whatever they send, the API server is
//! answered in time.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::{Duration, Instant};

use appwrapper_webhook::certs::material::Certificate;
use common::{
    tls::{Running, ask, connect_from, issuing, labelled, request},
    *,
};
use futures::future::{join_all, poll_immediate};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Where the neighbour calls from. The API server calls from 127.0.0.1.
const NEIGHBOUR: &str = "127.0.0.2";
/// Far below the five seconds that the API server waits.
const IN_TIME: Duration = Duration::from_secs(2);

async fn serving() -> (Running, [Certificate; 1], String) {
    let running = Running::start().await;
    let now = Timestamp::now();
    let authority = issuing().authority(now).unwrap();
    running.resolver.load(issuing().pair(&authority, now).unwrap());
    let body = labelled(&running.webhook).await;
    (running, [authority.certificate], body)
}

async fn the_api_server_is_answered(running: &Running, bundle: &[Certificate], body: &str) {
    for _ in 0..5 {
        let begun = Instant::now();
        ask(running.address, bundle, body).await.unwrap();
        assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_do_not_end_keep_nobody_else_waiting() {
    let (running, bundle, body) = serving().await;
    let slow = |_| async {
        let mut stream = connect_from(NEIGHBOUR, running.address, &bundle, b"http/1.1")
            .await
            .unwrap();
        let head = format!(
            "POST {VALIDATE}?timeout=30s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n{{"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let mut streams = join_all((0..150).map(slow)).await;
    the_api_server_is_answered(&running, &bundle, &body).await;
    // They are told, long before the thirty seconds that they asked for.
    let mut answer = [0; 12];
    let told = tokio::time::timeout(Duration::from_secs(10), streams[0].read_exact(&mut answer));
    told.await.unwrap().unwrap();
    assert_eq!(&answer, b"HTTP/1.1 400");
    running.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_that_wait_for_the_api_server_keep_nobody_else_waiting() {
    let (running, bundle, body) = serving().await;
    // Access reviews of the neighbour's user are never answered.
    running.webhook.policy.remove();
    let server = &running.webhook.server;
    let rule = |of: &'static str| {
        appwrapper_testkit::api_server::Match::verb(appwrapper_testkit::api_server::Verb::Create)
            .resource(SARS)
            .when(move |request| {
                request
                    .body
                    .as_deref()
                    .is_some_and(|review| review["spec"]["user"] == of)
            })
    };
    let held = server
        .faults()
        .add(rule("eve"), appwrapper_testkit::api_server::Effect::Hold);
    server.faults().add(
        rule("ann"),
        appwrapper_testkit::api_server::Effect::reply(|request| {
            let mut review = request.body.as_deref().cloned().unwrap_or_default();
            review["status"] = serde_json::json!({"allowed": true});
            (201, review)
        }),
    );
    let theirs = body.replace("\"ann\"", "\"eve\"");
    let flood = |_| async {
        let stream = connect_from(NEIGHBOUR, running.address, &bundle, b"http/1.1")
            .await
            .unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        let sent = sender.send_request(request(&theirs));
        tokio::spawn(async move {
            let _ = sent.await;
            drop(sender);
        });
    };
    join_all((0..150).map(flood)).await;
    while held.hits() < 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    the_api_server_is_answered(&running, &bundle, &body).await;
    held.release();
    running.stop.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_connections_and_noise_keep_nobody_else_waiting() {
    let (running, bundle, body) = serving().await;
    let mut streams = Vec::new();
    for noise in [
        &b""[..],
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        for _ in 0..100 {
            let mut stream = TcpStream::connect(running.address).await.unwrap();
            let _ = stream.write_all(noise).await;
            streams.push(stream);
        }
    }
    // Heads that do not end, within TLS.
    for _ in 0..50 {
        let mut stream = connect_from(NEIGHBOUR, running.address, &bundle, b"http/1.1")
            .await
            .unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nx: ").await.unwrap();
        tokio::spawn(async move {
            while stream.write_all(&[b'x'; 1024]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    the_api_server_is_answered(&running, &bundle, &body).await;
    running.stop.cancel();
}

/// HTTP/2 requests that are taken back at once, over and over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rapid_resets_keep_nobody_else_waiting() {
    let (running, bundle, body) = serving().await;
    let reset = |_| async {
        let stream = connect_from(NEIGHBOUR, running.address, &bundle, b"h2").await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let driver = tokio::spawn(connection);
        for _ in 0..2000 {
            if sender.ready().await.is_err() {
                break;
            }
            drop(poll_immediate(sender.send_request(request(&body))).await);
            tokio::task::yield_now().await;
        }
        drop(sender);
        driver.abort();
    };
    tokio::join!(
        join_all((0..4).map(reset)),
        the_api_server_is_answered(&running, &bundle, &body)
    );
    the_api_server_is_answered(&running, &bundle, &body).await;
    running.stop.cancel();
}
