//! The driver: observe, decide, perform, write; again until the AppWrapper comes to rest.
//!
//! The driver chooses nothing. It keeps the status that the decision has made so far in memory and writes it when
//! something depends on it: before an effect, and at the end of the pass. Every write carries the version that was
//! observed, so a pass that rests on an old copy ends in a conflict instead of doing harm. What the API server is asked
//! is in `ask.rs`, what is done to it in `act.rs`.

mod act;
mod ask;

use std::sync::Arc;

use appwrapper_api::{AppWrapper, AppWrapperKey, AppWrapperStatus, Phase};
use jiff::{SignedDuration, Timestamp};

use crate::{
    cluster::Cluster,
    decide::decide,
    decision::{Action, Step},
    error::Error,
    evidence::{CachedRead, Expectation, Presence, Survey},
    memory::Memory,
    observation::{CachedResult, Observation},
    observed::{Evidence, NodeFaults, Observed, Outcomes, PodEvidence, expectations},
    policy::{Defaults, Policy},
    status::is_same_but_for_messages,
};

/// When to come back to an AppWrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// After this time at the latest.
    After(SignedDuration),
    /// When it changes.
    OnChange,
}

/// What the driver shares over all AppWrappers.
pub struct Driver<'a, C> {
    /// The world.
    pub cluster: &'a C,
    /// Configured limits.
    pub defaults: &'a Defaults,
    /// Nodes to be left.
    pub nodes: &'a NodeFaults,
    /// The wall clock, since deadlines come from times that the API server stores.
    pub clock: &'a (dyn Fn() -> Timestamp + Sync),
}

/// Steps of one pass beyond four per component; more is a defect.
const STEP_LIMIT: usize = 64;

/// One pass over one AppWrapper.
struct Pass<'a, C> {
    driver: &'a Driver<'a, C>,
    memory: &'a mut Memory,
    key: AppWrapperKey,
    /// The object as it is stored.
    stored: Arc<AppWrapper>,
    /// Its status as this pass has made it.
    status: AppWrapperStatus,
    /// What to tell once that status is written.
    told: Vec<Observation>,
    policy: Arc<Policy>,
    components: Evidence,
    pods: PodEvidence,
    outcomes: Outcomes,
}

impl<C: Cluster> Driver<'_, C> {
    /// Brings one AppWrapper as far as it will go now.
    pub async fn reconcile(&self, watched: Arc<AppWrapper>, memory: &mut Memory) -> Result<Requeue, Error> {
        let stored = memory.newest(watched);
        if !stored.is_ours() {
            return Ok(Requeue::OnChange);
        }
        let (policy, faults) = memory.policy(self.defaults, &stored);
        for fault in faults {
            // At once: no write makes it true, and a pass that ends in a conflict must not swallow it.
            self.cluster.tell(&stored, Observation::Event(fault));
        }
        let mut pass = Pass {
            driver: self,
            memory,
            key: stored.key(),
            status: stored.status.clone(),
            stored,
            told: Vec::new(),
            policy,
            components: Evidence::Doubt(SignedDuration::ZERO),
            pods: PodEvidence::Cached(None),
            outcomes: Outcomes::default(),
        };
        pass.run().await
    }
}

