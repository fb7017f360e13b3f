//! Faults: rules that spoil the answer to chosen requests, and hooks around writes.
//!
//! A rule has a `Match`, an `Effect`, and says which of the matching requests it hits (`skip`, `times`). The first live
//! rule that matches wins, in the order of addition. Some effects come before the request is applied (a refusal, a hang),
//! others after (`DropAnswer`: the write is stored and the client is told nothing).
//!
//! A hook is called before and after every write that comes by HTTP. It serves to end a controller after each of its
//! writes in turn: cancel the controller inside the hook and return `Verdict::Hang`, and no answer will reach it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::request::{ApiRequest, Verb};

type Predicate = Arc<dyn Fn(&ApiRequest) -> bool + Send + Sync>;
type Reply = Arc<dyn Fn(&ApiRequest) -> (u16, Value) + Send + Sync>;
type Hook = Arc<dyn Fn(&WriteCall<'_>) -> Verdict + Send + Sync>;

/// Which requests a rule is about. Everything that is not named matches.
#[derive(Clone, Default)]
pub struct Match {
    tests: Vec<Predicate>,
}

impl Match {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests with this verb.
    pub fn verb(verb: Verb) -> Self {
        Self::any().when(move |r| r.verb == verb)
    }

    /// Requests that change objects.
    pub fn writes() -> Self {
        Self::any().when(|r| r.verb.is_write())
    }

    /// Only this resource, by id or plural.
    #[must_use]
    pub fn resource(self, name: &str) -> Self {
        let name = name.to_owned();
        self.when(move |r| r.is_for(&name))
    }

    /// Only this namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        self.when(move |r| r.namespace.as_ref() == Some(&namespace))
    }

    /// Only the object of this name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        let name = name.to_owned();
        self.when(move |r| r.name.as_ref() == Some(&name))
    }

    /// Only this subresource; empty for the object itself.
    #[must_use]
    pub fn subresource(self, subresource: &str) -> Self {
        let subresource = subresource.to_owned();
        self.when(move |r| r.subresource.as_deref().unwrap_or_default() == subresource)
    }

    /// Only requests of this client (`ApiServer::client_as`).
    #[must_use]
    pub fn author(self, author: &str) -> Self {
        let author = author.to_owned();
        self.when(move |r| r.author == author)
    }

    /// Only requests for which this holds.
    #[must_use]
    pub fn when(mut self, test: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Self {
        self.tests.push(Arc::new(test));
        self
    }

    pub(crate) fn holds(&self, request: &ApiRequest) -> bool {
        self.tests.iter().all(|test| test(request))
    }
}

/// What becomes of a request that a rule hits.
#[derive(Clone)]
pub enum Effect {
    /// Not applied; a `Status` with this code, reason and message.
    Status(u16, &'static str, &'static str),
    /// Not applied; plain text, as from a proxy in between.
    Text(u16, &'static str),
    /// Not applied; whatever the closure makes of the request.
    Reply(Reply),
    /// Applied; the answer is code 200 with half a JSON document.
    Undecodable,
    /// Not applied; the connection breaks.
    Refuse,
    /// Applied; the connection breaks before the answer.
    DropAnswer,
    /// Not applied; no answer, ever.
    Hang,
    /// Applied; no answer, ever.
    HangAnswer,
    /// Applied after this time.
    Delay(Duration),
    /// Applied and answered once `Fault::release` is called.
    Hold,
    /// Applied at once, answered once `Fault::release` is called.
    HoldAnswer,
}

impl Effect {
    /// 403, as for a missing permission.
    pub fn forbidden() -> Self {
        Self::Status(403, "Forbidden", "forbidden by the test")
    }

    /// 409, as for an update of an old version.
    pub fn conflict() -> Self {
        Self::Status(
            409,
            "Conflict",
            "the object has been modified; please apply your changes to the latest version",
        )
    }

    /// 410, as for a version that was compacted away.
    pub fn expired() -> Self {
        Self::Status(410, "Expired", "too old resource version")
    }

    /// 429, as from priority and fairness.
    pub fn too_many_requests() -> Self {
        Self::Status(429, "TooManyRequests", "too many requests, please try again later")
    }

    /// 500.
    pub fn internal_error() -> Self {
        Self::Status(500, "InternalError", "an error on the server")
    }

    /// 503, as from a server that starts or ends.
    pub fn unavailable() -> Self {
        Self::Status(
            503,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
        )
    }

    /// 504, as when etcd is slow.
    pub fn timeout() -> Self {
        Self::Status(504, "Timeout", "request did not complete within the allotted timeout")
    }

