//! A namespace of one test: everything a user does and sees there.
//!
//! Whatever is waited for has a deadline; a wait that misses it shows the AppWrapper, its events and the end of the
//! controller's log. Objects are JSON: tests look at what is on the wire.

use std::fmt::Write as _;
use std::time::Duration;

use appwrapper_api::rules::LABEL_VALUE_LIMIT;
use appwrapper_api::{ANNOTATION_PREFIX, API_VERSION, APPWRAPPER_LABEL, KIND};
use appwrapper_testkit::api_server::{ApiRequest, Verb};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use crate::World;
use crate::world::SOON;

/// How often something is looked at that is not watched.
const LOOK: Duration = Duration::from_millis(100);

/// A namespace.
pub struct Team<'w> {
    /// Where it is.
    pub world: &'w World,
    /// Its name.
    pub namespace: String,
    client: Client,
}

/// A condition in the status of an AppWrapper; null if it has none of that type.
pub fn condition<'a>(wrapper: &'a Value, type_: &str) -> &'a Value {
    let conditions = wrapper["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == type_);
    found.unwrap_or(&Value::Null)
}

/// Whether a condition of an AppWrapper is true.
pub fn is_true(wrapper: &Value, type_: &str) -> bool {
    condition(wrapper, type_)["status"] == "True"
}

/// The phase of an AppWrapper.
pub fn phase(wrapper: &Value) -> &str {
    wrapper["status"]["phase"].as_str().unwrap_or_default()
}

/// Retries of an AppWrapper so far.
pub fn retries(wrapper: &Value) -> i64 {
    wrapper["status"]["resettingCount"].as_i64().unwrap_or_default()
}

fn value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap()
}

/// An AppWrapper with these annotations, named without their prefix.
pub fn wrapper(name: &str, components: &[Value], annotations: &[(&str, &str)]) -> Value {
    let annotations: Map<String, Value> = annotations
        .iter()
        .map(|(name, value)| (format!("{ANNOTATION_PREFIX}{name}"), json!(value)))
        .collect();
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"components": components},
    })
}

impl<'w> Team<'w> {
    pub(crate) fn existing(world: &'w World, name: &str) -> Self {
        Self {
            world,
            namespace: name.to_owned(),
            client: world.client(),
        }
    }

    pub(crate) async fn new(world: &'w World, name: &str) -> Self {
        let team = Self::existing(world, name);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        team.create(&namespace).await;
        // No pod can be created without it.
        team.until_object("v1", "ServiceAccount", "default", "is there", |found| found.is_some())
            .await;
        team
    }

    /// The objects of a kind in this namespace, or the namespaces.
    pub fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = resource(api_version, kind);
        if kind == "Namespace" {
            return Api::all_with(self.client.clone(), &resource);
        }
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn wrappers(&self) -> Api<DynamicObject> {
        self.api(API_VERSION, KIND)
    }

