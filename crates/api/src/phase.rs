//! The nine phases of an AppWrapper.

use std::fmt;

/// `status.phase` (spec/api.md section 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Never reconciled; written as an absent field.
    #[default]
    Empty,
    /// Waits for `spec.suspend` to become false.
    Suspended,
    /// Its components are being created.
    Resuming,
    /// Its components exist and are watched over.
    Running,
    /// Its components are being deleted, to be created again.
    Resetting,
    /// Its components are being deleted because it was suspended.
    Suspending,
    /// It ended well.
    Succeeded,
    /// It failed for good.
    Failed,
    /// It is being deleted.
    Terminating,
}

impl Phase {
    /// Every phase that has a name, in the order of a life.
    pub const NAMED: [Self; 8] = [
        Self::Suspended,
        Self::Resuming,
        Self::Running,
        Self::Resetting,
        Self::Suspending,
        Self::Succeeded,
        Self::Failed,
        Self::Terminating,
    ];

    /// The phase as it is written in status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::Suspended => "Suspended",
            Self::Resuming => "Resuming",
            Self::Running => "Running",
            Self::Resetting => "Resetting",
            Self::Suspending => "Suspending",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
        }
    }

    /// The phase named `text`, or `None` for a name that no version of the controller has written.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::Empty);
        }
        Self::NAMED.into_iter().find(|phase| phase.as_str() == text)
    }

    /// Whether the phase is never left again, but for the deletion of the AppWrapper.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_read_back() {
        for phase in Phase::NAMED.into_iter().chain([Phase::Empty]) {
            assert_eq!(Phase::parse(phase.as_str()), Some(phase));
        }
        assert_eq!(Phase::parse("Paused"), None);
    }
}
