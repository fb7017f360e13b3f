//! How long a lease lasts, and when its holder stops by itself.
//!
//! A holder may still have a write on the way for `write_bound` after the last moment at which it may send one
//! (`renew_deadline`). A successor starts no earlier than `duration` after it saw the last renewal. So nothing overlaps if
//! `renew_deadline * (1 + r) + write_bound <= duration * (1 - r)`, where `r` is the error of a clock's rate. The renew
//! deadline counts from *before* the renewal was sent and the duration from after it was seen, both on local clocks, so
//! neither the network nor a wall clock enters (ha-sharding.md, 3.2).

use std::time::Duration;

use crate::error::Error;

/// Largest error of a clock's rate that the rule allows for: 2 %.
const RATE_ERROR: f64 = 0.02;

/// The times of one lease. Build with a profile, change fields, then [`LeaseTimings::validate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimings {
    /// How long a standby waits after the last change it saw. Whole seconds, since the API field is.
    pub duration: Duration,
    /// How long after sending its last good renewal a holder may still act.
    pub renew_deadline: Duration,
    /// From one good renewal to the next.
    pub renew_period: Duration,
    /// From a failed renewal to the next try.
    pub retry_period: Duration,
    /// Limit of one request about the lease, at the client and, by `timeout=`, at the server.
    pub rpc_timeout: Duration,
    /// Limit of one write made under the lease. Its outcome is known after this time, whatever happens.
    pub write_bound: Duration,
}

// === impl LeaseTimings ===

impl LeaseTimings {
    /// 10 s lease, 6 s fence, renewal every 2 s: the default.
    pub const fn standard() -> Self {
        Self {
            duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(6),
            renew_period: Duration::from_secs(2),
            retry_period: Duration::from_millis(500),
            rpc_timeout: Duration::from_millis(1_500),
            write_bound: Duration::from_secs(3),
        }
    }

    /// 4 s lease, 2 s fence, renewal every 0.5 s: faster fail-over for four times the renewals.
    pub const fn fast() -> Self {
        Self {
            duration: Duration::from_secs(4),
            renew_deadline: Duration::from_secs(2),
            renew_period: Duration::from_millis(500),
            retry_period: Duration::from_millis(300),
            rpc_timeout: Duration::from_millis(600),
            write_bound: Duration::from_millis(1_500),
        }
    }

    /// The profile for a given lease duration: 4 s is [`fast`](Self::fast), anything else [`standard`](Self::standard) to
    /// scale. Validated.
    pub fn for_duration(duration: Duration) -> Result<Self, Error> {
        let timings = if duration == Self::fast().duration {
            Self::fast()
        } else {
            let factor = duration.as_secs_f64() / Self::standard().duration.as_secs_f64();
            let scaled = |time: Duration| time.mul_f64(factor);
            let Self {
                duration: _,
                renew_deadline,
                renew_period,
                retry_period,
                rpc_timeout,
                write_bound,
            } = Self::standard();
            Self {
                duration,
                renew_deadline: scaled(renew_deadline),
                renew_period: scaled(renew_period),
                retry_period: scaled(retry_period),
                rpc_timeout: scaled(rpc_timeout),
                write_bound: scaled(write_bound),
            }
        };
        timings.validate()?;
        Ok(timings)
    }

