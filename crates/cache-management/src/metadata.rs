//! The few fields of an object's metadata that are kept, read without allocating the rest.
//!
//! Annotations and managed fields make up most of the metadata of real objects (180 kB in the incident behind this
//! project), and they are sent even on metadata-only requests. Here serde skips over them in the text.

use std::{fmt, sync::Arc};

use appwrapper_api::{AppWrapperKey, ControllerRef, Declared, GROUP, KIND, Rv, TypeRef, Uid};
use kube::core::ObjectMeta;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use crate::index::ObjectName;

/// Metadata as it came over the wire, cut down.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// Name, namespace, uid and version only: what kube's watcher wants to see.
    pub(crate) object: ObjectMeta,
    controller: Option<ControllerRef>,
    terminating: bool,
    finalizers: Vec<String>,
    label: Option<String>,
    /// How the object declares to end.
    pub(crate) declared: Declared,
}

/// What is kept of an object's metadata.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) name: ObjectName,
    pub(crate) uid: Uid,
    pub(crate) version: Option<Rv>,
    pub(crate) controller: Option<ControllerRef>,
    pub(crate) terminating: bool,
    pub(crate) finalizers: Vec<String>,
    /// Value of the AppWrapper label.
    pub(crate) label: Option<Arc<str>>,
}

impl Head {
    /// The parts, or `None` for an object without name or uid, which no server sends.
    pub(crate) fn into_identity(self) -> Option<Identity> {
        let Self {
            object,
            controller,
            terminating,
            finalizers,
            label,
            declared: _,
        } = self;
        Some(Identity {
            name: ObjectName::new(object.namespace.unwrap_or_default(), object.name?),
            uid: Uid::new(object.uid?),
            version: object.resource_version.as_deref().and_then(Rv::parse),
            controller,
            terminating,
            finalizers,
            label: label.map(Into::into),
        })
    }
}

/// The AppWrapper that a controller reference names, if it names one.
pub(crate) fn appwrapper(namespace: &Arc<str>, controller: Option<&ControllerRef>) -> Option<AppWrapperKey> {
    let controller = controller.filter(|controller| is_appwrapper(controller))?;
    Some(AppWrapperKey::new(Arc::clone(namespace), Arc::clone(&controller.name)))
}

/// Whether a controller reference names an AppWrapper, of whatever version.
pub(crate) fn is_appwrapper(controller: &ControllerRef) -> bool {
    controller.type_ref.group() == GROUP && &*controller.type_ref.kind == KIND
}

