//! What the definition itself refuses, also where no webhook is asked.
//!
//! Each rule refuses only what the Go controller's webhook refuses too, or, in the case of the name, what never worked. They
//! are evaluated at every write, of a status as well, so they are few and look at nothing but counts and kinds. Those on
//! `spec` and `components` are forgiven while these do not change, so an object that is older than its rule can go on.

use serde_json::{Value, json};

use crate::{config::POD_SETS_CEILING, rules::LABEL_VALUE_LIMIT};

const IMMUTABLE: &str = "attempt to change immutable field";

/// Of the whole object. At creation only: the name of an older one cannot be put right.
pub(super) fn of_appwrapper() -> Value {
    json!([{
        "rule": format!("oldSelf.hasValue() || size(self.metadata.name) <= {LABEL_VALUE_LIMIT}"),
        "optionalOldSelf": true,
        "message": format!(
            "metadata.name labels every component and may have at most {LABEL_VALUE_LIMIT} characters"
        ),
    }])
}

/// Of `spec`.
pub(crate) fn of_spec() -> Value {
    json!([{
        "rule": "has(self.managedBy) == has(oldSelf.managedBy) && \
                 (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "fieldPath": ".managedBy",
        "reason": "FieldValueForbidden",
        "message": IMMUTABLE,
    }])
}

/// Of `spec.components`.
pub(crate) fn of_components() -> Value {
    json!([
        {
            "rule": "size(self) > 0",
            "message": "components contains no podspecs; wrap at least one object that makes pods",
        },
        {
            "rule": "size(self) == size(oldSelf)",
            "reason": "FieldValueForbidden",
            "message": IMMUTABLE,
        },
        {
            "rule": format!("self.map(c, has(c.podSets) ? size(c.podSets) : 0).sum() <= {POD_SETS_CEILING}"),
            "message": format!("components declares too many podSets; at most {POD_SETS_CEILING} are allowed"),
        },
    ])
}

/// Of each component. Of a template a rule sees nothing but the type and the name.
pub(crate) fn of_component() -> Value {
    json!([{
        "rule": format!(
            "self.template.kind != '{}' || self.template.apiVersion != '{}'",
            crate::KIND,
            crate::API_VERSION
        ),
        "fieldPath": ".template",
        "reason": "FieldValueForbidden",
        "message": "Nested AppWrappers are forbidden; list the components here instead",
    }])
}