    /// Checks the rule that keeps two holders apart. The error names the field, its value and a remedy.
    pub fn validate(&self) -> Result<(), Error> {
        let Self {
            duration,
            renew_deadline,
            renew_period,
            retry_period,
            rpc_timeout,
            write_bound,
        } = *self;
        let refuse = |field, value: Duration, remedy: String| Err(Error::InvalidTimings { field, value, remedy });
        if duration < Duration::from_secs(1) || duration.subsec_nanos() != 0 || duration > Duration::from_secs(3_600) {
            return refuse(
                "lease duration",
                duration,
                "use whole seconds from 1s to 3600s".to_owned(),
            );
        }
        for (field, value) in [
            ("renew deadline", renew_deadline),
            ("renew period", renew_period),
            ("retry period", retry_period),
            ("lease request timeout", rpc_timeout),
            ("write bound", write_bound),
        ] {
            if value < Duration::from_millis(1) {
                return refuse(field, value, "use at least 1ms".to_owned());
            }
        }
        if renew_deadline >= duration {
            let remedy = format!(
                "use less than the lease duration of {duration:?}, for example {:?}",
                duration.mul_f64(0.6)
            );
            return refuse("renew deadline", renew_deadline, remedy);
        }
        let needed = renew_deadline.mul_f64(1.0 + RATE_ERROR) + write_bound;
        let allowed = duration.mul_f64(1.0 - RATE_ERROR);
        if needed > allowed {
            let remedy = format!(
                "renew deadline * 1.02 + write bound ({write_bound:?}) is {needed:?} and must not exceed lease duration * \
                 0.98 ({allowed:?}); lower the renew deadline to {:?} or raise the lease duration",
                allowed.saturating_sub(write_bound).mul_f64(1.0 / (1.0 + RATE_ERROR))
            );
            return refuse("renew deadline", renew_deadline, remedy);
        }
        // A renewal may take a read and a write, and one failure must not cost the lease.
        if rpc_timeout > renew_deadline / 3 {
            let remedy = format!("use at most a third of the renew deadline, {:?}", renew_deadline / 3);
            return refuse("lease request timeout", rpc_timeout, remedy);
        }
        if renew_period > renew_deadline / 2 {
            let remedy = format!("use at most half of the renew deadline, {:?}", renew_deadline / 2);
            return refuse("renew period", renew_period, remedy);
        }
        if retry_period > renew_period {
            return refuse(
                "retry period",
                retry_period,
                format!("use at most the renew period, {renew_period:?}"),
            );
        }
        Ok(())
    }
}

impl Default for LeaseTimings {
    fn default() -> Self {
        Self::standard()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_profiles_and_every_scaled_one_keep_the_rule() {
        LeaseTimings::standard().validate().unwrap();
        LeaseTimings::fast().validate().unwrap();
        for seconds in 1..=60 {
            LeaseTimings::for_duration(Duration::from_secs(seconds)).unwrap();
        }
        assert_eq!(
            LeaseTimings::for_duration(Duration::from_secs(10)).unwrap(),
            LeaseTimings::standard()
        );
        assert_eq!(
            LeaseTimings::for_duration(Duration::from_secs(4)).unwrap(),
            LeaseTimings::fast()
        );
    }

    #[test]
    fn a_refusal_names_field_value_and_remedy() {
        let standard = LeaseTimings::standard();
        let cases = [
            (
                LeaseTimings {
                    duration: Duration::from_millis(1_500),
                    ..standard
                },
                "lease duration",
                "1.5s",
                "whole seconds",
            ),
            (
                LeaseTimings {
                    duration: Duration::ZERO,
                    ..standard
                },
                "lease duration",
                "0ns",
                "whole seconds",
            ),
            (
                LeaseTimings {
                    duration: Duration::from_secs(6),
                    ..standard
                },
                "renew deadline",
                "6s",
                "less than the lease",
            ),
            (
                LeaseTimings {
                    renew_deadline: Duration::from_secs(8),
                    ..standard
                },
                "renew deadline",
                "8s",
                "lower the renew",
            ),
            (
                LeaseTimings {
                    rpc_timeout: Duration::from_secs(3),
                    ..standard
                },
                "lease request timeout",
                "3s",
                "at most a third",
            ),
            (
                LeaseTimings {
                    renew_period: Duration::from_secs(4),
                    ..standard
                },
                "renew period",
                "4s",
                "at most half",
            ),
            (
                LeaseTimings {
                    retry_period: Duration::from_secs(3),
                    ..standard
                },
                "retry period",
                "3s",
                "at most the renew",
            ),
            (
                LeaseTimings {
                    write_bound: Duration::ZERO,
                    ..standard
                },
                "write bound",
                "0ns",
                "at least 1ms",
            ),
        ];
        for (timings, field, value, remedy) in cases {
            let text = timings.validate().unwrap_err().to_string();
            assert!(
                text.contains(field) && text.contains(value) && text.contains(remedy),
                "{text}"
            );
        }
    }
}
