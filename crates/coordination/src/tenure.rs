//! The right to act on a shard, and what a write must pass.
//!
//! A [`Tenure`] exists while its Lease is ours: only the supervisor makes one, after a checked answer of the API server.
//! It carries the epoch, a deadline on the boot clock counted from before the last good renewal was *sent*, and a
//! cancellation token. A [`WriteGuard`] comes only from a live tenure, and [`WriteGuard::check`] looks at the deadline
//! at the moment of sending; whoever holds a guard but not the time gets [`Fenced`]. That is layer F0 of ha-sharding.md,
//! section 4; the instant between check and send is left to the preconditions of F1 to F3.
//!
//! Each [`Permit`] counts as a write in flight until its outcome is known, or `write_bound` after it was given if it never
//! is. [`Tenure::drain`] shuts the guard and waits for them all; only then is there a [`Drained`], and only with that can a
//! Lease be released (invariant I4).
//!
//! ```compile_fail,E0451
//! // A guard cannot be made without a tenure: it has no public constructor and its field is private.
//! let guard = appwrapper_coordination::WriteGuard { tenure: todo!() };
//! ```
//! ```compile_fail,E0451
//! // Nor can a tenure be made without the supervisor.
//! let tenure = appwrapper_coordination::Tenure { inner: todo!() };
//! ```
//! ```
//! // What the two above get wrong is only the making: the types are there, and a tenure gives a guard.
//! fn guard(tenure: &appwrapper_coordination::Tenure) -> appwrapper_coordination::WriteGuard {
//!     tenure.write_guard()
//! }
//! ```

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::{BootInstant, SharedClock, sleep_until};

/// Counts the holders of one Lease. Grows with each new tenure; a re-created Lease starts anew under another uid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Epoch {
    lease_uid: String,
    transitions: i32,
}

/// The right to act, for as long as it lasts. Clones are the same tenure.
#[derive(Clone)]
pub struct Tenure {
    inner: Arc<Inner>,
}

/// What a write passes. Cheap to clone; of no use after its tenure.
#[derive(Clone)]
pub struct WriteGuard {
    tenure: Tenure,
}

/// One write that may be sent now, and counts as in flight until its outcome is known.
#[must_use = "a permit that is dropped counts as a write of unknown outcome"]
pub struct Permit {
    tenure: Tenure,
    issued_at: BootInstant,
    settled: bool,
}

/// Proof that the guard of a tenure is shut and that none of its writes is in flight or of unknown outcome.
#[derive(Debug)]
pub struct Drained {
    tenure: Tenure,
}

/// Why a write may not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fenced {
    /// No renewal came through in time.
    #[error("the deadline of the lease passed {late:?} ago")]
    DeadlinePassed {
        /// How long ago.
        late: Duration,
    },
    /// The Lease is another's, gone or given up.
    #[error("the lease was lost")]
    Lost,
    /// The shard is being handed over.
    #[error("the shard is being handed over")]
    Shut,
}

struct Inner {
    lease: String,
    holder: String,
    epoch: Epoch,
    write_bound: Duration,
    clock: SharedClock,
    deadline: AtomicU64,
    token: CancellationToken,
    gate: Mutex<Gate>,
    quieter: Notify,
}

/// Under one lock, so that no permit slips out between shutting and counting.
#[derive(Debug, Default)]
struct Gate {
    shut: bool,
    in_flight: usize,
    /// Until then a write of unknown outcome may still take effect.
    unknown_until: BootInstant,
    /// No permit was given later than this.
    last_permit: BootInstant,
}

// === impl Epoch ===

impl Epoch {
    /// The epoch of a Lease at a number of transitions.
    pub const fn new(lease_uid: String, transitions: i32) -> Self {
        Self { lease_uid, transitions }
    }

    /// Uid of the Lease.
    pub fn lease_uid(&self) -> &str {
        &self.lease_uid
    }

    /// Its count of transitions.
    pub fn transitions(&self) -> i32 {
        self.transitions
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.lease_uid, self.transitions)
    }
}

// === impl Tenure ===

