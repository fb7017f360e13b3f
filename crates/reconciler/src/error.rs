//! Why a pass could not be finished.

/// An error that ends a pass. It is retried with back-off; what was written so far stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The AppWrapper has changed since it was observed. The next copy decides anew.
    #[error("the AppWrapper has changed since it was observed")]
    Conflict,
    /// The AppWrapper no longer exists.
    #[error("the AppWrapper no longer exists")]
    Gone,
    /// The right to write has ended; another replica goes on.
    #[error("the right to write has ended")]
    Fenced,
    /// The API server refused or failed a request.
    #[error("{operation} failed: {message}")]
    Api {
        /// What was tried.
        operation: &'static str,
        /// The answer, shortened.
        message: String,
    },
    /// A pass did not come to rest; this is a defect of the decision.
    #[error("no rest after {steps} steps in phase {phase:?}")]
    Restless {
        /// Number of steps taken.
        steps: usize,
        /// The phase it was in.
        phase: String,
    },
}

impl Error {
    /// The closed set of reasons for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Fenced => "fenced",
            Self::Api { .. } => "api",
            Self::Restless { .. } => "restless",
        }
    }
}
