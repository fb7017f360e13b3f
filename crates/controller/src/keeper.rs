//! One shard's life in this replica: from cold to warm to held to handed over, as its role says.
//!
//! Before a tenure is acted on, the caches must be at least as new as the last holder's writes, or what it did last would be
//! taken for undone. How that is known depends on how the shard came:
//! - handed over: the watches have come to the versions that the last holder left ([`Shard::caught_up`]);
//! - after a crash, or if that takes too long: nobody can say how far the last holder got, so the shard is listed anew, after
//!   the claim and from storage. That is a list per kind and shard, where reading each AppWrapper and component past the cache
//!   would be a request per object. Objects in a transient phase alone would not do: a running AppWrapper whose Job was just
//!   replaced would be judged by the old one. What is still stale after that is refused by the versions in our patches.
//!
//! A list that began after the claim is as good, so a shard that came cold is not listed twice.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use appwrapper_coordination::{
    Tenure,
    shards::{Role, Roles, ShardId, ShardSetHandle, Takeover},
};
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    ledger::Ledger,
    shard::{Environment, Scope, Shard, Term},
};

/// The shards that are cached here, for readiness and display. Clones are the same board.
#[derive(Clone)]
pub struct Board {
    shards: Arc<Mutex<BTreeMap<ShardId, Entry>>>,
    changed: watch::Sender<()>,
}

#[derive(Clone)]
struct Entry {
    shard: Arc<Shard>,
    synced: bool,
}

/// Looks after one shard.
pub struct Keeper {
    id: ShardId,
    environment: Environment,
    handle: ShardSetHandle,
    board: Board,
    warm: Option<Warm>,
    /// A tenure with which all is done; its role may linger for a moment.
    over: Option<Tenure>,
}

/// A shard with its tasks, which end when it is dropped.
struct Warm {
    shard: Arc<Shard>,
    tasks: JoinSet<()>,
}

impl Board {
    /// An empty board.
    pub fn new() -> Self {
        Self {
            shards: Arc::default(),
            changed: watch::channel(()).0,
        }
    }

    /// The shards that are cached here.
    pub fn shards(&self) -> BTreeMap<ShardId, Arc<Shard>> {
        let entries = self.entries();
        entries
            .iter()
            .map(|(id, entry)| (*id, Arc::clone(&entry.shard)))
            .collect()
    }

    /// Whether the caches of a shard have been listed.
    pub fn is_synced(&self, id: ShardId) -> bool {
        self.entries().get(&id).is_some_and(|entry| entry.synced)
    }

