//! The proxy in front of a small HTTP server in this process. What it does to a real API server and a real watch cache
//! is tested in `crates/testkit/tests/cluster.rs`.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use futures::StreamExt as _;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::*;
use crate::api_server::{ResponseBody, Verb};
use hyper::body::Bytes;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const SOON: Duration = Duration::from_secs(10);

/// Answers every request with its method and path, keeps what it got, and streams what the test sends to watches.
struct Server {
    url: String,
    got: Mutex<Vec<(Method, String, HeaderMap)>>,
    lines: Mutex<Vec<mpsc::UnboundedSender<Bytes>>>,
}

impl Server {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Arc::new(Self {
            url,
            got: Mutex::default(),
            lines: Mutex::default(),
        });
        let accepting = server.clone();
        tokio::spawn(async move {
            loop {
                let (connection, _) = listener.accept().await.unwrap();
                let server = accepting.clone();
                let service =
                    service_fn(move |request| std::future::ready(Ok::<_, Infallible>(server.answer(&request))));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service));
            }
        });
        server
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<ResponseBody> {
        let seen = (
            request.method().clone(),
            request.uri().to_string(),
            request.headers().clone(),
        );
        self.got.lock().unwrap().push(seen);
        if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.lines.lock().unwrap().push(sender);
            let frames = futures::stream::unfold(receiver, |mut receiver| async {
                Some((Ok(Frame::data(receiver.recv().await?)), receiver))
            });
            return Response::builder()
                .header("content-type", "application/json")
                .body(StreamBody::new(frames).boxed_unsync())
                .unwrap();
        }
        let body = format!("{} {}", request.method(), request.uri());
        Response::new(Full::new(body.into()).map_err(|never| match never {}).boxed_unsync())
    }

    fn requests(&self) -> usize {
        self.got.lock().unwrap().len()
    }

    fn send(&self, text: &str) {
        for watch in &*self.lines.lock().unwrap() {
            watch.send(text.to_owned().into()).unwrap();
        }
    }
}

async fn proxied() -> (Arc<Server>, Proxy, TestClient) {
    let server = Server::start().await;
    let proxy = Proxy::start(&kube::Config::new(server.url.parse().unwrap()))
        .await
        .unwrap();
    let client = TestClient {
        url: proxy.url(),
        client: Client::builder(TokioExecutor::new()).build_http(),
    };
    (server, proxy, client)
}

struct TestClient {
    url: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl TestClient {
    async fn send(&self, method: Method, path: &str) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("authorization", "Bearer secret")
            .header("user-agent", "tester")
            .body(Full::default())?;
        Ok(timeout(SOON, self.client.request(request)).await??)
    }

    async fn body(&self, method: Method, path: &str) -> Result<(StatusCode, String)> {
        let answer = self.send(method, path).await?;
        let status = answer.status();
        Ok((
            status,
            String::from_utf8(answer.into_body().collect().await?.to_bytes().to_vec())?,
        ))
    }

    async fn watch(&self, path: &str) -> Watched {
        Watched(
            self.send(Method::GET, &format!("{path}?watch=true"))
                .await
                .unwrap()
                .into_body(),
        )
    }
}

struct Watched(Incoming);

impl Watched {
    /// The next piece; none at an orderly end.
    async fn next(&mut self) -> Option<Result<String>> {
        let frame = timeout(SOON, self.0.frame()).await.unwrap()?;
        Some(
            frame
                .map(|frame| String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
                .map_err(Into::into),
        )
    }

    async fn line(&mut self) -> String {
        self.next().await.unwrap().unwrap()
    }

    /// Says nothing for a while. The only way to see that nothing comes is to wait a little.
    async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_millis(100), self.0.frame()).await.is_err()
    }
}

