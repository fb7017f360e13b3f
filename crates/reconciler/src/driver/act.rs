//! Performing effects: what must be stored or proved before one, and what came of it.

use std::sync::Arc;

use appwrapper_api::Phase;
use jiff::SignedDuration;

use super::{Pass, Requeue};
use crate::{
    adopt::adopt,
    cluster::{Cluster, Created, Deleted},
    decision::Effect,
    error::Error,
    evidence::{UncachedRead, confirm},
    observation::Observation,
    observed::{CreateOutcome, component_ref},
    render,
    status::{Recorded, recorded},
};

impl<C: Cluster> Pass<'_, C> {
    /// Whether an effect depends on a status that is not stored yet.
    pub(super) fn must_write_before(&self, effect: &Effect) -> bool {
        match effect {
            Effect::AddFinalizer => false,
            Effect::RemoveFinalizer | Effect::Expire => true,
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
    /// has moved on from, and the API server is asked. Writes of the AppWrapper itself carry the version themselves.
    pub(super) async fn prove_live(&mut self, effect: &Effect) -> Result<Option<Requeue>, Error> {
        let fenced = matches!(effect, Effect::AddFinalizer | Effect::RemoveFinalizer | Effect::Expire);
        if fenced || self.memory.is_live() {
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

    /// Performs an effect. Answers whether the AppWrapper is gone.
    pub(super) async fn perform(&mut self, effect: Effect) -> Result<bool, Error> {
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
            Effect::Expire => {
                cluster.expire(&self.stored).await?;
                return Ok(true);
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
                if matches!(outcome, CreateOutcome::Fatal(_)) {
                    cluster.tell(&self.stored, Observation::NameTaken(component.clone()));
                }
                if let (CreateOutcome::Created, Some(facts)) = (&outcome, facts) {
                    cluster.adopted(&self.key, &component, &facts);
                }
                outcome
            }
        })
    }

    /// Keeps in mind until when a refused create is not to be tried again: what wakes the AppWrapper meanwhile, such as
    /// the pods of a component beside it, is no reason to ask anew.
    pub(super) fn remember_refusal(&mut self, delay: SignedDuration) {
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
}
