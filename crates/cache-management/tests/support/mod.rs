//! A server, a registry and the few words the tests are written in.
#![allow(dead_code, missing_docs, reason = "every test file uses some of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "it is for tests"
)]

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use appwrapper_api::{APPWRAPPER_LABEL, AppWrapperKey, ComponentFacts, ComponentRef, Lineage, Rv, TypeRef, Uid};
use appwrapper_cache_management::{CachedRead, LookupOutcome, Observer, Reason, Registry, Selector, Settings, View};
use appwrapper_testkit::api_server::{ApiServer, Match, Verb};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

pub const NAMESPACE: &str = "n";
/// In tokio's time, which runs ahead whenever nothing else can.
pub const LIMIT: Duration = Duration::from_secs(20);

pub struct World {
    pub server: ApiServer,
    pub registry: Registry,
    pub view: View,
    pub triggers: mpsc::Receiver<AppWrapperKey>,
    pub told: Arc<Told>,
}

#[derive(Default)]
pub struct Told {
    pub errors: Mutex<Vec<(TypeRef, Reason)>>,
    pub synced: Mutex<Vec<(TypeRef, bool)>>,
    pub lookups: Mutex<Vec<LookupOutcome>>,
    pub strangers: Mutex<Vec<AppWrapperKey>>,
}

impl Observer for Told {
    fn watch_error(&self, kind: &TypeRef, reason: Reason) {
        self.errors.lock().unwrap().push((kind.clone(), reason));
    }

    fn synced(&self, kind: &TypeRef, synced: bool) {
        self.synced.lock().unwrap().push((kind.clone(), synced));
    }

    fn lookup(&self, _: &TypeRef, outcome: LookupOutcome) {
        self.lookups.lock().unwrap().push(outcome);
    }

    fn stranger(&self, key: &AppWrapperKey) {
        self.strangers.lock().unwrap().push(key.clone());
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(Settings::default(), 64)
    }

    pub fn with(settings: Settings, channel: usize) -> Self {
        let server = ApiServer::new();
        let (sender, triggers) = mpsc::channel(channel);
        let told = Arc::new(Told::default());
        let registry = Registry::new(
            server.client(),
            Selector::all(),
            sender,
            Arc::clone(&told) as _,
            settings,
        );
        let view = registry.view();
        Self {
            server,
            registry,
            view,
            triggers,
            told,
        }
    }

    /// A world in which this kind is watched and synced.
    pub async fn watching(kind: &TypeRef) -> Self {
        let world = Self::new();
        assert!(world.registry.ensure(kind, LIMIT).await.unwrap());
        world
    }

    pub async fn ensure(&self, kind: &TypeRef) -> bool {
        self.registry.ensure(kind, LIMIT).await.unwrap()
    }

    /// Creates an AppWrapper; its reference for others' `ownerReferences`.
    pub fn appwrapper(&self, name: &str) -> Value {
        owner_of(&self.server.create(json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {"namespace": NAMESPACE, "name": name}, "spec": {"components": []},
        })))
    }

    /// Creates an object with our label and this controller; its reference as a controller.
    pub fn create(&self, kind: &TypeRef, name: &str, label: &str, controller: Option<&Value>) -> Value {
        owner_of(&self.server.create(object(kind, name, label, controller)))
    }

    pub fn read(&self, kind: &TypeRef, name: &str) -> CachedRead {
        self.view.component(&key("aw"), &component(kind, name))
    }

    pub fn present(&self, kind: &TypeRef, name: &str) -> Option<Arc<ComponentFacts>> {
        match self.read(kind, name) {
            CachedRead::Present(facts) => Some(facts),
            _ => None,
        }
    }

    pub fn absent(&self, kind: &TypeRef, name: &str) -> Option<u64> {
        match self.read(kind, name) {
            CachedRead::Absent { changed, .. } => Some(changed),
            _ => None,
        }
    }

    pub fn is_synced(&self, kind: &TypeRef) -> bool {
        self.registry
            .status()
            .iter()
            .any(|status| status.type_ref == *kind && status.synced)
    }

    pub fn lineages(&self) -> Vec<Lineage> {
        let pods = self.view.pods(&key("aw")).expect("pods are synced");
        pods.into_iter().map(|pod| pod.lineage).collect()
    }

    pub async fn trigger(&mut self) -> AppWrapperKey {
        timeout(LIMIT, self.triggers.recv())
            .await
            .expect("a trigger in time")
            .expect("an open channel")
    }

    /// Takes the triggers that are there.
    pub fn drain(&mut self) -> HashSet<AppWrapperKey> {
        std::iter::from_fn(|| self.triggers.try_recv().ok()).collect()
    }

    /// The version of an object as the server has it.
    pub fn version_of(&self, resource: &str, name: &str) -> Option<Rv> {
        version(&self.server.get(resource, NAMESPACE, name).unwrap())
    }

    pub fn count(&self, verb: Verb, resource: &str) -> usize {
        self.server.count(&Match::verb(verb).resource(resource))
    }
}

/// Waits for a condition that only tasks of the caches can bring about.
pub async fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(within, waiting)
        .await
        .unwrap_or_else(|_| panic!("not within {within:?}: {what}"));
}

pub fn key(name: &str) -> AppWrapperKey {
    AppWrapperKey::new(NAMESPACE, name)
}

pub fn component(kind: &TypeRef, name: &str) -> ComponentRef {
    ComponentRef {
        position: 0,
        type_ref: kind.clone(),
        name: name.into(),
    }
}

pub fn object(kind: &TypeRef, name: &str, label: &str, controller: Option<&Value>) -> Value {
    json!({
        "apiVersion": &*kind.api_version, "kind": &*kind.kind,
        "metadata": {"namespace": NAMESPACE, "name": name, "labels": {APPWRAPPER_LABEL: label},
            "ownerReferences": controller.into_iter().collect::<Vec<_>>()},
        "spec": {},
    })
}

pub fn owner_of(object: &Value) -> Value {
    json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true})
}

pub fn uid(owner: &Value) -> Uid {
    Uid::new(owner["uid"].as_str().unwrap())
}

pub fn version(object: &Value) -> Option<Rv> {
    Rv::parse(object["metadata"]["resourceVersion"].as_str().unwrap())
}

pub fn job() -> TypeRef {
    TypeRef::new("batch/v1", "Job")
}

pub fn widget() -> TypeRef {
    TypeRef::new("example.com/v1", "Widget")
}

pub fn pod() -> TypeRef {
    TypeRef::new("v1", "Pod")
}

pub fn kind(api_version: &str, kind: &str) -> TypeRef {
    TypeRef::new(api_version, kind)
}
