//! What the driver needs of the world: the verbs of the API server, and nothing else.
//!
//! The one real implementation, `KubeCluster` in the controller, joins a client with the cached view and is made from a
//! write guard, so that no write goes out without a live tenure. Time limits are its business; the reconciler has no timer.

use std::{future::Future, sync::Arc};

use appwrapper_api::{AppWrapper, AppWrapperKey, AppWrapperStatus, ComponentFacts, ComponentRef, PodFacts, Uid};
use serde_json::Value;

use crate::{
    error::Error,
    evidence::{CachedRead, Doubt, UncachedRead},
    observation::Observation,
};

/// How an object is deleted. Every delete carries a uid precondition and the propagation policy `Background`: the default
/// of a batch/v1 Job would orphan its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// The object's own grace period.
    Own,
    /// None: the object goes at once.
    Zero,
}

/// What came of a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// The object is gone.
    Gone,
    /// The object is still there, being deleted.
    Terminating,
    /// The server did not do it. That the name belongs to another object now (409) is such an answer and no proof that
    /// nothing of ours is left: the cache that the uid came from may be older than an object that was made anew.
    Refused(String),
}

/// What came of a create.
#[derive(Clone, Debug)]
pub enum Created {
    /// It was created.
    Object(Arc<ComponentFacts>),
    /// An object of this name exists.
    AlreadyExists,
    /// It was not created, and trying again cannot help: the kind is unknown to the server, or the object is invalid.
    Fatal(String),
    /// The server answered that it did not create it; trying again may help.
    Refused(String),
    /// No answer, or one that leaves open whether it was created.
    Ambiguous(String),
}

/// The verbs that the driver needs.
///
/// Reads through `read_cached` and `pods_cached` never wait. Every other verb is a request with a time limit.
pub trait Cluster: Sync {
    /// What the caches say of a component.
    fn read_cached(&self, key: &AppWrapperKey, component: &ComponentRef) -> CachedRead;

    /// The labelled pods of an AppWrapper by the cache, or `None` while it is not synced.
    fn pods_cached(&self, key: &AppWrapperKey) -> Option<Vec<PodFacts>>;

    /// The uid under which this process created or adopted a component, unless it has deleted it since. A uid that a cache
    /// has merely seen does not count: it may be that of an earlier attempt.
    fn known_uid(&self, key: &AppWrapperKey, component: &ComponentRef) -> Option<Uid>;

    /// Makes sure that the kind of a component is watched, before the first object of it is created; and so that its status
    /// is seen, if the object declares how it ends.
    fn watch(&self, component: &ComponentRef, declares_end: bool) -> impl Future<Output = ()> + Send;

    /// What the API server itself says of a component, past every cache.
    fn read_uncached(&self, key: &AppWrapperKey, component: &ComponentRef)
    -> impl Future<Output = UncachedRead> + Send;

    /// The AppWrapper as the API server itself has it, `None` if it does not exist.
    fn read_wrapper(&self, key: &AppWrapperKey) -> impl Future<Output = Result<Option<AppWrapper>, Doubt>> + Send;

    /// The labelled pods of an AppWrapper by the API server itself.
    fn list_pods_uncached(&self, key: &AppWrapperKey) -> impl Future<Output = Result<Vec<PodFacts>, Doubt>> + Send;

    /// Whether the limit for all AppWrappers together allows one more confirmation now.
    fn admit_confirmation(&self) -> bool;

    /// Creates a component.
    fn create(
        &self,
        key: &AppWrapperKey,
        component: &ComponentRef,
        object: Value,
    ) -> impl Future<Output = Result<Created, Error>> + Send;

    /// An object that existed already was found to be ours, as if it had just been created.
    fn adopted(&self, _key: &AppWrapperKey, _component: &ComponentRef, _facts: &ComponentFacts) {}

    /// Deletes a component if it still has this uid.
    fn delete(
        &self,
        key: &AppWrapperKey,
        component: &ComponentRef,
        uid: &Uid,
        grace: Grace,
    ) -> impl Future<Output = Result<Deleted, Error>> + Send;

    /// Deletes a pod at once if it still has this uid.
    fn delete_pod(&self, key: &AppWrapperKey, pod: &PodFacts) -> impl Future<Output = Result<Deleted, Error>> + Send;

    /// Writes the status, provided the AppWrapper still has the version of `observed`. Returns the object as it now is.
    fn patch_status(
        &self,
        observed: &AppWrapper,
        status: &AppWrapperStatus,
    ) -> impl Future<Output = Result<AppWrapper, Error>> + Send;

    /// Adds or removes our finalizer, provided the AppWrapper still has the version of `observed`. Returns the object as it
    /// now is, or `None` if that removed it.
    fn patch_finalizers(
        &self,
        observed: &AppWrapper,
        present: bool,
    ) -> impl Future<Output = Result<Option<AppWrapper>, Error>> + Send;

    /// Deletes the AppWrapper, provided it still has the uid and the version of `observed`. That it is gone already is fine.
    fn expire(&self, observed: &AppWrapper) -> impl Future<Output = Result<(), Error>> + Send;

    /// Tells what has happened: events, logs, metrics. Never fails and never waits.
    fn tell(&self, wrapper: &AppWrapper, observation: Observation);
}