    /// Creates an object.
    pub async fn try_create(&self, object: &Value) -> kube::Result<Value> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let api = self.api(text("apiVersion"), text("kind"));
        let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let created = api.create(&PostParams::default(), &object).await;
        created.map(|created| value(&created))
    }

    /// Creates an object, which must be accepted.
    pub async fn create(&self, object: &Value) -> Value {
        self.try_create(object).await.unwrap()
    }

    /// Submits an AppWrapper.
    pub async fn submit(&self, name: &str, components: &[Value]) {
        self.submit_with(name, components, &[]).await;
    }

    /// Submits an AppWrapper with annotations, named without their prefix.
    pub async fn submit_with(&self, name: &str, components: &[Value], annotations: &[(&str, &str)]) {
        self.create(&wrapper(name, components, annotations)).await;
    }

    /// An object as it is now, if it is there.
    pub async fn find(&self, api_version: &str, kind: &str, name: &str) -> Option<Value> {
        let found = self.api(api_version, kind).get_opt(name).await.unwrap();
        found.as_ref().map(value)
    }

    /// All objects of a kind, with these labels.
    pub async fn list(&self, api_version: &str, kind: &str, labels: &str) -> Vec<Value> {
        let params = ListParams::default().labels(labels);
        let list = self.api(api_version, kind).list(&params).await.unwrap();
        list.iter().map(value).collect()
    }

    /// An AppWrapper as it is now.
    pub async fn get(&self, name: &str) -> Value {
        value(&self.wrappers().get(name).await.unwrap())
    }

    /// The pods that bear the label of an AppWrapper.
    pub async fn pods(&self, wrapper: &str) -> Vec<Value> {
        self.list("v1", "Pod", &format!("{APPWRAPPER_LABEL}={wrapper}")).await
    }

    /// Changes an object.
    pub async fn patch(&self, api_version: &str, kind: &str, name: &str, change: &Value) -> Value {
        let api = self.api(api_version, kind);
        let changed = api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
        value(&changed.unwrap())
    }

    /// Changes the status of an object, as its operator does.
    pub async fn patch_status(&self, api_version: &str, kind: &str, name: &str, status: &Value) {
        let api = self.api(api_version, kind);
        let change = Patch::Merge(json!({"status": status}));
        api.patch_status(name, &PatchParams::default(), &change).await.unwrap();
    }

    /// Changes an AppWrapper.
    pub async fn change(&self, name: &str, change: &Value) {
        self.patch(API_VERSION, KIND, name, change).await;
    }

    /// Sets `spec.suspend`.
    pub async fn suspend(&self, name: &str, suspend: bool) {
        self.change(name, &json!({"spec": {"suspend": suspend}})).await;
    }

    /// Sets or removes an annotation by which kwok plays a pod.
    pub async fn play(&self, pod: &Value, annotation: &str, value: Option<&str>) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let change = json!({"metadata": {"annotations": {format!("appwrapper.test/{annotation}"): value}}});
        self.patch("v1", "Pod", name, &change).await;
    }

    /// Deletes an object as a user does: `background`, `foreground` or `orphan`.
    pub async fn delete(&self, api_version: &str, kind: &str, name: &str, policy: &str) {
        let params = match policy {
            "foreground" => DeleteParams::foreground(),
            "orphan" => DeleteParams::orphan(),
            _ => DeleteParams::background(),
        };
        self.api(api_version, kind).delete(name, &params).await.unwrap();
    }

    /// Waits for something about an AppWrapper.
    pub async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let is_so = |found: Option<&Value>| found.is_some_and(&holds);
        let found = self.watch(&self.wrappers(), name, SOON, is_so).await;
        match found {
            Some(found) => found.unwrap(),
            None => panic!("not in time: {name}: {what}\n{}", self.report(name).await),
        }
    }

    /// Waits for a phase of an AppWrapper.
    pub async fn reaches(&self, name: &str, wanted: &str) -> Value {
        self.until(name, wanted, |wrapper| phase(wrapper) == wanted).await
    }

    /// Makes sure that something about an AppWrapper stays so for this long.
    pub async fn stays(&self, name: &str, what: &str, time: Duration, holds: impl Fn(&Value) -> bool) {
        let is_over = |found: Option<&Value>| !found.is_some_and(&holds);
        if self.watch(&self.wrappers(), name, time, is_over).await.is_some() {
            panic!("no longer so: {name}: {what}\n{}", self.report(name).await);
        }
    }

    /// Waits for something about an object, or about its absence.
    pub async fn until_object(
        &self,
        api_version: &str,
        kind: &str,
        name: &str,
        what: &str,
        holds: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Value> {
        let found = self.watch(&self.api(api_version, kind), name, SOON, holds).await;
        found.unwrap_or_else(|| panic!("not in time: {kind} {}/{name}: {what}", self.namespace))
    }

    /// Waits until an object is gone.
    pub async fn until_gone(&self, api_version: &str, kind: &str, name: &str) {
        self.until_object(api_version, kind, name, "is gone", |found| found.is_none())
            .await;
    }

    async fn watch(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        time: Duration,
        holds: impl Fn(Option<&Value>) -> bool,
    ) -> Option<Option<Value>> {
        let until = Instant::now() + time;
        let is_so = |found: Option<&DynamicObject>| holds(found.map(value).as_ref());
        loop {
            match timeout_at(until, await_condition(api.clone(), name, is_so)).await {
                Ok(Ok(found)) => return Some(found.as_ref().map(value)),
                // A watch may break, on a busy machine or where a test breaks it.
                Ok(Err(_)) => sleep(LOOK).await,
                Err(_) => return None,
            }
        }
    }

    /// Waits for something about the pods of an AppWrapper.
    pub async fn until_pods(&self, wrapper: &str, what: &str, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let until = Instant::now() + SOON;
        loop {
            let pods = self.pods(wrapper).await;
            if holds(&pods) {
                return pods;
            }
            if Instant::now() >= until {
                panic!(
                    "not in time: pods of {wrapper}: {what}\n{pods:#?}\n{}",
                    self.report(wrapper).await
                );
            }
            sleep(LOOK).await;
        }
    }

    /// The events about an AppWrapper, as reason, type and note.
    pub async fn events(&self, wrapper: &str) -> Vec<Value> {
        let events = self.list("events.k8s.io/v1", "Event", "").await;
        let about = |event: &Value| event["regarding"]["kind"] == KIND && event["regarding"]["name"] == wrapper;
        events.into_iter().filter(about).collect()
    }

    /// Waits for an event about an AppWrapper whose note contains a text.
    pub async fn until_event(&self, wrapper: &str, reason: &str, note: &str) -> Value {
        let until = Instant::now() + SOON;
        loop {
            let events = self.events(wrapper).await;
            let is_it = |event: &&Value| {
                event["reason"] == reason && event["note"].as_str().unwrap_or_default().contains(note)
            };
            if let Some(found) = events.iter().find(is_it) {
                return found.clone();
            }
            if Instant::now() >= until {
                panic!(
                    "no event {reason} with {note:?} about {wrapper}\n{}",
                    self.report(wrapper).await
                );
            }
            sleep(LOOK).await;
        }
    }

    /// Deletes an AppWrapper and waits until nothing of it is left.
    pub async fn remove(&self, name: &str) {
        let wrappers = self.wrappers();
        wrappers.delete(name, &DeleteParams::foreground()).await.unwrap();
        if self
            .watch(&wrappers, name, SOON, |found| found.is_none())
            .await
            .is_none()
        {
            panic!("not in time: {name} is gone\n{}", self.report(name).await);
        }
        // A name that is too long for a label is no pod's.
        if name.len() <= LABEL_VALUE_LIMIT {
            self.until_pods(name, "none is left", <[Value]>::is_empty).await;
        }
    }

    /// Makes pods as the operator of a component would: controlled by it, from the template at this JSON pointer.
    pub async fn operate(&self, api_version: &str, kind: &str, name: &str, template: &str, pods: usize) {
        let owner = self
            .until_object(api_version, kind, name, "is there", |found| found.is_some())
            .await
            .unwrap();
        for index in 0..pods {
            let mut pod = owner.pointer(template).unwrap().clone();
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["metadata"]["name"] = json!(format!("{name}-{index}"));
            pod["metadata"]["ownerReferences"] = controlled_by(&owner);
            self.create(&pod).await;
        }
    }

    /// Uncached reads by the controller of objects of a resource in this namespace so far.
    pub fn gets(&self, resource: &str) -> usize {
        self.count_gets(resource, |_| true)
    }

    /// The same of one object.
    pub fn gets_of(&self, resource: &str, name: &str) -> usize {
        self.count_gets(resource, |found| found == name)
    }

    fn count_gets(&self, resource: &str, name: impl Fn(&str) -> bool) -> usize {
        let log = self.world.proxy.records().log();
        let is_one = |request: &&ApiRequest| {
            request.verb == Verb::Get
                && request.plural == resource
                && request.namespace.as_deref() == Some(&self.namespace)
                && request.name.as_deref().is_some_and(&name)
        };
        log.iter().filter(is_one).count()
    }

    async fn report(&self, name: &str) -> String {
        let mut report = String::new();
        let wrapper = self.wrappers().get_opt(name).await;
        let wrapper = wrapper.map(|found| found.map_or_else(|| json!("is gone"), |found| value(&found)["status"].take()));
        let _ = writeln!(report, "AppWrapper {}/{name}: {wrapper:#?}", self.namespace);
        for event in self.events(name).await {
            let _ = writeln!(report, "event {} {}", event["reason"], event["note"]);
        }
        report + &self.world.controller().log_tail()
    }
}

/// The owner references of an object that another one controls.
pub fn controlled_by(owner: &Value) -> Value {
    json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": true, "blockOwnerDeletion": true,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }])
}

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}
