//! The driver: observe, decide, perform, write; again until the AppWrapper comes to rest.
//!
//! The driver chooses nothing. It keeps the status that the decision has made so far in memory and writes it when
//! something depends on it: before an effect, and at the end of the pass. Every write carries the version that was
//! observed, so a pass that rests on an old copy ends in a conflict instead of doing harm.

use std::sync::Arc;

use appwrapper_api::{AppWrapper, AppWrapperKey, AppWrapperStatus, Phase};
use jiff::{SignedDuration, Timestamp};

use crate::{
    adopt::adopt,
    cluster::{Cluster, Created, Deleted},
    decide::decide,
    decision::{Action, Effect, Question, Step},
    error::Error,
    evidence::{
        CachedRead, Expectation, Presence, Survey, Suspicion, UncachedRead,
        confirm::{self, Confirmation, PodsLeft},
    },
    memory::{Confirmations, Memory},
    observation::{CachedResult, ConfirmationResult, Missing, Observation},
    observed::{CreateOutcome, Evidence, NodeFaults, Observed, Outcomes, PodEvidence, component_ref, expectations},
    phase::running::PATIENCE,
    policy::{Defaults, Policy},
    render,
    status::{Recorded, is_same_but_for_messages, recorded},
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

    /// Keeps in mind until when a refused create is not to be tried again: what wakes the AppWrapper meanwhile, such as
    /// the pods of a component beside it, is no reason to ask anew.
    fn remember_refusal(&mut self, delay: SignedDuration) {
        let refused = self
            .outcomes
            .created
            .iter()
            .find_map(|(position, outcome)| match outcome {
                CreateOutcome::Uncertain(error) => Some((*position, error.clone())),
                _ => None,
            });
        let now = self.now();
        match (refused, &self.memory.refused) {
            (Some((position, _)), Some((known, _, until))) if position == *known && now < *until => {}
            (Some((position, error)), _) => {
                let until = now.checked_add(delay).unwrap_or(now);
                self.memory.refused = Some((position, error, until));
            }
            (None, _) => self.memory.refused = None,
        }
    }

    /// What was said of a create that is not to be tried again yet.
    fn recalled_refusal(&self, position: usize) -> Option<String> {
        let (known, error, until) = self.memory.refused.as_ref()?;
        (*known == position && self.now() < *until).then(|| error.clone())
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
            for component in self.expectations() {
                self.driver.cluster.watch(&component.component).await;
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
        let survey = Survey::from_cache(&owner, reads);
        if self.status.phase() == Some(Phase::Running) {
            let result = match survey.doubt(self.now(), PATIENCE) {
                None => CachedResult::Agrees,
                Some(suspicion) if suspicion.changes.is_empty() => CachedResult::Behind,
                Some(_) => CachedResult::Mismatch,
            };
            cluster.tell(&self.stored, Observation::CachedSurvey(result));
        }
        self.components = Evidence::Cached(survey);
        self.pods = PodEvidence::Cached(cluster.pods_cached(&self.key));
    }

    /// Asks the API server. Answers with a requeue if the pass cannot go on.
    async fn confirm(&mut self, question: Question) -> Result<Option<Requeue>, Error> {
        match question {
            Question::Missing(suspicion) => return self.confirm_missing(suspicion).await,
            Question::Deleted => {
                // Whatever is ours has to go, also an object that is not the one we made.
                let any = |(expected, component)| Expectation {
                    uid: None,
                    unproven: recorded(component) != Recorded::Created,
                    ..expected
                };
                let expected = self.expectations().into_iter().zip(&self.status.component_status);
                let expected: Vec<_> = expected.map(any).collect();
                self.components = match confirm::components(self.driver.cluster, &self.stored, &expected).await {
                    Ok(survey) => {
                        self.memory.answered();
                        Evidence::Uncached(survey)
                    }
                    Err(_) => Evidence::Doubt(self.memory.doubted()),
                };
            }
            Question::PodsLeft => {
                self.pods = match confirm::pods(self.driver.cluster, &self.stored).await {
                    Ok(PodsLeft::None(proof)) => PodEvidence::NoneLeft(proof),
                    Ok(PodsLeft::Some(pods)) => PodEvidence::Left(pods),
                    Err(_) => PodEvidence::Doubt(self.memory.doubted()),
                };
            }
        }
        Ok(None)
    }

    async fn confirm_missing(&mut self, suspicion: Suspicion) -> Result<Option<Requeue>, Error> {
        let now = self.now();
        let cluster = self.driver.cluster;
        let Evidence::Cached(survey) = std::mem::replace(&mut self.components, Evidence::Doubt(SignedDuration::ZERO))
        else {
            return Ok(None);
        };
        let soon = now.checked_add(SignedDuration::from_secs(1)).unwrap_or(now);
        let put_off = self
            .memory
            .confirmations
            .not_before(&suspicion.changes, now)
            .or_else(|| (!cluster.admit_confirmation()).then_some(soon));
        if let Some(until) = put_off {
            cluster.tell(&self.stored, Observation::Confirmed(ConfirmationResult::Deferred));
            self.components = Evidence::Deferred(survey, until);
            return Ok(None);
        }
        // What led here must be stored before the verdict, so that the copy which is compared is the stored one.
        self.write().await?;
        cluster.tell(&self.stored, Observation::ConfirmationStarted);
        let expected = self.expectations();
        match confirm::running(cluster, &self.stored, &expected).await {
            Confirmation::Survey(live) => {
                self.memory.answered();
                self.tell_confirmed(&survey, &live, &expected);
                if live.found() == live.presences().len() {
                    self.memory.confirmations.found_present(suspicion.changes, now);
                }
                self.components = Evidence::Uncached(live);
                Ok(None)
            }
            Confirmation::Doubt(doubt) => {
                cluster.tell(&self.stored, Observation::Confirmed(ConfirmationResult::Doubt(doubt)));
                self.components = Evidence::Doubt(self.memory.doubted());
                Ok(None)
            }
            Confirmation::Outdated => {
                cluster.tell(&self.stored, Observation::Confirmed(ConfirmationResult::Outdated));
                Ok(Some(Requeue::After(self.memory.doubted())))
            }
        }
    }

    fn tell_confirmed(
        &self,
        cached: &Survey<crate::evidence::Cached>,
        live: &Survey<crate::evidence::Uncached>,
        expected: &[Expectation],
    ) {
        let tell = |observation| self.driver.cluster.tell(&self.stored, observation);
        for ((before, after), expected) in cached.presences().iter().zip(live.presences()).zip(expected) {
            let component = expected.component.clone();
            match after {
                Presence::Present(facts) if !matches!(before, Presence::Present(_)) => {
                    let cached = before.facts().and_then(|facts| facts.version.clone());
                    tell(Observation::RaceSurvived {
                        component,
                        cached,
                        live: facts.version.clone(),
                    });
                }
                Presence::Absent { .. } => tell(Observation::ConfirmedMissing {
                    component,
                    how: Missing::Absent,
                }),
                Presence::Terminating(_) => {
                    tell(Observation::ConfirmedMissing {
                        component,
                        how: Missing::Terminating,
                    });
                }
                Presence::Replaced(_) => tell(Observation::ConfirmedMissing {
                    component,
                    how: Missing::Replaced,
                }),
                _ => {}
            }
        }
        let all = live.found() == live.presences().len();
        tell(Observation::Confirmed(if all {
            ConfirmationResult::Live
        } else {
            ConfirmationResult::Missing
        }));
    }

    /// Whether an effect depends on a status that is not stored yet.
    fn must_write_before(&self, effect: &Effect) -> bool {
        match effect {
            Effect::AddFinalizer => false,
            Effect::RemoveFinalizer => true,
            // The intent and the final name must be stored; that others were created since need not be.
            Effect::Deploy(position) => {
                let stored = self.stored.status.component_status.get(*position);
                let wanted = self.status.component_status.get(*position);
                self.stored.status.phase() != Some(Phase::Resuming)
                    || stored.is_none_or(|stored| recorded(stored) == Recorded::Absent)
                    || stored.map(|stored| &stored.name) != wanted.map(|wanted| &wanted.name)
            }
            // A write that succeeds proves that the copy which wants the deletion is the live one.
            Effect::Delete { .. } | Effect::ForcePods(_) => {
                self.stored.status.phase != self.status.phase || self.stored.status.conditions != self.status.conditions
            }
        }
    }

    /// Makes sure that an effect does not rest on an old copy of the AppWrapper. Once this process has written the
    /// AppWrapper, the copy it knows is never older than that write; before, the copy may be one that an earlier process
    /// has moved on from, and the API server is asked. Finalizer patches carry the version themselves.
    async fn prove_live(&mut self, effect: &Effect) -> Result<Option<Requeue>, Error> {
        if matches!(effect, Effect::AddFinalizer | Effect::RemoveFinalizer) || self.memory.is_live() {
            return Ok(None);
        }
        match self.driver.cluster.read_wrapper(&self.key).await {
            Ok(Some(live)) if confirm::is_same(&live, &self.stored) => {
                self.memory.answered();
                self.memory.found_live();
                Ok(None)
            }
            Ok(_) => Err(Error::Conflict),
            Err(_) => Ok(Some(Requeue::After(self.memory.doubted()))),
        }
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

    /// Performs an effect. Answers whether the AppWrapper is gone.
    async fn perform(&mut self, effect: Effect) -> Result<bool, Error> {
        let cluster = self.driver.cluster;
        match effect {
            Effect::AddFinalizer | Effect::RemoveFinalizer => {
                let present = effect == Effect::AddFinalizer;
                let Some(written) = cluster.patch_finalizers(&self.stored, present).await? else {
                    return Ok(true);
                };
                self.stored = Arc::new(written);
                self.memory.wrote(&self.stored);
                // Without our finalizer the AppWrapper is gone, or another's finalizer keeps it; either is not ours to do.
                return Ok(!present);
            }
            Effect::Deploy(position) => {
                let outcome = match self.recalled_refusal(position) {
                    Some(refusal) => CreateOutcome::Uncertain(refusal),
                    None => self.deploy(position).await?,
                };
                self.outcomes.created.insert(position, outcome);
            }
            Effect::Delete { position, uid, grace } => {
                if let Some(component) = component_ref(&self.stored, &self.status, position) {
                    let outcome = cluster.delete(&self.key, &component, &uid, grace).await?;
                    self.memory.deletes.sent(&uid, self.now());
                    self.outcomes.deleted.insert(position, outcome);
                } else {
                    self.outcomes.deleted.insert(position, Deleted::Gone);
                }
            }
            Effect::ForcePods(pods) => {
                for pod in &pods {
                    cluster.delete_pod(&self.key, pod).await?;
                    self.memory.deletes.sent(&pod.uid, self.now());
                }
                self.outcomes.pods_forced = true;
            }
        }
        Ok(false)
    }

    async fn deploy(&self, position: usize) -> Result<CreateOutcome, Error> {
        let cluster = self.driver.cluster;
        let Some(component) = component_ref(&self.stored, &self.status, position) else {
            return Ok(CreateOutcome::Fatal(format!(
                "spec.components[{position}].template names no object"
            )));
        };
        let object = match render::component(&self.stored, &self.status, &component, &self.policy) {
            Ok(object) => object,
            Err(error) => return Ok(CreateOutcome::Fatal(format!("spec.components[{position}]: {error}"))),
        };
        Ok(match cluster.create(&self.key, &component, object).await? {
            Created::Object(_) => CreateOutcome::Created,
            Created::Fatal(error) => CreateOutcome::Fatal(error),
            Created::Refused(error) | Created::Ambiguous(error) => CreateOutcome::Uncertain(error),
            Created::AlreadyExists => {
                let read = cluster.read_uncached(&self.key, &component).await;
                let facts = if let UncachedRead::Present(facts) = &read {
                    Some(Arc::clone(facts))
                } else {
                    None
                };
                let outcome = adopt(&self.stored, &component, read);
                if let (CreateOutcome::Created, Some(facts)) = (&outcome, facts) {
                    cluster.adopted(&self.key, &component, &facts);
                }
                outcome
            }
        })
    }
}

/// Time between two confirmations of the same suspicion, for the documentation.
pub const CONFIRMATION_INTERVAL: SignedDuration = Confirmations::INTERVAL;
