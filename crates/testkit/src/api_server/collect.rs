//! The garbage collector and the namespace controller, as one step that runs until nothing is left to do.
//!
//! * Orphan: owner references to the object are taken from its dependents, then its `orphan` finalizer.
//! * Foreground: the dependents are deleted; the `foregroundDeletion` finalizer goes when no dependent with
//!   `blockOwnerDeletion` is left. Owners in the middle are deleted in the foreground as well.
//! * An object none of whose owners exist is deleted in the background. Owners are told apart by uid. An owner of a kind
//!   that is not served counts as existing, since the real collector cannot look it up.
//! * The content of a terminating namespace is deleted, then the namespace.
//!
//! It runs by itself after every write, or only when `ApiServer::collect_garbage` is called.

use std::sync::Arc;

use serde_json::Value;

use super::object;
use super::remove::{DeleteOptions, FOREGROUND, ORPHAN};
use super::request::Verb;
use super::store::{Actor, Change, ObjectKey, State};

const AUTHOR: &str = "garbage-collector";

impl State {
    /// Runs to the end and returns how many changes were made.
    pub(crate) fn collect_garbage(&mut self) -> usize {
        let before = self.changes.len();
        loop {
            let round = self.changes.len();
            self.collect_once();
            if self.changes.len() == round {
                return round - before;
            }
        }
    }

    /// Runs if a change from position `since` on can have left something to do.
    pub(crate) fn collect_after(&mut self, since: usize) {
        let matters = |change: &Change| {
            let Some(after) = &change.after else { return true };
            let owners = |object: &Value| object::list(object, "/metadata/ownerReferences").to_vec();
            object::is_deleting(after) || change.before.as_deref().map(owners).unwrap_or_default() != owners(after)
        };
        if self.changes[since..].iter().any(matters) {
            self.collect_garbage();
        }
    }

    fn collect_once(&mut self) {
        let keys: Vec<ObjectKey> = self.objects.keys().cloned().collect();
        for key in keys {
            let Some(object) = self.objects.get(&key).cloned() else {
                continue;
            };
            if object::is_deleting(&object) {
                let finalizers = object::finalizers(&object);
                if finalizers.iter().any(|f| f == ORPHAN) {
                    self.orphan_dependents(&object);
                    self.drop_finalizer(&key, ORPHAN);
                }
                if finalizers.iter().any(|f| f == FOREGROUND) {
                    self.delete_dependents(&key, &object);
                }
                if key.resource == "namespaces" {
                    self.empty_namespace(&key);
                }
            } else if self.is_garbage(&key, &object) {
                self.remove(&key, "Background");
            }
        }
    }

    fn orphan_dependents(&mut self, owner: &Value) {
        for key in self.dependents(owner) {
            self.change(&key, Verb::Patch, |object| {
                let owned_by = object::uid(owner);
                let mut references = object::list(object, "/metadata/ownerReferences").to_vec();
                references.retain(|r| object::text(r, "/uid") != owned_by);
                if references.is_empty() {
                    object::metadata(object).remove("ownerReferences");
                } else {
                    object::metadata(object).insert("ownerReferences".to_owned(), references.into());
                }
            });
        }
    }

    fn delete_dependents(&mut self, owner_key: &ObjectKey, owner: &Value) {
        let mut blocked = false;
        for key in self.dependents(owner) {
            let Some(dependent) = self.objects.get(&key).cloned() else {
                continue;
            };
            if !object::is_deleting(&dependent) {
                let policy = if self.dependents(&dependent).is_empty() {
                    "Background"
                } else {
                    "Foreground"
                };
                self.remove(&key, policy);
            }
            let blocks = object::list(&dependent, "/metadata/ownerReferences").iter().any(|r| {
                object::text(r, "/uid") == object::uid(owner)
                    && r.get("blockOwnerDeletion").and_then(Value::as_bool).unwrap_or_default()
            });
            blocked |= blocks && self.objects.contains_key(&key);
        }
        if !blocked {
            self.drop_finalizer(owner_key, FOREGROUND);
        }
    }

    fn empty_namespace(&mut self, key: &ObjectKey) {
        let content: Vec<ObjectKey> = self
            .objects
            .keys()
            .filter(|k| k.namespace == key.name)
            .cloned()
            .collect();
        for inside in &content {
            if self
                .objects
                .get(inside)
                .is_some_and(|object| !object::is_deleting(object))
            {
                self.remove(inside, "Background");
            }
        }
        if content.iter().all(|inside| !self.objects.contains_key(inside)) {
            self.change(key, Verb::Update, |object| {
                object::section(object, "spec").remove("finalizers");
            });
        }
    }

    /// Whether the object has owners and none of them exists.
    fn is_garbage(&self, key: &ObjectKey, object: &Value) -> bool {
        let owners = object::list(object, "/metadata/ownerReferences");
        !owners.is_empty() && owners.iter().all(|owner| !self.owner_exists(&key.namespace, owner))
    }

    fn owner_exists(&self, namespace: &str, owner: &Value) -> bool {
        let by_type = (object::text(owner, "/apiVersion"), object::text(owner, "/kind"));
        let Some(kind) = self.kinds.by_object(by_type.0, by_type.1) else {
            return true;
        };
        let key = ObjectKey {
            resource: kind.id(),
            namespace: if kind.namespaced {
                namespace.to_owned()
            } else {
                String::new()
            },
            name: object::text(owner, "/name").to_owned(),
        };
        self.objects
            .get(&key)
            .is_some_and(|found| object::uid(found) == object::text(owner, "/uid"))
    }

    fn dependents(&self, owner: &Value) -> Vec<ObjectKey> {
        let uid = object::uid(owner);
        let names_owner = |object: &Arc<Value>| {
            object::list(object, "/metadata/ownerReferences")
                .iter()
                .any(|r| object::text(r, "/uid") == uid)
        };
        self.objects
            .iter()
            .filter(|(_, object)| names_owner(object))
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn remove(&mut self, key: &ObjectKey, policy: &str) {
        let Some(kind) = self.kinds.get(&key.resource).cloned() else {
            return;
        };
        let by = Actor::internal(AUTHOR, Verb::Delete);
        // Nobody else runs between reading the key and here, so the object exists and no precondition is set.
        let _ = self.delete(&by, &kind, key, &DeleteOptions::policy(policy));
    }

    fn drop_finalizer(&mut self, key: &ObjectKey, finalizer: &str) {
        self.change(key, Verb::Patch, |object| {
            let mut finalizers = object::finalizers(object);
            finalizers.retain(|f| f != finalizer);
            object::set_finalizers(object, &finalizers);
        });
    }

    fn change(&mut self, key: &ObjectKey, verb: Verb, edit: impl FnOnce(&mut Value)) {
        let Some(kind) = self.kinds.get(&key.resource).cloned() else {
            return;
        };
        // An object that is gone meanwhile needs no change.
        let _ = self.edit(&Actor::internal(AUTHOR, verb), &kind, key, edit);
    }
}
