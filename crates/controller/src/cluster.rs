//! `KubeCluster`: the verbs of the reconciler on a Kubernetes API server.
//!
//! It can only be made from a [`WriteGuard`], which only a live tenure hands out, and its client refuses every write once
//! the tenure has ended. Reads by `read_uncached` go to the API server without a `resourceVersion`, so they are answered
//! from storage and cannot miss a create that returned before they began.

use std::{sync::Arc, time::Duration};

use appwrapper_api::{
    AppWrapper, AppWrapperKey, AppWrapperStatus, ComponentFacts, ComponentRef, FINALIZER, Lineage, PodFacts, Rv, Uid,
    kinds::{self, StatusHead},
    rules::LABEL_VALUE_LIMIT,
};
use appwrapper_cache_management::{
    self as cache, ComponentWire, Declaring, KindError, NoStatus, PodWire, Registry, ResolvedKind, StatusWire, View,
};
use appwrapper_coordination::{WriteGuard, fenced, guarded_client};
use appwrapper_reconciler::{
    Cluster, Error,
    cluster::{Created, Deleted, Grace},
    evidence::{CachedRead, Doubt, NotSynced, UncachedRead},
    observation::Observation,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
};
use serde_json::{Value, json};

use crate::{
    failure,
    ledger::{Ledger, Pen, WRAPPERS},
    limiter::Limiter,
    shard::Clock,
    teller::Teller,
};

/// How long an uncached read may take.
const READ_LIMIT: Duration = Duration::from_secs(5);
/// How long a pass waits for the watch of a kind that was just started.
const SYNC_LIMIT: Duration = Duration::from_secs(5);

/// The verbs of the reconciler on an API server, for one tenure.
pub struct KubeCluster {
    client: Client,
    registry: Arc<Registry>,
    view: View,
    limiter: Arc<Limiter>,
    teller: Teller,
    ledger: Ledger,
    clock: Clock,
}

impl KubeCluster {
    /// The verbs for as long as the tenure behind `guard` lasts. What is written is noted in the ledger.
    pub fn new(
        client: &Client,
        guard: WriteGuard,
        registry: Arc<Registry>,
        limiter: Arc<Limiter>,
        teller: Teller,
        ledger: Ledger,
        clock: Clock,
    ) -> Self {
        let view = registry.view();
        Self {
            client: guarded_client(client, guard),
            registry,
            view,
            limiter,
            teller,
            ledger,
            clock,
        }
    }

    fn wrappers(&self, namespace: &str) -> Api<AppWrapper> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn kind(&self, component: &ComponentRef) -> Result<ResolvedKind, KindError> {
        self.registry.kinds().resolve(&component.type_ref).await
    }

    async fn get<S: StatusWire>(
        &self,
        key: &AppWrapperKey,
        component: &ComponentRef,
        kind: &ResolvedKind,
    ) -> Result<UncachedRead, kube::Error> {
        let api: Api<ComponentWire<S>> = Api::namespaced_with(self.client.clone(), &key.namespace, &kind.resource);
        let object = api.get(&component.name).await?;
        Ok(match object.into_facts(&component.type_ref) {
            Some(facts) => UncachedRead::Present(Arc::new(facts)),
            None => UncachedRead::Doubt(Doubt {
                reason: "malformed",
                message: "the object has no uid".to_owned(),
            }),
        })
    }

    /// Follows a server's word about a delete.
    fn deleted(&self, key: &AppWrapperKey, component: &ComponentRef, outcome: &Result<Deleted, Error>) {
        if matches!(outcome, Ok(Deleted::Gone | Deleted::Terminating)) {
            self.view.note_deleted(key, component);
        }
    }
}

