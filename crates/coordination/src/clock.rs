//! The clock that fences and expiries are measured on.
//!
//! `std::time::Instant` is `CLOCK_MONOTONIC`, which stands still while a virtual machine is suspended. A holder that
//! sleeps through its lease would wake up and believe that no time has passed. `CLOCK_BOOTTIME` goes on counting, and
//! like the monotonic clock it is never set, so a wrong wall clock changes nothing (invariant I10).
//!
//! Everything in this crate reads time through [`Clock`], which the simulation replaces.

use std::{fmt, sync::Arc, time::Duration};

/// A point on the boot clock. Only comparable within one machine and one boot; never sent anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootInstant(Duration);

// === impl BootInstant ===

impl BootInstant {
    /// The point `since_boot` after the machine started.
    pub const fn from_boot(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// Time since the machine started.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// This point moved into the future.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// Time from `earlier` to here, zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Nanoseconds for an atomic; wraps after 584 years.
    pub(crate) fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }
}

/// Tells the time since boot, suspend included.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time now.
    fn now(&self) -> BootInstant;
}

/// A clock shared by everything that belongs to one replica.
pub type SharedClock = Arc<dyn Clock>;

/// `CLOCK_BOOTTIME` of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

// === impl BootClock ===

impl BootClock {
    /// The clock, ready to be shared.
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for BootClock {
    fn now(&self) -> BootInstant {
        // Elsewhere than on Linux (a developer's machine) the monotonic clock is the closest there is.
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        BootInstant(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(nanos)))
    }
}

/// Longest single sleep: tokio's timers stand still during a suspend, so the boot clock is looked at again after this.
const LONGEST_NAP: Duration = Duration::from_millis(500);

/// Sleeps until the clock shows `when` or later. Returns at once if it already does.
pub(crate) async fn sleep_until(clock: &SharedClock, when: BootInstant) {
    loop {
        let left = when.since(clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST_NAP)).await;
    }
}

/// Clocks for tests.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use super::{BootInstant, Clock};

    /// Follows tokio's clock, which tests pause and advance, plus a part set by hand (a suspend) and a rate.
    #[derive(Debug, Clone)]
    pub struct TokioClock {
        start: tokio::time::Instant,
        extra_nanos: Arc<AtomicU64>,
        rate_ppm: u64,
    }

    // === impl TokioClock ===

    impl TokioClock {
        /// A clock that shows `offset` now and runs at `rate_ppm` millionths of tokio's clock (1,000,000 is true).
        pub fn new(offset: Duration, rate_ppm: u64) -> Self {
            let nanos = BootInstant::from_boot(offset).nanos();
            Self {
                start: tokio::time::Instant::now(),
                extra_nanos: Arc::new(AtomicU64::new(nanos)),
                rate_ppm,
            }
        }

        /// Moves the clock ahead of tokio's, as a suspended machine finds it after waking up.
        pub fn jump(&self, by: Duration) {
            self.extra_nanos
                .fetch_add(BootInstant::from_boot(by).nanos(), Ordering::SeqCst);
        }
    }

    impl Default for TokioClock {
        fn default() -> Self {
            Self::new(Duration::from_secs(1_000), 1_000_000)
        }
    }

    impl Clock for TokioClock {
        fn now(&self) -> BootInstant {
            let elapsed = BootInstant::from_boot(self.start.elapsed()).nanos();
            let scaled = u128::from(elapsed) * u128::from(self.rate_ppm) / 1_000_000;
            let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
            BootInstant::from_nanos(scaled.saturating_add(self.extra_nanos.load(Ordering::SeqCst)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_moves_forward() {
        let first = BootClock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(BootClock.now() > first);
        assert!(first.since_boot() > Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_ends_when_the_clock_jumps_over_its_end() {
        let clock = testing::TokioClock::default();
        let shared: SharedClock = Arc::new(clock.clone());
        let begun = tokio::time::Instant::now();
        let end = clock.now().after(Duration::from_secs(60));
        clock.jump(Duration::from_secs(59));
        sleep_until(&shared, end).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
    }
}
