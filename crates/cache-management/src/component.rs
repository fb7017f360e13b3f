//! Components: from the wire to facts.

use std::{borrow::Cow, sync::Arc};

use appwrapper_api::{
    AppWrapperKey, Completion, ComponentFacts, ControllerRef, Declared, OwnCounts, Rv, TypeRef, Uid,
    kinds::{CompletionRule, Counting, StatusHead, completion_rule, counting},
};
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta, Resource};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    index::{Facts, ObjectName},
    metadata::{Head, appwrapper, object_or_default},
};

/// An object of any kind, partly typed, for `kube::Api`: no spec or managed field is ever allocated, of annotations only
/// those that declare how the object ends. `S` says what is read of the status.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "S: StatusWire")]
pub struct Wire<S> {
    #[serde(default)]
    pub(crate) metadata: Head,
    #[serde(default, deserialize_with = "object_or_default")]
    status: S,
}

/// What is read of an object's status.
pub trait StatusWire: Clone + std::fmt::Debug + Default + DeserializeOwned + Send + Sync + 'static {
    /// The server is asked for metadata alone.
    const METADATA_ONLY: bool = false;

    /// What the status says of the object's end.
    fn completion(&self, rules: StatusRules, declared: &Declared) -> Completion;

    /// What the object counts itself.
    fn counts(&self, rules: StatusRules) -> OwnCounts;
}

/// Nothing: for kinds whose status says nothing of their end.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct NoStatus {}

/// All of it: for objects of such kinds that declare what their status says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Declaring(Value);

impl StatusWire for NoStatus {
    const METADATA_ONLY: bool = true;

    fn completion(&self, _: StatusRules, _: &Declared) -> Completion {
        Completion::Active
    }

    fn counts(&self, _: StatusRules) -> OwnCounts {
        OwnCounts::default()
    }
}

impl StatusWire for Declaring {
    fn completion(&self, _: StatusRules, declared: &Declared) -> Completion {
        declared.judge(&self.0)
    }

    fn counts(&self, rules: StatusRules) -> OwnCounts {
        StatusHead::deserialize(&self.0).map_or_else(|_| OwnCounts::default(), |head| rules.counting.read(&head))
    }
}

impl StatusWire for StatusHead {
    fn completion(&self, rules: StatusRules, _: &Declared) -> Completion {
        rules.completion.judge(self)
    }

    fn counts(&self, rules: StatusRules) -> OwnCounts {
        rules.counting.read(self)
    }
}

/// How much of the objects of a kind is read, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// Metadata.
    Metadata,
    /// What the table of kinds knows of the status.
    Known,
    /// All of the status, since an object declares how it ends.
    Declared,
}

impl Depth {
    pub(crate) fn of(rules: StatusRules, declares_end: bool) -> Self {
        if rules.completion.is_own() {
            Self::Known
        } else if declares_end {
            Self::Declared
        } else if rules.counting != Counting::None {
            Self::Known
        } else {
            Self::Metadata
        }
    }
}

impl<S: StatusWire> Resource for Wire<S> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        S::METADATA_ONLY
    }

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata.object
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata.object
    }
}

impl<S: StatusWire> Wire<S> {
    /// The facts of an object of this type that was read past the cache. `None` if it has no name or uid, which makes it
    /// no answer of an API server.
    pub fn into_facts(self, type_ref: &TypeRef) -> Option<ComponentFacts> {
        self.project(StatusRules::of(type_ref))
            .map(|(_, component)| Arc::unwrap_or_clone(component.facts))
    }

    pub(crate) fn project(self, rules: StatusRules) -> Option<(ObjectName, Component)> {
        let completion = self.status.completion(rules, &self.metadata.declared);
        let counts = self.status.counts(rules);
        let identity = self.metadata.into_identity()?;
        let owner = appwrapper(&identity.name.namespace, identity.controller.as_ref());
        let facts = ComponentFacts {
            uid: identity.uid,
            controller: identity.controller,
            version: identity.version,
            terminating: identity.terminating,
            finalizers: identity.finalizers,
            completion,
            counts,
        };
        Some((
            identity.name,
            Component {
                facts: Arc::new(facts),
                owner,
            },
        ))
    }
}

/// What the status of a kind is good for.
#[derive(Clone, Copy, Debug)]
pub struct StatusRules {
    completion: CompletionRule,
    counting: Counting,
}

impl StatusRules {
    pub(crate) fn of(type_ref: &TypeRef) -> Self {
        Self {
            completion: completion_rule(type_ref),
            counting: counting(type_ref),
        }
    }
}

/// An entry of a component index.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    pub(crate) facts: Arc<ComponentFacts>,
    /// The AppWrapper that controls it. The label is only the selector of the watch: anyone may write it.
    owner: Option<AppWrapperKey>,
}

impl Component {
    pub(crate) fn controller(&self) -> Option<&ControllerRef> {
        self.facts.controller.as_ref()
    }
}

impl Facts for Component {
    fn uid(&self) -> &Uid {
        &self.facts.uid
    }

    fn version(&self) -> Option<&Rv> {
        self.facts.version.as_ref()
    }

