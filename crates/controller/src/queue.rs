//! The queue of one tenure: kube's scheduler in, the reconciler's driver out.
//!
//! The scheduler runs each key once at a time and forgets nothing. Concurrency is bounded here, by a fair semaphore, because
//! the scheduler's own limit would take waiting keys in no order. After the wait the AppWrapper is read from the store
//! again: the copy that was handed over is as old as the wait.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use appwrapper_api::{AppWrapper, AppWrapperKey};
use appwrapper_coordination::Tenure;
use appwrapper_metrics::labels::{Controller as Name, ReconcileResult};
use appwrapper_reconciler::{Defaults, Driver, Error, Requeue};
use futures::{FutureExt, StreamExt, stream};
use kube::runtime::{
    Controller,
    controller::Action,
    reflector::{ObjectRef, Store},
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::KubeCluster,
    memories::Memories,
    nodes::Faults,
    shard::Clock,
    teller::{Teller, metric_phase},
    wrappers::{listed, reference},
};

/// What a pass needs.
pub struct Work {
    /// The verbs, good for one tenure.
    pub cluster: KubeCluster,
    /// AppWrappers as the watch has them.
    pub store: Store<AppWrapper>,
    /// What is remembered of them.
    pub memories: Arc<Memories>,
    /// Configured limits.
    pub defaults: Defaults,
    /// Nodes to be left.
    pub nodes: Faults,
    /// Metrics.
    pub teller: Teller,
    /// Bounds the passes under way, of all shards of the process together.
    pub permits: Arc<Semaphore>,
    /// The right to act.
    pub tenure: Tenure,
    /// When the Lease was gained, until the first pass is done.
    pub gained: Mutex<Option<Instant>>,
    /// The wall clock.
    pub clock: Clock,
}

/// Works on what `triggers` name until `stop`, then finishes the passes under way.
pub async fn run(work: Arc<Work>, triggers: mpsc::Receiver<AppWrapperKey>, stop: CancellationToken) {
    let references = stream::unfold(triggers, |mut triggers| async move {
        triggers.recv().await.map(|key| (reference(&key), triggers))
    });
    let ended = work.tenure.ended();
    // Before the queue's own wait for the first list, which might never be told of it.
    tokio::select! {
        _ = listed(&work.store) => {}
        () = stop.cancelled() => return,
        () = ended.cancelled() => return,
    }
    let controller = Controller::for_stream(stream::pending(), work.store.clone())
        .reconcile_on(references.chain(stream::pending::<ObjectRef<AppWrapper>>()))
        .graceful_shutdown_on(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = ended.cancelled() => {}
            }
        });
    let results = controller.run(pass, again, work);
    // Errors here are triggers of AppWrappers that are gone, and passes whose failure has been told already.
    results.for_each(|_| std::future::ready(())).await;
}

async fn pass(queued: Arc<AppWrapper>, work: Arc<Work>) -> Result<Action, Error> {
    let metrics = work.teller.metrics();
    let key = queued.key();
    drop(queued);
    let waiting = metrics.reconcile.waiting();
    let Ok(_permit) = work.permits.acquire().await else {
        return Ok(Action::await_change());
    };
    let running = waiting.start();
    if !work.tenure.is_live() {
        running.done(ReconcileResult::Success);
        return Ok(Action::await_change());
    }
    let Some(wrapper) = work.store.get(&reference(&key)) else {
        work.memories.forget(&key);
        running.done(ReconcileResult::Success);
        return Ok(Action::await_change());
    };
    let mut memory = work.memories.take(&key);
    if !Arc::ptr_eq(&memory.newest(Arc::clone(&wrapper)), &wrapper) {
        metrics.reconcile.stale();
    }
    let nodes = work.nodes.current();
    let driver = Driver {
        cluster: &work.cluster,
        defaults: &work.defaults,
        nodes: &nodes,
        clock: &*work.clock,
    };
    let phase = wrapper.status.phase().map(metric_phase);
    // A panic would take the whole queue down; it is a defect, but of one AppWrapper.
    let result = AssertUnwindSafe(driver.reconcile(Arc::clone(&wrapper), &mut memory))
        .catch_unwind()
        .await;
    let result = result.unwrap_or_else(|_| {
        running.panicked();
        memory = appwrapper_reconciler::Memory::default();
        Err(Error::Api {
            operation: "reconcile",
            message: "the reconciler panicked".to_owned(),
        })
    });
    if result.is_ok() {
        work.teller.seen(&memory.newest(wrapper));
        let gained = work.gained.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(gained) = gained {
            work.teller.taken_over(gained.elapsed());
        }
    }
    work.memories.put(&key, memory);
    match result {
        Ok(requeue) => {
            work.memories.succeeded(&key);
            let (action, result) = match requeue {
                Requeue::OnChange => (Action::await_change(), ReconcileResult::Success),
                Requeue::After(delay) => {
                    let delay = Duration::try_from(delay).unwrap_or_default();
                    (Action::requeue(delay), ReconcileResult::RequeueAfter)
                }
            };
            running.done(result);
            Ok(action)
        }
        Err(Error::Gone) => {
            work.memories.forget(&key);
            work.teller.gone(&key);
            running.done(ReconcileResult::Success);
            Ok(Action::await_change())
        }
        Err(Error::Conflict) => {
            tracing::debug!(appwrapper = %key, "the AppWrapper has changed meanwhile");
            running.done(ReconcileResult::Requeue);
            Err(Error::Conflict)
        }
        Err(Error::Fenced) => {
            work.teller.fenced();
            running.done(ReconcileResult::Success);
            Ok(Action::await_change())
        }
        Err(error) => {
            tracing::warn!(appwrapper = %key, %error, controller = Name::AppWrapper.as_str(), ?phase, "a pass failed and is tried again");
            running.done(ReconcileResult::Error);
            Err(error)
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the signature that kube asks for")]
fn again(wrapper: Arc<AppWrapper>, _error: &Error, work: Arc<Work>) -> Action {
    Action::requeue(work.memories.failed(&wrapper.key()))
}
