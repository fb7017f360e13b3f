//! Whether an object that exists already may be taken for a component (design/decisions.md 5).
//!
//! Only a controller reference with our own uid makes it ours. What an earlier AppWrapper of this name has left is on its
//! way out and is waited for; anything else is somebody's and is never touched.

use appwrapper_api::{AppWrapper, ComponentRef};

use crate::{evidence::UncachedRead, observed::CreateOutcome};

/// Whether an object that exists already is the one we meant to create: it must be controlled by this very AppWrapper.
pub(crate) fn adopt(wrapper: &AppWrapper, component: &ComponentRef, read: UncachedRead) -> CreateOutcome {
    let facts = match read {
        UncachedRead::Present(facts) => facts,
        UncachedRead::Absent | UncachedRead::NotServed => {
            return CreateOutcome::Uncertain(format!("{component} existed a moment ago and is gone"));
        }
        UncachedRead::Doubt(doubt) => return CreateOutcome::Uncertain(format!("{component} exists, but {doubt}")),
    };
    let uid = wrapper.metadata.uid.as_deref().unwrap_or_default();
    match &facts.controller {
        Some(owner) if owner.uid.as_str() == uid => {
            if facts.terminating {
                return CreateOutcome::Uncertain(format!("{component} exists and is being deleted"));
            }
            CreateOutcome::Created
        }
        // What an earlier AppWrapper of this name has left is on its way out.
        Some(owner)
            if owner.type_ref.kind.as_ref() == appwrapper_api::KIND
                && owner.type_ref.group() == appwrapper_api::GROUP
                && Some(owner.name.as_ref()) == wrapper.metadata.name.as_deref() =>
        {
            CreateOutcome::Uncertain(format!(
                "{component} exists and belongs to an earlier AppWrapper of this name (uid {})",
                owner.uid
            ))
        }
        owner => {
            let owner = owner.as_ref().map_or_else(
                || "nothing".to_owned(),
                |owner| format!("{} {}", owner.type_ref.kind, owner.name),
            );
            CreateOutcome::Fatal(format!(
                "resource {component} exists, but is not controlled by appwrapper: it is controlled by {owner}; \
                 rename the component or remove the object"
            ))
        }
    }
}
