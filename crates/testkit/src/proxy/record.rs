//! What clients asked: a count by kind of request, and a log of the latest requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::api_server::{ApiRequest, Verb};

/// How many requests the log keeps; older ones are only in the counts.
const LOG_LENGTH: usize = 50_000;

/// By what requests are counted. A watch is a verb of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKind {
    /// What is done.
    pub verb: Verb,
    /// `plural.group`, as `jobs.batch`; empty for discovery and health.
    pub resource: String,
    /// Such as `status`; empty for the object itself.
    pub subresource: String,
    /// The client's User-Agent header.
    pub user_agent: String,
}

/// What was asked of a proxy so far.
#[derive(Default)]
pub struct Records(Mutex<Recorded>);

#[derive(Default)]
struct Recorded {
    counts: BTreeMap<RequestKind, u64>,
    log: VecDeque<ApiRequest>,
    /// Number of requests ever logged.
    last: u64,
}

impl Records {
    /// Counts and logs a request; returns its number.
    pub(super) fn arrived(&self, request: &ApiRequest) -> u64 {
        let kind = RequestKind {
            verb: request.verb,
            resource: request.resource(),
            subresource: request.subresource.clone().unwrap_or_default(),
            user_agent: request.author.clone(),
        };
        let mut recorded = self.lock();
        *recorded.counts.entry(kind).or_default() += 1;
        recorded.last += 1;
        // Without the body: a log of large objects would be large.
        let logged = ApiRequest {
            seq: recorded.last,
            at: Timestamp::now(),
            body: None,
            ..request.clone()
        };
        recorded.log.push_back(logged);
        if recorded.log.len() > LOG_LENGTH {
            recorded.log.pop_front();
        }
        recorded.last
    }

    /// Notes the code a request was answered with.
    pub(super) fn answered(&self, seq: u64, code: u16) {
        if let Some(request) = self.lock().log.iter_mut().rfind(|request| request.seq == seq) {
            request.code = Some(code);
        }
    }

    /// How often each kind of request came.
    pub fn counts(&self) -> BTreeMap<RequestKind, u64> {
        self.lock().counts.clone()
    }

    /// How many requests came for which this holds.
    pub fn count(&self, which: impl Fn(&RequestKind) -> bool) -> u64 {
        self.lock()
            .counts
            .iter()
            .filter(|(kind, _)| which(kind))
            .map(|(_, count)| count)
            .sum()
    }

    /// The latest requests, oldest first, without their bodies. One without a code was not answered, or not yet.
    pub fn log(&self) -> Vec<ApiRequest> {
        self.lock().log.iter().cloned().collect()
    }

    /// Forgets everything.
    pub fn reset(&self) {
        let mut recorded = self.lock();
        recorded.counts.clear();
        recorded.log.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
