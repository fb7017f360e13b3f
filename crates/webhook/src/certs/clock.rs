//! The time by the clock of the API server, which is the one that judges our certificates.
//!
//! Each answer carries a `Date`. A replica whose own clock is wrong thus renews neither too early nor too late, and issues
//! nothing that is not valid yet.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, Request, header::DATE};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body, core::Status};
use serde::de::DeserializeOwned;

/// A date is given in whole seconds and is as old as the way of the answer.
const TOLERANCE_SECONDS: i64 = 2;
/// For one answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Worth a line in the log.
const NOTABLE_SECONDS: i64 = 60;

/// Tells the time. Clones share what they learn.
#[derive(Clone)]
pub struct ServerClock {
    local: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ahead_seconds: Arc<AtomicI64>,
}

impl ServerClock {
    /// Begins with the local clock.
    pub fn new(local: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            local: Arc::new(local),
            ahead_seconds: Arc::default(),
        }
    }

    /// The time at the API server.
    pub fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.ahead_seconds.load(Ordering::Relaxed));
        let local = (self.local)();
        local.saturating_add(ahead).unwrap_or(local)
    }

    /// Takes the time from the head of an answer.
    pub fn observe(&self, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) else {
            return;
        };
        let ahead = date.timestamp().as_second() - (self.local)().as_second();
        let ahead = if ahead.abs() <= TOLERANCE_SECONDS { 0 } else { ahead };
        let before = self.ahead_seconds.swap(ahead, Ordering::Relaxed);
        if (ahead - before).abs() >= NOTABLE_SECONDS {
            tracing::warn!(
                seconds = ahead,
                "the API server's clock is ahead of ours by this much; certificates follow it"
            );
        }
    }

    /// Reads an object, and the time along with it.
    pub async fn fetch<T: DeserializeOwned>(&self, client: &Client, path: &str) -> Result<T, kube::Error> {
        let request = Request::get(path).body(Body::empty()).map_err(kube::Error::HttpError)?;
        let exchange = async {
            let response = client.send(request).await?;
            self.observe(response.headers());
            let status = response.status();
            Ok::<_, kube::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        let answered = tokio::time::timeout(LIMIT, exchange).await;
        let (status, body) = answered.map_err(|elapsed| kube::Error::Service(elapsed.into()))??;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(kube::Error::SerdeError);
        }
        let refusal = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Status::failure(&String::from_utf8_lossy(&body), "Unknown").with_code(status.as_u16()));
        Err(kube::Error::Api(Box::new(refusal)))
    }
}

impl Default for ServerClock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for ServerClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_date_wins_over_a_wrong_clock() {
        let wrong: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let clock = ServerClock::new(move || wrong);
        assert_eq!(clock.now(), wrong);
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Tue, 01 Dec 2026 12:32:30 GMT".parse().unwrap());
        clock.observe(&headers);
        assert_eq!(clock.now(), "2026-12-01T12:32:30Z".parse().unwrap());
        headers.insert(DATE, "soon".parse().unwrap());
        clock.observe(&headers);
        assert_eq!(clock.now(), "2026-12-01T12:32:30Z".parse().unwrap());
    }
}
