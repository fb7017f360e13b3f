//! Pods: from the wire to facts.

mod resources;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use appwrapper_api::{
    AppWrapperKey, Completion, ComponentFacts, ControllerRef, Lineage, OwnCounts, PodFacts, PodPhase, Rv, Uid,
};
use kube::core::{NamespaceResourceScope, ObjectMeta, Resource};
use serde::Deserialize;

use crate::{
    index::{Facts, ObjectName},
    metadata::{Head, appwrapper},
};

use self::resources::Extended;

/// A pod, partly typed, for `kube::Api`: of what a user wrote only node and resources are read.
#[derive(Clone, Debug, Deserialize)]
pub struct PodWire {
    #[serde(default)]
    metadata: Head,
    #[serde(default)]
    spec: SpecWire,
    #[serde(default)]
    status: StatusWire,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SpecWire {
    node_name: Option<String>,
    containers: Vec<ContainerWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerWire {
    resources: Option<ResourcesWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ResourcesWire {
    limits: Option<Extended>,
    requests: Option<Extended>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StatusWire {
    phase: Option<String>,
    container_statuses: Option<Vec<ContainerStatusWire>>,
    init_container_statuses: Option<Vec<ContainerStatusWire>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatusWire {
    state: Option<StateWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct StateWire {
    terminated: Option<TerminatedWire>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TerminatedWire {
    exit_code: i32,
}

impl Resource for PodWire {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata.object
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata.object
    }
}

impl PodWire {
    pub(crate) fn project(self) -> Option<(ObjectName, Pod)> {
        let identity = self.metadata.into_identity()?;
        let namespace = &identity.name.namespace;
        let resources: BTreeSet<Arc<str>> = self
            .spec
            .containers
            .into_iter()
            .filter_map(|container| container.resources)
            .flat_map(|resources| [resources.limits, resources.requests])
            .flatten()
            .flat_map(|extended| extended.0)
            .collect();
        let exit_codes = [self.status.init_container_statuses, self.status.container_statuses]
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|container| Some(container.state?.terminated?.exit_code))
            .filter(|code| *code != 0)
            .collect();
        let pod = Pod {
            label: identity
                .label
                .map(|name| AppWrapperKey::new(Arc::clone(namespace), name)),
            owner: appwrapper(namespace, identity.controller.as_ref()),
            name: Arc::clone(&identity.name.name),
            uid: identity.uid,
            version: identity.version,
            controller: identity.controller,
            phase: self.status.phase.as_deref().map(PodPhase::parse).unwrap_or_default(),
            terminating: identity.terminating,
            finalizers: identity.finalizers,
            node: self.spec.node_name.filter(|node| !node.is_empty()).map(Into::into),
            exit_codes,
            resources: resources.into_iter().collect(),
            root: OnceLock::new(),
            told: AtomicBool::new(false),
        };
        Some((identity.name, pod))
    }
}

/// An entry of the pod index.
#[derive(Debug)]
pub(crate) struct Pod {
    /// The AppWrapper named by the label: whom a change wakes, and by whom pods are grouped. It grants nothing.
    label: Option<AppWrapperKey>,
    /// The AppWrapper that controls it, if it is a component itself.
    owner: Option<AppWrapperKey>,
    name: Arc<str>,
    uid: Uid,
    version: Option<Rv>,
    controller: Option<ControllerRef>,
    phase: PodPhase,
    terminating: bool,
    finalizers: Vec<String>,
    node: Option<Arc<str>>,
    exit_codes: Vec<i32>,
    resources: Vec<Arc<str>>,
    /// Where its chain of controllers was found to end. Kept here, so that it lives as long as the pod, although the
    /// links in between may be deleted before it.
    root: OnceLock<Root>,
    /// Told to the observer as a stranger.
    told: AtomicBool,
}

/// The end of a chain of controllers at an AppWrapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) component: Uid,
    pub(crate) owner: Uid,
}

impl Pod {
    pub(crate) fn uid(&self) -> &Uid {
        &self.uid
    }

    pub(crate) fn controller(&self) -> Option<&ControllerRef> {
        self.controller.as_ref()
    }

    pub(crate) fn root(&self) -> Option<&Root> {
        self.root.get()
    }

    pub(crate) fn learn_root(&self, root: Root) {
        // A second answer can only be the same one: a uid has one controller for life, or none.
        let _ = self.root.set(root);
    }

    /// Whether this is the first time that the pod is found to be a stranger.
    pub(crate) fn is_new_stranger(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn facts(&self, lineage: Lineage) -> PodFacts {
        PodFacts {
            name: Arc::clone(&self.name),
            uid: self.uid.clone(),
            version: self.version.clone(),
            lineage,
            phase: self.phase,
            terminating: self.terminating,
            finalizers: self.finalizers.clone(),
            node: self.node.clone(),
            exit_codes: self.exit_codes.clone(),
            resources: self.resources.clone(),
        }
    }

    /// The pod as a component.
    pub(crate) fn component(&self) -> ComponentFacts {
        ComponentFacts {
            uid: self.uid.clone(),
            controller: self.controller.clone(),
            version: self.version.clone(),
            terminating: self.terminating,
            finalizers: self.finalizers.clone(),
            completion: Completion::Active,
            counts: OwnCounts::default(),
        }
    }
}

impl Facts for Arc<Pod> {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn version(&self) -> Option<&Rv> {
        self.version.as_ref()
    }

    fn owners(&self) -> impl Iterator<Item = &AppWrapperKey> {
        self.label
            .iter()
            .chain(self.owner.iter().filter(|owner| self.label.as_ref() != Some(owner)))
    }

    fn group(&self) -> Option<&AppWrapperKey> {
        self.label.as_ref()
    }

    fn says_the_same(&self, other: &Self) -> bool {
        let Pod {
            label,
            owner,
            name: _,
            uid,
            version: _,
            controller,
            phase,
            terminating,
            finalizers,
            node,
            exit_codes,
            resources,
            root: _,
            told: _,
        } = &**self;
        *label == other.label
            && *owner == other.owner
            && *uid == other.uid
            && *controller == other.controller
            && *phase == other.phase
            && *terminating == other.terminating
            && *finalizers == other.finalizers
            && *node == other.node
            && *exit_codes == other.exit_codes
            && *resources == other.resources
    }

    fn inherit(&self, before: &Self) {
        if let Some(root) = before.root()
            && self.uid == before.uid
            && self.controller == before.controller
        {
            self.learn_root(root.clone());
        }
        if self.uid == before.uid {
            self.told.store(before.told.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    fn leaves_tombstone(&self) -> bool {
        self.owner.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn root() -> Root {
        Root {
            component: Uid::new("job"),
            owner: Uid::new("aw"),
        }
    }

    fn project(value: &Value) -> Arc<Pod> {
        let wire: PodWire = serde_json::from_str(&value.to_string()).unwrap();
        Arc::new(wire.project().unwrap().1)
    }

    #[test]
    fn the_facts_of_a_pod() {
        let pod = project(&json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "5",
                "labels": {"workload.codeflare.dev/appwrapper": "aw"}},
            "spec": {"nodeName": "node-1", "containers": [
                {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}, "requests": {"x.io/nic": "0"}}},
                {"name": "b", "resources": {"requests": {"x.io/fpga": 1, "nvidia.com/gpu": "2"}}}],
                "initContainers": [{"resources": {"limits": {"x.io/init": "1"}}}]},
            "status": {"phase": "Failed",
                "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}, {"state": {"terminated": {"exitCode": 3}}}],
                "containerStatuses": [{"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 9}}},
                    {"state": {"terminated": {"exitCode": 137}}}]}}));
        let facts = pod.facts(Lineage::Foreign);
        assert_eq!(facts.phase, PodPhase::Failed);
        assert_eq!(facts.node.as_deref(), Some("node-1"));
        assert_eq!(facts.exit_codes, [3, 137]);
        assert_eq!(facts.resources, [Arc::from("nvidia.com/gpu"), Arc::from("x.io/fpga")]);
        assert_eq!(pod.group(), Some(&AppWrapperKey::new("n", "aw")));
    }

    #[test]
    fn the_root_of_a_pod_outlives_its_updates_but_not_its_controller() {
        let pod = |version: &str, controller: &str| {
            project(
                &json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": version,
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": controller,
                    "controller": true}]}}),
            )
        };
        let before = pod("1", "job");
        before.learn_root(root());
        let after = pod("2", "job");
        after.inherit(&before);
        assert_eq!(after.root(), Some(&root()));
        let orphan = pod("3", "other");
        orphan.inherit(&before);
        assert_eq!(orphan.root(), None);
    }
}
