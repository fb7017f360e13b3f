//! Requests to the API server, under client-go's names.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};

use crate::labels::Method;
use crate::registry::Registry;
use crate::table;

/// Requests of the process to the API server.
#[derive(Clone)]
pub struct ApiClient {
    requests: IntCounterVec,
    duration: HistogramVec,
    host: String,
}

impl ApiClient {
    pub(crate) fn new(registry: &Registry, host: &str) -> Self {
        Self {
            requests: registry.counters(&table::CLIENT_REQUESTS),
            duration: registry.histograms(&table::CLIENT_DURATION),
            host: host.to_owned(),
        }
    }

    /// A request was answered with HTTP status `code`, or not at all (`None`). For a watch, `duration` is the time until the
    /// head of the answer.
    pub fn request(&self, method: Method, code: Option<u16>, duration: Duration) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        self.requests
            .with_label_values(&[code.as_str(), method.as_str(), self.host.as_str()])
            .inc();
        self.duration
            .with_label_values(&[method.as_str()])
            .observe(duration.as_secs_f64());
    }
}

impl Method {
    /// The value for an HTTP method name; what is unknown reads as `GET`, which is what the rest (`HEAD`) amounts to.
    pub fn of(method: &str) -> Self {
        Self::ALL
            .iter()
            .copied()
            .find(|known| known.as_str() == method)
            .unwrap_or(Self::Get)
    }
}
