//! Growing pauses between attempts.

use std::time::Duration;

use tokio::time::Instant;

/// Pauses that double from `first` to `cap`, each shortened by up to a half so that watches that broke together do not
/// come back together. After `QUIET` without a call they begin at `first` again.
///
/// kube's `DefaultBackoff` is not used because its jitter lengthens: its pauses reach a minute, not thirty seconds.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
    last: Option<Instant>,
}

/// As in client-go: two minutes without an error is a recovery.
const QUIET: Duration = Duration::from_secs(120);

impl Backoff {
    /// Pauses from `first` to `cap`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            cap,
            next: first,
            last: None,
        }
    }

    /// For watches: what client-go's reflector does.
    pub(crate) fn for_watches() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(30))
    }

    /// For a watch of which a process has only one, and without which nothing new is seen: asking more often costs little,
    /// and once the API server is back it is found within seconds.
    pub fn for_the_main_watch() -> Self {
        Self::new(Duration::from_millis(800), Duration::from_secs(8))
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) > QUIET) {
            self.next = self.first;
        }
        self.last = Some(now);
        let pause = self.next;
        self.next = (pause * 2).min(self.cap);
        pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.pause())
    }
}

impl kube::runtime::utils::Backoff for Backoff {
    /// It begins anew by itself, once nothing has failed for long enough.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_the_cap_and_never_beyond() {
        let mut backoff = Backoff::for_watches();
        let pauses: Vec<_> = (0..12).map(|_| backoff.pause()).collect();
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(30)));
        assert!(pauses[0] <= Duration::from_millis(800));
        assert!(pauses[11] >= Duration::from_secs(15));
        tokio::time::advance(QUIET + Duration::from_secs(1)).await;
        assert!(backoff.pause() <= Duration::from_millis(800));
    }
}
