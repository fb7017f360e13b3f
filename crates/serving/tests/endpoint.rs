//! The secured page over real connections: TLS first, then who asks.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use appwrapper_metrics::{
    Build, Metrics,
    serve::{Guard as _, Refusal, Server},
};
use appwrapper_serving::{
    certificate::{Authority, Pair},
    endpoint,
    files::Files,
    issue::Issuing,
    reviewer::{ALLOWED, REFUSED, Reviewer},
};
use appwrapper_testkit::api_server::{ApiRequest, ApiServer, Effect, Fault, Match, ResourceKind};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

const TOKENS: &str = "tokenreviews.authentication.k8s.io";
const ACCESS: &str = "subjectaccessreviews.authorization.k8s.io";

/// An API server that takes reviews, but does not know what to make of them.
fn server() -> ApiServer {
    let server = ApiServer::new();
    for (group, plural, kind) in [
        ("authentication.k8s.io", "tokenreviews", "TokenReview"),
        ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    ] {
        let kind = ResourceKind::new(group, "v1", plural, kind);
        server.register(kind.cluster_scoped().without_status());
    }
    server
}

/// Lets it know the tokens `reader` and `guest`, of which only the first may read `/metrics`; the rule of rights is returned.
fn answering(server: &ApiServer) -> Fault {
    let body = |request: &ApiRequest| request.body.as_deref().cloned().unwrap();
    let reply = |kind: &str, status: Value| {
        let group = if kind == "TokenReview" {
            "authentication"
        } else {
            "authorization"
        };
        let version = format!("{group}.k8s.io/v1");
        (
            201,
            json!({"apiVersion": version, "kind": kind, "metadata": {}, "spec": {}, "status": status}),
        )
    };
    server.faults().add(
        Match::any().resource(TOKENS),
        Effect::reply(move |request| {
            let token = body(request)["spec"]["token"].as_str().unwrap().to_owned();
            let known = ["reader", "guest"].contains(&token.as_str());
            let user = json!({"username": token, "uid": "u", "groups": ["g"], "extra": {"e": ["1"]}});
            let user = if known { user } else { Value::Null };
            reply("TokenReview", json!({"authenticated": known, "user": user}))
        }),
    );
    server.faults().add(
        Match::any().resource(ACCESS),
        Effect::reply(move |request| {
            let asked = body(request)["spec"].clone();
            let may = asked
                == json!({"user": "reader", "uid": "u", "groups": ["g"], "extra": {"e": ["1"]},
                    "nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
            reply("SubjectAccessReview", json!({"allowed": may}))
        }),
    )
}

fn issued() -> (Authority, Pair) {
    let issuing = Issuing {
        authority_name: "ca".into(),
        organisation: "appwrapper".into(),
        names: vec!["127.0.0.1".into()],
        authority_life: SignedDuration::from_hours(2),
        serving_life: SignedDuration::from_hours(1),
    };
    let authority = issuing.authority(Timestamp::now()).unwrap();
    let pair = issuing.pair(&authority, Timestamp::now()).unwrap();
    (authority, pair)
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("appwrapper-serving-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn put(&self, pair: &Pair) {
        std::fs::write(self.0.join("tls.crt"), &pair.chain_pem).unwrap();
        std::fs::write(self.0.join("tls.key"), &pair.key_pem).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn scrape(address: SocketAddr, authority: &Authority, path: &str, header: &str) -> (u16, String) {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.der.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "127.0.0.1".try_into().unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[tokio::test]
async fn metrics_are_for_callers_that_are_known_and_may_read_them() {
    let (authority, pair) = issued();
    let folder = Folder::new("page");
    folder.put(&pair);
    let server = server();
    answering(&server);
    let page = Server::new().metrics(Metrics::new(&Build::default()).registry());
    let certificate = endpoint::certificate(Some(folder.0.clone()), Vec::new()).await.unwrap();
    let page = endpoint::secured(page, certificate, server.client()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
    let serving = tokio::spawn(page.serve(listener, stop.clone()));

    let ask = async |path: &str, header: &str| scrape(address, &authority, path, header).await;
    let (status, answer) = ask("/metrics", "").await;
    assert_eq!(status, 401);
    assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
    assert_eq!(ask("/metrics", "Authorization: Basic reader\r\n").await.0, 401);
    assert_eq!(ask("/metrics", "Authorization: Bearer stranger\r\n").await.0, 401);
    let (status, answer) = ask("/metrics", "Authorization: Bearer guest\r\n").await;
    assert_eq!(status, 403);
    assert!(answer.contains("appwrapper-metrics-reader"), "{answer}");
    // What there is behind the guard is not to be told either.
    assert_eq!(ask("/nothing", "Authorization: Bearer reader\r\n").await.0, 403);
    let (status, answer) = ask("/metrics", "Authorization: bearer reader\r\n").await;
    assert_eq!(status, 200);
    assert!(answer.contains("\nappwrapper_build_info{"), "{answer}");

    let mut plain = TcpStream::connect(address).await.unwrap();
    plain
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer reader\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn answers_are_kept_for_their_time_and_no_longer() {
    let server = server();
    let rights = answering(&server);
    let reviewer = Reviewer::new(server.client());
    let admit = async |token: &'static str| reviewer.admit(Some(token), &Method::GET, "/metrics").await;
    let asked = || server.count(&Match::any().resource(TOKENS));
    for _ in 0..5 {
        assert_eq!(admit("reader").await, Ok(()));
        assert_eq!(admit("stranger").await, Err(Refusal::Unknown));
    }
    assert_eq!(asked(), 2);
    tokio::time::advance(REFUSED).await;
    assert_eq!(admit("stranger").await, Err(Refusal::Unknown));
    assert_eq!(admit("reader").await, Ok(()));
    assert_eq!(asked(), 3);
    rights.remove();
    server.faults().add(Match::any().resource(ACCESS), Effect::reply(|_| {
        (201, json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {}, "status": {"allowed": false}}))
    }));
    tokio::time::advance(ALLOWED).await;
    assert_eq!(
        admit("reader").await,
        Err(Refusal::Forbidden),
        "a right that was taken away"
    );
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_lets_nobody_in_and_is_asked_again() {
    let server = server();
    let reviewer = Reviewer::new(server.client());
    let admit = async || reviewer.admit(Some("reader"), &Method::GET, "/metrics").await;
    for effect in [Effect::internal_error(), Effect::forbidden(), Effect::Hang] {
        let fault = server.faults().add(Match::any().resource(TOKENS), effect);
        let began = tokio::time::Instant::now();
        assert_eq!(admit().await, Err(Refusal::Unanswered));
        assert!(began.elapsed() < Duration::from_secs(6));
        fault.remove();
    }
    answering(&server);
    assert_eq!(admit().await, Ok(()));
}

#[tokio::test]
async fn mounted_files_are_taken_when_they_fit_together() {
    let folder = Folder::new("files");
    let mut files = Files::new(folder.0.clone());
    let error = files.read().await.unwrap_err();
    assert!(error.contains("tls.crt"), "{error}");
    let ((_, one), (_, other)) = (issued(), issued());
    folder.put(&one);
    assert_eq!(files.read().await.unwrap(), Some(one));
    assert_eq!(files.read().await.unwrap(), None);
    std::fs::write(folder.0.join("tls.crt"), &other.chain_pem).unwrap();
    assert!(files.read().await.is_err(), "a key of another certificate");
    folder.put(&other);
    assert_eq!(files.read().await.unwrap(), Some(other));
}

#[tokio::test]
async fn without_files_a_certificate_is_made() {
    let holder = endpoint::certificate(None, vec!["localhost".into()]).await.unwrap();
    assert!(holder.serving().unwrap().leaf.is_valid(Timestamp::now()));
    let missing = endpoint::certificate(Some("/nowhere".into()), Vec::new()).await;
    assert!(missing.unwrap_err().to_string().contains("/nowhere/tls.crt"));
}
