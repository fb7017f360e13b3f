//! Tells what happens: events for users, log lines for operators, metrics for both.
//!
//! Nothing here waits or fails a pass. Events go through a bounded channel to a task that publishes them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use appwrapper_api::{AppWrapper, AppWrapperKey, ComponentRef, Phase, TypeRef};
use appwrapper_metrics::{
    Metrics,
    cache::Write,
    labels::{self, Cached, Fence, Forced, Foreign, Operation, OperationResult, Outcome, Reason, Resource, Transition},
};
use appwrapper_reconciler::{
    Error,
    cluster::{Created, Deleted, Grace},
    observation::{CachedResult, ConfirmationResult, Event, Missing, Observation},
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource as _};
use tokio::sync::mpsc;

use crate::recorder::Recorder;

/// Events that may wait to be published; beyond that they are dropped, and the log has them.
const EVENT_QUEUE: usize = 1_024;

/// Tells what happens. Cheap to clone.
#[derive(Clone)]
pub struct Teller {
    metrics: Arc<Metrics>,
    shard: u32,
    /// When the confirmations under way began.
    started: Arc<Mutex<HashMap<AppWrapperKey, Instant>>>,
    /// Kinds of which a component is missing by the API server's own word, until the verdict.
    proved: Arc<Mutex<HashMap<AppWrapperKey, HashSet<Resource>>>>,
    events: mpsc::Sender<(Event, ObjectReference)>,
}

/// Publishes events.
pub struct Publisher {
    queue: mpsc::Receiver<(Event, ObjectReference)>,
}

/// A teller and what publishes its events.
pub fn teller(metrics: Arc<Metrics>, shard: u32) -> (Teller, Publisher) {
    let (events, queue) = mpsc::channel(EVENT_QUEUE);
    (
        Teller {
            metrics,
            shard,
            started: Arc::default(),
            proved: Arc::default(),
            events,
        },
        Publisher { queue },
    )
}

/// The metric label for the kind of a component.
pub fn resource(type_ref: &TypeRef) -> Resource {
    Resource::of_type(&type_ref.api_version, &type_ref.kind).component()
}

fn component_name(namespace: &str, component: &ComponentRef) -> String {
    format!("{namespace}/{}", component.name)
}

impl Teller {
    /// Tells one observation about an AppWrapper.
    pub fn tell(&self, wrapper: &AppWrapper, observation: Observation) {
        let key = wrapper.key();
        match observation {
            Observation::Entered(phase) => self.entered(wrapper, &key, phase),
            Observation::Event(event) => self.event(wrapper, &key, event),
            Observation::CachedRead(kind, result) => {
                let cached = match result {
                    CachedResult::Present => Cached::Hit,
                    CachedResult::Behind => Cached::Unsynced,
                    CachedResult::Terminating => Cached::Terminating,
                    CachedResult::Missing => Cached::Miss,
                };
                self.metrics.confirm.cached_read(resource(&kind), cached);
            }
            Observation::ConfirmationStarted => {
                self.metrics.confirm.open(&key.to_string());
                self.proved().remove(&key);
                self.started().insert(key, Instant::now());
            }
            Observation::Confirmed { suspects, result } => self.confirmed(&key, &suspects, result),
            Observation::RaceSurvived {
                component,
                cached,
                live,
            } => {
                let text = |version: Option<appwrapper_api::Rv>| version.map_or_else(String::new, |v| v.to_string());
                tracing::info!(
                    event = "race_survived",
                    appwrapper = %key,
                    component = %component,
                    cached_resource_version = text(cached),
                    live_resource_version = text(live),
                    "race survived: the cache misses a component that the API server has",
                );
                let resource = resource(&component.type_ref);
                self.metrics.confirm.outcome(resource, Outcome::Live, self.took(&key));
                self.metrics
                    .confirm
                    .live(resource, &component_name(&key.namespace, &component));
            }
            Observation::ConfirmedMissing { component, how } => {
                tracing::warn!(
                    event = "missing_confirmed",
                    appwrapper = %key,
                    component = %component,
                    how = ?how,
                    "a component is gone by the API server's own word",
                );
                let outcome = match how {
                    Missing::Absent => Outcome::Missing,
                    Missing::Terminating => Outcome::Terminating,
                    Missing::Replaced => Outcome::Replaced,
                };
                let resource = resource(&component.type_ref);
                self.metrics.confirm.outcome(resource, outcome, self.took(&key));
                if how == Missing::Replaced {
                    self.metrics.states.foreign(Foreign::OwnerUid);
                }
                self.proved().entry(key).or_default().insert(resource);
            }
            Observation::Retry(reason) => self.metrics.states.retry(metric_reason(reason)),
            Observation::Failed(reason) => {
                let reason = metric_reason(reason);
                if reason == Reason::MissingComponent {
                    self.missing_component(&key);
                }
                self.metrics.states.failure(&key.namespace, reason);
            }
            Observation::NameTaken(component) => {
                tracing::warn!(appwrapper = %key, %component, "the name of a component is taken by an object of others");
                self.metrics.states.foreign(Foreign::NameTaken);
            }
            Observation::Conflict => self.metrics.reconcile.conflict(),
            Observation::Forced => {
                tracing::warn!(appwrapper = %key, "deletion takes longer than its grace and is forced");
            }
        }
    }

