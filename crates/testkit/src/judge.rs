//! Finds in the audit log whether replicas ever stood in each other's way.
//!
//! Three claims, of every write that the API server accepted:
//! 1. nobody wrote to the objects of a shard after whoever held it next had begun to, and nobody who never held it;
//! 2. no component was created twice for one attempt of its AppWrapper;
//! 3. no AppWrapper failed or was retried that should not have been.
//!
//! The order is that of the store: versions of one API server are one sequence over all kinds. A process is known by its
//! token, and its token by the Lease that bears its name. The cluster must be started with [`POLICY`].

mod tenures;
#[cfg(test)]
mod tests;
mod wrappers;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use anyhow::Result;
use appwrapper_api::{GROUP, SLOT_LABEL, Slot};
use serde_json::Value;

use crate::audit::{AuditEvent, AuditLog, ObjectRef};
use crate::cluster::Cluster;
use tenures::{Tenures, Write};
pub use wrappers::End;
use wrappers::Wrappers;

/// The audit policy that the judge needs, in the folder of the control plane.
pub const POLICY: &str = "audit-policy-judge.yaml";

const MEMBER_LEASE: &str = "appwrapper-member-";

/// Hears what the audit log says, and judges all of it.
pub struct Judge {
    log: AuditLog,
    heard: Heard,
}

/// What it has heard so far.
#[derive(Default)]
struct Heard {
    tenures: Tenures,
    wrappers: Wrappers,
    /// Who has which token.
    tokens: HashMap<String, String>,
    /// The slots of what was created, for deletes, whose answers need not show the object.
    slots: HashMap<ObjectRef, u8>,
    /// A patch that changes nothing is answered with the version of an earlier write.
    versions: HashSet<u64>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Writes to objects of shards.
    pub writes: usize,
    /// Tenures of shards.
    pub tenures: usize,
    /// Components created.
    pub created: usize,
    /// What must not be, in words; empty if all is well.
    pub violations: Vec<String>,
}

impl Judge {
    /// Judges from the cluster's start on.
    ///
    /// # Errors
    ///
    /// When the cluster writes no audit log.
    pub fn new(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            log: AuditLog::from_start(cluster)?,
            heard: Heard::default(),
        })
    }

    /// Judges everything so far. `ends` says how AppWrappers should end, by name; those that it does not name should not fail.
    ///
    /// # Errors
    ///
    /// When the log cannot be read.
    pub fn verdict(&mut self, ends: &BTreeMap<String, End>) -> Result<Verdict> {
        for event in self.log.read()? {
            self.heard.hear(&event);
        }
        Ok(self.heard.verdict(ends))
    }
}

impl Heard {
    fn verdict(&self, ends: &BTreeMap<String, End>) -> Verdict {
        let mut verdict = Verdict::default();
        self.tenures.judge(&self.tokens, &mut verdict);
        self.wrappers.judge(ends, &mut verdict);
        verdict
    }

    fn hear(&mut self, event: &AuditEvent) {
        let Some(object) = event
            .object_ref
            .as_ref()
            .filter(|_| event.is_write() && event.is_accepted())
        else {
            return;
        };
        if object.resource == "leases" {
            self.hear_of_lease(event);
            return;
        }
        let deletes = event.verb.starts_with("delete");
        let version = event.version().filter(|_| !deletes);
        if version.is_some_and(|version| !self.versions.insert(version)) {
            return;
        }
        let is_wrapper = object.api_group == GROUP;
        if is_wrapper && let Some(version) = version {
            self.wrappers.see(version, &event.response_object);
        }
        if !event.is_of_the_controller() || object.resource == "events" {
            return;
        }
        if !is_wrapper
            && event.verb == "create"
            && let Some(version) = version
        {
            self.wrappers.created(version, &event.response_object);
        }
        // The leader gives slots, whoever holds the shard.
        let gives_slot = is_wrapper && slot(&event.request_object).is_some();
        let target = ObjectRef {
            name: text(&event.response_object, "/metadata/name").unwrap_or_else(|| object.name.clone()),
            subresource: String::new(),
            ..object.clone()
        };
        let slot = slot(&event.response_object).or_else(|| self.slots.get(&target).copied());
        let (Some(slot), false, Some(credential)) = (slot, gives_slot, event.credential()) else {
            return;
        };
        let what = format!("{} {}/{}", event.kind(), target.namespace, target.name);
        self.slots.insert(target, slot);
        self.tenures.wrote(Write {
            slot,
            credential: credential.to_owned(),
            version,
            received: event.received,
            answered: event.answered,
            what,
        });
    }

    fn hear_of_lease(&mut self, event: &AuditEvent) {
        let lease = &event.response_object;
        let (Some(name), Some(version)) = (text(lease, "/metadata/name"), event.version()) else {
            return;
        };
        let holder = text(lease, "/spec/holderIdentity").unwrap_or_default();
        if let (true, Some(credential)) = (name.starts_with(MEMBER_LEASE), event.credential())
            && event.is_of_the_controller()
            && !holder.is_empty()
        {
            self.tokens.insert(credential.to_owned(), holder);
        } else if !event.verb.starts_with("delete") {
            self.tenures.lease(&name, version, event, holder);
        }
    }
}

fn slot(object: &Value) -> Option<u8> {
    let label = object.pointer("/metadata/labels")?.get(SLOT_LABEL)?.as_str()?;
    Slot::parse(label).map(Slot::number)
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer)?.as_str().map(str::to_owned)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writes,
            tenures,
            created,
            violations,
        } = self;
        write!(
            f,
            "{writes} writes in {tenures} tenures, {created} components: {} violations",
            violations.len()
        )?;
        violations.iter().try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}