    /// Answers with what the closure returns, code and body.
    pub fn reply(answer: impl Fn(&ApiRequest) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self::Reply(Arc::new(answer))
    }
}

/// One rule. Clones are handles to the same rule.
#[derive(Clone)]
pub struct Fault {
    rule: Arc<Rule>,
}

struct Rule {
    matching: Match,
    effect: Effect,
    skip: AtomicU64,
    times: AtomicU64,
    hits: AtomicU64,
    live: AtomicBool,
    released: watch::Sender<bool>,
}

#[expect(
    clippy::return_self_not_must_use,
    reason = "the handle is a by-product; the rule is in place already"
)]
impl Fault {
    /// Hits only from the given matching request on, counted from 1 and from now.
    pub fn nth(self, nth: u64) -> Self {
        self.skip(nth.saturating_sub(1)).times(1)
    }

    /// Lets this many more matching requests pass first.
    pub fn skip(self, requests: u64) -> Self {
        self.rule.skip.store(requests, Ordering::SeqCst);
        self
    }

    /// Hits this many more requests, then never again.
    pub fn times(self, requests: u64) -> Self {
        self.rule.times.store(requests, Ordering::SeqCst);
        self
    }

    /// How many requests were hit so far.
    pub fn hits(&self) -> u64 {
        self.rule.hits.load(Ordering::SeqCst)
    }

    /// Ends the rule, and lets go what it holds.
    pub fn remove(&self) {
        self.rule.live.store(false, Ordering::SeqCst);
        self.release();
    }

    /// Lets go what `Hold` and `HoldAnswer` hold, now and later.
    pub fn release(&self) {
        self.rule.released.send_replace(true);
    }

    pub(crate) fn effect(&self) -> &Effect {
        &self.rule.effect
    }

    pub(crate) async fn released(&self) {
        let mut released = self.rule.released.subscribe();
        // The sender lives in the rule, which `self` keeps alive.
        let _ = released.wait_for(|released| *released).await;
    }

    /// Whether the rule takes this request; counts it if so.
    fn takes(&self, request: &ApiRequest) -> bool {
        let rule = &self.rule;
        let spend = |counter: &AtomicU64| {
            counter
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok()
        };
        if !rule.live.load(Ordering::SeqCst)
            || !rule.matching.holds(request)
            || spend(&rule.skip)
            || !spend(&rule.times)
        {
            return false;
        }
        rule.hits.fetch_add(1, Ordering::SeqCst);
        true
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("hits", &self.hits())
            .finish_non_exhaustive()
    }
}

/// The moment a hook is called at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nothing is stored yet.
    Before,
    /// The request was applied or refused; the answer is not sent yet.
    After,
}

/// What a hook is told.
#[derive(Debug)]
pub struct WriteCall<'a> {
    /// Before or after.
    pub moment: Moment,
    /// The request; its `code` is set after.
    pub request: &'a ApiRequest,
    /// Which write by HTTP this is, counted from 1 since the server started or the log was reset.
    pub nth: u64,
}

/// What is to become of the request after a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// Leave the client without an answer for ever. In `Moment::Before` nothing is stored.
    Hang,
    /// Break the connection. In `Moment::Before` nothing is stored.
    Drop,
}

/// All rules and hooks of a server.
#[derive(Default)]
pub struct Faults {
    rules: Mutex<Vec<Fault>>,
    hooks: Mutex<Vec<Hook>>,
    writes: AtomicU64,
}

impl Faults {
    /// Adds a rule that hits every matching request until told otherwise.
    pub fn add(&self, matching: Match, effect: Effect) -> Fault {
        let rule = Rule {
            matching,
            effect,
            skip: AtomicU64::new(0),
            times: AtomicU64::new(u64::MAX),
            hits: AtomicU64::new(0),
            live: AtomicBool::new(true),
            released: watch::Sender::new(false),
        };
        let fault = Fault { rule: Arc::new(rule) };
        self.rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(fault.clone());
        fault
    }

    /// Adds a hook around writes. It is called without any lock, so it may use the server.
    pub fn on_write(&self, hook: impl Fn(&WriteCall<'_>) -> Verdict + Send + Sync + 'static) {
        self.hooks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::new(hook));
    }

    /// Removes all rules and hooks.
    pub fn clear(&self) {
        let rules = std::mem::take(&mut *self.rules.lock().unwrap_or_else(PoisonError::into_inner));
        rules.iter().for_each(Fault::remove);
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn reset_writes(&self) {
        self.writes.store(0, Ordering::SeqCst);
    }

    pub(crate) fn count_write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn take(&self, request: &ApiRequest) -> Option<Fault> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rules.into_iter().find(|fault| fault.takes(request))
    }

    pub(crate) fn run_hooks(&self, call: &WriteCall<'_>) -> Verdict {
        let hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let verdicts: Vec<Verdict> = hooks.iter().map(|hook| hook(call)).collect();
        let first = verdicts.into_iter().find(|verdict| *verdict != Verdict::Continue);
        first.unwrap_or(Verdict::Continue)
    }
}
