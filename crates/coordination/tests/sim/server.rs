//! An API server in memory: Leases and plain objects, one counter of versions, compare-and-swap, watches.
//!
//! Every write is applied in one step and put on a log, which is what the invariants are checked against.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::{Map, Value, json};
use tokio::{sync::mpsc, time::Instant};

/// One accepted write.
#[derive(Debug, Clone)]
pub struct Entry {
    pub at: Instant,
    pub path: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
    /// Made by a user, not through a replica.
    pub direct: bool,
}

/// Collection, label to match, and where events go.
type Watcher = (String, Option<(String, String)>, mpsc::UnboundedSender<Value>);

#[derive(Default)]
struct Store {
    objects: BTreeMap<String, Value>,
    version: u64,
    uids: u64,
    log: Vec<Entry>,
    watchers: Vec<Watcher>,
    /// Ignores `resourceVersion` in patches, as nothing does; for broken variants.
    no_preconditions: bool,
    /// Answer to everything, if set: 403 with these words.
    forbidden: Option<String>,
}

/// Shared by all links.
#[derive(Clone, Default)]
pub struct Server(Arc<Mutex<Store>>);

pub type Answer = (u16, Value);

impl Server {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap()
    }

    pub fn without_preconditions(self) -> Self {
        self.store().no_preconditions = true;
        self
    }

    pub fn forbid(&self, message: &str) {
        self.store().forbidden = Some(message.to_owned());
    }

    pub fn log(&self) -> Vec<Entry> {
        self.store().log.clone()
    }

    pub fn version(&self) -> u64 {
        self.store().version
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.store().objects.get(path).cloned()
    }

    /// All objects below a path.
    pub fn list(&self, below: &str) -> Vec<Value> {
        let prefix = format!("{below}/");
        let store = self.store();
        store
            .objects
            .iter()
            .filter(|(path, _)| path.starts_with(&prefix))
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Writes an object directly, as a user with kubectl would.
    pub fn put(&self, path: &str, mut object: Value) -> Value {
        let mut store = self.store();
        let before = store.objects.get(path).cloned();
        store.uids += 1;
        let uid = before.as_ref().map_or_else(
            || json!(format!("uid-{}", store.uids)),
            |o| o["metadata"]["uid"].clone(),
        );
        object["metadata"]["name"] = json!(path.rsplit('/').next().unwrap());
        object["metadata"]["uid"] = uid;
        let written = store.commit(path, before, Some(object));
        store.log.last_mut().unwrap().direct = true;
        written
    }

    pub fn delete(&self, path: &str) {
        let mut store = self.store();
        if let Some(before) = store.objects.remove(path) {
            store.commit(path, Some(before), None);
            store.log.last_mut().unwrap().direct = true;
        }
    }

    /// Opens a watch on a collection, from now on or from a version.
    pub fn watch(
        &self,
        collection: &str,
        label: Option<(String, String)>,
        from: Option<u64>,
    ) -> mpsc::UnboundedReceiver<Value> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut store = self.store();
        if let Some(from) = from {
            let prefix = format!("{collection}/");
            for entry in store.log.iter().filter(|entry| entry.path.starts_with(&prefix)) {
                let object = entry.after.as_ref().or(entry.before.as_ref()).unwrap();
                let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                if version > from && matches(object, label.as_ref()) {
                    let _ = sender.send(event(entry));
                }
            }
        }
        store.watchers.push((collection.to_owned(), label, sender));
        receiver
    }

    /// Handles one request against one path. The body is JSON already.
    pub fn handle(
        &self,
        method: &str,
        path: &str,
        query: &BTreeMap<String, String>,
        body: Value,
        apply: bool,
    ) -> Answer {
        let mut store = self.store();
        if let Some(message) = &store.forbidden {
            let mut answer = status(403, "Forbidden");
            answer.1["message"] = json!(message);
            return answer;
        }
        match method {
            "GET" if store.is_collection(path) => {
                drop(store);
                let label = query.get("labelSelector").and_then(|text| text.split_once('='));
                let label = label.map(|(key, value)| (key.to_owned(), value.to_owned()));
                let items: Vec<Value> = self
                    .list(path)
                    .into_iter()
                    .filter(|o| matches(o, label.as_ref()))
                    .collect();
                let version = self.version().to_string();
                (
                    200,
                    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
                )
            }
            "GET" => match store.objects.get(path) {
                Some(object) => (200, object.clone()),
                None => status(404, "NotFound"),
            },
            "POST" => {
                let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                if store.objects.contains_key(&path) {
                    return status(409, "AlreadyExists");
                }
                let mut object = body;
                store.uids += 1;
                object["metadata"]["uid"] = json!(format!("uid-{}", store.uids));
                (201, store.commit(&path, None, Some(object)))
            }
            "PATCH" => {
                let uid = body["metadata"]["uid"].clone();
                let Some(before) = store.objects.get(path).cloned() else {
                    if !apply {
                        return status(404, "NotFound");
                    }
                    if !uid.is_null() {
                        return status(409, "Conflict");
                    }
                    let mut object = body;
                    store.uids += 1;
                    object["metadata"]["uid"] = json!(format!("uid-{}", store.uids));
                    return (201, store.commit(path, None, Some(object)));
                };
                if !uid.is_null() && uid != before["metadata"]["uid"] {
                    return status(409, "Conflict");
                }
                let wanted = &body["metadata"]["resourceVersion"];
                if !wanted.is_null() && *wanted != before["metadata"]["resourceVersion"] && !store.no_preconditions {
                    return status(409, "Conflict");
                }
                let mut object = before.clone();
                merge(&mut object, &body);
                if object["spec"]["leaseDurationSeconds"]
                    .as_i64()
                    .is_some_and(|seconds| seconds <= 0)
                {
                    return status(422, "Invalid");
                }
                (200, store.commit(path, Some(before), Some(object)))
            }
            "DELETE" => {
                let Some(before) = store.objects.get(path).cloned() else {
                    return status(404, "NotFound");
                };
                for field in ["uid", "resourceVersion"] {
                    let wanted = &body["preconditions"][field];
                    if !wanted.is_null() && *wanted != before["metadata"][field] {
                        return status(409, "Conflict");
                    }
                }
                store.objects.remove(path);
                store.commit(path, Some(before), None);
                status(200, "")
            }
            _ => status(405, "MethodNotAllowed"),
        }
    }
}