    fn started(&self) -> MutexGuard<'_, HashMap<AppWrapperKey, Instant>> {
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn proved(&self) -> MutexGuard<'_, HashMap<AppWrapperKey, HashSet<Resource>>> {
        self.proved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An AppWrapper failed for a missing component: each kind that the API server itself says is missing, once. None at
    /// all would be the defect that the types of the reconciler exclude, and the tripwire tells of it.
    fn missing_component(&self, key: &AppWrapperKey) {
        let Some(kinds) = self.proved().remove(key) else {
            tracing::error!(appwrapper = %key, "failed for a missing component without the API server's word; please report this");
            return self.metrics.confirm.unconfirmed();
        };
        for kind in kinds {
            self.metrics.confirm.verdict(&key.namespace, kind);
        }
    }

    /// Time since the confirmation under way began.
    fn took(&self, key: &AppWrapperKey) -> Duration {
        self.started().get(key).map(Instant::elapsed).unwrap_or_default()
    }

    fn entered(&self, wrapper: &AppWrapper, key: &AppWrapperKey, phase: Phase) {
        tracing::info!(appwrapper = %key, %phase, "phase entered");
        if phase != Phase::Terminating {
            self.metrics.phase(&key.namespace, metric_phase(phase));
        }
        if phase == Phase::Running
            && wrapper.status.resetting_count == 0
            && let Some(created) = &wrapper.metadata.creation_timestamp
            && let Ok(after) = Duration::try_from(jiff::Timestamp::now().duration_since(created.0))
        {
            self.metrics.states.first_running(after);
        }
    }

    fn event(&self, wrapper: &AppWrapper, key: &AppWrapperKey, event: Event) {
        if event.warning {
            tracing::warn!(appwrapper = %key, reason = event.reason, note = %event.note, "event");
        } else {
            tracing::info!(appwrapper = %key, reason = event.reason, note = %event.note, "event");
        }
        if self.events.try_send((event, wrapper.object_ref(&()))).is_err() {
            tracing::warn!(appwrapper = %key, "too many events at once; this one is only logged");
        }
    }

    fn confirmed(&self, key: &AppWrapperKey, suspects: &[TypeRef], result: ConfirmationResult) {
        let took = self.took(key);
        self.started().remove(key);
        let count = |outcome| {
            for kind in suspects {
                self.metrics.confirm.outcome(resource(kind), outcome, took);
            }
        };
        match result {
            ConfirmationResult::Live | ConfirmationResult::Missing | ConfirmationResult::Outdated => {
                self.metrics.confirm.close(&key.to_string());
            }
            ConfirmationResult::Doubt(doubt) => {
                tracing::warn!(
                    event = "confirmation_failed",
                    appwrapper = %key,
                    reason = doubt.reason,
                    message = %doubt.message,
                    "a component may be missing, and the API server's answer proves nothing; nothing is concluded",
                );
                count(Outcome::Error);
            }
            ConfirmationResult::Deferred => count(Outcome::Deferred),
        }
    }

    /// How an AppWrapper stands after a pass.
    pub fn seen(&self, wrapper: &AppWrapper) {
        let Some(phase) = wrapper.status.phase() else { return };
        let changes = wrapper
            .status
            .conditions
            .iter()
            .map(|condition| condition.last_transition_time.0);
        let created = wrapper.metadata.creation_timestamp.as_ref().map(|created| created.0);
        let since = changes.max().or(created).map_or_else(SystemTime::now, SystemTime::from);
        self.metrics
            .states
            .observe(&wrapper.key().to_string(), self.shard, metric_phase(phase), since);
    }