fn delete_params(uid: &Uid, grace: Grace) -> DeleteParams {
    DeleteParams {
        grace_period_seconds: (grace == Grace::Zero).then_some(0),
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: Some(uid.as_str().to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

/// What a delete of the object `name` came to.
async fn delete<K>(api: &Api<K>, name: &str, params: &DeleteParams) -> Result<Deleted, Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, params).await {
        // The object comes back if it is still there, being deleted; some kinds return it even if it is not.
        Ok(answer) => Ok(if answer.is_left() {
            Deleted::Terminating
        } else {
            Deleted::Gone
        }),
        Err(error) if fenced(&error).is_some() => Err(Error::Fenced),
        Err(error) if failure::is_absent(&error, name) => Ok(Deleted::Gone),
        Err(error) => Ok(Deleted::Refused(failure::text(&error))),
    }
}

impl Cluster for KubeCluster {
    fn read_cached(&self, key: &AppWrapperKey, component: &ComponentRef) -> CachedRead {
        match self.view.component(key, component) {
            cache::CachedRead::Present(facts) => CachedRead::Present(facts),
            cache::CachedRead::Absent { changed, last } => CachedRead::Absent { changed, last },
            cache::CachedRead::NotSynced(cache::NotSynced::Kind) => CachedRead::NotSynced(NotSynced::Kind),
            cache::CachedRead::NotSynced(cache::NotSynced::BehindOwnWrite { since }) => {
                CachedRead::NotSynced(NotSynced::BehindOwnWrite { since })
            }
        }
    }

    fn pods_cached(&self, key: &AppWrapperKey) -> Option<Vec<PodFacts>> {
        self.view.pods(key)
    }

    fn known_uid(&self, key: &AppWrapperKey, component: &ComponentRef) -> Option<Uid> {
        self.view.known_uid(key, component)
    }

    async fn watch(&self, component: &ComponentRef, declares_end: bool) {
        if component.type_ref.kind.is_empty() {
            return;
        }
        let watching = self
            .registry
            .ensure_declaring(&component.type_ref, declares_end, SYNC_LIMIT);
        if let Err(error) = watching.await {
            tracing::debug!(%component, %error, "the kind is not watched");
        }
    }

    async fn read_uncached(&self, key: &AppWrapperKey, component: &ComponentRef) -> UncachedRead {
        if cfg!(feature = "invert-confirmation") {
            return match self.view.component(key, component) {
                cache::CachedRead::Present(facts) => UncachedRead::Present(facts),
                _ => UncachedRead::Absent,
            };
        }
        if component.name.is_empty() {
            return UncachedRead::Absent;
        }
        let kind = match self.kind(component).await {
            Ok(kind) => kind,
            Err(KindError::NotServed(_)) => return UncachedRead::NotServed,
            Err(error) => return UncachedRead::Doubt(failure::unavailable(&error)),
        };
        let read = async {
            if kinds::completion_rule(&component.type_ref).is_own() {
                self.get::<StatusHead>(key, component, &kind).await
            } else {
                // Whether it declares how it ends, only the object itself says.
                self.get::<Declaring>(key, component, &kind).await
            }
        };
        match tokio::time::timeout(READ_LIMIT, read).await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) if failure::is_absent(&error, &component.name) => UncachedRead::Absent,
            Ok(Err(error)) => {
                if matches!(&error, kube::Error::Api(status) if status.code == 404) {
                    self.registry.kinds().forget(&component.type_ref);
                }
                UncachedRead::Doubt(failure::doubt(&error))
            }
            Err(_) => UncachedRead::Doubt(failure::timed_out()),
        }
    }

    async fn read_wrapper(&self, key: &AppWrapperKey) -> Result<Option<AppWrapper>, Doubt> {
        let api = self.wrappers(&key.namespace);
        match tokio::time::timeout(READ_LIMIT, api.get(&key.name)).await {
            Ok(Ok(wrapper)) => Ok(Some(wrapper)),
            Ok(Err(error)) if failure::is_absent(&error, &key.name) => Ok(None),
            Ok(Err(error)) => Err(failure::doubt(&error)),
            Err(_) => Err(failure::timed_out()),
        }
    }

    async fn list_pods_uncached(&self, key: &AppWrapperKey) -> Result<Vec<PodFacts>, Doubt> {
        if key.name.len() > LABEL_VALUE_LIMIT {
            // Such a name is no value of a label, so no pod bears it, and a selector with it is refused.
            return Ok(Vec::new());
        }
        let api: Api<PodWire> = Api::namespaced(self.client.clone(), &key.namespace);
        let selector = format!("{}={}", appwrapper_api::APPWRAPPER_LABEL, key.name);
        // Without a limit and a version the list is consistent with everything written before.
        let params = ListParams::default().labels(&selector);
        let list = match tokio::time::timeout(READ_LIMIT, api.list(&params)).await {
            Ok(Ok(list)) => list,
            Ok(Err(error)) => return Err(failure::doubt(&error)),
            Err(_) => return Err(failure::timed_out()),
        };
        let version = list.metadata.resource_version.as_deref().and_then(Rv::parse);
        let pods = self.view.pod_facts(key, list.items);
        if let Some(version) = version
            && pods.iter().all(|pod| pod.lineage == Lineage::Foreign)
        {
            self.view.note_pods_gone(key, version);
        }
        Ok(pods)
    }

    fn admit_confirmation(&self) -> bool {
        self.limiter.take()
    }

    async fn create(&self, key: &AppWrapperKey, component: &ComponentRef, object: Value) -> Result<Created, Error> {
        let kind = match self.kind(component).await {
            Ok(kind) => kind,
            Err(error @ KindError::NotServed(_)) => return Ok(Created::Fatal(error.to_string())),
            Err(error) => return Ok(Created::Refused(failure::unavailable(&error).to_string())),
        };
        if !kind.namespaced {
            return Ok(Created::Fatal(format!(
                "{} is cluster-scoped; an AppWrapper wraps namespaced objects only",
                component.type_ref
            )));
        }
        let writing = self.teller.writing(key, component);
        let api: Api<ComponentWire<Declaring>> =
            Api::namespaced_with(self.client.clone(), &key.namespace, &kind.resource);
        let malformed = |message: String| Error::Api {
            operation: "create",
            message,
        };
        let body = serde_json::to_vec(&object).map_err(|error| malformed(error.to_string()))?;
        let request = kube::core::Request::new(api.resource_url())
            .create(&PostParams::default(), body)
            .map_err(|error| malformed(error.to_string()))?;
        let pen = self.ledger.writing(&component.type_ref);
        let answer = self.client.request::<ComponentWire<NoStatus>>(request).await;
        match &answer {
            Ok(created) => pen.wrote(created.meta().resource_version.as_deref()),
            Err(error) => pen.failed(error),
        }
        let outcome = match answer {
            Ok(created) => match created.into_facts(&component.type_ref) {
                Some(facts) => {
                    let (uid, version) = (facts.uid.clone(), facts.version.clone());
                    self.view.note_created(key, component, uid, version, (self.clock)());
                    Created::Object(Arc::new(facts))
                }
                None => Created::Ambiguous("the API server returned an object without a uid".to_owned()),
            },
            Err(error) if fenced(&error).is_some() => return Err(Error::Fenced),
            Err(kube::Error::Api(status)) => {
                let error = kube::Error::Api(status.clone());
                match status.code {
                    409 if status.reason == "AlreadyExists" => Created::AlreadyExists,
                    422 => Created::Fatal(failure::text(&error)),
                    400..500 => {
                        if status.code == 404 {
                            self.registry.kinds().forget(&component.type_ref);
                        }
                        Created::Refused(failure::text(&error))
                    }
                    _ => Created::Ambiguous(failure::text(&error)),
                }
            }
            Err(error) => Created::Ambiguous(failure::text(&error)),
        };
        self.teller.created(component, &outcome, writing);
        Ok(outcome)
    }

    fn adopted(&self, key: &AppWrapperKey, component: &ComponentRef, facts: &ComponentFacts) {
        if let Some(version) = &facts.version {
            self.ledger.found(&component.type_ref, version.as_str());
        }
        self.view
            .note_created(key, component, facts.uid.clone(), facts.version.clone(), (self.clock)());
    }

    async fn delete(
        &self,
        key: &AppWrapperKey,
        component: &ComponentRef,
        uid: &Uid,
        grace: Grace,
    ) -> Result<Deleted, Error> {
        let kind = match self.kind(component).await {
            Ok(kind) => kind,
            // Objects of a kind that is not served any more went with its definition.
            Err(KindError::NotServed(_)) => return Ok(Deleted::Gone),
            Err(error) => return Ok(Deleted::Refused(failure::unavailable(&error).to_string())),
        };
        let api: Api<ComponentWire<Declaring>> =
            Api::namespaced_with(self.client.clone(), &key.namespace, &kind.resource);
        let outcome = delete(&api, &component.name, &delete_params(uid, grace)).await;
        self.deleted(key, component, &outcome);
        self.teller.deleted(component, &outcome, grace);
        outcome
    }

    async fn delete_pod(&self, key: &AppWrapperKey, pod: &PodFacts) -> Result<Deleted, Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let outcome = delete(&api, &pod.name, &delete_params(&pod.uid, Grace::Zero)).await;
        self.teller.forced_pod();
        outcome
    }

    async fn patch_status(&self, observed: &AppWrapper, status: &AppWrapperStatus) -> Result<AppWrapper, Error> {
        let key = observed.key();
        let patch = json!({
            "metadata": precondition(observed),
            "status": difference(&observed.status, status),
        });
        let api = self.wrappers(&key.namespace);
        let pen = self.ledger.writing(WRAPPERS);
        let written = api
            .patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        note(pen, &written);
        written
            .map(light)
            .map_err(|error| failure::of_wrapper_write("status patch", &error))
    }

    async fn patch_finalizers(&self, observed: &AppWrapper, present: bool) -> Result<Option<AppWrapper>, Error> {
        let key = observed.key();
        let mut finalizers = observed.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|name| name != FINALIZER);
        if present {
            finalizers.push(FINALIZER.to_owned());
        }
        let mut metadata = precondition(observed);
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        let api = self.wrappers(&key.namespace);
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let pen = self.ledger.writing(WRAPPERS);
        let written = api.patch(&key.name, &PatchParams::default(), &patch).await;
        note(pen, &written);
        match written {
            Ok(written) => Ok(Some(light(written))),
            Err(error) => match failure::of_wrapper_write("finalizer patch", &error) {
                Error::Gone => Ok(None),
                error => Err(error),
            },
        }
    }

    async fn expire(&self, observed: &AppWrapper) -> Result<(), Error> {
        let key = observed.key();
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: observed.metadata.uid.clone(),
                resource_version: observed.metadata.resource_version.clone(),
            }),
            ..DeleteParams::background()
        };
        match self.wrappers(&key.namespace).delete(&key.name, &params).await {
            Ok(_) => Ok(()),
            Err(error) => match failure::of_wrapper_write("deletion", &error) {
                Error::Gone => Ok(()),
                error => Err(error),
            },
        }
    }

    fn tell(&self, wrapper: &AppWrapper, observation: Observation) {
        self.teller.tell(wrapper, observation);
    }
}