impl Tenure {
    pub(crate) fn begin(
        lease: &str,
        holder: &str,
        epoch: Epoch,
        deadline: BootInstant,
        write_bound: Duration,
        clock: SharedClock,
    ) -> Self {
        let inner = Inner {
            lease: lease.to_owned(),
            holder: holder.to_owned(),
            epoch,
            write_bound,
            clock,
            deadline: AtomicU64::new(deadline.nanos()),
            token: CancellationToken::new(),
            gate: Mutex::default(),
            quieter: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A tenure without a Lease, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn for_testing(lease: &str, lasts: Duration, write_bound: Duration, clock: SharedClock) -> Self {
        let deadline = clock.now().after(lasts);
        Self::begin(
            lease,
            "test_uid_1",
            Epoch::new("test-lease".to_owned(), 1),
            deadline,
            write_bound,
            clock,
        )
    }

    /// Ends the tenure, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn lose_for_testing(&self) {
        self.end();
    }

    /// Name of the Lease.
    pub fn lease(&self) -> &str {
        &self.inner.lease
    }

    /// Identity under which it is held.
    pub fn holder(&self) -> &str {
        &self.inner.holder
    }

    /// The epoch.
    pub fn epoch(&self) -> &Epoch {
        &self.inner.epoch
    }

    /// Limit for each write under this tenure, at the client and at the server.
    pub fn write_bound(&self) -> Duration {
        self.inner.write_bound
    }

    /// Cancelled when the tenure ends, for whatever reason. Not cancelled by a drain that still goes on.
    pub fn ended(&self) -> CancellationToken {
        self.inner.token.clone()
    }

    /// When the tenure ends if no renewal comes through.
    pub fn deadline(&self) -> BootInstant {
        BootInstant::from_nanos(self.inner.deadline.load(Ordering::SeqCst))
    }

    /// Time left until the deadline; zero if it has passed.
    pub fn left(&self) -> Duration {
        self.deadline().since(self.inner.clock.now())
    }

    /// Whether the tenure goes on. For loops that want to stop early; a write asks its guard.
    pub fn is_live(&self) -> bool {
        !self.inner.token.is_cancelled() && !self.left().is_zero()
    }

    /// A guard for the writes of this tenure.
    pub fn write_guard(&self) -> WriteGuard {
        WriteGuard { tenure: self.clone() }
    }

    /// Shuts the guard for good and waits until no write is in flight or of unknown outcome: at most `write_bound` after
    /// the last permit. Running reconciles should have been awaited before, so that they are not cut off; whether they
    /// were makes no difference to safety.
    pub async fn drain(&self) -> Drained {
        self.shut();
        self.quiet().await;
        Drained { tenure: self.clone() }
    }

    /// Shuts the guard: no permit is given from here on.
    pub fn shut(&self) {
        self.inner.gate().shut = true;
    }

    /// Moves the deadline out after a renewal. A tenure past its deadline is not revived.
    pub(crate) fn extend(&self, deadline: BootInstant) -> bool {
        if !self.is_live() {
            return false;
        }
        self.inner.deadline.fetch_max(deadline.nanos(), Ordering::SeqCst);
        true
    }

    /// Ends the tenure.
    pub(crate) fn end(&self) {
        self.shut();
        self.inner.token.cancel();
    }

    /// Resolves when the deadline has passed.
    pub(crate) async fn expired(&self) {
        while !self.left().is_zero() {
            sleep_until(&self.inner.clock, self.deadline()).await;
        }
    }

    /// When all writes are certainly over, given that the guard is shut.
    pub(crate) fn quiet_at(&self) -> BootInstant {
        let gate = self.inner.gate();
        if gate.in_flight == 0 {
            gate.unknown_until
        } else {
            gate.last_permit.after(self.inner.write_bound)
        }
    }

    async fn quiet(&self) {
        loop {
            let quieter = self.inner.quieter.notified();
            let quiet_at = self.quiet_at();
            if self.inner.clock.now() >= quiet_at {
                return;
            }
            tokio::select! {
                biased;
                () = quieter => {}
                () = sleep_until(&self.inner.clock, quiet_at) => {}
            }
        }
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("lease", &self.inner.lease)
            .field("epoch", &self.inner.epoch)
            .field("left", &self.left())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Tenure {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Tenure {}

// === impl WriteGuard ===

impl WriteGuard {
    /// Asks for leave to send one write, now. Call it last before sending; a permit kept is a permit wasted.
    pub fn check(&self) -> Result<Permit, Fenced> {
        let inner = &self.tenure.inner;
        let mut gate = inner.gate();
        // The clock is read under the lock: a drain that finds the gate quiet has seen every permit.
        let now = inner.clock.now();
        let deadline = self.tenure.deadline();
        if inner.token.is_cancelled() {
            return Err(Fenced::Lost);
        }
        if now >= deadline {
            return Err(Fenced::DeadlinePassed {
                late: now.since(deadline),
            });
        }
        if gate.shut {
            return Err(Fenced::Shut);
        }
        gate.in_flight += 1;
        gate.last_permit = now;
        drop(gate);
        Ok(Permit {
            tenure: self.tenure.clone(),
            issued_at: now,
            settled: false,
        })
    }

    /// The tenure it belongs to.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriteGuard").field(&self.tenure).finish()
    }
}

// === impl Permit ===

impl Permit {
    /// What is left of the write's time limit. Give the client this much, and the server `timeout=` of the same.
    pub fn time_limit(&self) -> Duration {
        let inner = &self.tenure.inner;
        self.issued_at.after(inner.write_bound).since(inner.clock.now())
    }

    /// The server has answered: the write took effect or never will.
    pub fn settle(mut self) {
        self.settled = true;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let inner = &self.tenure.inner;
        let mut gate = inner.gate();
        gate.in_flight = gate.in_flight.saturating_sub(1);
        if !self.settled {
            gate.unknown_until = gate.unknown_until.max(self.issued_at.after(inner.write_bound));
        }
        drop(gate);
        inner.quieter.notify_waiters();
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("issued_at", &self.issued_at)
            .finish_non_exhaustive()
    }
}

// === impl Drained ===

impl Drained {
    /// The tenure that was drained.
    pub fn tenure(&self) -> &Tenure {
        &self.tenure
    }
}

// === impl Fenced ===

impl Fenced {
    /// A short, closed name for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::DeadlinePassed { .. } => "deadline",
            Self::Lost => "lost",
            Self::Shut => "shut",
        }
    }
}

// === impl Inner ===

impl Inner {
    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
