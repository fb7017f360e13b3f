//! Growing pauses between attempts.

use std::time::Duration;

use tokio::time::Instant;

/// Pauses that double from `first` to `cap`, each shortened by up to a half so that watches that broke together do not
/// come back together. After `QUIET` without a call they begin at `first` again.
///
/// kube's `DefaultBackoff` is not used because its jitter lengthens: its pauses reach a minute, not thirty seconds.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
    last: Option<Instant>,
}

/// As in client-go: two minutes without an error is a recovery.
const QUIET: Duration = Duration::from_secs(120);

impl Backoff {
    pub(crate) fn new(first: Duration, cap: Duration) -> Self {
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

    pub(crate) fn next(&mut self) -> Duration {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_the_cap_and_never_beyond() {
        let mut backoff = Backoff::for_watches();
        let pauses: Vec<_> = (0..12).map(|_| backoff.next()).collect();
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(30)));
        assert!(pauses[0] <= Duration::from_millis(800));
        assert!(pauses[11] >= Duration::from_secs(15));
        tokio::time::advance(QUIET + Duration::from_secs(1)).await;
        assert!(backoff.next() <= Duration::from_millis(800));
    }
}
