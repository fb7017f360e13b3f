//! What the caches tell about themselves: events for metrics, a snapshot for diagnosis.

use std::{error::Error as _, time::Duration};

use appwrapper_api::{AppWrapperKey, Rv, TypeRef};
use kube::runtime::watcher;

use crate::discovery::KindError;

/// Why a watch or a look-up failed. Closed, so that it can be a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404 for the resource itself, or discovery says that it is not served.
    NotServed,
    /// 410: the version to resume from is too old. A list follows.
    Expired,
    /// 429.
    Throttled,
    /// 5xx, and any other refusal.
    Refused,
    /// No answer in time.
    Timeout,
    /// The connection broke.
    Connection,
    /// The answer made no sense.
    Malformed,
    /// A defect of this program.
    Panicked,
}

impl Reason {
    /// The value of the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotServed => "not_served",
            Self::Expired => "expired",
            Self::Throttled => "throttled",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Malformed => "malformed",
            Self::Panicked => "panicked",
        }
    }

    pub(crate) fn of_code(code: u16) -> Self {
        match code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotServed,
            410 => Self::Expired,
            429 => Self::Throttled,
            _ => Self::Refused,
        }
    }

    pub(crate) fn of_client(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_code(status.code),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) | kube::Error::LinesCodecMaxLineLengthExceeded => {
                Self::Malformed
            }
            error if is_timeout(error) => Self::Timeout,
            _ => Self::Connection,
        }
    }

    pub(crate) fn of_watch(error: &watcher::Error) -> Self {
        match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Self::of_client(error),
            watcher::Error::WatchError(status) => Self::of_code(status.code),
            watcher::Error::NoResourceVersion => Self::Malformed,
        }
    }

    pub(crate) fn of_discovery(error: &KindError) -> Self {
        match error {
            KindError::NotServed(_) => Self::NotServed,
            KindError::Unavailable { source, .. } => match source.downcast_ref::<kube::Error>() {
                // A 404 that discovery does not stand by is a refusal, not an answer.
                Some(kube::Error::Api(status)) if status.code == 404 => Self::Refused,
                Some(error) => Self::of_client(error),
                None => Self::Timeout,
            },
        }
    }
}

fn is_timeout(error: &kube::Error) -> bool {
    std::iter::successors(error.source(), |error| (*error).source())
        .any(<dyn std::error::Error>::is::<tokio::time::error::Elapsed>)
}

/// What came of looking up a link between a pod and its AppWrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookupOutcome {
    /// The link is there.
    Found,
    /// The link is gone, or was never there: another uid has its name, or none.
    Gone,
    /// No answer that means anything; it will be tried again.
    Doubt(Reason),
}

/// How an object came into the cache or left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// A list had it.
    Listed,
    /// The watch told that it was created or changed.
    Applied,
    /// The watch told that it was deleted, or that its labels no longer fit.
    Deleted,
}

/// An object that a list or a watch delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// How.
    pub change: Change,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its version, if versions can be compared.
    pub version: Option<&'a Rv>,
}

/// Is told what happens in the caches. Called from their tasks: it may not block.
pub trait Observer: Send + Sync + 'static {
    /// A watch failed and will be tried again.
    fn watch_error(&self, _kind: &TypeRef, _reason: Reason) {}

    /// A watch was opened or resumed. This happens at least once a minute and is a sign of life even of a quiet kind.
    fn watch_started(&self, _kind: &TypeRef) {}

    /// A list was read from the first page to the last, in this time, and replaced what was known.
    fn relisted(&self, _kind: &TypeRef, _objects: usize, _took: Duration) {}

    /// The cache of a kind became usable, or stopped being so.
    fn synced(&self, _kind: &TypeRef, _synced: bool) {}

    /// The watch of a kind was ended because nobody needs it.
    fn retired(&self, _kind: &TypeRef) {}

    /// An object was delivered. `objects` is how many the cache holds now.
    fn delivered(&self, _kind: &TypeRef, _delivery: &Delivery<'_>, _objects: usize) {}

    /// A link of a pod's chain of controllers was looked up. The kind is whatever the pod's author wrote into an owner
    /// reference: fit for a log, not for a metric label.
    fn lookup(&self, _kind: &TypeRef, _outcome: LookupOutcome) {}

    /// A pod has the label of this AppWrapper without being one of its components' pods. Told once for each pod.
    fn stranger(&self, _key: &AppWrapperKey) {}
}

/// An observer that does not care.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {}

/// How the cache of one kind is doing, for diagnosis.
#[derive(Clone, Debug)]
pub struct KindStatus {
    /// The kind.
    pub type_ref: TypeRef,
    /// Whether reads are answered from it.
    pub synced: bool,
    /// Objects in it.
    pub objects: usize,
    /// Last sign of life of the watch: an event, a list, or that it was opened.
    pub last_event: Option<jiff::Timestamp>,
    /// When and why the watch last failed, with the error's text.
    pub last_error: Option<(jiff::Timestamp, Reason, String)>,
}
