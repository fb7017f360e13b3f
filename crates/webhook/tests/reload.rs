//! The TLS server under load: certificates are exchanged, authorities rolled, the replica drained, and nobody is refused.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use appwrapper_metrics::{Build, Health, WebhookMetrics};
use appwrapper_webhook::certs::{bundle::Configurations, clock::ServerClock, files::Files, gate::Gate};
use common::{
    tls::{Running, ask, connect, issuing, labelled, request},
    *,
};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviews_under_way_while_certificates_and_authorities_change_are_all_answered() {
    let running = Running::start().await;
    let body = labelled(&running.webhook).await;
    let now = Timestamp::now();
    let mut authority = issuing().authority(now).unwrap();
    running.resolver.load(issuing().pair(&authority, now).unwrap());
    // What the API server trusts: changed before the certificate and tidied after it, as the rotator does.
    // Whoever changes it waits for the connections that began before, as the rotator waits for the bundle to settle.
    let bundle = Arc::new(tokio::sync::RwLock::new(vec![authority.certificate.clone()]));
    let (asked, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let askers: Vec<_> = (0..4)
        .map(|_| {
            let (bundle, asked, stop, body, address) = (
                Arc::clone(&bundle),
                Arc::clone(&asked),
                Arc::clone(&stop),
                body.clone(),
                running.address,
            );
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let trusted = bundle.read().await;
                    ask(address, &trusted, &body).await.unwrap();
                    drop(trusted);
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let more = async |count: usize| {
        let until = asked.load(Ordering::SeqCst) + count;
        while asked.load(Ordering::SeqCst) < until {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    for round in 0..20 {
        more(10).await;
        if round % 4 == 3 {
            authority = issuing().authority(now).unwrap();
            bundle.write().await.push(authority.certificate.clone());
        }
        running.resolver.load(issuing().pair(&authority, now).unwrap());
        more(10).await;
        bundle
            .write()
            .await
            .retain(|certificate| *certificate == authority.certificate);
    }
    stop.store(true, Ordering::SeqCst);
    for asker in askers {
        asker.await.unwrap();
    }
    assert!(asked.load(Ordering::SeqCst) >= 400);
    running.stop.cancel();
    running.task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_connection_outlives_a_reload_and_is_closed_after_an_answer_when_draining() {
    let running = Running::start().await;
    let body = labelled(&running.webhook).await;
    let now = Timestamp::now();
    let authority = issuing().authority(now).unwrap();
    running.resolver.load(issuing().pair(&authority, now).unwrap());
    let bundle = [authority.certificate.clone()];
    let stream = connect(running.address, &bundle, b"http/1.1").await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    for _ in 0..3 {
        running.resolver.load(issuing().pair(&authority, now).unwrap());
        sender.ready().await.unwrap();
        let answer = sender.send_request(request(&body)).await.unwrap();
        assert!(answer.headers().get("connection").is_none());
        answer.into_body().collect().await.unwrap();
    }
    running.webhook.service.drain();
    sender.ready().await.unwrap();
    let answer = sender.send_request(request(&body)).await.unwrap();
    assert_eq!(answer.headers()["connection"], "close");
    answer.into_body().collect().await.unwrap();
    driver.await.unwrap().unwrap();
    // A new caller is still served: the endpoint may not have been withdrawn everywhere.
    ask(running.address, &bundle, &body).await.unwrap();
    running.stop.cancel();
    running.task.await.unwrap();
    assert!(ask(running.address, &bundle, &body).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_under_way_at_the_end_is_finished_and_http2_says_goodbye() {
    let running = Running::start().await;
    let body = labelled(&running.webhook).await;
    let now = Timestamp::now();
    let authority = issuing().authority(now).unwrap();
    running.resolver.load(issuing().pair(&authority, now).unwrap());
    let bundle = [authority.certificate.clone()];
    let stream = connect(running.address, &bundle, b"h2").await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    let driver = tokio::spawn(connection);
    // The access review is held back until the server has been told to stop.
    running.webhook.policy.remove();
    let held = running.webhook.server.faults().add(
        appwrapper_testkit::api_server::Match::verb(appwrapper_testkit::api_server::Verb::Create).resource(SARS),
        appwrapper_testkit::api_server::Effect::Hold,
    );
    let pending = sender.send_request(request(&body));
    let pending = tokio::spawn(async move { pending.await.unwrap().into_body().collect().await.unwrap().to_bytes() });
    while held.hits() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.stop.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!running.task.is_finished(), "the request is waited for");
    held.release();
    let answer: Value = serde_json::from_slice(&pending.await.unwrap()).unwrap();
    assert!(answer["response"]["uid"].is_string());
    running.task.await.unwrap();
    driver.await.unwrap().unwrap();
    assert!(sender.ready().await.is_err(), "the connection was closed by GOAWAY");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mounted_files_are_loaded_once_trusted_and_reloaded_without_a_restart() {
    let running = Running::start().await;
    let server = api_server();
    let directory = std::env::temp_dir().join(format!("appwrapper-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let now = Timestamp::now();
    let authority = issuing().authority(now).unwrap();
    let put = |pair: &appwrapper_webhook::certs::material::Pair| {
        std::fs::write(directory.join("tls.crt"), &pair.chain_pem).unwrap();
        std::fs::write(directory.join("tls.key"), &pair.key_pem).unwrap();
    };
    let first = issuing().pair(&authority, now).unwrap();
    put(&first);
    let bundle = k8s_openapi::ByteString(authority.certificate.pem().into_bytes());
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "m"),
        ("ValidatingWebhookConfiguration", "v"),
    ] {
        server.create(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "webhooks": [{"name": "x", "clientConfig": {"url": format!("https://{}/x", running.address)}}],
        }));
    }
    let health = Health::new();
    let metrics = WebhookMetrics::new(&Build::default()).admission.clone();
    let names = Configurations {
        mutating: "m".into(),
        validating: "v".into(),
    };
    let gate = Gate::new(server.client(), names, ServerClock::default(), metrics.clone(), &health);
    let files = tokio::spawn(Files::new(directory.clone(), Arc::clone(&running.resolver), gate, metrics).run());
    wait(|| running.resolver.serving().is_some()).await;
    assert!(
        !health.ready().ok,
        "loaded, but nobody trusts it yet: {}",
        health.ready().text
    );
    for (plural, name) in [
        ("mutatingwebhookconfigurations", "m"),
        ("validatingwebhookconfigurations", "v"),
    ] {
        let mut webhooks = server.get(plural, "", name).unwrap()["webhooks"].clone();
        webhooks[0]["clientConfig"]["caBundle"] = serde_json::to_value(&bundle).unwrap();
        server.patch(plural, "", name, &json!({"webhooks": webhooks}));
    }
    wait(|| health.ready().ok).await;
    let second = issuing().pair(&authority, now).unwrap();
    // For a moment key and certificate do not belong together, as while a mount is being swapped.
    std::fs::write(directory.join("tls.crt"), &second.chain_pem).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(running.resolver.serving().unwrap().leaf, first.leaf);
    put(&second);
    wait(|| running.resolver.serving().unwrap().leaf == second.leaf).await;
    let body = labelled(&running.webhook).await;
    ask(running.address, &[authority.certificate], &body).await.unwrap();
    files.abort();
    running.stop.cancel();
    std::fs::remove_dir_all(directory).unwrap();
}

async fn wait(holds: impl Fn() -> bool) {
    for _ in 0..1500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within fifteen seconds");
}