    fn owners(&self) -> impl Iterator<Item = &AppWrapperKey> {
        self.owner.iter()
    }

    fn says_the_same(&self, other: &Self) -> bool {
        let ComponentFacts {
            uid,
            controller,
            version: _,
            terminating,
            finalizers,
            completion,
            counts,
        } = &*self.facts;
        let theirs = &other.facts;
        *uid == theirs.uid
            && *controller == theirs.controller
            && *terminating == theirs.terminating
            && *finalizers == theirs.finalizers
            && *completion == theirs.completion
            && *counts == theirs.counts
    }
}

#[cfg(test)]
mod tests {
    use appwrapper_api::Completion;
    use serde_json::{Value, json};

    use super::*;

    fn project(value: &Value, type_ref: &TypeRef) -> Component {
        let wire: Wire<StatusHead> = serde_json::from_str(&value.to_string()).unwrap();
        wire.project(StatusRules::of(type_ref)).unwrap().1
    }

    #[test]
    fn an_object_ends_by_what_it_declares() {
        let widget = |annotations: &Value, status: &Value| {
            let value = json!({"metadata": {"name": "w", "namespace": "n", "uid": "u", "annotations": annotations}, "status": status});
            let wire: Wire<Declaring> = serde_json::from_str(&value.to_string()).unwrap();
            let (_, component) = wire
                .project(StatusRules::of(&TypeRef::new("example.com/v1", "Widget")))
                .unwrap();
            component.facts.completion
        };
        let rules = json!({"workload.codeflare.dev.appwrapper/successCondition": "status.phase=Done",
            "workload.codeflare.dev.appwrapper/failureCondition": "status.phase=Broken"});
        assert_eq!(widget(&rules, &json!({"phase": "Done"})), Completion::Complete);
        assert_eq!(widget(&rules, &json!({"phase": "Broken"})), Completion::Failed);
        assert_eq!(widget(&rules, &json!({"phase": "Busy"})), Completion::Active);
        assert_eq!(widget(&rules, &json!("Done")), Completion::Active);
        assert_eq!(widget(&json!({}), &json!({"phase": "Done"})), Completion::Active);
        let unreadable = json!({"workload.codeflare.dev.appwrapper/successCondition": "phase"});
        assert_eq!(widget(&unreadable, &json!({"phase": "Done"})), Completion::Active);
    }

    fn job(version: &str, status: &Value) -> Component {
        let value = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": []}}},
            "metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": version,
                "managedFields": [{"manager": "x"}]},
            "status": status});
        project(&value, &TypeRef::new("batch/v1", "Job"))
    }

    #[test]
    fn a_job_that_only_counts_says_the_same() {
        let before = job("1", &json!({"active": 1}));
        let after = job("2", &json!({"active": 2, "ready": 1}));
        assert!(before.says_the_same(&after));
        let failed = job("3", &json!({"conditions": [{"type": "Failed", "status": "True"}]}));
        assert!(!before.says_the_same(&failed));
        assert_eq!(failed.facts.completion, Completion::Failed);
    }

    #[test]
    fn a_job_counts_its_pods_and_nothing_else_does() {
        let succeeded = json!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "status": {"succeeded": 3}});
        let count = |api_version, kind| {
            project(&succeeded, &TypeRef::new(api_version, kind))
                .facts
                .counts
                .succeeded_pods
        };
        assert_eq!(count("batch/v1", "Job"), Some(3));
        assert_eq!(count("ray.io/v1", "RayJob"), None);
    }

    #[test]
    fn a_ray_cluster_that_declares_its_end_still_counts_its_workers() {
        let ray = TypeRef::new("ray.io/v1", "RayCluster");
        let value =
            json!({"metadata": {"name": "r", "namespace": "n", "uid": "u"}, "status": {"desiredWorkerReplicas": 2}});
        let wire: Wire<Declaring> = serde_json::from_value(value.clone()).unwrap();
        let declared = wire.project(StatusRules::of(&ray)).unwrap().1;
        let known = project(&value, &ray);
        assert_eq!(
            (&declared.facts.counts, known.facts.counts.desired_workers),
            (&known.facts.counts, Some(2))
        );
    }

    #[test]
    fn an_oddly_typed_status_is_no_status() {
        for status in [
            json!("up"),
            json!(7),
            json!([{"a": 1}]),
            json!(null),
            json!(true),
            json!({"conditions": 1}),
        ] {
            assert_eq!(job("1", &status).facts.completion, Completion::Active, "{status}");
        }
    }

    #[test]
    fn a_heavily_annotated_object_leaves_nothing_of_it() {
        let value = json!({"metadata": {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "annotations": {"big": "x".repeat(180 * 1024)}, "managedFields": [{"manager": "x".repeat(1024)}]},
            "spec": {"template": {"spec": {"containers": [{"name": "x".repeat(1024)}]}}}});
        let wire: Wire<StatusHead> = serde_json::from_str(&value.to_string()).unwrap();
        assert!(!format!("{wire:?}").contains("xx"), "{wire:?}");
        let component = project(&value, &TypeRef::new("batch/v1", "Job"));
        assert!(size_of_val(&*component.facts) + size_of::<Component>() < 300);
    }
}
