//! Which resource a kind is, and whether it is namespaced, as the API server tells.
//!
//! Answers are kept for a minute per group and version and fetched anew on a miss, so that a CustomResourceDefinition that
//! comes, goes or changes its plural is followed. An API server that does not answer is an error, never a guess: a wrong
//! resource would ask for the wrong right.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use appwrapper_api::{TypeRef, kinds};
use appwrapper_metrics::{Admission, labels::Discovery as Answer};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use tokio::{sync::Mutex as AsyncMutex, time::Instant};

/// How long an answer is believed.
const FRESH: Duration = Duration::from_secs(60);
/// How soon a miss may ask again: a user who sends unknown kinds must not turn into load on the API server.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// Groups and versions remembered at once; users choose what is looked up.
const REMEMBERED: usize = 256;

/// A kind as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Plural, as in paths and rules.
    pub plural: String,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
    /// Whether the API server serves it. Kinds of our own table are known even if it does not yet.
    pub served: bool,
}

/// The cached view of discovery.
pub struct Discovery {
    client: Client,
    metrics: Admission,
    versions: Mutex<HashMap<Arc<str>, Slot>>,
}

/// The answer for one group and version. Locked while it is being asked for.
type Slot = Arc<AsyncMutex<Option<Answered>>>;

/// What one group and version serves.
struct Answered {
    at: Instant,
    resources: Vec<APIResource>,
}

impl Discovery {
    /// Asks through `client`.
    pub fn new(client: Client, metrics: Admission) -> Self {
        Self {
            client,
            metrics,
            versions: Mutex::default(),
        }
    }

    /// The resource of a type; none if the API server serves no such kind.
    pub async fn lookup(&self, type_ref: &TypeRef) -> Result<Option<Resource>, kube::Error> {
        if !is_path_segment(type_ref.group(), true) || !is_path_segment(type_ref.version(), false) {
            return Ok(None);
        }
        // One question at a time per group and version: whoever comes meanwhile shares the answer.
        let slot = self.slot(&type_ref.api_version);
        let mut answered = slot.lock().await;
        if let Some(known) = &*answered {
            let age = known.at.elapsed();
            let found = find(&known.resources, type_ref);
            if (found.is_some() && age < FRESH) || age < ASK_AGAIN {
                self.metrics.discovery(if found.is_some() {
                    Answer::Cached
                } else {
                    Answer::Unknown
                });
                return Ok(found.or_else(|| planned(type_ref)));
            }
        }
        let resources = self
            .fetch(type_ref)
            .await
            .inspect_err(|_| self.metrics.discovery(Answer::Error))?;
        let found = find(&resources, type_ref);
        self.metrics.discovery(if found.is_some() {
            Answer::Fetched
        } else {
            Answer::Unknown
        });
        *answered = Some(Answered {
            at: Instant::now(),
            resources,
        });
        Ok(found.or_else(|| planned(type_ref)))
    }

    async fn fetch(&self, type_ref: &TypeRef) -> Result<Vec<APIResource>, kube::Error> {
        let answer = if type_ref.group().is_empty() {
            self.client.list_core_api_resources(type_ref.version()).await
        } else {
            self.client.list_api_group_resources(&type_ref.api_version).await
        };
        match answer {
            Ok(list) => Ok(list.resources),
            // A certain answer: the group or version is not served.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    fn slot(&self, api_version: &Arc<str>) -> Slot {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if versions.len() >= REMEMBERED && !versions.contains_key(api_version) {
            versions.clear();
        }
        Arc::clone(versions.entry(Arc::clone(api_version)).or_default())
    }
}

/// The first resource of the kind. Subresources share the kind of their resource and are none of their own.
fn find(resources: &[APIResource], type_ref: &TypeRef) -> Option<Resource> {
    let mut of_kind = resources
        .iter()
        .filter(|resource| resource.kind == *type_ref.kind && !resource.name.contains('/'));
    of_kind.next().map(|resource| Resource {
        plural: resource.name.clone(),
        namespaced: resource.namespaced,
        served: true,
    })
}