    /// An AppWrapper no longer exists.
    pub fn gone(&self, key: &AppWrapperKey) {
        self.started().remove(key);
        self.proved().remove(key);
        let key = key.to_string();
        self.metrics.states.forget(&key);
        self.metrics.confirm.close(&key);
    }

    /// The shard is held from now on.
    pub fn held(&self) {
        self.metrics.states.own_shard(self.shard);
        self.metrics.lease.transition(self.shard, Transition::Acquired);
    }

    /// The first pass under a tenure is done, this long after the Lease was gained.
    pub fn taken_over(&self, after: Duration) {
        self.metrics.lease.takeover(after);
    }

    /// The guard refused a write, because the shard is no longer ours for certain.
    pub fn fenced(&self) {
        self.metrics.lease.fenced(self.shard, Fence::Guard);
    }

    /// The shard is not held any more: another replica reports its AppWrappers, which `mine` tells from others.
    pub fn given_up(&self, lost: bool, mine: impl Fn(&str) -> bool) {
        self.metrics.states.forget_shard(self.shard);
        self.metrics.confirm.retain(|key| !mine(key));
        let transition = if lost { Transition::Lost } else { Transition::Released };
        self.metrics.lease.transition(self.shard, transition);
    }

    /// A create is about to be sent: from its answer on, the watch has to deliver the object.
    pub fn writing(&self, key: &AppWrapperKey, component: &ComponentRef) -> Write {
        let name = component_name(&key.namespace, component);
        self.metrics.cache.writing(resource(&component.type_ref), &name)
    }

    /// What came of a create.
    pub fn created(&self, component: &ComponentRef, outcome: &Created, write: Write) {
        let result = match outcome {
            Created::Object(_) => OperationResult::Success,
            Created::AlreadyExists => OperationResult::Exists,
            Created::Fatal(_) | Created::Refused(_) => OperationResult::Refused,
            Created::Ambiguous(_) => OperationResult::Error,
        };
        if result == OperationResult::Success {
            write.answered();
        }
        self.metrics
            .states
            .operation(Operation::Create, resource(&component.type_ref), result);
    }

    /// What came of a delete.
    pub fn deleted(&self, component: &ComponentRef, outcome: &Result<Deleted, Error>, grace: Grace) {
        let result = match outcome {
            Ok(Deleted::Terminating) => OperationResult::Success,
            Ok(Deleted::Gone) => OperationResult::NotFound,
            Ok(Deleted::Refused(_)) => OperationResult::Refused,
            Err(_) => OperationResult::Error,
        };
        self.metrics
            .states
            .operation(Operation::Delete, resource(&component.type_ref), result);
        if grace == Grace::Zero {
            self.metrics.states.forced_deletion(Forced::Component);
        }
    }

    /// A pod was deleted at once.
    pub fn forced_pod(&self) {
        self.metrics.states.forced_deletion(Forced::Pod);
    }

    /// The metrics behind it.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

impl Publisher {
    /// Publishes events through `client` until the tellers are gone or the future is dropped.
    pub async fn run(&mut self, client: Client, instance: &str) {
        let mut recorder = Recorder::new(client, instance);
        while let Some((event, regarding)) = self.queue.recv().await {
            if let Err(error) = recorder.publish(&event, &regarding).await {
                tracing::debug!(error = %crate::failure::text(&error), reason = event.reason, "an event was not published");
            }
        }
    }
}

/// The metric label for a phase.
pub fn metric_phase(phase: Phase) -> labels::Phase {
    match phase {
        Phase::Empty => labels::Phase::Empty,
        Phase::Suspended => labels::Phase::Suspended,
        Phase::Resuming => labels::Phase::Resuming,
        Phase::Running => labels::Phase::Running,
        Phase::Resetting => labels::Phase::Resetting,
        Phase::Suspending => labels::Phase::Suspending,
        Phase::Succeeded => labels::Phase::Succeeded,
        Phase::Failed => labels::Phase::Failed,
        Phase::Terminating => labels::Phase::Terminating,
    }
}

fn metric_reason(reason: &str) -> Reason {
    Reason::ALL
        .iter()
        .copied()
        .find(|known| known.as_str() == reason)
        .unwrap_or(Reason::Other)
}

#[cfg(test)]
mod tests;
