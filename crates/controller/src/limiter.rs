//! The limit on confirmations for all AppWrappers together: a token bucket.
//!
//! A whole watch that lags makes every AppWrapper ask at once; the API server must not be the one to pay for it.

use std::{sync::Mutex, time::Duration};

use tokio::time::Instant;

/// A token bucket.
#[derive(Debug)]
pub struct Limiter {
    per_second: f64,
    burst: f64,
    state: Mutex<(f64, Instant)>,
}

impl Limiter {
    /// Allows `per_second` on average, and `burst` at once.
    pub fn new(per_second: f64, burst: f64) -> Self {
        Self {
            per_second,
            burst,
            state: Mutex::new((burst, Instant::now())),
        }
    }

    /// Takes one token, if there is one.
    pub fn take(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = Instant::now();
        let passed: Duration = now.duration_since(state.1);
        let tokens = (state.0 + passed.as_secs_f64() * self.per_second).min(self.burst);
        let granted = tokens >= 1.0;
        *state = (if granted { tokens - 1.0 } else { tokens }, now);
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_granted_and_then_the_rate() {
        let limiter = Limiter::new(2.0, 3.0);
        assert_eq!((0..10).filter(|_| limiter.take()).count(), 3);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..10).filter(|_| limiter.take()).count(), 2);
    }
}
