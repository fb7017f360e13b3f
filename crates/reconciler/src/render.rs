//! A template and its pod set infos, made into the object that is created (spec/components.md sections 4 to 6). Pure.

pub mod affinity;
pub mod pod_set;

use appwrapper_api::{
    API_VERSION, APPWRAPPER_LABEL, AppWrapper, AppWrapperStatus, ComponentRef, KIND, PodSetInfo, SLOT_LABEL, Slot,
    TemplateError,
    path::{Path, PathError},
};
use serde_json::{Map, Value, json};

use crate::policy::Policy;

/// Why a component cannot be rendered. Trying again cannot help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The template names no object.
    #[error("{0}")]
    Template(#[from] TemplateError),
    /// A pod set's path leads nowhere.
    #[error("{0}")]
    Path(#[from] PathError),
    /// A pod template is no object, so nothing can be put into it.
    #[error("{path} is not a pod template")]
    NotAPodTemplate {
        /// The path.
        path: String,
    },
    /// The component lies in another namespace.
    #[error("template.metadata.namespace is {found:?}; components live in the AppWrapper's namespace {wanted:?}")]
    Namespace {
        /// What the template says.
        found: String,
        /// The AppWrapper's namespace.
        wanted: String,
    },
    /// The template is controlled by something else.
    #[error("template.metadata.ownerReferences names another controller, {0:?}; remove it")]
    Controlled(String),
    /// Kueue's placement and the template contradict each other.
    #[error("conflict updating {what}: conflict for key={key}, value1={own}, value2={other}")]
    Conflict {
        /// `labels`, `annotations` or `nodeSelector`.
        what: &'static str,
        /// The key.
        key: String,
        /// The template's value.
        own: String,
        /// The value to be injected.
        other: String,
    },
}

/// The object to create for a component.
pub fn component(
    wrapper: &AppWrapper,
    status: &AppWrapperStatus,
    component: &ComponentRef,
    policy: &Policy,
) -> Result<Value, RenderError> {
    let key = wrapper.key();
    let Some(spec) = wrapper.spec.components.get(component.position) else {
        return Err(TemplateError::NotAnObject.into());
    };
    let mut object = Value::Object(spec.template.object()?);
    let slot = slot(wrapper);
    {
        let metadata = ensure_object(&mut object, "metadata");
        match metadata.get("namespace").and_then(Value::as_str) {
            Some(found) if !found.is_empty() && found != &*key.namespace => {
                return Err(RenderError::Namespace {
                    found: found.to_owned(),
                    wanted: key.namespace.to_string(),
                });
            }
            _ => metadata.insert("namespace".into(), (*key.namespace).into()),
        };
        // The name was fixed before, so that a second attempt cannot make a second object.
        metadata.remove("generateName");
        metadata.insert("name".into(), (*component.name).into());
        for server_owned in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "managedFields",
        ] {
            metadata.remove(server_owned);
        }
        let labels = ensure_map(metadata, "labels");
        if !labels.get(APPWRAPPER_LABEL).is_some_and(Value::is_string) {
            labels.insert(APPWRAPPER_LABEL.into(), (*key.name).into());
        }
        labels.insert(SLOT_LABEL.into(), slot.to_string().into());
        own(metadata, wrapper)?;
    }
    let none = PodSetInfo::default();
    let pod_sets = status
        .component_status
        .get(component.position)
        .map(|found| found.pod_sets.as_slice());
    for (index, pod_set) in pod_sets.unwrap_or_default().iter().enumerate() {
        let info = spec.pod_set_infos.get(index).unwrap_or(&none);
        let target = Path::parse(&pod_set.path)?.get_mut(&mut object)?;
        let target = target.as_object_mut().ok_or_else(|| RenderError::NotAPodTemplate {
            path: pod_set.path.clone(),
        })?;
        pod_set::inject(target, info, &key.name, slot, policy)?;
    }
    Ok(object)
}

/// The slot that the webhook gave, or the one that the leader would fill in.
fn slot(wrapper: &AppWrapper) -> Slot {
    let label = wrapper
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(SLOT_LABEL));
    let key = wrapper.key();
    label
        .and_then(|label| Slot::parse(label))
        .unwrap_or_else(|| Slot::of(&key.namespace, &key.name))
}

/// Makes the AppWrapper the controller of the object. Other owners stay; another controller is an error.
fn own(metadata: &mut Map<String, Value>, wrapper: &AppWrapper) -> Result<(), RenderError> {
    let name = wrapper.metadata.name.clone().unwrap_or_default();
    let is_same = |owner: &Value| {
        let text = |key| owner.get(key).and_then(Value::as_str).unwrap_or_default();
        text("kind") == KIND
            && text("name") == name
            && text("apiVersion").split('/').next() == API_VERSION.split('/').next()
    };
    let mut owners: Vec<Value> = match metadata.remove("ownerReferences") {
        Some(Value::Array(owners)) => owners.into_iter().filter(|owner| !is_same(owner)).collect(),
        _ => Vec::new(),
    };
    if let Some(other) = owners
        .iter()
        .find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
    {
        let text = |key| other.get(key).and_then(Value::as_str).unwrap_or_default();
        return Err(RenderError::Controlled(format!("{} {}", text("kind"), text("name"))));
    }
    owners.push(json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name,
        "uid": wrapper.metadata.uid.clone().unwrap_or_default(),
        "controller": true,
        "blockOwnerDeletion": true,
    }));
    metadata.insert("ownerReferences".into(), Value::Array(owners));
    Ok(())
}

/// The object under `key`, made if absent, null or of another type.
pub(crate) fn ensure_object<'a>(parent: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !parent.is_object() {
        *parent = Value::Object(Map::new());
    }
    match parent {
        Value::Object(parent) => ensure_map(parent, key),
        _ => unreachable!("made an object above"),
    }
}

/// The object under `key`, made if absent, null or of another type.
pub(crate) fn ensure_map<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let child = parent.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    match child {
        Value::Object(child) => child,
        _ => unreachable!("made an object above"),
    }
}