/// A kind of our own table, whose resource is known whether it is installed or not: the user's right to it can be asked
/// for, and the AppWrapper may be submitted before the kind is installed.
fn planned(type_ref: &TypeRef) -> Option<Resource> {
    kinds::lookup(type_ref).map(|row| Resource {
        plural: format!("{}s", row.kind.to_lowercase()),
        namespaced: true,
        served: false,
    })
}

/// Whether a part of an `apiVersion` can stand in a request path as it is.
fn is_path_segment(text: &str, may_be_empty: bool) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    (may_be_empty || !text.is_empty()) && text.len() <= 253 && text.chars().all(plain) && !text.starts_with('.')
}

#[cfg(test)]
mod tests {
    use appwrapper_metrics::{Build, WebhookMetrics};
    use appwrapper_testkit::api_server::{ApiServer, Effect, Match, ResourceKind, Verb};

    use super::*;

    fn discovery(server: &ApiServer) -> Discovery {
        Discovery::new(
            server.client(),
            WebhookMetrics::new(&Build::default()).admission.clone(),
        )
    }

    fn asked(server: &ApiServer) -> usize {
        server.count(&Match::verb(Verb::Other))
    }

    #[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
    fn is(found: Option<Resource>, plural: &str, namespaced: bool) {
        assert_eq!(
            found,
            Some(Resource {
                plural: plural.into(),
                namespaced,
                served: true
            })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_a_minute_and_shared_by_its_group() {
        let server = ApiServer::new();
        let discovery = discovery(&server);
        for _ in 0..3 {
            is(
                discovery.lookup(&TypeRef::new("v1", "Pod")).await.unwrap(),
                "pods",
                true,
            );
            is(
                discovery.lookup(&TypeRef::new("v1", "Namespace")).await.unwrap(),
                "namespaces",
                false,
            );
        }
        assert_eq!(asked(&server), 1);
        tokio::time::advance(FRESH).await;
        discovery.lookup(&TypeRef::new("v1", "Pod")).await.unwrap();
        assert_eq!(asked(&server), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_with_another_plural_is_followed() {
        let server = ApiServer::new();
        let discovery = discovery(&server);
        let widget = TypeRef::new("example.com/v1", "Widget");
        is(discovery.lookup(&widget).await.unwrap(), "widgets", true);
        server.unregister("widgets");
        server.register(ResourceKind::new("example.com", "v1", "widgetes", "Widget").cluster_scoped());
        tokio::time::advance(FRESH).await;
        is(discovery.lookup(&widget).await.unwrap(), "widgetes", false);
    }

    #[tokio::test(start_paused = true)]
    async fn a_miss_asks_again_but_not_at_once() {
        let server = ApiServer::new();
        let discovery = discovery(&server);
        let gadget = TypeRef::new("example.com/v1", "Gadget");
        for _ in 0..5 {
            assert_eq!(discovery.lookup(&gadget).await.unwrap(), None);
        }
        assert_eq!(asked(&server), 1);
        server.register(ResourceKind::new("example.com", "v1", "gadgets", "Gadget"));
        tokio::time::advance(ASK_AGAIN).await;
        is(discovery.lookup(&gadget).await.unwrap(), "gadgets", true);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_an_error_and_is_not_remembered() {
        let server = ApiServer::new();
        let discovery = discovery(&server);
        let fault = server.faults().add(Match::verb(Verb::Other), Effect::internal_error());
        assert!(discovery.lookup(&TypeRef::new("v1", "Pod")).await.is_err());
        fault.remove();
        is(
            discovery.lookup(&TypeRef::new("v1", "Pod")).await.unwrap(),
            "pods",
            true,
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_of_the_table_is_known_before_it_is_installed() {
        let server = ApiServer::new();
        server.unregister("rayclusters");
        let found = discovery(&server)
            .lookup(&TypeRef::new("ray.io/v1", "RayCluster"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!((found.plural.as_str(), found.served), ("rayclusters", false));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_path_is_never_asked_for() {
        let server = ApiServer::new();
        let discovery = discovery(&server);
        for version in ["../v1", "a/b?c", "a/b/c", "A/v1", "", "a/"] {
            assert_eq!(
                discovery.lookup(&TypeRef::new(version, "Pod")).await.unwrap(),
                None,
                "{version}"
            );
        }
        assert_eq!(asked(&server), 0);
    }
}
