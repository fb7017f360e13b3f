//! One replica: its part in the ring of Leases, and a keeper for each shard.
//!
//! [`Replica::run`] joins the two until it is told to stop, and then hands everything over. Whatever ends before that ends
//! the replica with an error, and the process with it: nothing is half alive.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, anyhow, bail};
use appwrapper_coordination::{
    Identity, LeaseEvent, LeaseTimings, SharedClock, State,
    shards::{
        LeaderOptions, Member, RingEvents, RingNames, Role, ShardCount, ShardId, ShardSet, ShardSetHandle,
        ShardSetOptions,
    },
};
use appwrapper_metrics::{Health, Metrics, labels::Renewal};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    backfill,
    keeper::{Board, Keeper},
    shard::Environment,
};

/// Lease of the Go controller, kept so that the two never act together (design/decisions.md 7).
pub const LEADER_LEASE: &str = "f134c674.codeflare.dev";
/// How long a hand-over of everything may take. The pod's grace period is longer.
const FAREWELL: Duration = Duration::from_secs(12);

/// Names of the ring's Leases, labels and annotations.
pub fn ring() -> RingNames {
    RingNames::new(appwrapper_api::RING, appwrapper_api::GROUP)
}

/// What a replica needs to know besides what its shards do.
pub struct ReplicaOptions {
    /// For Leases alone.
    pub lease_client: Client,
    /// Namespace of the Leases.
    pub namespace: String,
    /// Who we are.
    pub identity: Identity,
    /// Hash of the pod template: in a rollout, shards go to the newest.
    pub template: String,
    /// Our pod, as the owner of our member Lease.
    pub owner: Option<OwnerReference>,
    /// Times of all Leases.
    pub timings: LeaseTimings,
    /// The clock of all Leases.
    pub clock: SharedClock,
    /// How many shards there should be.
    pub shards: ShardCount,
    /// How many replicas besides the holder keep a shard's caches warm.
    pub backups: usize,
    /// Seed of the jitter; none for one from the operating system.
    pub seed: Option<u64>,
}

/// A replica.
pub struct Replica {
    environment: Environment,
    handle: ShardSetHandle,
    set: ShardSet,
    board: Board,
    identity: Identity,
    clock: SharedClock,
    duration: Duration,
}

impl Replica {
    /// A replica that does nothing yet.
    pub fn new(options: ReplicaOptions, environment: Environment) -> anyhow::Result<Self> {
        let ReplicaOptions {
            lease_client,
            namespace,
            identity,
            template,
            owner,
            timings,
            clock,
            shards,
            backups,
            seed,
        } = options;
        // With one shard there is nothing to select, and a slot would be a write for nothing.
        let work = (shards.get() > 1).then(|| backfill::work(environment.client.clone()));
        let set = ShardSetOptions {
            namespace,
            names: ring(),
            leader_lease: LEADER_LEASE.to_owned(),
            identity: identity.clone(),
            template,
            owner,
            timings,
            clock: Arc::clone(&clock),
            leader: LeaderOptions {
                backups,
                work,
                ..LeaderOptions::new(shards)
            },
            seed,
            events: Some(events(&environment.metrics)),
        };
        let (handle, set) =
            ShardSet::new(lease_client, environment.client.clone(), set).context("cannot use Leases")?;
        Ok(Self {
            environment,
            handle,
            set,
            board: Board::new(),
            identity,
            clock,
            duration: timings.duration,
        })
    }

    /// What is known of the ring.
    pub fn handle(&self) -> &ShardSetHandle {
        &self.handle
    }

    /// The shards that are cached here.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Plays its part until `stop` is cancelled, then hands over what it holds.
    pub async fn run(self, health: Health, stop: CancellationToken) -> anyhow::Result<()> {
        let Self {
            environment,
            handle,
            set,
            board,
            identity,
            clock,
            duration,
        } = self;
        // Ends with this future, whatever becomes of it.
        let mut ring = JoinSet::new();
        ring.spawn(set.run());
        let mut helpers = JoinSet::new();
        helpers.spawn(lead(handle.clone(), Arc::clone(&environment.metrics)));
        helpers.spawn(ready(handle.clone(), board.clone(), health.clone(), duration * 2));
        helpers.spawn(live(handle.clone(), health, Arc::clone(&clock), duration));
        tokio::select! {
            Some(result) = ring.join_next() => match result {
                Ok(result) => result.context("leader election"),
                Err(error) => Err(anyhow::Error::new(error).context("leader election")),
            },
            error = twin(handle.clone(), identity, clock, duration * 2) => Err(error),
            result = keep(environment, handle.clone(), board) => result,
            () = async { stop.cancelled().await; farewell(&handle).await } => Ok(()),
        }
    }
}

/// Hands over everything. Keepers go on meanwhile: they do it.
async fn farewell(handle: &ShardSetHandle) {
    if tokio::time::timeout(FAREWELL, handle.drain()).await.is_err() {
        tracing::warn!("not everything could be handed over in time; what is left runs out by itself");
    }
}