impl<'de> Deserialize<'de> for Head {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = HeadWire::deserialize(deserializer)?;
        Ok(Self {
            object: ObjectMeta {
                name: wire.name,
                namespace: wire.namespace,
                uid: wire.uid,
                resource_version: wire.resource_version,
                ..ObjectMeta::default()
            },
            controller: wire.owner_references.and_then(|owners| owners.0),
            terminating: wire.deletion_timestamp.is_some(),
            finalizers: wire.finalizers.unwrap_or_default(),
            label: wire.labels.and_then(|labels| labels.appwrapper),
            declared: wire.annotations.map(Declared::from).unwrap_or_default(),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HeadWire {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    finalizers: Option<Vec<String>>,
    labels: Option<Labels>,
    annotations: Option<Annotations>,
    owner_references: Option<Controller>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labels {
    // `APPWRAPPER_LABEL`; an attribute takes no constant, a test compares the two.
    #[serde(rename = "workload.codeflare.dev/appwrapper")]
    appwrapper: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    // `declared::SUCCESS` and `declared::FAILURE`.
    #[serde(rename = "workload.codeflare.dev.appwrapper/successCondition")]
    success: Option<Box<str>>,
    #[serde(rename = "workload.codeflare.dev.appwrapper/failureCondition")]
    failure: Option<Box<str>>,
}

impl From<Annotations> for Declared {
    fn from(Annotations { success, failure }: Annotations) -> Self {
        Self { success, failure }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OwnerWire {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
}

/// The one owner reference with `controller: true`; the API server allows no second.
struct Controller(Option<ControllerRef>);

impl<'de> Deserialize<'de> for Controller {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Owners;

        impl<'de> Visitor<'de> for Owners {
            type Value = Controller;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of owner references")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut owners: A) -> Result<Controller, A::Error> {
                let mut found = None;
                while let Some(owner) = owners.next_element::<OwnerWire>()? {
                    if owner.controller == Some(true) && found.is_none() {
                        found = Some(ControllerRef {
                            type_ref: TypeRef::new(owner.api_version, owner.kind),
                            name: owner.name.into(),
                            uid: Uid::new(owner.uid),
                        });
                    }
                }
                Ok(Controller(found))
            }
        }

        deserializer.deserialize_seq(Owners)
    }
}

/// Reads an object, and anything that is not an object as the default.
///
/// A component's author owns its status. One that is a string, say, must not make the whole list undecodable.
pub(crate) fn object_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    struct Lenient<T>(std::marker::PhantomData<T>);

    impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Lenient<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any value")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<T, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(T::default())
        }

        fn visit_str<E>(self, _: &str) -> Result<T, E> {
            Ok(T::default())
        }

        fn visit_bool<E>(self, _: bool) -> Result<T, E> {
            Ok(T::default())
        }

        fn visit_i64<E>(self, _: i64) -> Result<T, E> {
            Ok(T::default())
        }

        fn visit_u64<E>(self, _: u64) -> Result<T, E> {
            Ok(T::default())
        }

        fn visit_f64<E>(self, _: f64) -> Result<T, E> {
            Ok(T::default())
        }

        fn visit_unit<E>(self) -> Result<T, E> {
            Ok(T::default())
        }
    }

    deserializer.deserialize_any(Lenient(std::marker::PhantomData))
}

#[cfg(test)]
mod tests {
    use appwrapper_api::{ANNOTATION_PREFIX, APPWRAPPER_LABEL, declared};
    use serde_json::json;

    use super::*;

    fn head(value: &serde_json::Value) -> Head {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    #[test]
    fn the_label_is_the_constant_of_the_api() {
        let identity = head(&json!({"name": "a", "uid": "u", "labels": {APPWRAPPER_LABEL: "aw", "other": "x"}}))
            .into_identity()
            .unwrap();
        assert_eq!(identity.label.as_deref(), Some("aw"));
    }

    #[test]
    fn the_annotations_that_declare_an_end_are_the_constants_of_the_api() {
        let metadata = json!({"name": "a", "uid": "u", "annotations": {
            format!("{ANNOTATION_PREFIX}{}", declared::SUCCESS): "s", format!("{ANNOTATION_PREFIX}{}", declared::FAILURE): "f"}});
        let declared = Declared::of(&json!({"metadata": metadata}));
        assert_eq!(declared.success.as_deref(), Some("s"));
        assert_eq!(head(&metadata).declared, declared);
    }

    #[test]
    fn only_the_controller_is_kept_of_the_owners() {
        let owner = |name: &str, controller: Option<bool>| {
            json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": name, "uid": name,
                "controller": controller, "blockOwnerDeletion": true})
        };
        let identity = head(
            &json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"],
            "ownerReferences": [owner("first", None), owner("second", Some(true))]}),
        )
        .into_identity()
        .unwrap();
        assert_eq!(&*identity.controller.as_ref().unwrap().name, "second");
        assert_eq!(
            appwrapper(&identity.name.namespace, identity.controller.as_ref()),
            Some(AppWrapperKey::new("n", "second"))
        );
        assert!(identity.terminating);
        assert_eq!(identity.version, Rv::parse("7"));
        assert_eq!(identity.finalizers, ["f"]);
    }

    #[test]
    fn absent_and_null_fields_are_alike() {
        let identity = head(
            &json!({"name": "a", "uid": "u", "labels": null, "ownerReferences": null,
            "finalizers": null, "deletionTimestamp": null}),
        )
        .into_identity()
        .unwrap();
        assert!(!identity.terminating);
        assert_eq!(identity.controller, None);
        assert!(head(&json!({"name": "a"})).into_identity().is_none());
    }
}
