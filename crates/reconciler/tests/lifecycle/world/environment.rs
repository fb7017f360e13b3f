//! Everyone else: users, the Job controller, the kubelet and the garbage collector.

use std::sync::Arc;

use appwrapper_api::{AppWrapper, Completion, Lineage, PodFacts, PodPhase, Uid};

use super::{ObjectKey, State};

impl State {
    /// The one object of this name, whatever its kind.
    pub fn key(&self, name: &str) -> ObjectKey {
        let mut keys = self.objects.keys().filter(|(_, found)| found == name);
        keys.next().unwrap_or_else(|| panic!("no object {name}")).clone()
    }

    /// Changes a component.
    pub fn edit_object(&mut self, name: &str, edit: impl FnOnce(&mut super::Object)) {
        let key = self.key(name);
        edit(self.objects.get_mut(&key).unwrap());
        self.publish(&key);
    }

    /// A component ends by its own word.
    pub fn end(&mut self, name: &str, completion: Completion) {
        self.edit_object(name, |object| object.facts.completion = completion);
    }

    /// Somebody deletes a component, in the background.
    pub fn remove(&mut self, name: &str) {
        let key = self.key(name);
        self.rules.taken.push(self.objects[&key].facts.uid.clone());
        self.objects.get_mut(&key).unwrap().facts.finalizers.clear();
        self.remove_object(&key);
    }

    /// Somebody deletes a component in the foreground, or something holds it: it is there, being deleted.
    pub fn terminate(&mut self, name: &str) {
        let uid = self.objects[&self.key(name)].facts.uid.clone();
        self.rules.taken.push(uid);
        self.edit_object(name, |object| {
            object.facts.terminating = true;
            object.facts.finalizers = vec!["foregroundDeletion".to_owned()];
        });
    }

    /// A foreign finalizer goes.
    pub fn release(&mut self, name: &str) {
        self.edit_object(name, |object| object.facts.finalizers.clear());
        let key = self.key(name);
        if self.objects[&key].facts.terminating {
            self.remove_object(&key);
        }
    }

    /// Somebody puts another object in a component's place.
    pub fn replace(&mut self, name: &str, controller: Option<appwrapper_api::ControllerRef>) {
        let uid = self.next_uid(name);
        self.edit_object(name, |object| {
            object.facts.uid = uid;
            object.facts.controller = controller;
            object.facts.terminating = false;
            // Whatever it is, it is not the component.
            object.position = usize::MAX;
        });
    }

    pub fn add_pod(&mut self, name: &str, uid: Uid, component: &Uid, owner: &Uid) {
        let pod = PodFacts {
            name: name.into(),
            uid,
            version: None,
            lineage: Lineage::Component {
                component: component.clone(),
                owner: owner.clone(),
            },
            phase: PodPhase::Pending,
            terminating: false,
            finalizers: Vec::new(),
            node: None,
            exit_codes: Vec::new(),
            resources: Vec::new(),
        };
        self.pods.insert(name.to_owned(), pod);
        self.publish_pod(name);
    }

    /// The controller of a component makes pods named `name-0`, `name-1` and so on.
    pub fn spawn(&mut self, name: &str, count: usize, phase: PodPhase) {
        let object = self.objects[&self.key(name)].clone();
        let Some(controller) = object.facts.controller else {
            return;
        };
        for index in 0..count {
            let pod = format!("{name}-{index}");
            let uid = self.next_uid(&pod);
            self.add_pod(&pod, uid, &object.facts.uid, &controller.uid);
            self.edit_pod(&pod, |pod| {
                pod.phase = phase;
                pod.node = Some("node-a".into());
            });
        }
    }

    pub fn edit_pod(&mut self, name: &str, edit: impl FnOnce(&mut PodFacts)) {
        edit(self.pods.get_mut(name).unwrap_or_else(|| panic!("no pod {name}")));
        self.publish_pod(name);
    }

    pub fn remove_pod(&mut self, name: &str) {
        self.pods.remove(name);
        self.publish_pod(name);
        let bare = self
            .objects
            .keys()
            .find(|(type_ref, found)| &*type_ref.kind == "Pod" && found == name)
            .cloned();
        if let Some(key) = bare {
            self.objects.remove(&key);
            self.publish(&key);
        }
    }

    /// A delete with no grace: the pod goes unless a finalizer holds it.
    pub fn kill_pod(&mut self, name: &str, uid: &Uid) {
        match self.pods.get(name) {
            Some(pod) if pod.uid == *uid && pod.finalizers.is_empty() => self.remove_pod(name),
            Some(pod) if pod.uid == *uid => self.edit_pod(name, |pod| pod.terminating = true),
            _ => {}
        }
    }

    /// A pod as a list shows it: a link of its chain that no longer exists is a broken one.
    pub fn seen(&self, pod: &PodFacts) -> PodFacts {
        let mut seen = pod.clone();
        if let Lineage::Component { component, .. } = &pod.lineage
            && !self.objects.values().any(|object| object.facts.uid == *component)
            && !component.as_str().starts_with("uid-other")
        {
            seen.lineage = Lineage::Broken;
        }
        seen
    }

    /// The garbage collector deletes what has lost its owner.
    pub fn collect(&mut self) {
        let owner = self.wrapper.as_ref().and_then(|wrapper| wrapper.metadata.uid.clone());
        let orphans: Vec<ObjectKey> = self
            .objects
            .iter()
            .filter(|(_, object)| {
                let controller = object.facts.controller.as_ref();
                controller.is_some_and(|found| {
                    &*found.type_ref.kind == "AppWrapper" && Some(found.uid.as_str()) != owner.as_deref()
                })
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in orphans {
            self.remove_object(&key);
        }
        let pods: Vec<String> = self
            .pods
            .values()
            .filter(|pod| self.seen(pod).lineage == Lineage::Broken && pod.finalizers.is_empty())
            .map(|pod| pod.name.to_string())
            .collect();
        for name in pods {
            self.remove_pod(&name);
        }
    }

    /// Somebody changes the AppWrapper.
    pub fn edit_wrapper(&mut self, edit: impl FnOnce(&mut AppWrapper)) {
        if let Some(mut wrapper) = self.wrapper.clone() {
            edit(&mut wrapper);
            self.store_wrapper(Some(wrapper));
        }
    }

    pub fn suspend(&mut self, suspend: bool) {
        self.edit_wrapper(|wrapper| wrapper.spec.suspend = suspend);
    }

    /// Somebody deletes the AppWrapper.
    pub fn delete_wrapper(&mut self) {
        let now = self.now;
        let held = self
            .wrapper
            .as_ref()
            .and_then(|wrapper| wrapper.metadata.finalizers.clone());
        if held.unwrap_or_default().is_empty() {
            self.store_wrapper(None);
            return;
        }
        self.edit_wrapper(|wrapper| {
            let at = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now);
            wrapper.metadata.deletion_timestamp.get_or_insert(at);
        });
    }

    /// The copy of the AppWrapper that the watch has delivered.
    pub fn cached_wrapper(&self) -> Option<Arc<AppWrapper>> {
        self.wrappers.get(super::NAME).cloned()
    }
}
