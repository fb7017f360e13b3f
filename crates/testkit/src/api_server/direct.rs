//! What a test does to the server without HTTP: no request is logged, no fault applies.
//!
//! Resources are named by id, plural or kind; the namespace of a cluster-scoped object is empty. Changes are recorded
//! under the author `test`. These helpers panic where a test has made a mistake: an unknown resource, a missing object.

use std::sync::Arc;

use serde_json::{Value, json};

use super::error::ApiError;
use super::kinds::ResourceKind;
use super::object;
use super::remove::DeleteOptions;
use super::request::Verb;
use super::store::{Actor, ObjectKey, State};
use super::write::is_finished;
use super::{ApiServer, selector::Selector};

const AUTHOR: &str = "test";

impl ApiServer {
    /// Creates an object. `apiVersion` and `kind` in it say where; its status is stored too. The namespace is `default`
    /// if it names none. Anything that serialises will do.
    pub fn create(&self, object: impl serde::Serialize) -> Arc<Value> {
        let mut body = serde_json::to_value(object).expect("an object to create serialises");
        let (api_version, name) = (object::text(&body, "/apiVersion"), object::text(&body, "/kind"));
        let kind = self.read(|state| state.kinds.by_object(api_version, name));
        let kind = kind.unwrap_or_else(|| panic!("{api_version} {name} is not served"));
        if kind.namespaced && object::namespace(&body).is_empty() {
            object::metadata(&mut body).insert("namespace".to_owned(), "default".into());
        }
        object::metadata(&mut body).remove("resourceVersion");
        let created = self.write(|state| state.create(&Actor::internal(AUTHOR, Verb::Create), &kind, None, body));
        created.unwrap_or_else(|refused| panic!("not created: {refused:?}"))
    }

    /// The object as it is now.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let (_, key) = self.locate(resource, namespace, name);
        self.read(|state| state.objects.get(&key).cloned())
    }

    /// The objects of a resource that a label selector chooses, in one namespace or, if that is empty, in all.
    pub fn list(&self, resource: &str, namespace: &str, labels: &str) -> Vec<Arc<Value>> {
        let id = self.kind(resource).id();
        let selector = Selector::parse(labels, "").expect("a label selector that parses");
        let namespace = Some(namespace).filter(|ns| !ns.is_empty());
        self.read(|state| {
            let chosen = state
                .stored(&id, namespace)
                .filter(|(_, object)| selector.matches(object));
            chosen.map(|(_, object)| Arc::clone(object)).collect()
        })
    }

    /// Applies a merge patch to the whole object, status included. Returns the object as stored, or as it last was if
    /// the patch took its last finalizer.
    pub fn patch(&self, resource: &str, namespace: &str, name: &str, patch: &Value) -> Arc<Value> {
        self.edit(resource, namespace, name, AUTHOR, |object| {
            json_patch::merge(object, patch);
        })
    }

    /// Applies a merge patch to the status alone.
    pub fn patch_status(&self, resource: &str, namespace: &str, name: &str, status: &Value) -> Arc<Value> {
        self.patch(resource, namespace, name, &json!({"status": status}))
    }

    /// Deletes with a propagation policy: `Background`, `Foreground` or `Orphan`.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str, policy: &str) {
        self.delete_with(resource, namespace, name, &DeleteOptions::policy(policy));
    }

    /// Removes an object and its finalizers at once, as after `kubectl patch` and `kubectl delete --force`.
    pub fn delete_now(&self, resource: &str, namespace: &str, name: &str) {
        self.edit(resource, namespace, name, AUTHOR, |object| {
            object::set_finalizers(object, &[]);
        });
        let options = DeleteOptions {
            grace: Some(0),
            ..DeleteOptions::policy("Background")
        };
        self.delete_with(resource, namespace, name, &options);
    }

    fn delete_with(&self, resource: &str, namespace: &str, name: &str, options: &DeleteOptions) {
        let (kind, key) = self.locate(resource, namespace, name);
        let by = Actor::internal(AUTHOR, Verb::Delete);
        let deleted = self.write(|state| state.delete(&by, &kind, &key, options));
        deleted.unwrap_or_else(|refused| panic!("not deleted: {refused:?}"));
    }

    /// Changes an object in place, past the rules for clients, on somebody's behalf.
    pub(crate) fn edit(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        author: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Arc<Value> {
        let (kind, key) = self.locate(resource, namespace, name);
        let edited = self.write(|state| state.edit(&Actor::internal(author, Verb::Patch), &kind, &key, edit));
        edited.unwrap_or_else(|refused| panic!("not changed: {refused:?}"))
    }

    fn locate(&self, resource: &str, namespace: &str, name: &str) -> (Arc<ResourceKind>, ObjectKey) {
        let kind = self.kind(resource);
        let key = ObjectKey {
            resource: kind.id(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        (kind, key)
    }
}

impl State {
    /// Changes an object past the rules for clients. Nothing is stored if nothing changes.
    pub(crate) fn edit(
        &mut self,
        by: &Actor,
        kind: &ResourceKind,
        key: &ObjectKey,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Arc<Value>, ApiError> {
        let old = self.existing(kind, key)?;
        let mut new = Value::clone(&old);
        edit(&mut new);
        if object::same_content(&old, &new) {
            return Ok(old);
        }
        let after = if is_finished(&new) { None } else { Some(new) };
        Ok(self.commit(by, key, after))
    }
}
