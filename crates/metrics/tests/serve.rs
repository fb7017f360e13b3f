//! Scrapes and probes over real connections.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::net::SocketAddr;
use std::time::Duration;

use appwrapper_metrics::serve::{Content, Server};
use appwrapper_metrics::{Build, Health, Metrics};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

struct Running {
    address: SocketAddr,
    health: Health,
    shutdown: CancellationToken,
    server: tokio::task::JoinHandle<()>,
}

async fn start() -> Running {
    let health = Health::new();
    let metrics = Metrics::new(&Build::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = Server::new()
        .metrics(metrics.registry())
        .health(&health)
        .debug("watches", || Content::Json("{\"watches\":[]}".to_owned()));
    let server = tokio::spawn(server.serve(listener, shutdown.clone()));
    Running {
        address,
        health,
        shutdown,
        server,
    }
}

async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

#[tokio::test]
async fn a_scrape_is_the_text_format_with_the_runtime_measured() {
    let running = start().await;
    let (status, answer) = ask(running.address, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("controller_runtime_reconcile_total{controller=\"AppWrapper\",result=\"success\"} 0\n"));
    assert!(answer.contains("appwrapper_tokio_workers 1\n"));
    assert_eq!(ask(running.address, "POST", "/metrics").await.0, 405);
    assert_eq!(ask(running.address, "GET", "/nothing").await.0, 404);
}

#[tokio::test]
async fn probes_follow_the_health_of_the_process() {
    let running = start().await;
    let starting = running.health.not_ready("caches", "not synced");
    let (status, answer) = ask(running.address, "GET", "/readyz").await;
    assert_eq!(status, 503);
    assert!(answer.contains("[-]caches failed: not synced"), "{answer}");
    for path in ["/livez", "/healthz", "/healthz/healthz"] {
        assert_eq!(ask(running.address, "GET", path).await.0, 200, "{path}");
    }
    drop(starting);
    for path in ["/readyz", "/readyz/", "/readyz?verbose", "/readyz/readyz"] {
        assert_eq!(ask(running.address, "GET", path).await.0, 200, "{path}");
    }
    let _stuck = running.health.watch_loop("lease", Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(ask(running.address, "GET", "/livez").await.0, 503);
}

#[tokio::test]
async fn debug_pages_answer_on_the_loopback_interface() {
    let running = start().await;
    let (status, answer) = ask(running.address, "GET", "/debug/watches").await;
    assert_eq!(status, 200);
    assert!(
        answer.contains("content-type: application/json") && answer.ends_with("{\"watches\":[]}"),
        "{answer}"
    );
    assert_eq!(ask(running.address, "GET", "/debug/other").await.0, 404);
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_the_end() {
    let running = start().await;
    let _idle = TcpStream::connect(running.address).await.unwrap();
    assert_eq!(ask(running.address, "GET", "/livez").await.0, 200);
    running.shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(8), running.server)
        .await
        .expect("the server ends")
        .unwrap();
    assert!(TcpStream::connect(running.address).await.is_err());
}
