//! What became of each AppWrapper: its phases, its retries, and the components that were created for it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Verdict, text};

/// How an AppWrapper should end.
#[derive(Debug, Clone, Copy, Default)]
pub struct End {
    /// In Failed.
    pub fails: bool,
    /// After so many retries at most.
    pub retries: i64,
}

/// All AppWrappers by uid.
#[derive(Default)]
pub struct Wrappers(BTreeMap<String, Wrapper>);

#[derive(Default)]
struct Wrapper {
    name: String,
    /// How many components it has of each kind.
    components: BTreeMap<String, usize>,
    states: Vec<State>,
    created: Vec<Created>,
}

struct State {
    version: u64,
    failed: bool,
    retries: i64,
}

struct Created {
    version: u64,
    kind: String,
    name: String,
}

impl Wrappers {
    /// An AppWrapper as a write has left it.
    pub fn see(&mut self, version: u64, object: &Value) {
        let Some(uid) = text(object, "/metadata/uid") else {
            return;
        };
        let wrapper = self.0.entry(uid).or_default();
        if let Some(name) = text(object, "/metadata/name") {
            wrapper.name = name;
        }
        if let Some(components) = object.pointer("/spec/components").and_then(Value::as_array) {
            wrapper.components.clear();
            for component in components {
                let kind = text(component, "/template/kind").unwrap_or_default();
                *wrapper.components.entry(kind).or_default() += 1;
            }
        }
        let retries = object.pointer("/status/resettingCount").and_then(Value::as_i64);
        wrapper.states.push(State {
            version,
            failed: text(object, "/status/phase").as_deref() == Some("Failed"),
            retries: retries.unwrap_or(0),
        });
    }

    /// An object that was created.
    pub fn created(&mut self, version: u64, object: &Value) {
        let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let owner = owners
            .into_iter()
            .flatten()
            .find(|owner| owner.get("kind").is_some_and(|kind| kind == appwrapper_api::KIND));
        let Some(uid) = owner.and_then(|owner| text(owner, "/uid")) else {
            return;
        };
        self.0.entry(uid).or_default().created.push(Created {
            version,
            kind: text(object, "/kind").unwrap_or_default(),
            name: text(object, "/metadata/name").unwrap_or_default(),
        });
    }

    pub fn judge(&self, ends: &BTreeMap<String, End>, verdict: &mut Verdict) {
        for wrapper in self.0.values() {
            verdict.created += wrapper.created.len();
            let end = ends.get(&wrapper.name).copied().unwrap_or_default();
            wrapper.judge(end, &mut verdict.violations);
        }
    }
}

impl Wrapper {
    fn judge(&self, end: End, violations: &mut Vec<String>) {
        let name = &self.name;
        if self.states.iter().any(|state| state.failed) && !end.fails {
            violations.push(format!("AppWrapper {name} failed"));
        }
        let retries = self.states.iter().map(|state| state.retries).max().unwrap_or(0);
        if retries > end.retries {
            violations.push(format!(
                "AppWrapper {name} was retried {retries} times, not {}",
                end.retries
            ));
        }
        // Of one kind in one attempt; and of one name.
        let mut of_kind: BTreeMap<(i64, &str), usize> = BTreeMap::new();
        let mut of_name: BTreeMap<(i64, &str, &str), usize> = BTreeMap::new();
        for created in &self.created {
            let attempt = self.retries_at(created.version);
            *of_kind.entry((attempt, &created.kind)).or_default() += 1;
            *of_name.entry((attempt, &created.kind, &created.name)).or_default() += 1;
        }
        for ((attempt, kind), count) in of_kind {
            let wanted = self.components.get(kind).copied().unwrap_or(0);
            if count > wanted {
                violations.push(format!(
                    "AppWrapper {name}, attempt {attempt}: {count} of {kind} were created for {wanted} components"
                ));
            }
        }
        for ((attempt, kind, component), count) in of_name {
            if count > 1 {
                violations.push(format!(
                    "AppWrapper {name}, attempt {attempt}: {kind} {component} was created {count} times"
                ));
            }
        }
    }

    /// The number of retries before this version.
    fn retries_at(&self, version: u64) -> i64 {
        let before = self.states.iter().filter(|state| state.version < version);
        before
            .max_by_key(|state| state.version)
            .map_or(0, |state| state.retries)
    }
}
