//! From an HTTP request to a decision and back.
//!
//! What comes in is not trusted: path, method, type, size and time are bounded before anything is read, one address cannot
//! keep the others waiting, and a panic in the decision costs that request alone. The caller names its own time limit in the request; the answer comes before it, so
//! that users read a reason and not a timeout.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use appwrapper_api::GoDuration;
use appwrapper_metrics::{
    Admission,
    labels::{Webhook, WebhookCode},
    telemetry,
};
use futures::FutureExt;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode, Version,
    body::{Body, Bytes},
    header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue},
};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use tracing::{Instrument, field};

use crate::{mutate::mutate, review, validate::Validator, verdict::Verdict};

/// Largest body: a review holds an object twice, and one object has at most about 3 MiB on its way in.
pub const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// Reviews that are decided at once; the rest waits for its turn within its time.
const AT_ONCE: usize = 64;
/// Requests of one address that are read or decided at once: whoever sends slowly, or a lot, waits for itself.
const AT_ONCE_OF_ONE: usize = 48;
/// In KiB: what of each body may be held in any case, and what of all bodies together, or those of one address, beyond that.
const HELD_ANYWAY: u32 = 32;
const HELD_AT_ONCE: usize = 32 * 1024;
const HELD_OF_ONE: usize = 16 * 1024;
/// For a body to arrive: a caller that means it sends it right behind the head.
const BODY_TIME: Duration = Duration::from_secs(3);
/// The time limit of a caller that names none: that of our webhook configurations.
const DEFAULT_LIMIT: Duration = Duration::from_secs(5);
/// The longest that the API server allows.
const LONGEST_LIMIT: Duration = Duration::from_secs(30);

/// Answers requests.
pub struct Service {
    validator: Validator,
    default_queue: String,
    metrics: Admission,
    all: Load,
    draining: AtomicBool,
}

/// What one address may take of the service at once; an extension of its requests.
#[derive(Clone)]
pub struct Share(Arc<Load>);

impl Default for Share {
    fn default() -> Self {
        Self(Arc::new(Load::new(AT_ONCE_OF_ONE, HELD_OF_ONE)))
    }
}

/// Turns, and KiB of bodies.
struct Load {
    turns: Semaphore,
    held: Semaphore,
}

impl Load {
    fn new(turns: usize, held: usize) -> Self {
        Self {
            turns: Semaphore::new(turns),
            held: Semaphore::new(held),
        }
    }
}

