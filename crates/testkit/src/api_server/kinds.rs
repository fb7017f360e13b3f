//! The resource types the fake server serves.
//!
//! A type is known by its group, version, plural and kind, says whether it is namespaced, and whether its status is a
//! subresource of its own. The usual set is there from the start; a test adds the kind it invents with
//! `ApiServer::register` and takes one away with `ApiServer::unregister`, which is what a missing CRD looks like.
//!
//! Only one version per group and plural is served, so there is no conversion. `core/v1` events and `events.k8s.io`
//! events are two separate types here; the real server stores them as one.

use std::collections::BTreeMap;
use std::sync::Arc;

/// One resource type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceKind {
    /// API group, empty for the core group.
    pub group: String,
    /// Version within the group.
    pub version: String,
    /// Plural name, as in paths.
    pub plural: String,
    /// Kind, as in objects.
    pub kind: String,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether `status` is written through a subresource only.
    pub status_subresource: bool,
}

impl ResourceKind {
    /// A namespaced type with a status subresource.
    pub fn new(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
            status_subresource: true,
        }
    }

    /// The same type, cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// The same type without a status subresource.
    #[must_use]
    pub fn without_status(mut self) -> Self {
        self.status_subresource = false;
        self
    }

    /// `plural.group`, or just `plural` in the core group. Requests and changes are recorded under this name.
    pub fn id(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `group/version`, or just `version` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether the real server would serve this type from a CRD. Such types come with `kind` in list items, refuse
    /// strategic merge patches and refuse updates without a resourceVersion.
    pub fn is_custom(&self) -> bool {
        !matches!(
            self.group.as_str(),
            "" | "apps" | "batch" | "coordination.k8s.io" | "events.k8s.io" | "authorization.k8s.io"
        )
    }
}

/// All types served at the moment, by id.
#[derive(Clone, Debug)]
pub(crate) struct Kinds {
    by_id: BTreeMap<String, Arc<ResourceKind>>,
}

impl Default for Kinds {
    fn default() -> Self {
        let mut kinds = Self { by_id: BTreeMap::new() };
        for (group, version, plural, kind) in [
            ("", "v1", "pods", "Pod"),
            ("", "v1", "services", "Service"),
            ("apps", "v1", "deployments", "Deployment"),
            ("apps", "v1", "replicasets", "ReplicaSet"),
            ("apps", "v1", "statefulsets", "StatefulSet"),
            ("batch", "v1", "jobs", "Job"),
            ("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
            ("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
            ("ray.io", "v1", "rayclusters", "RayCluster"),
            ("ray.io", "v1", "rayjobs", "RayJob"),
            ("workload.codeflare.dev", "v1beta2", "appwrappers", "AppWrapper"),
            ("example.com", "v1", "widgets", "Widget"),
        ] {
            kinds.add(ResourceKind::new(group, version, plural, kind));
        }
        for (group, plural, kind) in [
            ("", "configmaps", "ConfigMap"),
            ("", "secrets", "Secret"),
            ("", "events", "Event"),
            ("events.k8s.io", "events", "Event"),
            ("coordination.k8s.io", "leases", "Lease"),
        ] {
            kinds.add(ResourceKind::new(group, "v1", plural, kind).without_status());
        }
        kinds.add(ResourceKind::new("", "v1", "nodes", "Node").cluster_scoped());
        kinds.add(ResourceKind::new("", "v1", "namespaces", "Namespace").cluster_scoped());
        kinds
    }
}

impl Kinds {
    pub(crate) fn add(&mut self, kind: ResourceKind) {
        self.by_id.insert(kind.id(), Arc::new(kind));
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Arc<ResourceKind>> {
        self.by_id.remove(id)
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Arc<ResourceKind>> {
        self.by_id.get(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<ResourceKind>> {
        self.by_id.values()
    }

    /// Finds a type by what a test calls it: its id, its plural or its kind. The core group wins a tie.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<ResourceKind>> {
        self.by_id
            .get(name)
            .or_else(|| {
                self.by_id
                    .values()
                    .filter(|k| k.plural == name || k.kind == name)
                    .min_by_key(|k| &k.group)
            })
            .cloned()
    }

    pub(crate) fn by_path(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceKind>> {
        self.iter()
            .find(|k| k.group == group && k.version == version && k.plural == plural)
            .cloned()
    }

    pub(crate) fn by_object(&self, api_version: &str, kind: &str) -> Option<Arc<ResourceKind>> {
        self.iter()
            .find(|k| k.kind == kind && k.api_version() == api_version)
            .cloned()
    }
}