/// Notes what came of a write to an AppWrapper.
fn note(pen: Pen, written: &Result<AppWrapper, kube::Error>) {
    match written {
        Ok(written) => pen.wrote(written.metadata.resource_version.as_deref()),
        Err(error) => pen.failed(error),
    }
}

/// A patch with this metadata is refused with 409 unless the object is the one that was observed, unchanged.
fn precondition(observed: &AppWrapper) -> Value {
    json!({"uid": observed.metadata.uid, "resourceVersion": observed.metadata.resource_version})
}

/// The fields of the status that differ, as a merge patch: lists are replaced whole, what is absent is removed.
fn difference(before: &AppWrapperStatus, after: &AppWrapperStatus) -> Value {
    let fields = |status| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (before, mut after) = (fields(before), fields(after));
    for name in before.keys() {
        after.entry(name.clone()).or_insert(Value::Null);
    }
    after.retain(|name, value| before.get(name) != Some(value));
    Value::Object(after)
}

/// Managed fields are of no use here and are a good part of an object.
pub(crate) fn light(mut wrapper: AppWrapper) -> AppWrapper {
    wrapper.metadata.managed_fields = None;
    if let Some(annotations) = &mut wrapper.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    wrapper
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_patch_holds_what_differs_and_removes_what_is_gone() {
        let before: AppWrapperStatus =
            serde_json::from_value(json!({"phase": "Resetting", "resettingCount": 2})).unwrap();
        let after: AppWrapperStatus = serde_json::from_value(json!({"phase": "Resuming"})).unwrap();
        assert_eq!(
            difference(&before, &after),
            json!({"phase": "Resuming", "resettingCount": null})
        );
        assert_eq!(difference(&after, &after), json!({}));
    }

    #[test]
    fn every_delete_has_a_uid_and_a_propagation_policy() {
        for grace in [Grace::Own, Grace::Zero] {
            let params = serde_json::to_value(delete_params(&Uid::new("u"), grace)).unwrap();
            assert_eq!(params["propagationPolicy"], "Background");
            assert_eq!(params["preconditions"]["uid"], "u");
        }
    }
}
