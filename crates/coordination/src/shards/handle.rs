//! The caller's side of a [`ShardSet`](super::ShardSet): what to do about each shard, and how to answer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    clock::{BootInstant, SharedClock},
    error::Error,
    identity::Identity,
    supervisor::{LeaseEvent, State},
    tenure::{Drained, Tenure},
    timings::LeaseTimings,
};

use super::{
    handover::{Handover, Takeover},
    leader::LeaderOptions,
    roster::Roster,
    slot::{RingNames, ShardId},
};

/// What to do about a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    Idle,
    /// Keep its caches warm, and say so with [`ShardSetHandle::report_warm`].
    Warm,
    /// Leave the caches as they are: the Lease is about to be ours, and what is cold need not be listed before it is.
    Next,
    /// Act, while the tenure lasts.
    Holder {
        /// The right to.
        tenure: Tenure,
        /// How it came about: what to wait for, or to doubt, before acting.
        takeover: Takeover,
    },
    /// Stop acting, drain the tenure and release it.
    HandingOver {
        /// The tenure to drain.
        tenure: Tenure,
    },
}

/// The roles for all shards.
pub type Roles = BTreeMap<ShardId, Role>;

/// Hears of the events of all Leases: the Lease's name and what happened.
pub type RingEvents = Arc<dyn Fn(&str, &LeaseEvent) + Send + Sync>;

/// What a replica needs to know.
#[derive(Clone)]
pub struct ShardSetOptions {
    /// Namespace of the Leases.
    pub namespace: String,
    /// Their names.
    pub names: RingNames,
    /// Name of the leader's Lease. While it is live under an identity that has not our form, no tenure begins and
    /// those under way are handed over.
    pub leader_lease: String,
    /// Who we are.
    pub identity: Identity,
    /// Hash of our pod template.
    pub template: String,
    /// Our pod, as the owner of the member Lease.
    pub owner: Option<OwnerReference>,
    /// Times of all Leases.
    pub timings: LeaseTimings,
    /// The clock.
    pub clock: SharedClock,
    /// What to do when leading.
    pub leader: LeaderOptions,
    /// Seed of the jitter; none for one from the operating system.
    pub seed: Option<u64>,
    /// Who hears of events.
    pub events: Option<RingEvents>,
}

/// The caller's side. When the last clone is dropped everything ends, without a release.
#[derive(Debug, Clone)]
pub struct ShardSetHandle {
    pub(super) roles: watch::Receiver<Roles>,
    pub(super) roster: watch::Receiver<Roster>,
    pub(super) placed: watch::Receiver<bool>,
    pub(super) leader: watch::Receiver<State>,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) progress: Arc<AtomicU64>,
}

/// What the caller asks for.
#[derive(Debug)]
pub(super) enum Command {
    Warm(ShardId, bool),
    Release(Drained, Option<Handover>, oneshot::Sender<Result<(), Error>>),
    Drain(oneshot::Sender<()>),
}

// === impl ShardSetHandle ===

impl ShardSetHandle {
    /// What to do, and a way to await changes.
    pub fn roles(&self) -> watch::Receiver<Roles> {
        self.roles.clone()
    }

    /// Whether the leader has taken this process into account: from then on the roles are what it wants of us.
    pub fn placed(&self) -> watch::Receiver<bool> {
        self.placed.clone()
    }

    /// What is known of the ring, for display.
    pub fn roster(&self) -> watch::Receiver<Roster> {
        self.roster.clone()
    }

    /// How the leader's Lease stands, for the readiness message and for metrics.
    pub fn leader(&self) -> watch::Receiver<State> {
        self.leader.clone()
    }

    /// Says whether the caches of a shard are warm. Moves wait for that.
    pub fn report_warm(&self, shard: ShardId, warm: bool) {
        // After the end there is nobody to wait.
        let _ = self.commands.send(Command::Warm(shard, warm));
    }

    /// Gives a shard up, once its tenure is drained. Always do so after [`Role::HandingOver`]: the Lease is renewed until
    /// then, so that nobody else could take it. If a run is stuck, so that it is not known how far the writes went, pass no
    /// hand-over: the guard is shut all the same, and the successor will look past its cache.
    pub async fn release(&self, drained: Drained, handover: Option<Handover>) -> Result<(), Error> {
        let ended = Error::Ended {
            lease: drained.tenure().lease().to_owned(),
        };
        let (done, answer) = oneshot::channel();
        if self.commands.send(Command::Release(drained, handover, done)).is_err() {
            return Err(ended);
        }
        answer.await.unwrap_or(Err(ended))
    }

    /// Hands everything over, because the process is to end: each shard held becomes [`Role::HandingOver`]. Resolves when
    /// nothing is held any more. Bound it by the grace period; what is left then runs out.
    pub async fn drain(&self) {
        let (done, finished) = oneshot::channel();
        if self.commands.send(Command::Drain(done)).is_ok() {
            let _ = finished.await;
        }
    }

    /// The oldest sign of life among the loop and all supervisors. Every one of them gives one at least once per lease
    /// duration, whether the API server answers or not; much older means wedged or starved.
    pub fn last_progress(&self) -> BootInstant {
        BootInstant::from_nanos(self.progress.load(Ordering::SeqCst))
    }
}
