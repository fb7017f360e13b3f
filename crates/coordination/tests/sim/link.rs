//! The way from one replica to the server: delays, losses, cuts, repeats, and a stopped process.
//!
//! A request that has left is delivered whether or not its sender still waits, as on a real network. The server drops what
//! has waited longer than the `timeout=` it came with, except where a schedule says that Lease writes may arrive
//! arbitrarily late: against those only the compare-and-swap helps.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use super::server::{Answer, Server};

type AnyBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// What the network does, in thousandths and milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    pub delay: (u64, u64),
    pub lose_request: u64,
    pub lose_answer: u64,
    pub repeat: u64,
    /// How often a request waits long, and up to how long.
    pub stall: u64,
    pub stall_up_to: u64,
    /// Late Lease writes are delivered all the same.
    pub late_lease_writes: bool,
    /// Hours by which this replica's wall clock is wrong, as seen in what it writes.
    pub skew: i64,
}

impl Weather {
    pub const CALM: Self = Self {
        delay: (1, 8),
        lose_request: 0,
        lose_answer: 0,
        repeat: 0,
        stall: 0,
        stall_up_to: 0,
        late_lease_writes: false,
        skew: 0,
    };
    pub const ROUGH: Self = Self {
        delay: (1, 60),
        lose_request: 20,
        lose_answer: 20,
        repeat: 20,
        stall: 30,
        stall_up_to: 12_000,
        late_lease_writes: true,
        skew: 0,
    };
}

#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn within(&mut self, (from, to): (u64, u64)) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    pub fn thousandth(&mut self, n: u64) -> bool {
        self.below(1_000) < n
    }
}

/// Something that can be shut for a while. Not a `watch` channel: that one wakes its waiters in random order.
#[derive(Default)]
pub struct Gate {
    shut: AtomicBool,
    change: Notify,
}

impl Gate {
    fn set(&self, shut: bool) {
        self.shut.store(shut, Ordering::SeqCst);
        self.change.notify_waiters();
    }

    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::SeqCst)
    }

    pub async fn opened(&self) {
        loop {
            let change = self.change.notified();
            if !self.is_shut() {
                return;
            }
            change.await;
        }
    }
}

struct State {
    weather: Weather,
    rng: Rng,
    requests: u64,
    killed: bool,
}

/// One replica's link.
#[derive(Clone)]
pub struct Link {
    server: Server,
    state: Arc<Mutex<State>>,
    cut: Arc<Gate>,
    blind: Arc<Gate>,
    /// A stopped process: what it was about to send leaves when it goes on.
    stopped: Arc<Gate>,
}

impl Link {
    pub fn new(server: &Server, weather: Weather, seed: u64) -> Self {
        Self {
            server: server.clone(),
            state: Arc::new(Mutex::new(State {
                weather,
                rng: Rng::new(seed),
                requests: 0,
                killed: false,
            })),
            cut: Arc::default(),
            blind: Arc::default(),
            stopped: Arc::default(),
        }
    }

    pub fn cut(&self, cut: bool) {
        self.cut.set(cut);
    }

    pub async fn uncut(&self) {
        self.cut.opened().await;
    }

    /// Watches and lists deliver nothing, while other requests pass.
    pub fn stop_watches(&self, stop: bool) {
        self.blind.set(stop);
    }

    /// The process is gone: what it had not sent never leaves.
    pub fn kill(&self) {
        self.state.lock().unwrap().killed = true;
    }

    pub fn stop(&self, stopped: bool) {
        self.stopped.set(stopped);
    }

    pub fn stopped(&self) -> Arc<Gate> {
        Arc::clone(&self.stopped)
    }

    pub fn set_weather(&self, weather: Weather) {
        self.state.lock().unwrap().weather = weather;
    }

    pub fn requests(&self) -> u64 {
        self.state.lock().unwrap().requests
    }

