//! The tasks that a [`ShardSet`](super::ShardSet) starts: supervisors, the map check after a claim, leading.

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    error::Error,
    jitter::stable_hash,
    lease::{GuardedLease, LeaseParams, ReleaseNote},
    record::{ClaimPolicy, Creation},
    supervisor::{EventSink, LeaseEvent, LeaseHandle, Supervisor, SupervisorOptions},
    tenure::{Tenure, WriteGuard},
};

use super::{
    handle::{RingEvents, ShardSetOptions},
    handover::Takeover,
    leader::{Leader, LeaderWork},
    leases::RingLeases,
    map::ShardMap,
    roster::Roster,
    set::News,
    slot::{RingNames, ShardId},
};

/// Tasks whose end with an error ends the process.
pub(crate) type Tasks = JoinSet<Result<(), Error>>;

/// Pause between tries of a map check, and between runs of the leader's other work.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts supervisors.
#[derive(Clone)]
pub(crate) struct Starter {
    pub(crate) options: ShardSetOptions,
    pub(crate) client: Client,
    pub(crate) newsroom: mpsc::UnboundedSender<News>,
}

// === impl Starter ===

impl Starter {
    /// A supervisor for the Lease of that name. Its changes of state become news.
    pub(crate) fn start(
        &self,
        tasks: &mut Tasks,
        name: &str,
        policy: ClaimPolicy,
        creation: Option<Creation>,
        standby_poll: Duration,
    ) -> Result<LeaseHandle, Error> {
        let ShardSetOptions {
            namespace,
            identity,
            timings,
            clock,
            seed,
            events,
            ..
        } = &self.options;
        let params = LeaseParams {
            namespace: namespace.clone(),
            name: name.to_owned(),
            identity: identity.clone(),
            timings: *timings,
            creation,
        };
        let backend = GuardedLease::new(&self.client, params, Arc::clone(clock))?;
        let lease = name.to_owned();
        let sink = |events: &RingEvents| -> EventSink {
            let (events, lease) = (Arc::clone(events), lease.clone());
            Arc::new(move |event: &LeaseEvent| events(&lease, event))
        };
        let options = SupervisorOptions {
            lease: name.to_owned(),
            identity: identity.clone(),
            timings: *timings,
            clock: Arc::clone(clock),
            policy,
            standby_poll,
            seed: seed.map(|seed| seed ^ stable_hash(&[name])),
            events: events.as_ref().map(sink),
        };
        let (handle, supervisor) = Supervisor::new(backend, options)?;
        tasks.spawn(supervisor.run());
        let (mut state, newsroom) = (handle.state(), self.newsroom.clone());
        tasks.spawn(async move {
            while state.changed().await.is_ok() && newsroom.send(News::State).is_ok() {}
            Ok(())
        });
        Ok(handle)
    }
}

/// Reads the map from the store, after a claim. Says how the tenure came about if its shard is in force. If it is not, gives
/// the Lease back, without a note: nothing was written, and nothing is known of the writes before.
pub(crate) async fn check(
    ring: RingLeases,
    names: RingNames,
    shard: ShardId,
    tenure: Tenure,
    handle: LeaseHandle,
) -> Option<Takeover> {
    let takeover = handle
        .latest()
        .borrow()
        .as_ref()
        .map(|lease| Takeover::read(lease, &names, tenure.epoch()));
    while tenure.is_live() {
        match ring.get(&names.map_lease()).await {
            Ok(lease) => {
                let map = lease.and_then(|lease| ShardMap::read(&lease, &names));
                if map.is_some_and(|map| map.allows(shard)) {
                    return Some(takeover.unwrap_or(Takeover::Abrupt));
                }
                tracing::info!(%shard, "claimed a shard that is not in force; giving it back");
                let drained = tenure.drain().await;
                let note = ReleaseNote::from([(names.key("drained-by"), None), (names.key("handover-rv"), None)]);
                let _ = handle.release(drained, note).await;
                return None;
            }
            Err(error) => {
                tracing::debug!(%shard, %error, "could not read the shard map yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    None
}

/// Leads: a round at each change of the roster and at each tick. Never ends by itself.
pub(crate) async fn lead(leader: Leader, mut roster: watch::Receiver<Roster>) {
    loop {
        let current = roster.borrow_and_update().clone();
        if let Err(error) = leader.round(&current).await {
            tracing::debug!(%error, "a round of the leader failed");
            tokio::time::sleep(leader.timings.retry_period).await;
        }
        // The fence is not a failure to retry fast; the caller drops this task.
        tokio::select! {
            biased;
            changed = roster.changed() => if changed.is_err() { std::future::pending::<()>().await },
            () = tokio::time::sleep(leader.timings.renew_period) => {}
        }
        // Changes come in bursts, a renewal of every Lease among them.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Runs the leader's other work again and again. Never ends by itself.
pub(crate) async fn keep_working(work: Option<LeaderWork>, guard: WriteGuard) {
    let Some(work) = work else {
        return std::future::pending().await;
    };
    loop {
        work(guard.clone()).await;
        tokio::time::sleep(PAUSE).await;
    }
}
