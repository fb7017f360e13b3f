//! How a kind is served: its plural and its scope, as the API server says.
//!
//! Never guessed: a wrong plural answers 404, which would read like an object that is gone. "Not served" is a claim
//! about the whole cluster and the counterpart of client-go's no-match error, so it needs two answers that agree: the
//! group version has no such kind, or there is no such group version *and* the list of groups says so too. A 404 from
//! a proxy or from an aggregated API that is down is neither.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use appwrapper_api::TypeRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::{Client, core::ApiResource};
use tokio::time::Instant;

use crate::{lock::lock, settings::Settings};

/// A kind as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedKind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

/// Why a kind could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum KindError {
    /// Discovery answered, and there is no such group, version or kind.
    #[error("no matches for kind {:?} in version {:?}", .0.kind, .0.api_version)]
    NotServed(TypeRef),
    /// Discovery did not answer, or its answer proves nothing.
    #[error("cannot tell how {type_ref} is served")]
    Unavailable {
        /// The kind asked for.
        type_ref: TypeRef,
        /// What went wrong.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

type Slot = Arc<tokio::sync::Mutex<Option<Known>>>;

#[derive(Clone)]
struct Known {
    kind: Option<ResolvedKind>,
    until: Instant,
}

/// More kinds than any cluster has; owner references of pods can name any number.
const LIMIT: usize = 1024;

/// The kinds that were asked for. Shared by all that need one.
pub struct Kinds {
    client: Client,
    hit: Duration,
    miss: Duration,
    limit: Duration,
    // One lock for each kind, so that a hundred callers make one request, and a slow group stalls no other.
    slots: Mutex<HashMap<TypeRef, Slot>>,
}

impl Kinds {
    /// Resolves kinds through `client`, remembering answers as `settings` say.
    pub fn new(client: Client, settings: &Settings) -> Self {
        Self {
            client,
            hit: settings.discovery_hit,
            miss: settings.discovery_miss,
            limit: settings.discovery_limit,
            slots: Mutex::default(),
        }
    }

    /// How `type_ref` is served.
    ///
    /// # Errors
    /// [`KindError::NotServed`] if it is not; [`KindError::Unavailable`] if that cannot be told within the time limit.
    pub async fn resolve(&self, type_ref: &TypeRef) -> Result<ResolvedKind, KindError> {
        let slot = self.slot(type_ref);
        let mut known = slot.lock().await;
        let kind = match &*known {
            Some(known) if known.until > Instant::now() => known.kind.clone(),
            _ => {
                let unavailable = |source| KindError::Unavailable {
                    type_ref: type_ref.clone(),
                    source,
                };
                let answer = tokio::time::timeout(self.limit, self.ask(type_ref)).await;
                let kind = answer
                    .map_err(|elapsed| unavailable(elapsed.into()))?
                    .map_err(|error| unavailable(error.into()))?;
                let lasts = if kind.is_some() { self.hit } else { self.miss };
                *known = Some(Known {
                    kind: kind.clone(),
                    until: Instant::now() + lasts,
                });
                kind
            }
        };
        kind.ok_or_else(|| KindError::NotServed(type_ref.clone()))
    }

    /// Forgets what is known of `type_ref`, because a request to it was answered by 404.
    pub fn forget(&self, type_ref: &TypeRef) {
        lock(&self.slots).remove(type_ref);
    }

    fn slot(&self, type_ref: &TypeRef) -> Slot {
        let mut slots = lock(&self.slots);
        if slots.len() >= LIMIT && !slots.contains_key(type_ref) {
            // Whoever waits on a slot keeps it alive; the worst that follows is a second request.
            slots.clear();
        }
        Arc::clone(slots.entry(type_ref.clone()).or_default())
    }

    /// The kind, or `None` if the server says that it does not serve it.
    async fn ask(&self, type_ref: &TypeRef) -> Result<Option<ResolvedKind>, kube::Error> {
        let core = type_ref.group().is_empty();
        let list = if core {
            self.client.list_core_api_resources(&type_ref.api_version).await
        } else {
            self.client.list_api_group_resources(&type_ref.api_version).await
        };
        match list {
            Ok(list) => Ok(find(&list, type_ref)),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                if self.is_listed(type_ref).await? {
                    Err(kube::Error::Api(status))
                } else {
                    Ok(None)
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the list of groups names the group version.
    async fn is_listed(&self, type_ref: &TypeRef) -> Result<bool, kube::Error> {
        if type_ref.group().is_empty() {
            let core = self.client.list_core_api_versions().await?;
            return Ok(core.versions.iter().any(|version| **version == *type_ref.api_version));
        }
        let groups = self.client.list_api_groups().await?.groups;
        let mut versions = groups.iter().flat_map(|group| &group.versions);
        Ok(versions.any(|version| *version.group_version == *type_ref.api_version))
    }
}

fn find(list: &APIResourceList, type_ref: &TypeRef) -> Option<ResolvedKind> {
    let found = list
        .resources
        .iter()
        // Subresources such as `jobs/status` carry the kind of their parent, or another one.
        .find(|resource| *resource.kind == *type_ref.kind && !resource.name.contains('/'))?;
    Some(ResolvedKind {
        resource: ApiResource {
            group: type_ref.group().to_owned(),
            version: type_ref.version().to_owned(),
            api_version: type_ref.api_version.to_string(),
            kind: found.kind.clone(),
            plural: found.name.clone(),
        },
        namespaced: found.namespaced,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subresource_is_not_taken_for_its_parent() {
        let list = serde_json::from_value(serde_json::json!({
            "kind": "APIResourceList", "groupVersion": "batch/v1", "resources": [
                {"name": "jobs/status", "singularName": "", "namespaced": true, "kind": "Job", "verbs": ["get"]},
                {"name": "jobs", "singularName": "job", "namespaced": true, "kind": "Job", "verbs": ["get", "list"]},
            ],
        }));
        let found = find(&list.unwrap(), &TypeRef::new("batch/v1", "Job")).unwrap();
        assert_eq!(found.resource.plural, "jobs");
    }
}