/// A keeper for each shard that there ever is a role for. Ends when one of them does.
async fn keep(environment: Environment, handle: ShardSetHandle, board: Board) -> anyhow::Result<()> {
    let mut roles = handle.roles();
    let mut keepers = JoinSet::new();
    let mut kept: BTreeSet<ShardId> = BTreeSet::new();
    loop {
        let ids: Vec<ShardId> = roles.borrow_and_update().keys().copied().collect();
        for id in ids {
            if kept.insert(id) {
                let keeper = Keeper::new(id, environment.clone(), handle.clone(), board.clone());
                keepers.spawn(keeper.run());
            }
        }
        tokio::select! {
            changed = roles.changed() => if changed.is_err() { std::future::pending::<()>().await },
            Some(_) = keepers.join_next() => bail!("the watches of a shard ended; see the log"),
        }
    }
}

/// Tells metrics whether this replica leads.
async fn lead(handle: ShardSetHandle, metrics: Arc<Metrics>) {
    let mut leader = handle.leader();
    loop {
        let leads = leader.borrow_and_update().tenure().is_some();
        metrics.lease.set_leader(leads);
        if leader.changed().await.is_err() {
            return;
        }
    }
}

/// Whoever holds the leader's Lease without being one of us.
fn stranger(leader: &State) -> Option<String> {
    match leader {
        State::Standby { holder: Some(holder) } if Identity::parse(holder).is_none() => Some(holder.clone()),
        _ => None,
    }
}

/// Ready once the leader has said what is to be held and warm here, and all that is: a rollout waits for it, and the next old
/// replica may then go. Nothing else waits for a leader, so neither does this for longer than `patience`. An API server that
/// is away later changes nothing; a stranger on the leader's Lease does, since then nothing is done here.
async fn ready(handle: ShardSetHandle, board: Board, health: Health, patience: Duration) {
    let (mut leader, mut roles, mut synced) = (handle.leader(), handle.roles(), board.changes());
    let mut placed = handle.placed();
    let mut unready = Some(health.not_ready("shards", "the Leases of the shards are not known yet"));
    let mut was_ready = false;
    let patience = tokio::time::sleep(patience);
    tokio::pin!(patience);
    loop {
        let foreign = stranger(&leader.borrow_and_update());
        // Before the roles, which are at least as new.
        let told = *placed.borrow_and_update() || patience.is_elapsed();
        let (known, cold): (bool, Vec<String>) = {
            let roles = roles.borrow_and_update();
            let cold = roles
                .iter()
                .filter(|(id, role)| **role != Role::Idle && !board.is_synced(**id));
            let cold = cold.map(|(id, _)| id.to_string()).collect();
            let known = !roles.is_empty();
            was_ready |= told && known && Vec::is_empty(&cold);
            (known, cold)
        };
        let because = match foreign {
            Some(holder) => Some(format!(
                "waits for {holder}, which holds the Lease {LEADER_LEASE} and is none of our replicas; end that controller"
            )),
            None if was_ready => None,
            None if !known => Some("the Leases of the shards are not known yet".to_owned()),
            None if cold.is_empty() => Some("the leader has not said yet who should hold which shard".to_owned()),
            None => Some(format!(
                "AppWrappers and pods are not listed yet of shards {}",
                cold.join(", ")
            )),
        };
        match because {
            None => unready = None,
            Some(because) => unready
                .get_or_insert_with(|| health.not_ready("shards", &because))
                .because(&because),
        }
        tokio::select! {
            changed = leader.changed() => if changed.is_err() { return },
            changed = roles.changed() => if changed.is_err() { return },
            changed = placed.changed() => if changed.is_err() { return },
            _ = synced.changed() => {}
            () = &mut patience, if !patience.is_elapsed() => {}
        }
    }
}

/// The process is alive while the loops of all Leases make progress, whatever the API server does.
async fn live(handle: ShardSetHandle, health: Health, clock: SharedClock, duration: Duration) {
    let progress = health.watch_loop("leases", duration * 3);
    let mut seen = handle.last_progress();
    let mut tick = tokio::time::interval(duration / 4);
    loop {
        tick.tick().await;
        let latest = handle.last_progress();
        if latest != seen || clock.now().since(latest) < duration {
            seen = latest;
            progress.made();
        }
    }
}

/// Resolves with an error if another process goes by our name. One that died is forgotten within the duration of a Lease.
async fn twin(handle: ShardSetHandle, identity: Identity, clock: SharedClock, patience: Duration) -> anyhow::Error {
    let mut roster = handle.roster();
    loop {
        let other = |member: &Member| {
            member.name == identity.pod()
                && member.identity != identity.as_str()
                && clock.now().since(member.since) > patience
        };
        let twin = roster.borrow_and_update().members().into_iter().find(other);
        if let Some(twin) = twin {
            return anyhow!(
                "another live process calls itself {} (it is {}, this is {identity}); give each replica a name of its own by \
                 --identity or POD_NAME",
                twin.name,
                twin.identity
            );
        }
        if roster.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// What happens to the Leases, as metrics.
fn events(metrics: &Arc<Metrics>) -> RingEvents {
    let (metrics, names) = (Arc::clone(metrics), ring());
    Arc::new(move |lease, event| {
        let Some(shard) = names.shard_of(lease) else { return };
        let shard = u32::from(shard.index());
        match event {
            LeaseEvent::Renewed { took, .. } => metrics.lease.renewal(shard, Renewal::Renewed, *took),
            LeaseEvent::Failed { reason, .. } => {
                let result = match *reason {
                    "conflict" => Renewal::Conflict,
                    "timeout" => Renewal::Timeout,
                    _ => Renewal::Error,
                };
                metrics.lease.renewal(shard, result, Duration::ZERO);
            }
            _ => {}
        }
    })
}