/// Waits for a condition that something in the background brings about.
async fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_request_passes_with_method_path_query_and_credentials() {
    let (server, proxy, client) = proxied().await;
    let path = format!("{JOBS}/a/status?fieldManager=x");
    let (status, body) = client.body(Method::PATCH, &path).await.unwrap();
    assert_eq!((status.as_u16(), body), (200, format!("PATCH {path}")));
    let got = server.got.lock().unwrap().clone();
    assert_eq!(got[0].2["authorization"], "Bearer secret");
    assert_eq!(got[0].2["host"], server.url.trim_start_matches("http://"));

    let log = proxy.records().log();
    assert_eq!(
        (log[0].verb, log[0].code, log[0].subresource.as_deref()),
        (Verb::Patch, Some(200), Some("status"))
    );
    let kind = RequestKind {
        verb: Verb::Patch,
        resource: "jobs.batch".into(),
        subresource: "status".into(),
        user_agent: "tester".into(),
    };
    assert_eq!(proxy.records().counts()[&kind], 1);
}

#[tokio::test]
async fn a_rule_refuses_what_it_matches_as_often_as_it_says_and_lets_the_rest_pass() {
    let (server, proxy, client) = proxied().await;
    let matching = Match::verb(Verb::Create).resource("jobs");
    let fault = proxy.rules().add(matching, Effect::too_many_requests()).times(1);
    assert_eq!(client.body(Method::GET, JOBS).await.unwrap().0, StatusCode::OK);
    let refused = client.send(Method::POST, JOBS).await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(
        serde_json::from_slice::<Value>(&body).unwrap()["reason"],
        "TooManyRequests"
    );
    assert_eq!(client.body(Method::POST, JOBS).await.unwrap().0, StatusCode::OK);
    assert_eq!((server.requests(), fault.hits()), (2, 1));
}

#[tokio::test]
async fn a_refusal_may_be_plain_text() {
    let (_server, proxy, client) = proxied().await;
    proxy
        .rules()
        .add(Match::any(), Effect::Text(503, "upstream connect error"));
    let (status, body) = client.body(Method::GET, JOBS).await.unwrap();
    assert_eq!((status.as_u16(), body.as_str()), (503, "upstream connect error"));
}

#[tokio::test]
async fn a_dropped_answer_leaves_the_write_done_and_the_client_without_word() {
    let (server, proxy, client) = proxied().await;
    proxy.rules().add(Match::verb(Verb::Create), Effect::DropAnswer);
    assert!(client.send(Method::POST, JOBS).await.is_err());
    assert_eq!(server.requests(), 1);
    assert_eq!(proxy.records().log()[0].code, None);
}

