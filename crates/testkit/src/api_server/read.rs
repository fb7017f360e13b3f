//! Get and list: selectors, pages, metadata-only answers, and reads from a stale snapshot.
//!
//! A list in pages is taken from one snapshot, whatever happens between the pages, until `ApiServer::compact` lets its
//! continue tokens expire. A read without `resourceVersion` is exact; only a gate that froze the resource makes it stale
//! (see `crate::gate`). Items of built-in kinds carry neither `kind` nor `apiVersion`, as on the real server.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::error::ApiError;
use super::kinds::ResourceKind;
use super::object;
use super::request::ApiRequest;
use super::selector::Selector;
use super::store::{ObjectKey, State};

/// Lists that were begun and not finished, by continue token.
#[derive(Default)]
pub(crate) struct Pages {
    begun: BTreeMap<String, Rest>,
    last: u64,
}

struct Rest {
    revision: u64,
    items: Vec<Arc<Value>>,
}

impl Pages {
    pub(crate) fn expire(&mut self) {
        self.begun.clear();
    }
}

impl State {
    pub(crate) fn get(
        &self,
        request: &ApiRequest,
        kind: &ResourceKind,
        key: &ObjectKey,
    ) -> Result<Arc<Value>, ApiError> {
        self.check_version(request)?;
        // A get that names a version may be answered from the server's cache.
        let from_cache = !request.param("resourceVersion").is_empty();
        let object = match self.gates.snapshot(&key.resource, &request.author, from_cache) {
            Some(snapshot) if from_cache => snapshot.objects.get(key).cloned(),
            _ => self.objects.get(key).cloned(),
        };
        let object = object.ok_or_else(|| ApiError::not_found(kind, &key.name))?;
        Ok(if request.metadata_only() {
            Arc::new(object::partial(&object))
        } else {
            object
        })
    }

    pub(crate) fn list(&mut self, request: &ApiRequest, kind: &ResourceKind) -> Result<Value, ApiError> {
        let selector = Selector::parse(request.param("labelSelector"), request.param("fieldSelector"))?;
        let token = request.param("continue");
        let Rest { revision, mut items } = if token.is_empty() {
            self.check_version(request)?;
            self.select(request, kind, &selector)
        } else {
            let expired = || ApiError::expired("The provided continue parameter is too old");
            let rest = self.pages.begun.get(token).ok_or_else(expired)?;
            Rest {
                revision: rest.revision,
                items: rest.items.clone(),
            }
        };

        let mut metadata = json!({"resourceVersion": revision.to_string()});
        let limit: usize = request.param("limit").parse().unwrap_or(0);
        if limit > 0 && items.len() > limit {
            let rest = items.split_off(limit);
            if selector.is_empty() {
                metadata["remainingItemCount"] = rest.len().into();
            }
            self.pages.last += 1;
            let token = format!("page-{}", self.pages.last);
            metadata["continue"] = token.clone().into();
            self.pages.begun.insert(token, Rest { revision, items: rest });
        }
        let items: Vec<Value> = items.iter().map(|object| item(request, kind, object)).collect();
        Ok(if request.metadata_only() {
            json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items})
        } else {
            let name = format!("{}List", kind.kind);
            json!({"kind": name, "apiVersion": kind.api_version(), "metadata": metadata, "items": items})
        })
    }

    fn select(&self, request: &ApiRequest, kind: &ResourceKind, selector: &Selector) -> Rest {
        let from_cache = request.param("resourceVersion") == "0";
        let namespace = request.namespace.as_deref();
        let id = kind.id();
        let selected = |object: &&Arc<Value>| selector.matches(object);
        if let Some(snapshot) = self.gates.snapshot(&id, &request.author, from_cache) {
            let here = |key: &ObjectKey| namespace.is_none_or(|ns| ns == key.namespace);
            let there = snapshot
                .objects
                .iter()
                .filter(|(key, _)| here(key))
                .map(|(_, object)| object);
            return Rest {
                revision: snapshot.revision,
                items: there.filter(selected).cloned().collect(),
            };
        }
        let present = self.stored(&id, namespace).map(|(_, object)| object);
        Rest {
            revision: self.revision,
            items: present.filter(selected).cloned().collect(),
        }
    }

    fn check_version(&self, request: &ApiRequest) -> Result<(), ApiError> {
        match request.param("resourceVersion").parse::<u64>() {
            Ok(wanted) if wanted > self.revision => Err(ApiError::too_large_version(wanted, self.revision)),
            _ => Ok(()),
        }
    }
}

fn item(request: &ApiRequest, kind: &ResourceKind, stored: &Value) -> Value {
    if request.metadata_only() {
        return object::partial(stored);
    }
    let mut stored = stored.clone();
    if !kind.is_custom() {
        object::fields(&mut stored).retain(|field, _| field != "kind" && field != "apiVersion");
    }
    stored
}