    /// Told of every change.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn put(&self, id: ShardId, shard: Option<Arc<Shard>>) {
        match shard {
            Some(shard) => drop(self.entries().insert(id, Entry { shard, synced: false })),
            None => drop(self.entries().remove(&id)),
        }
        self.changed.send_replace(());
    }

    fn synced(&self, id: ShardId) {
        if let Some(entry) = self.entries().get_mut(&id) {
            entry.synced = true;
        }
        self.changed.send_replace(());
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<ShardId, Entry>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Board {
    fn default() -> Self {
        Self::new()
    }
}

impl Keeper {
    /// A keeper for a shard that is cold.
    pub fn new(id: ShardId, environment: Environment, handle: ShardSetHandle, board: Board) -> Self {
        Self {
            id,
            environment,
            handle,
            board,
            warm: None,
            over: None,
        }
    }

    /// Does what the role says, until the roles end. Ends early only if a watch does, and the process must end with it.
    pub async fn run(mut self) {
        let mut roles = self.handle.roles();
        loop {
            let role = current(&mut roles, self.id);
            match role {
                Role::Idle => self.cool(),
                Role::Warm => drop(self.warm()),
                Role::Next => {}
                Role::Holder { tenure, .. } | Role::HandingOver { tenure } if self.over.as_ref() == Some(&tenure) => {}
                Role::Holder { tenure, takeover } => {
                    self.act(&tenure, takeover, &mut roles).await;
                    self.over = Some(tenure);
                    continue;
                }
                Role::HandingOver { tenure } => {
                    // Given away before it was begun: what the last holder left is not known here.
                    self.release(&tenure, None).await;
                    self.over = Some(tenure);
                    continue;
                }
            }
            tokio::select! {
                changed = roles.changed() => if changed.is_err() { return },
                () = ended(self.warm.as_mut()) => return,
            }
        }
    }

    /// The shard, made if it is cold.
    fn warm(&mut self) -> Arc<Shard> {
        if let Some(warm) = &self.warm {
            return Arc::clone(&warm.shard);
        }
        let (shard, watching) = Shard::new(self.environment.clone(), Scope::of(self.id));
        let mut tasks = JoinSet::new();
        tasks.spawn(watching);
        self.board.put(self.id, Some(Arc::clone(&shard)));
        let (id, board, handle, listed) = (self.id, self.board.clone(), self.handle.clone(), Arc::clone(&shard));
        tasks.spawn(async move {
            listed.synced().await;
            board.synced(id);
            handle.report_warm(id, true);
            std::future::pending::<()>().await;
        });
        self.warm = Some(Warm {
            shard: Arc::clone(&shard),
            tasks,
        });
        shard
    }

    fn cool(&mut self) {
        if self.warm.take().is_some() {
            self.board.put(self.id, None);
            self.handle.report_warm(self.id, false);
        }
    }

    /// Acts under a tenure until it ends, or until it is to be handed over; then hands it over.
    async fn act(&mut self, tenure: &Tenure, takeover: Takeover, roles: &mut watch::Receiver<Roles>) {
        let gained = Instant::now();
        let id = self.id;
        let ready = tokio::select! {
            ready = self.prepare(tenure, takeover) => Some(ready),
            () = leaves(roles, id, tenure) => None,
            () = tenure.ended().cancelled_owned() => None,
        };
        let mut handover = None;
        if let Some((shard, ledger)) = ready {
            tracing::info!(shard = %id, epoch = %tenure.epoch(), after = ?gained.elapsed(), "the shard is ours");
            let term = Term {
                tenure: tenure.clone(),
                ledger,
                gained,
            };
            let stop = CancellationToken::new();
            let stopping = async {
                leaves(roles, id, tenure).await;
                stop.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = shard.hold(&term, &stop) => {}
                () = stopping => {}
                () = ended(self.warm.as_mut()) => {}
            }
            handover = term.ledger.handover();
        }
        if tenure.ended().is_cancelled() {
            tracing::warn!(shard = %id, epoch = %tenure.epoch(), "the shard was lost");
        } else if matches!(current(roles, id), Role::HandingOver { .. }) {
            self.release(tenure, handover).await;
        }
    }

    /// Sees to it that the caches are new enough to be acted on.
    async fn prepare(&mut self, tenure: &Tenure, takeover: Takeover) -> (Arc<Shard>, Ledger) {
        let was_cold = self.warm.is_none();
        let mut shard = self.warm();
        let new_enough = match &takeover {
            _ if was_cold => true,
            Takeover::Graceful(left) => shard.caught_up(left).await,
            Takeover::Abrupt => false,
        };
        if !new_enough {
            self.warm = None;
            shard = self.warm();
        }
        shard.synced().await;
        let known = match takeover {
            Takeover::Graceful(left) if new_enough => left,
            // The next holder must have seen what we saw.
            Takeover::Graceful(_) | Takeover::Abrupt => shard.seen(),
        };
        (shard, Ledger::new(known, tenure.write_bound()))
    }

    async fn release(&self, tenure: &Tenure, handover: Option<appwrapper_coordination::shards::Handover>) {
        let drained = tenure.drain().await;
        if let Err(error) = self.handle.release(drained, handover).await {
            tracing::warn!(shard = %self.id, %error, "the Lease was not released; it runs out by itself");
        }
    }
}

fn current(roles: &mut watch::Receiver<Roles>, id: ShardId) -> Role {
    roles.borrow_and_update().get(&id).cloned().unwrap_or(Role::Idle)
}

/// Resolves when this tenure is no longer to be acted on.
async fn leaves(roles: &mut watch::Receiver<Roles>, id: ShardId, tenure: &Tenure) {
    let holds = |roles: &Roles| matches!(roles.get(&id), Some(Role::Holder { tenure: held, .. }) if held == tenure);
    // An error says that there will be no other role; the tenure then ends by itself.
    if roles.wait_for(|roles| !holds(roles)).await.is_err() {
        tenure.ended().cancelled().await;
    }
}

/// Resolves when a task of the shard ends, which none of them should.
async fn ended(warm: Option<&mut Warm>) {
    match warm {
        Some(warm) => {
            warm.tasks.join_next().await;
            // From here on it is seen at every look.
            warm.tasks.abort_all();
        }
        None => std::future::pending().await,
    }
}
