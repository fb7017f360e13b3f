//! Leases, and the right to act.
//!
//! This crate knows nothing of AppWrappers. It has two parts:
//! - **one Lease**: [`Supervisor`] keeps it through a [`LeaseBackend`] ([`GuardedLease`]: `kube-leader-election` made safe
//!   by a layer) and publishes a [`Tenure`] while it is held. What writes asks the tenure's [`WriteGuard`], or goes through a
//!   [`guarded_client`]. The webhook's certificate Lease needs no more than this.
//! - **shards** ([`shards`]): which slots belong to which shard, who should hold what, and the hand-over from one replica
//!   to the next.
//!
//! Start reading at `supervisor.rs`; the rules that all of it serves are in `tenure.rs` and `timings.rs`.

mod clock;
mod error;
mod guard;
mod identity;
mod jitter;
mod layer;
mod lease;
mod record;
pub mod shards;
mod supervisor;
mod tenure;
mod timings;
mod watch;

#[cfg(any(test, feature = "testing"))]
pub use clock::testing;
pub use clock::{BootClock, BootInstant, Clock, SharedClock};
pub use error::Error;
pub use guard::{WriteTimeout, fenced, guarded_client};
pub use identity::{Identity, IdentityParts};
pub use layer::FIELD_MANAGER;
pub use lease::{Claimed, GuardedLease, LeaseBackend, LeaseParams, ReleaseNote, lease_client};
pub use record::{ClaimPolicy, Creation};
pub use supervisor::{EventSink, LeaseEvent, LeaseHandle, State, Supervisor, SupervisorOptions};
pub use tenure::{Drained, Epoch, Fenced, Permit, Tenure, WriteGuard};
pub use timings::LeaseTimings;
pub use watch::{LeaseChange, LeaseWatch};
