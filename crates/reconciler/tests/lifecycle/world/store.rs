//! What the API server and the caches answer with.

use std::sync::Arc;

use appwrapper_api::{AppWrapper, ComponentFacts, ComponentRef, ControllerRef, TypeRef, Uid};
use appwrapper_reconciler::{
    Error,
    cluster::Deleted,
    evidence::{CachedRead, NotSynced, UncachedRead},
};
use serde_json::Value;

use super::{Fault, Note, Object, ObjectKey, State, api::key_of};

impl State {
    pub(super) fn log(&mut self, call: String, is_write: bool) -> Option<Fault> {
        let fault = self.faults.meet(&call, is_write);
        self.calls.push(call);
        if let Some(Fault::Meanwhile(deed)) = fault {
            self.act(deed);
            return None;
        }
        fault
    }

    pub(super) fn cached(&mut self, component: &ComponentRef) -> CachedRead {
        let key = key_of(component);
        let Some(feed) = self.kinds.get(&component.type_ref).filter(|feed| feed.synced) else {
            return CachedRead::NotSynced(NotSynced::Kind);
        };
        let entry = feed.get(&key.1).cloned();
        let past = feed.past(&key.1).cloned();
        let seen = entry
            .as_ref()
            .or(past.as_ref().map(|past| &past.last))
            .map(|facts| facts.uid.clone());
        let mut full = true;
        match self.notes.get_mut(&key) {
            None => {}
            Some(Note::Deleted) => full = false,
            Some(Note::Created { uid, pending }) => {
                let seen_ours = seen.as_ref() == Some(uid);
                if let Some((revision, since)) = *pending {
                    if !seen_ours && feed.high < revision {
                        return CachedRead::NotSynced(NotSynced::BehindOwnWrite { since });
                    }
                    *pending = None;
                }
                full = seen_ours;
            }
        }
        match (entry, past) {
            (Some(facts), _) => CachedRead::Present(facts),
            (None, Some(past)) => CachedRead::Absent {
                changed: past.changed,
                last: full.then_some(past.last),
            },
            (None, None) => CachedRead::Absent { changed: 0, last: None },
        }
    }

    pub(super) fn live(&self, component: &ComponentRef) -> UncachedRead {
        match self.objects.get(&key_of(component)) {
            Some(object) => UncachedRead::Present(Arc::new(object.facts.clone())),
            None => UncachedRead::Absent,
        }
    }

    pub(super) fn note_created(&mut self, component: &ComponentRef, facts: &ComponentFacts) {
        let revision = facts
            .version
            .as_ref()
            .and_then(|version| version.as_str().parse().ok())
            .unwrap_or(0);
        let note = Note::Created {
            uid: facts.uid.clone(),
            pending: Some((revision, self.now)),
        };
        self.notes.insert(key_of(component), note);
    }

    /// Gives an object of that name another one, so that the name is free.
    pub(super) fn make_room(&mut self, key: &ObjectKey) {
        if let Some(object) = self.objects.remove(key) {
            let name = format!("{}-{}", key.1, self.next_revision());
            self.objects.insert((key.0.clone(), name), object);
        }
    }

    pub(super) fn store_object(&mut self, component: &ComponentRef, body: Value) -> Arc<ComponentFacts> {
        let owner = &body["metadata"]["ownerReferences"][0];
        let text = |name: &str| owner[name].as_str().unwrap_or_default().to_owned();
        let controller = ControllerRef {
            type_ref: TypeRef::new(text("apiVersion"), text("kind")),
            name: text("name").into(),
            uid: Uid::new(text("uid")),
        };
        self.check_create(component.position, controller.uid.as_str());
        let key = key_of(component);
        let facts = ComponentFacts {
            uid: self.next_uid(&component.name),
            controller: Some(controller.clone()),
            version: None,
            terminating: false,
            finalizers: Vec::new(),
            completion: appwrapper_api::Completion::Active,
            counts: appwrapper_api::OwnCounts::default(),
        };
        let labelled = body["metadata"]["labels"]
            .get(appwrapper_api::APPWRAPPER_LABEL)
            .is_some();
        let object = Object {
            type_ref: component.type_ref.clone(),
            name: component.name.to_string(),
            position: component.position,
            facts,
            labelled,
            body,
        };
        self.objects.insert(key.clone(), object);
        self.publish(&key);
        let facts = Arc::new(self.objects[&key].facts.clone());
        if &*component.type_ref.kind == "Pod" {
            self.add_pod(&component.name, facts.uid.clone(), &facts.uid, &controller.uid);
        }
        facts
    }

    /// Removes an object, or begins to while something holds it.
    pub fn remove_object(&mut self, key: &ObjectKey) -> Deleted {
        let Some(object) = self.objects.get_mut(key) else {
            return Deleted::Gone;
        };
        if object.facts.finalizers.is_empty() {
            self.objects.remove(key);
            if &*key.0.kind == "Pod" && self.pods.remove(&key.1).is_some() {
                self.publish_pod(&key.1);
            }
            self.publish(key);
            return Deleted::Gone;
        }
        if !object.facts.terminating {
            object.facts.terminating = true;
            self.publish(key);
        }
        Deleted::Terminating
    }

    /// The AppWrapper as a write returns it.
    pub(super) fn answer(&self) -> Option<AppWrapper> {
        let mut wrapper = self.wrapper.clone()?;
        if self.lies.hides_deletion {
            wrapper.metadata.deletion_timestamp = None;
        }
        Some(wrapper)
    }

    pub(super) fn precondition(&self, observed: &AppWrapper) -> Result<AppWrapper, Error> {
        let Some(live) = &self.wrapper else {
            return Err(Error::Gone);
        };
        let same = live.metadata.uid == observed.metadata.uid
            && (self.lies.unconditional
                || self.lies.hides_deletion
                || live.metadata.resource_version == observed.metadata.resource_version);
        if same { Ok(live.clone()) } else { Err(Error::Conflict) }
    }
}