#[tokio::test]
async fn a_cut_connection_never_reaches_the_api_server() {
    let (server, proxy, client) = proxied().await;
    proxy.rules().add(Match::verb(Verb::Create), Effect::Refuse);
    assert!(client.send(Method::POST, JOBS).await.is_err());
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_hanging_request_is_never_answered_and_holds_up_no_other() {
    let (server, proxy, client) = proxied().await;
    proxy.rules().add(Match::verb(Verb::Get), Effect::Hang);
    let path = format!("{JOBS}/a");
    assert!(
        timeout(Duration::from_millis(100), client.send(Method::GET, &path))
            .await
            .is_err()
    );
    assert_eq!(client.body(Method::GET, JOBS).await.unwrap().0, StatusCode::OK);
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn watch_lines_pass_one_by_one_however_they_are_split() {
    let (server, _proxy, client) = proxied().await;
    let mut watch = client.watch(JOBS).await;
    server.send("{\"a\":1}\n{\"b\"");
    assert_eq!(watch.line().await, "{\"a\":1}\n");
    assert!(watch.is_silent().await);
    server.send(":2}\n");
    assert_eq!(watch.line().await, "{\"b\":2}\n");
}

#[tokio::test]
async fn held_lines_are_delivered_in_order_when_the_gate_is_released() {
    let (server, proxy, client) = proxied().await;
    let gate = proxy.rules().gate("jobs");
    gate.hold();
    let (mut jobs, mut pods) = (client.watch(JOBS).await, client.watch("/api/v1/pods").await);
    server.send("1\n");
    server.send("2\n");
    server.send("3\n");
    assert_eq!(pods.line().await, "1\n");
    until(|| gate.held() == 3).await;
    assert!(jobs.is_silent().await);
    gate.release_one();
    assert_eq!(jobs.line().await, "1\n");
    assert!(jobs.is_silent().await);
    gate.release();
    assert_eq!((jobs.line().await, jobs.line().await), ("2\n".into(), "3\n".into()));
}

#[tokio::test]
async fn a_delay_holds_every_line_back_by_its_time() {
    let (server, proxy, client) = proxied().await;
    proxy.rules().gate("jobs.batch").delay(Duration::from_millis(300));
    let mut watch = client.watch(JOBS).await;
    let sent = Instant::now();
    server.send("1\n2\n");
    assert_eq!((watch.line().await, watch.line().await), ("1\n".into(), "2\n".into()));
    let late = sent.elapsed();
    assert!(
        late >= Duration::from_millis(300) && late < Duration::from_secs(2),
        "{late:?}"
    );
}

#[tokio::test]
async fn a_watch_ends_with_a_410_an_orderly_end_half_a_line_or_a_broken_connection() {
    let (_server, proxy, client) = proxied().await;
    let gate = proxy.rules().gate("*");

    let mut watch = client.watch(JOBS).await;
    gate.inject("MODIFIED", &json!({"kind": "Job"}));
    assert_eq!(
        watch.line().await,
        "{\"object\":{\"kind\":\"Job\"},\"type\":\"MODIFIED\"}\n"
    );
    gate.expire_watches();
    let event: Value = serde_json::from_str(&watch.line().await).unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert!(watch.next().await.is_none());

    let mut watch = client.watch(JOBS).await;
    gate.end_watches();
    assert!(watch.next().await.is_none());

    let mut watch = client.watch(JOBS).await;
    gate.truncate_watches();
    assert!(!watch.line().await.ends_with('\n'));
    assert!(watch.next().await.is_none());

    let mut watch = client.watch(JOBS).await;
    gate.cut_watches();
    assert!(watch.next().await.unwrap().is_err());
    until(|| gate.open_watches() == 0).await;
}

#[tokio::test]
async fn a_410_can_also_be_the_answer_to_opening_a_watch() {
    let (_server, proxy, client) = proxied().await;
    let _once = proxy.rules().add(Match::verb(Verb::Watch), Effect::expired()).times(1);
    let answer = client.send(Method::GET, &format!("{JOBS}?watch=true")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::GONE);
}

#[tokio::test]
async fn a_watch_closes_at_the_api_server_when_the_client_goes() {
    let (server, proxy, client) = proxied().await;
    let watch = client.watch(JOBS).await;
    drop((watch, client));
    until(|| proxy.rules().gate("jobs").open_watches() == 0).await;
    until(|| server.lines.lock().unwrap()[0].is_closed()).await;
}

#[tokio::test]
async fn hundreds_of_requests_at_once_pass_while_others_hang() {
    let (_server, proxy, client) = proxied().await;
    proxy.rules().add(Match::verb(Verb::Get).name("stuck"), Effect::Hang);
    let path = |name: &str| format!("{JOBS}/{name}");
    let stuck = path("stuck");
    let hanging: Vec<_> = (0..20)
        .map(|_| Box::pin(timeout(SOON, client.send(Method::GET, &stuck))))
        .collect();
    let mut hanging = futures::stream::FuturesUnordered::from_iter(hanging);
    assert!(timeout(Duration::from_millis(50), hanging.next()).await.is_err());
    let names: Vec<String> = (0..300).map(|n| path(&n.to_string())).collect();
    let answers = names.iter().map(|path| client.body(Method::GET, path));
    for answer in futures::future::join_all(answers).await {
        assert_eq!(answer.unwrap().0, StatusCode::OK);
    }
    assert_eq!(proxy.records().count(|kind| kind.verb == Verb::Get), 320);
}
