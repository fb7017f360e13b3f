//! The AppWrapper object as it is written (spec/api.md sections 2 and 3).
//!
//! This is wire format: Kueue's Go integration and every existing manifest read and write the same fields. What Go omits
//! when empty is omitted here; the four required fields of a component's status are written even when empty, because
//! the API server refuses the patch otherwise.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    api::core::v1::{PodSchedulingGate, Toleration},
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{crd, facts::AppWrapperKey, phase::Phase, template::Template};

/// A group of Kubernetes objects that is queued, deployed, watched over and retried as one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapper {
    /// Standard object metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wanted. The schema lets an object without a spec pass; it then has no components.
    #[serde(default)]
    pub spec: AppWrapperSpec,
    /// What the controller has made of it.
    #[serde(default)]
    pub status: AppWrapperStatus,
}

/// What is wanted of an AppWrapper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crd::rules::of_spec()))]
pub struct AppWrapperSpec {
    /// The wrapped resources, in the order in which they are created.
    #[serde(default)]
    #[schemars(!default, extend("x-kubernetes-validations" = crd::rules::of_components()))]
    pub components: Vec<Component>,
    /// No component may be deployed while this is true. Absent means false; Kueue clears it by removing the field.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// Which controller reconciles the AppWrapper; absent means this one. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

/// One wrapped resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = crd::rules::of_component()))]
pub struct Component {
    /// Free-form annotations; the controller reads nothing from them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The pod sets of the resource. May be left out for kinds whose pod sets are inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<PodSet>,
    /// Placement written by Kueue at admission, one entry per pod set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_set_infos: Vec<PodSetInfo>,
    /// The complete wrapped object.
    #[schemars(schema_with = "crd::template_schema")]
    pub template: Template,
}

/// A number of equal pods that a component makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// Number of pods; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Where the pod template lies within the component, for example `template.spec.template`.
    pub path: String,
    /// Hints for topology-aware scheduling.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What Kueue wants injected into the pod template of one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetInfo {
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Node selector to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations to append.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::tolerations_schema")]
    pub tolerations: Vec<Toleration>,
    /// Scheduling gates to append.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::scheduling_gates_schema")]
    pub scheduling_gates: Vec<PodSchedulingGate>,
}

/// What the controller has made of an AppWrapper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperStatus {
    /// The phase, see [`Phase`]. A name that is not known is ignored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Retries used so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resetting_count: i32,
    /// Conditions of the AppWrapper.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions_schema")]
    pub conditions: Vec<Condition>,
    /// Status of each component, in the order of `spec.components`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub component_status: Vec<ComponentStatus>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(value: &i32) -> bool {
    *value == 0
}

/// Status of one component. The first four fields are required by the schema and written even when empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// Name of the deployed object; empty until its creation begins.
    #[serde(default)]
    #[schemars(!default)]
    pub name: String,
    /// Kind of the deployed object; empty until its creation begins.
    #[serde(default)]
    #[schemars(!default)]
    pub kind: String,
    /// `apiVersion` of the deployed object; empty until its creation begins.
    #[serde(default)]
    #[schemars(!default)]
    pub api_version: String,
    /// The resolved pod sets, fixed once.
    #[serde(default)]
    #[schemars(!default)]
    pub pod_sets: Vec<PodSet>,
    /// Conditions of the component; only `ResourcesDeployed` is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions_schema")]
    pub conditions: Vec<Condition>,
}

impl AppWrapperStatus {
    /// The phase, or `None` for a name that is not known.
    pub fn phase(&self) -> Option<Phase> {
        Phase::parse(&self.phase)
    }

    /// Sets the phase.
    pub fn set_phase(&mut self, phase: Phase) {
        phase.as_str().clone_into(&mut self.phase);
    }
}

impl AppWrapper {
    /// Namespace and name. Objects that a server has returned have both.
    pub fn key(&self) -> AppWrapperKey {
        AppWrapperKey::new(
            self.metadata.namespace.as_deref().unwrap_or_default(),
            self.metadata.name.as_deref().unwrap_or_default(),
        )
    }

    /// Whether `spec.managedBy` names this controller, or nobody.
    pub fn is_ours(&self) -> bool {
        self.spec
            .managed_by
            .as_deref()
            .is_none_or(|manager| manager == crate::CONTROLLER_NAME)
    }
}

impl kube::Resource for AppWrapper {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        crate::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        crate::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        crate::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        crate::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_without_spec_or_status_decodes() {
        let wrapper: AppWrapper = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        assert!(wrapper.spec.components.is_empty());
        assert_eq!(wrapper.status.phase(), Some(Phase::Empty));
    }

    #[test]
    fn required_status_fields_are_written_when_empty() {
        let status = AppWrapperStatus {
            component_status: vec![ComponentStatus::default()],
            ..Default::default()
        };
        assert_eq!(
            serde_json::to_value(&status).unwrap(),
            json!({"componentStatus": [{"name": "", "kind": "", "apiVersion": "", "podSets": []}]}),
        );
    }

    #[test]
    fn only_our_name_or_none_makes_it_ours() {
        for (manager, ours) in [
            (None, true),
            (Some(crate::CONTROLLER_NAME), true),
            (Some(""), false),
            (Some("kueue.x-k8s.io/multikueue"), false),
        ] {
            let mut wrapper = AppWrapper::default();
            wrapper.spec.managed_by = manager.map(str::to_owned);
            assert_eq!(wrapper.is_ours(), ours, "{manager:?}");
        }
    }
}