impl Store {
    fn is_collection(&self, path: &str) -> bool {
        matches!(path.rsplit('/').next(), Some("leases" | "objects")) && !self.objects.contains_key(path)
    }

    fn commit(&mut self, path: &str, before: Option<Value>, after: Option<Value>) -> Value {
        self.version += 1;
        let version = json!(self.version.to_string());
        let (mut before, mut after) = (before, after);
        match &mut after {
            Some(after) => {
                after["metadata"]["resourceVersion"] = version;
                self.objects.insert(path.to_owned(), after.clone());
            }
            // A deletion event carries the version of the deletion.
            None => before.as_mut().unwrap()["metadata"]["resourceVersion"] = version,
        }
        let entry = Entry {
            at: Instant::now(),
            path: path.to_owned(),
            before,
            after: after.clone(),
            direct: false,
        };
        let object = entry.after.as_ref().or(entry.before.as_ref()).unwrap();
        self.watchers.retain(|(collection, label, sender)| {
            let inside = path
                .strip_prefix(collection.as_str())
                .is_some_and(|rest| rest.starts_with('/'));
            !sender.is_closed() && (!inside || !matches(object, label.as_ref()) || sender.send(event(&entry)).is_ok())
        });
        self.log.push(entry);
        after.unwrap_or_default()
    }
}

fn event(entry: &Entry) -> Value {
    let kind = match (&entry.before, &entry.after) {
        (None, _) => "ADDED",
        (_, Some(_)) => "MODIFIED",
        (_, None) => "DELETED",
    };
    json!({"type": kind, "object": entry.after.as_ref().or(entry.before.as_ref())})
}

fn matches(object: &Value, label: Option<&(String, String)>) -> bool {
    label.is_none_or(|(key, value)| object["metadata"]["labels"][key.as_str()] == value.as_str())
}

fn status(code: u16, reason: &str) -> Answer {
    let state = if code < 300 { "Success" } else { "Failure" };
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": state, "reason": reason, "message": reason, "code": code}),
    )
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let fields = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