/// An answer of the webhook.
pub type Answer = Response<Full<Bytes>>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Service {
    /// Decides with `validator`; a `default_queue` that is empty sets none.
    pub fn new(validator: Validator, default_queue: String, metrics: Admission) -> Self {
        Self {
            validator,
            default_queue,
            metrics,
            all: Load::new(AT_ONCE, HELD_AT_ONCE),
            draining: AtomicBool::new(false),
        }
    }

    /// From now on every answer asks its caller to make a new connection, which will go to another replica.
    pub fn drain(&self) {
        self.metrics.set_draining(true);
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Answers one request.
    pub async fn answer<B>(&self, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let version = request.version();
        let mut answer = self.route(request).await;
        // HTTP/2 has GOAWAY for this.
        if self.draining.load(Ordering::Relaxed) && version < Version::HTTP_2 {
            answer
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    async fn route<B>(&self, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let path = request.uri().path();
        let Some(webhook) = Webhook::ALL.iter().copied().find(|webhook| webhook.as_str() == path) else {
            return text(StatusCode::NOT_FOUND, "there is no such webhook");
        };
        if request.method() != Method::POST {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only POST");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return answer;
        }
        let counted = self.metrics.request(webhook);
        let deadline = Instant::now() + budget(request.uri().query().unwrap_or_default());
        let span = tracing::info_span!(
            "webhook admit",
            "otel.kind" = "server",
            webhook = path,
            operation = field::Empty,
            decision = field::Empty,
            reason = field::Empty,
            dry_run = field::Empty,
        );
        telemetry::follow_caller(request.headers(), &span);
        let handled = AssertUnwindSafe(self.handle(webhook, request, deadline).instrument(span))
            .catch_unwind()
            .await;
        let answer = handled.unwrap_or_else(|_| {
            counted.panicked();
            tracing::error!("the decision panicked; this is a bug");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the webhook failed to decide; see its log",
            )
        });
        counted.answered(match answer.status() {
            StatusCode::OK => WebhookCode::Ok,
            StatusCode::PAYLOAD_TOO_LARGE => WebhookCode::TooLarge,
            StatusCode::BAD_REQUEST => WebhookCode::BadRequest,
            StatusCode::SERVICE_UNAVAILABLE => WebhookCode::Busy,
            _ => WebhookCode::Failed,
        });
        answer
    }

    async fn handle<B>(&self, webhook: Webhook, request: Request<B>, deadline: Instant) -> Answer
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let is_json = request.headers().get(CONTENT_TYPE).is_some_and(|value| {
            value.to_str().is_ok_and(|value| {
                value
                    .split(';')
                    .next()
                    .is_some_and(|media| media.trim() == "application/json")
            })
        });
        if !is_json {
            return text(StatusCode::BAD_REQUEST, "the content type must be application/json");
        }
        if request.body().size_hint().lower() > BODY_LIMIT as u64 {
            return too_large();
        }
        let Share(own) = request.extensions().get().cloned().unwrap_or_default();
        let body = Limited::new(request.into_body(), BODY_LIMIT);
        let size = body.size_hint().upper().unwrap_or(BODY_LIMIT as u64) / 1024;
        let beyond = u32::try_from(size).unwrap_or(u32::MAX).saturating_sub(HELD_ANYWAY);
        // Of its own address first, so that nobody who waits for that has taken anything from the others.
        let places = async { tokio::try_join!(own.turns.acquire(), own.held.acquire_many(beyond)) };
        let Ok(Ok(_own)) = timeout_at(deadline, places).await else {
            return busy();
        };
        let Ok(Ok(_held)) = timeout_at(deadline, self.all.held.acquire_many(beyond)).await else {
            return busy();
        };
        let body = match timeout_at(deadline.min(Instant::now() + BODY_TIME), body.collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return too_large(),
            Ok(Err(_)) => return text(StatusCode::BAD_REQUEST, "the body broke off"),
            Err(_) => return text(StatusCode::BAD_REQUEST, "the body did not arrive in time"),
        };
        // Only now: who sends slowly must not keep those waiting who have sent.
        let Ok(Ok(_turn)) = timeout_at(deadline, self.all.turns.acquire()).await else {
            return busy();
        };
        let review = match review::parse(&body) {
            Ok(review) => review,
            Err(fault) => return text(StatusCode::BAD_REQUEST, &fault),
        };
        let verdict = match webhook {
            Webhook::Mutating => mutate(&review, &self.default_queue),
            Webhook::Validating => self.validator.validate(&review, deadline).await,
        };
        self.tell(webhook, &review, &verdict);
        let mut answer = Response::new(Full::from(verdict.answer(&review.uid)));
        answer
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer
    }

    fn tell(&self, webhook: Webhook, review: &review::Request<'_>, verdict: &Verdict) {
        let Some(operation) = review.operation() else { return };
        let reason = verdict.reason();
        self.metrics.decision(webhook, operation, reason);
        let span = tracing::Span::current();
        span.record("operation", operation.as_str());
        span.record("decision", reason.decision().as_str());
        span.record("reason", reason.as_str());
        span.record("dry_run", review.dry_run.unwrap_or_default());
        if let Some(denial) = &verdict.denial {
            tracing::info!(
                namespace = review.namespace,
                reason = reason.as_str(),
                "AppWrapper refused"
            );
            tracing::debug!(user = review.user_info.username, message = denial.message, "refusal");
        }
    }
}

/// How long an answer may take: the caller's own limit less what the way back takes.
fn budget(query: &str) -> Duration {
    let limit = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let limit = limit.and_then(|limit| limit.parse::<GoDuration>().ok());
    let limit = limit
        .and_then(|limit| Duration::try_from(limit.signed()).ok())
        .filter(|limit| !limit.is_zero());
    let limit = limit.unwrap_or(DEFAULT_LIMIT).min(LONGEST_LIMIT);
    let margin = (limit / 10).max(Duration::from_millis(200)).min(limit / 2);
    limit.saturating_sub(margin)
}

fn busy() -> Answer {
    text(StatusCode::SERVICE_UNAVAILABLE, "too many requests at once; try again")
}

fn too_large() -> Answer {
    text(
        StatusCode::PAYLOAD_TOO_LARGE,
        &format!("the body is larger than {BODY_LIMIT} bytes"),
    )
}

fn text(status: StatusCode, message: &str) -> Answer {
    let mut answer = Response::new(Full::from(format!("{message}\n")));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_comes_before_the_callers_own_limit() {
        for (query, budget_ms) in [
            ("timeout=5s", 4500),
            ("timeout=10s", 9000),
            ("a=b&timeout=1s", 800),
            ("timeout=100ms", 50),
            ("timeout=5m", 27_000),
            ("", 4500),
            ("timeout=soon", 4500),
            ("timeout=-1s", 4500),
            ("timeout=0s", 4500),
        ] {
            assert_eq!(budget(query), Duration::from_millis(budget_ms), "{query}");
        }
    }
}
