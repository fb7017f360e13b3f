//! To which component a pod belongs: its controller references, followed as the controller follows them.

use std::collections::HashMap;

use appwrapper_api::TypeRef;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};

use crate::session::Session;

/// Longest chain that is followed; real ones have three links.
const LINKS: usize = 8;

/// Follows chains of owners, and remembers what it has read.
pub struct Owners<'a> {
    session: &'a Session,
    wrapper: &'a str,
    known: HashMap<String, Option<OwnerReference>>,
}

impl<'a> Owners<'a> {
    /// Owners below the AppWrapper with this uid.
    pub fn new(session: &'a Session, wrapper: &'a str) -> Self {
        Self {
            session,
            wrapper,
            known: HashMap::new(),
        }
    }

    /// Kind and name of the component that a pod belongs to; none if the chain does not lead to the AppWrapper, or
    /// cannot be read.
    pub async fn component_of(&mut self, pod: &Pod) -> Option<(String, String)> {
        let mut below = ("Pod".to_owned(), pod.metadata.name.clone().unwrap_or_default());
        let mut owner = controller(pod.metadata.owner_references.as_deref())?;
        for _ in 0..LINKS {
            if owner.uid == self.wrapper {
                return Some(below);
            }
            below = (owner.kind.clone(), owner.name.clone());
            owner = self.above(&owner).await?;
        }
        None
    }

    async fn above(&mut self, object: &OwnerReference) -> Option<OwnerReference> {
        if let Some(known) = self.known.get(&object.uid) {
            return known.clone();
        }
        let found = self.read(object).await;
        self.known.insert(object.uid.clone(), found.clone());
        found
    }

    async fn read(&self, object: &OwnerReference) -> Option<OwnerReference> {
        let type_ref = TypeRef::new(object.api_version.as_str(), object.kind.as_str());
        let api = self.session.objects(&type_ref).await.ok()?;
        let found = api.get_metadata_opt(&object.name).await.ok()??;
        // Another object of that name tells nothing of this one's owner.
        if found.metadata.uid.as_deref() != Some(&object.uid) {
            return None;
        }
        controller(found.metadata.owner_references.as_deref())
    }
}

fn controller(owners: Option<&[OwnerReference]>) -> Option<OwnerReference> {
    owners?.iter().find(|owner| owner.controller == Some(true)).cloned()
}
