//! The one error type of this crate, with a closed set of reasons for metrics.

use std::time::Duration;

/// What can go wrong around a lease. None of these ends a tenure by itself: the deadline does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The times do not keep two holders apart.
    #[error("{field} is {value:?}: {remedy}")]
    InvalidTimings {
        /// Name of the setting.
        field: &'static str,
        /// Its value.
        value: Duration,
        /// What to write instead.
        remedy: String,
    },
    /// A setting of the shards or of the identity cannot be used.
    #[error("{field} is {value:?}: {remedy}")]
    InvalidSetting {
        /// Name of the setting.
        field: &'static str,
        /// Its value.
        value: String,
        /// What to write instead.
        remedy: String,
    },
    /// Another live process renews a lease as the same pod.
    #[error(
        "lease {lease} is being renewed by {other:?}, which has the same pod and pod uid as this process: \
         two replicas run under one identity; give each its own --identity, or leave it out"
    )]
    DuplicateIdentity {
        /// The lease.
        lease: String,
        /// The identity that the other process writes.
        other: String,
    },
    /// The service account may not use the lease.
    #[error(
        "no permission for lease {lease}: {message}; grant get, list, watch, create, update and patch on leases.coordination.k8s.io there"
    )]
    Forbidden {
        /// The lease.
        lease: String,
        /// The API server's words.
        message: String,
    },
    /// No answer within the limit. The request may still take effect.
    #[error("no answer about lease {lease} within {limit:?}")]
    Timeout {
        /// The lease.
        lease: String,
        /// The limit.
        limit: Duration,
    },
    /// Someone else wrote the lease between our read and our write, more often than we retry.
    #[error("lease {lease} changed while it was being written")]
    Conflict {
        /// The lease.
        lease: String,
    },
    /// To release takes to hold.
    #[error("lease {lease} is not held by this process")]
    NotHeld {
        /// The lease.
        lease: String,
    },
    /// The lease does not exist and this process is not the one to create it.
    #[error("lease {lease} does not exist")]
    Missing {
        /// The lease.
        lease: String,
    },
    /// An answer or a request that does not belong to a lease.
    #[error("unexpected {what} for lease {lease}")]
    Unexpected {
        /// The lease.
        lease: String,
        /// What it was.
        what: String,
    },
    /// The request failed otherwise.
    #[error("request about lease {lease} failed")]
    Request {
        /// The lease.
        lease: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The task that looks after the lease has ended.
    #[error("the supervisor of lease {lease} has ended")]
    Ended {
        /// The lease.
        lease: String,
    },
}

// === impl Error ===

impl Error {
    /// A short, closed name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidTimings { .. } | Self::InvalidSetting { .. } => "invalid_setting",
            Self::DuplicateIdentity { .. } => "duplicate_identity",
            Self::Forbidden { .. } => "forbidden",
            Self::Timeout { .. } => "timeout",
            Self::Conflict { .. } => "conflict",
            Self::NotHeld { .. } => "not_held",
            Self::Missing { .. } => "missing",
            Self::Unexpected { .. } => "unexpected",
            Self::Request { .. } => "request",
            Self::Ended { .. } => "ended",
        }
    }

    /// Whether trying again cannot help, so that the process should end with this message.
    pub fn is_fatal(&self) -> bool {
        matches!(
            self,
            Self::InvalidTimings { .. } | Self::InvalidSetting { .. } | Self::DuplicateIdentity { .. }
        )
    }
}
