//! Who held which shard from which version to which, and who wrote to its objects.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use serde_json::Value;

use super::{Verdict, text};
use crate::audit::AuditEvent;
use crate::fleet::ring::SHARD_LEASE;

/// The Leases of shards, and the writes to what they stand for.
#[derive(Default)]
pub struct Tenures {
    /// By the number of the shard.
    leases: BTreeMap<u8, Vec<LeaseWrite>>,
    /// How many shards there are.
    count: u8,
    writes: Vec<Write>,
}

/// An accepted write to an object of a shard.
pub struct Write {
    pub slot: u8,
    pub credential: String,
    /// None of a delete: what is gone has no version.
    pub version: Option<u64>,
    pub received: Timestamp,
    pub answered: Timestamp,
    pub what: String,
}

/// A Lease as a write has left it.
struct LeaseWrite {
    version: u64,
    epoch: (String, i64),
    holder: String,
    /// The write was a claim, so that the tenure begins with it and not before.
    claims: bool,
    received: Timestamp,
}

/// From a claim to the next.
struct Tenure {
    epoch: (String, i64),
    holder: String,
    /// The version from which on its holder may write.
    begin: u64,
    last: u64,
    began: Timestamp,
}

impl Tenures {
    pub fn lease(&mut self, name: &str, version: u64, event: &AuditEvent, holder: String) {
        let shard = name.strip_prefix(SHARD_LEASE).and_then(|shard| {
            let (number, count) = shard.split_once("-of-")?;
            Some((number.parse().ok()?, count.parse().ok()?))
        });
        let Some((number, count)) = shard else { return };
        self.count = count;
        let (lease, claim) = (&event.response_object, &event.request_object);
        let transitions = lease.pointer("/spec/leaseTransitions").and_then(Value::as_i64);
        self.leases.entry(number).or_default().push(LeaseWrite {
            version,
            epoch: (
                text(lease, "/metadata/uid").unwrap_or_default(),
                transitions.unwrap_or(0),
            ),
            holder,
            claims: claim.pointer("/spec/acquireTime").is_some_and(Value::is_string),
            received: event.received,
        });
    }

    pub fn wrote(&mut self, write: Write) {
        self.writes.push(write);
    }

    pub fn judge(&self, tokens: &HashMap<String, String>, verdict: &mut Verdict) {
        verdict.writes += self.writes.len();
        for (number, leases) in &self.leases {
            let tenures = tenures(leases, &mut verdict.violations);
            verdict.tenures += tenures.len();
            let mut writes: Vec<&Write> = self
                .writes
                .iter()
                .filter(|write| write.slot % self.count == *number)
                .collect();
            writes.sort_by_key(|write| write.version);
            Shard {
                number: *number,
                tenures: &tenures,
                tokens,
            }
            .judge(&writes, &mut verdict.violations);
        }
    }
}

fn tenures(leases: &[LeaseWrite], violations: &mut Vec<String>) -> Vec<Tenure> {
    let mut leases: Vec<&LeaseWrite> = leases.iter().filter(|lease| !lease.holder.is_empty()).collect();
    leases.sort_by_key(|lease| lease.version);
    let mut tenures: Vec<Tenure> = Vec::new();
    for lease in leases {
        match tenures.last_mut() {
            Some(last) if last.epoch == lease.epoch && last.holder == lease.holder => last.last = lease.version,
            last => {
                if last.as_ref().is_some_and(|last| last.epoch == lease.epoch) {
                    violations.push(format!(
                        "one epoch of two holders: {} at version {}",
                        lease.holder, lease.version
                    ));
                }
                let before = last.map_or(0, |last| last.last);
                tenures.push(Tenure {
                    epoch: lease.epoch.clone(),
                    holder: lease.holder.clone(),
                    // The claim itself may have been stored although its answer was an error; then what shows it is a
                    // renewal, and the tenure has begun at some time since the last one.
                    begin: if lease.claims { lease.version } else { before },
                    last: lease.version,
                    began: lease.received,
                });
            }
        }
    }
    tenures
}

struct Shard<'a> {
    number: u8,
    tenures: &'a [Tenure],
    tokens: &'a HashMap<String, String>,
}

impl Shard<'_> {
    /// The last tenure of the writer for which this holds.
    fn tenure_of(&self, write: &Write, holds: impl Fn(&Tenure) -> bool) -> Option<usize> {
        let writer = self.tokens.get(&write.credential)?;
        self.tenures
            .iter()
            .rposition(|tenure| tenure.holder == *writer && holds(tenure))
    }

    /// The writes come in the order of their versions.
    fn judge(&self, writes: &[&Write], violations: &mut Vec<String>) {
        let name = |write: &Write| {
            let owner = self.tokens.get(&write.credential);
            owner.map_or("a process without a Lease", String::as_str).to_owned()
        };
        // Each tenure's first write, as the time when it was answered.
        let mut first: BTreeMap<usize, Timestamp> = BTreeMap::new();
        for write in writes {
            let Some(version) = write.version else { continue };
            let Some(tenure) = self.tenure_of(write, |tenure| tenure.begin <= version) else {
                violations.push(format!(
                    "shard {}: {} without holding it: {}, version {version}",
                    self.number,
                    name(write),
                    write.what
                ));
                continue;
            };
            let latest = first.last_key_value().map_or(tenure, |(latest, _)| *latest);
            if tenure < latest {
                let by = self.tenures.get(latest).map_or("", |tenure| tenure.holder.as_str());
                violations.push(format!(
                    "shard {}: {} after its successor {by}: {}, version {version}",
                    self.number,
                    name(write),
                    write.what
                ));
            }
            first
                .entry(tenure)
                .and_modify(|at| *at = (*at).min(write.answered))
                .or_insert(write.answered);
        }
        for write in writes.iter().filter(|write| write.version.is_none()) {
            let tenure = self.tenure_of(write, |tenure| tenure.began <= write.answered);
            let next = tenure.and_then(|tenure| first.range(tenure + 1..).map(|(_, at)| *at).min());
            if tenure.is_none() || next.is_some_and(|next| next < write.received) {
                violations.push(format!(
                    "shard {}: {} after its successor, or without holding it: {}, received {}",
                    self.number,
                    name(write),
                    write.what,
                    write.received
                ));
            }
        }
    }
}