impl<C: Cluster> Pass<'_, C> {
    async fn run(&mut self) -> Result<Requeue, Error> {
        self.watch_components().await;
        self.look();
        let limit = STEP_LIMIT + 4 * self.stored.spec.components.len();
        for _ in 0..limit {
            let step = self.decide();
            self.status = step.status;
            self.told.extend(step.told);
            match step.action {
                Action::Again => {
                    // What came of effects is true of the attempt and the phase in which they were performed.
                    self.outcomes = Outcomes::default();
                    self.look();
                }
                Action::Confirm(question) => {
                    if let Some(requeue) = self.confirm(question).await? {
                        return Ok(requeue);
                    }
                }
                Action::Do(effect) => {
                    if self.must_write_before(&effect) {
                        self.write().await?;
                    }
                    if let Some(requeue) = self.prove_live(&effect).await? {
                        return Ok(requeue);
                    }
                    if self.perform(effect).await? {
                        return Ok(Requeue::OnChange);
                    }
                }
                Action::After(delay) => {
                    self.remember_refusal(delay);
                    if let Some(left) = self.hold_back() {
                        return Ok(Requeue::After(delay.min(left)));
                    }
                    self.write().await?;
                    return Ok(Requeue::After(delay));
                }
                Action::Wait => {
                    self.write().await?;
                    return Ok(Requeue::OnChange);
                }
            }
        }
        Err(Error::Restless {
            steps: limit,
            phase: self.status.phase.clone(),
        })
    }

    fn now(&self) -> Timestamp {
        (self.driver.clock)()
    }

    fn decide(&self) -> Step {
        let observed = Observed {
            wrapper: &self.stored,
            status: &self.status,
            components: &self.components,
            pods: &self.pods,
            nodes: self.driver.nodes,
            outcomes: &self.outcomes,
            recent_deletes: &self.memory.deletes,
        };
        decide(&observed, &self.policy, self.now())
    }

    fn expectations(&self) -> Vec<Expectation> {
        let cluster = self.driver.cluster;
        expectations(&self.stored, &self.status, |component| {
            cluster.known_uid(&self.key, component)
        })
    }

    /// Starts the watches of all component kinds, so that they are in sync before anything is created or missed.
    async fn watch_components(&self) {
        let needed = matches!(
            self.status.phase(),
            Some(Phase::Suspended | Phase::Empty | Phase::Resuming | Phase::Running | Phase::Resetting)
        ) && !self.stored.spec.suspend
            && self.stored.metadata.deletion_timestamp.is_none();
        if needed {
            for (expected, component) in self.expectations().into_iter().zip(&self.stored.spec.components) {
                let declares_end = component.template.head().is_ok_and(|head| !head.declared.is_empty());
                self.driver.cluster.watch(&expected.component, declares_end).await;
            }
        }
    }

    /// Reads the caches.
    fn look(&mut self) {
        let cluster = self.driver.cluster;
        let owner = appwrapper_api::Uid::new(self.stored.metadata.uid.as_deref().unwrap_or_default());
        let reads: Vec<(Expectation, CachedRead)> = self
            .expectations()
            .into_iter()
            .map(|expected| {
                let read = cluster.read_cached(&self.key, &expected.component);
                (expected, read)
            })
            .collect();
        let kinds: Vec<_> = reads
            .iter()
            .map(|(expected, _)| expected.component.type_ref.clone())
            .collect();
        let survey = Survey::from_cache(&owner, reads);
        if self.status.phase() == Some(Phase::Running) {
            for (presence, kind) in survey.presences().iter().zip(kinds) {
                let result = match presence {
                    Presence::Present(_) | Presence::Finished(_) => CachedResult::Present,
                    Presence::NotSynced(_) => CachedResult::Behind,
                    Presence::Terminating(_) => CachedResult::Terminating,
                    Presence::Absent { .. } | Presence::Replaced(_) | Presence::NotServed => CachedResult::Missing,
                };
                cluster.tell(&self.stored, Observation::CachedRead(kind, result));
            }
        }
        self.components = Evidence::Cached(survey);
        self.pods = PodEvidence::Cached(cluster.pods_cached(&self.key));
    }

    /// How much longer a change of messages alone is held back. More often than not something follows at once that must
    /// be written anyway, such as success after the last pod's end, and each write costs Kueue a conflict and a retry.
    fn hold_back(&mut self) -> Option<SignedDuration> {
        let is_text = self.told.is_empty()
            && self.status != self.stored.status
            && is_same_but_for_messages(&self.status, &self.stored.status);
        self.memory.hold_back(is_text, self.now())
    }

    /// Writes the status, if it differs from what is stored, and tells what has come true by that.
    async fn write(&mut self) -> Result<(), Error> {
        let cluster = self.driver.cluster;
        if self.status != self.stored.status {
            let written = cluster.patch_status(&self.stored, &self.status).await;
            if written == Err(Error::Conflict) {
                cluster.tell(&self.stored, Observation::Conflict);
            }
            self.stored = Arc::new(written?);
            self.status = self.stored.status.clone();
            self.memory.wrote(&self.stored);
        }
        for observation in std::mem::take(&mut self.told) {
            if self.memory.is_news(&observation) {
                cluster.tell(&self.stored, observation);
            }
        }
        Ok(())
    }
}
