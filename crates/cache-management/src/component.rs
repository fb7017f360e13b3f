//! Components: from the wire to facts.

use std::{borrow::Cow, sync::Arc};

use appwrapper_api::{
    AppWrapperKey, ComponentFacts, ControllerRef, Rv, TypeRef, Uid,
    kinds::{CompletionRule, StatusHead, completion_rule},
};
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta, Resource};
use serde::Deserialize;

use crate::{
    index::{Facts, ObjectName},
    metadata::{Head, appwrapper, object_or_default},
};

/// An object of any kind, partly typed, for `kube::Api`: no spec, annotation or managed field is ever allocated. With
/// `METADATA_ONLY` the server is asked for metadata alone; whole objects are for kinds whose status says when they end.
#[derive(Clone, Debug, Deserialize)]
pub struct Wire<const METADATA_ONLY: bool> {
    #[serde(default)]
    pub(crate) metadata: Head,
    #[serde(default, deserialize_with = "object_or_default")]
    status: StatusHead,
}

impl<const METADATA_ONLY: bool> Resource for Wire<METADATA_ONLY> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        METADATA_ONLY
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

impl<const METADATA_ONLY: bool> Wire<METADATA_ONLY> {
    /// The facts of an object of this type that was read past the cache. `None` if it has no name or uid, which makes it
    /// no answer of an API server.
    pub fn into_facts(self, type_ref: &TypeRef) -> Option<ComponentFacts> {
        self.project(StatusRules::of(type_ref))
            .map(|(_, component)| Arc::unwrap_or_clone(component.facts))
    }

    pub(crate) fn project(self, rules: StatusRules) -> Option<(ObjectName, Component)> {
        let completion = rules.completion.judge(&self.status);
        let succeeded_pods = self.status.succeeded_pods().filter(|_| rules.counts_pods);
        let identity = self.metadata.into_identity()?;
        let owner = appwrapper(&identity.name.namespace, identity.controller.as_ref());
        let facts = ComponentFacts {
            uid: identity.uid,
            controller: identity.controller,
            version: identity.version,
            terminating: identity.terminating,
            finalizers: identity.finalizers,
            completion,
            succeeded_pods,
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
pub(crate) struct StatusRules {
    completion: CompletionRule,
    // A RayJob has a `succeeded`, too, but counts attempts.
    counts_pods: bool,
}

impl StatusRules {
    pub(crate) fn of(type_ref: &TypeRef) -> Self {
        Self {
            completion: completion_rule(type_ref),
            counts_pods: &*type_ref.api_version == "batch/v1" && &*type_ref.kind == "Job",
        }
    }

    /// Whether the status is read at all, so that metadata is not enough.
    pub(crate) fn need_status(self) -> bool {
        self.completion.is_own()
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
            succeeded_pods,
        } = &*self.facts;
        let theirs = &other.facts;
        *uid == theirs.uid
            && *controller == theirs.controller
            && *terminating == theirs.terminating
            && *finalizers == theirs.finalizers
            && *completion == theirs.completion
            && *succeeded_pods == theirs.succeeded_pods
    }
}

#[cfg(test)]
mod tests {
    use appwrapper_api::Completion;
    use serde_json::{Value, json};

    use super::*;

    fn project(value: &Value, type_ref: &TypeRef) -> Component {
        let wire: Wire<false> = serde_json::from_str(&value.to_string()).unwrap();
        wire.project(StatusRules::of(type_ref)).unwrap().1
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
                .succeeded_pods
        };
        assert_eq!(count("batch/v1", "Job"), Some(3));
        assert_eq!(count("ray.io/v1", "RayJob"), None);
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
        let wire: Wire<false> = serde_json::from_str(&value.to_string()).unwrap();
        assert!(!format!("{wire:?}").contains("xx"), "{wire:?}");
        let component = project(&value, &TypeRef::new("batch/v1", "Job"));
        assert!(size_of_val(&*component.facts) + size_of::<Component>() < 300);
    }
}
