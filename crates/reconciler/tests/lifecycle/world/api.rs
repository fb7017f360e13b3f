//! The verbs of `Cluster` on the world.

use appwrapper_api::{
    AppWrapper, AppWrapperKey, AppWrapperStatus, ComponentFacts, ComponentRef, FINALIZER, Lineage, PodFacts, Rv, Uid,
};
use appwrapper_reconciler::{
    Cluster, Error,
    cluster::{Created, Deleted, Grace},
    evidence::{CachedRead, Doubt, UncachedRead},
    observation::Observation,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::{Fault, Note, ObjectKey, World};

pub(super) fn key_of(component: &ComponentRef) -> ObjectKey {
    (component.type_ref.clone(), component.name.to_string())
}

fn doubt(reason: &'static str, message: &str) -> Doubt {
    Doubt {
        reason,
        message: message.to_owned(),
    }
}

/// The controller is no more: the future never ends and is dropped.
async fn die() {
    std::future::pending::<()>().await;
}

fn failed(operation: &'static str, fault: &Fault) -> Error {
    Error::Api {
        operation,
        message: format!("{fault:?}"),
    }
}

impl Cluster for World {
    fn read_cached(&self, _: &AppWrapperKey, component: &ComponentRef) -> CachedRead {
        self.state().cached(component)
    }

    fn pods_cached(&self, _: &AppWrapperKey) -> Option<Vec<PodFacts>> {
        let state = self.state();
        let ghosts = if state.cached_pods.high >= state.pods_gone {
            0
        } else {
            state.pods_gone
        };
        let is_ghost = |pod: &&PodFacts| pod.version <= Rv::parse(&ghosts.to_string());
        let alive = state
            .cached_pods
            .values()
            .filter(|pod| ghosts == 0 || !is_ghost(pod))
            .cloned();
        state.cached_pods.synced.then(|| alive.collect())
    }

    fn known_uid(&self, _: &AppWrapperKey, component: &ComponentRef) -> Option<Uid> {
        match self.state().notes.get(&key_of(component)) {
            Some(Note::Created { uid, .. }) => Some(uid.clone()),
            _ => None,
        }
    }

    async fn watch(&self, component: &ComponentRef, _: bool) {
        let mut state = self.state();
        let type_ref = component.type_ref.clone();
        if !component.name.is_empty() && !state.kinds.entry(type_ref.clone()).or_default().synced {
            state.calls.push(format!("watch {type_ref}"));
            state.list_kind(&type_ref);
        }
    }

    async fn read_uncached(&self, _: &AppWrapperKey, component: &ComponentRef) -> UncachedRead {
        let mut state = self.state();
        match state.log(format!("get {component}"), false) {
            Some(Fault::NotServed) => UncachedRead::NotServed,
            Some(Fault::Forbid) => UncachedRead::Doubt(doubt("forbidden", "no right to get it")),
            Some(Fault::Refuse(message) | Fault::Never(message)) => UncachedRead::Doubt(doubt("throttled", message)),
            Some(_) => UncachedRead::Doubt(doubt("timeout", "no answer")),
            None if state.lies.reads_from_cache => match state.cached(component) {
                CachedRead::Present(facts) => UncachedRead::Present(facts),
                _ => UncachedRead::Absent,
            },
            None => match state.live(component) {
                UncachedRead::Absent if state.lies.denies_absence => UncachedRead::Doubt(doubt("timeout", "no answer")),
                read => read,
            },
        }
    }

    async fn read_wrapper(&self, _: &AppWrapperKey) -> Result<Option<AppWrapper>, Doubt> {
        let mut state = self.state();
        match state.log("get AppWrapper".to_owned(), false) {
            Some(_) => Err(doubt("timeout", "no answer")),
            None => Ok(state.wrapper.clone()),
        }
    }

    async fn list_pods_uncached(&self, _: &AppWrapperKey) -> Result<Vec<PodFacts>, Doubt> {
        let mut state = self.state();
        if state.log("list pods".to_owned(), false).is_some() {
            return Err(doubt("timeout", "no answer"));
        }
        if state.lies.pods_from_cache {
            return Ok(state.cached_pods.values().cloned().collect());
        }
        let pods: Vec<PodFacts> = state.pods.values().map(|pod| state.seen(pod)).collect();
        if pods.iter().all(|pod| pod.lineage == Lineage::Foreign) {
            state.pods_gone = state.next_revision();
        }
        Ok(pods)
    }

    fn admit_confirmation(&self) -> bool {
        self.state().log("admit".to_owned(), false).is_none()
    }

    async fn create(&self, _: &AppWrapperKey, component: &ComponentRef, object: Value) -> Result<Created, Error> {
        let (fault, answer) = {
            let mut state = self.state();
            let fault = state.log(format!("create {component}"), true);
            match fault {
                Some(Fault::Refuse(message)) => return Ok(Created::Refused(message.to_owned())),
                Some(Fault::Never(message)) => return Ok(Created::Fatal(message.to_owned())),
                Some(Fault::NotServed) => return Ok(Created::Fatal("the kind is not served".to_owned())),
                Some(Fault::Lose) => return Ok(Created::Ambiguous("no answer".to_owned())),
                _ => {}
            }
            if state.lies.same_name_twice {
                state.make_room(&key_of(component));
            }
            let answer = if state.objects.contains_key(&key_of(component)) {
                Created::AlreadyExists
            } else {
                Created::Object(state.store_object(component, object))
            };
            if let (None, Created::Object(facts)) = (&fault, &answer) {
                state.note_created(component, facts);
            }
            (fault, answer)
        };
        match fault {
            Some(Fault::Crash) => die().await,
            Some(_) => return Ok(Created::Ambiguous("no answer".to_owned())),
            None => {}
        }
        Ok(answer)
    }

    fn adopted(&self, _: &AppWrapperKey, component: &ComponentRef, facts: &ComponentFacts) {
        self.state().note_created(component, facts);
    }

    async fn delete(
        &self,
        _: &AppWrapperKey,
        component: &ComponentRef,
        uid: &Uid,
        grace: Grace,
    ) -> Result<Deleted, Error> {
        let at_once = if grace == Grace::Zero { " at once" } else { "" };
        let (fault, answer) = {
            let mut state = self.state();
            let fault = state.log(format!("delete {component}{at_once}"), true);
            if let Some(Fault::Refuse(message)) = fault {
                return Ok(Deleted::Refused(message.to_owned()));
            }
            if fault == Some(Fault::Lose) {
                return Ok(Deleted::Refused("no answer".to_owned()));
            }
            let key = key_of(component);
            let answer = match state.objects.get(&key) {
                Some(object) if object.facts.uid != *uid => Deleted::Refused("another object has the name".to_owned()),
                _ => state.remove_object(&key),
            };
            if fault.is_none() && !matches!(answer, Deleted::Refused(_)) {
                state.notes.insert(key, Note::Deleted);
            }
            (fault, answer)
        };
        match fault {
            Some(Fault::Crash) => die().await,
            Some(_) => return Ok(Deleted::Refused("no answer".to_owned())),
            None => {}
        }
        Ok(answer)
    }

    async fn delete_pod(&self, _: &AppWrapperKey, pod: &PodFacts) -> Result<Deleted, Error> {
        let fault = {
            let mut state = self.state();
            let fault = state.log(format!("delete pod {}", pod.name), true);
            if matches!(fault, Some(Fault::Refuse(_) | Fault::Lose)) {
                return Ok(Deleted::Refused("no".to_owned()));
            }
            state.kill_pod(&pod.name, &pod.uid);
            fault
        };
        if fault == Some(Fault::Crash) {
            die().await;
        }
        Ok(Deleted::Terminating)
    }

    async fn patch_status(&self, observed: &AppWrapper, status: &AppWrapperStatus) -> Result<AppWrapper, Error> {
        let (fault, answer) = {
            let mut state = self.state();
            let fault = state.log(format!("status {}", status.phase), true);
            if matches!(fault, Some(Fault::Refuse(_) | Fault::Never(_) | Fault::Lose)) {
                return Err(failed("status patch", &fault.unwrap_or(Fault::Lose)));
            }
            let mut live = state.precondition(observed)?;
            state.check_status(&live, status);
            state.check_written(&live);
            live.status = status.clone();
            state.store_wrapper(Some(live));
            (fault, state.answer())
        };
        match fault {
            Some(Fault::Crash) => die().await,
            Some(fault) => return Err(failed("status patch", &fault)),
            None => {}
        }
        answer.ok_or(Error::Gone)
    }

    async fn patch_finalizers(&self, observed: &AppWrapper, present: bool) -> Result<Option<AppWrapper>, Error> {
        let (fault, answer) = {
            let mut state = self.state();
            let verb = if present { "add" } else { "remove" };
            let fault = state.log(format!("{verb} finalizer"), true);
            if matches!(fault, Some(Fault::Refuse(_) | Fault::Never(_) | Fault::Lose)) {
                return Err(failed("finalizer patch", &fault.unwrap_or(Fault::Lose)));
            }
            let mut live = match state.precondition(observed) {
                Err(Error::Gone) => return Ok(None),
                live => live?,
            };
            state.check_written(&live);
            let finalizers = live.metadata.finalizers.get_or_insert_default();
            finalizers.retain(|name| name != FINALIZER);
            if present {
                finalizers.push(FINALIZER.to_owned());
            }
            let is_gone = finalizers.is_empty() && live.metadata.deletion_timestamp.is_some();
            state.store_wrapper((!is_gone).then_some(live));
            (fault, state.answer())
        };
        match fault {
            Some(Fault::Crash) => die().await,
            Some(fault) => return Err(failed("finalizer patch", &fault)),
            None => {}
        }
        Ok(answer)
    }

    async fn expire(&self, observed: &AppWrapper) -> Result<(), Error> {
        let fault = {
            let mut state = self.state();
            let fault = state.log("delete appwrapper".to_owned(), true);
            if matches!(fault, Some(Fault::Refuse(_) | Fault::Never(_) | Fault::Lose)) {
                return Err(failed("delete", &fault.unwrap_or(Fault::Lose)));
            }
            let mut live = match state.precondition(observed) {
                Err(Error::Gone) => return Ok(()),
                live => live?,
            };
            let is_kept = live.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty());
            live.metadata.deletion_timestamp = Some(Time(state.now));
            state.store_wrapper(is_kept.then_some(live));
            fault
        };
        if fault == Some(Fault::Crash) {
            die().await;
        }
        Ok(())
    }

    fn tell(&self, _: &AppWrapper, observation: Observation) {
        self.state().told.push(observation);
    }
}