    pub fn client(&self) -> Client {
        let link = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let link = link.clone();
            async move { link.send(request).await }
        });
        Client::new(service, "ns")
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<AnyBody>, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        let body: Value = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes)?
        };
        let query: BTreeMap<String, String> = parts
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| {
                (
                    key.to_owned(),
                    value.replace("%3D", "=").replace("%2F", "/").replace("%2C", ","),
                )
            })
            .collect();
        let path = parts.uri.path().to_owned();
        if query.get("watch").is_some_and(|watch| watch == "true") {
            return Ok(self.watch(&path, &query));
        }
        let apply = parts
            .headers
            .get("content-type")
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply"));
        let (sender, receiver) = oneshot::channel::<Answer>();
        let link = self.clone();
        tokio::spawn(async move {
            link.deliver(parts.method.to_string(), path, query, body, apply, sender)
                .await;
        });
        let Ok((code, answer)) = receiver.await else {
            // Lost: there is never an answer.
            std::future::pending::<()>().await;
            unreachable!()
        };
        let builder = Response::builder()
            .status(code)
            .header("content-type", "application/json");
        let bytes = Bytes::from(serde_json::to_vec(&answer)?);
        Ok(builder.body(Full::new(bytes).map_err(|never| match never {}).boxed_unsync())?)
    }

    async fn deliver(
        self,
        method: String,
        path: String,
        query: BTreeMap<String, String>,
        body: Value,
        apply: bool,
        answer: oneshot::Sender<Answer>,
    ) {
        self.stopped.opened().await;
        let (weather, there, back, stall, lose_request, lose_answer, repeat) = {
            let mut state = self.state.lock().unwrap();
            if state.killed {
                return;
            }
            state.requests += 1;
            let weather = state.weather;
            let rng = &mut state.rng;
            let (there, back) = (rng.within(weather.delay), rng.within(weather.delay));
            let stall = if rng.thousandth(weather.stall) {
                rng.below(weather.stall_up_to)
            } else {
                0
            };
            let repeat = rng.thousandth(weather.repeat).then(|| rng.below(8_000));
            let (lose_request, lose_answer) = (
                rng.thousandth(weather.lose_request),
                rng.thousandth(weather.lose_answer),
            );
            (weather, there, back, stall, lose_request, lose_answer, repeat)
        };
        tokio::time::sleep(Duration::from_millis(there)).await;
        let list = method == "GET" && path.ends_with("/leases");
        if lose_request || self.cut.is_shut() || list && self.blind.is_shut() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(stall)).await;
        let limit = query
            .get("timeout")
            .and_then(|text| text.trim_end_matches("ms").parse::<u64>().ok());
        // A creation can carry no precondition; that it is never late is what `timeout=` is for.
        let lease = path.contains("/leases") && method == "PATCH";
        let late = limit.is_some_and(|limit| stall > limit);
        if late && !(lease && weather.late_lease_writes) {
            let _ = answer.send((
                504,
                serde_json::json!({"kind": "Status", "status": "Failure", "code": 504,
                "message": "timeout", "reason": "Timeout"}),
            ));
            return;
        }
        let body = skewed(body, weather.skew);
        let result = self.server.handle(&method, &path, &query, body.clone(), apply);
        // Only what comes with a precondition may be repeated at any time: that is what the precondition is for.
        if let Some(after) = repeat
            && lease
        {
            let (server, query) = (self.server.clone(), query.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                server.handle(&method, &path, &query, body, apply);
            });
        }
        tokio::time::sleep(Duration::from_millis(back)).await;
        if lose_answer || self.cut.is_shut() {
            return;
        }
        // A stopped process finds the answer when it goes on.
        self.stopped.opened().await;
        let _ = answer.send(result);
    }

    fn watch(&self, path: &str, query: &BTreeMap<String, String>) -> Response<AnyBody> {
        let label = query.get("labelSelector").and_then(|text| text.split_once('='));
        let label = label.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let from = query.get("resourceVersion").and_then(|text| text.parse().ok());
        let limit = query
            .get("timeoutSeconds")
            .and_then(|text| text.parse().ok())
            .unwrap_or(290);
        let end = tokio::time::Instant::now() + Duration::from_secs(limit);
        let mut events = self.server.watch(path, label, from);
        let link = self.clone();
        let (sender, receiver) = futures::channel::mpsc::unbounded::<Result<Frame<Bytes>, std::io::Error>>();
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    biased;
                    event = events.recv() => event,
                    () = tokio::time::sleep_until(end) => None,
                };
                let Some(event) = event else { break };
                let delay = {
                    let mut state = link.state.lock().unwrap();
                    let delay = state.weather.delay;
                    state.rng.within(delay)
                };
                tokio::time::sleep(Duration::from_millis(delay)).await;
                // A cut holds events up, it does not end the stream: the client cannot know.
                link.cut.opened().await;
                link.blind.opened().await;
                link.stopped.opened().await;
                let line = Bytes::from(event.to_string() + "\n");
                if sender.unbounded_send(Ok(Frame::data(line))).is_err() {
                    break;
                }
            }
        });
        let body = http_body_util::StreamBody::new(receiver).boxed_unsync();
        Response::builder()
            .header("content-type", "application/json")
            .body(body)
            .unwrap()
    }
}

fn skewed(mut body: Value, hours: i64) -> Value {
    let Some(spec) = body
        .get_mut("spec")
        .and_then(Value::as_object_mut)
        .filter(|_| hours != 0)
    else {
        return body;
    };
    for field in ["renewTime", "acquireTime"] {
        if let Some(time) = spec.get_mut(field) {
            let written: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
            let wrong = written.checked_add(jiff::SignedDuration::from_hours(hours)).unwrap();
            *time = Value::from(format!("{wrong:.6}"));
        }
    }
    body
}
