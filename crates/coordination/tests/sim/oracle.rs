//! The invariants of ha-sharding.md, section 6, as questions to the server's log.
//!
//! Each returns what is wrong, so that a broken variant can be shown to be red.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::server::Entry;

pub type Verdict = Result<(), String>;

struct Write<'a> {
    entry: &'a Entry,
    epoch: &'a str,
    spec: &'a Value,
}

fn writes(log: &[Entry]) -> impl Iterator<Item = Write<'_>> {
    log.iter()
        .filter(|entry| !entry.direct && entry.path.contains("/objects/"))
        .filter_map(|entry| {
            let spec = &entry.after.as_ref()?["spec"];
            Some(Write {
                entry,
                epoch: spec["epoch"].as_str()?,
                spec,
            })
        })
}

fn number(value: &Value) -> u128 {
    value.as_str().unwrap().parse().unwrap()
}

fn spec_of(entry: Option<&Value>) -> (String, i64, String) {
    let Some(lease) = entry else {
        return (String::new(), -1, String::new());
    };
    let uid = lease["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    (uid, transitions, holder)
}

/// I1 (and I11, since the objects stay when the shards change): per object, accepted writes never go back to an epoch that
/// was left, and transitions grow; one identity per epoch.
pub fn i1(log: &[Entry]) -> Verdict {
    let mut left: BTreeMap<&str, (Vec<&str>, &str)> = BTreeMap::new();
    let mut holders: BTreeMap<&str, &str> = BTreeMap::new();
    for write in writes(log) {
        let holder = write.spec["holder"].as_str().unwrap();
        if *holders.entry(write.epoch).or_insert(holder) != holder {
            return Err(format!("I1: two identities in epoch {}", write.epoch));
        }
        let (before, current) = left.entry(&write.entry.path).or_insert((Vec::new(), write.epoch));
        if *current == write.epoch {
            continue;
        }
        if before.contains(&write.epoch) {
            return Err(format!(
                "I1: {} went from {current} back to {}",
                write.entry.path, write.epoch
            ));
        }
        let (old, new) = (current.rsplit_once(':').unwrap(), write.epoch.rsplit_once(':').unwrap());
        if old.0 == new.0 && old.1.parse::<i64>().unwrap() >= new.1.parse::<i64>().unwrap() {
            return Err(format!(
                "I1: {} went from {current} to {}",
                write.entry.path, write.epoch
            ));
        }
        before.push(std::mem::replace(current, write.epoch));
    }
    Ok(())
}

/// I2: each change of holder raises the epoch by one, a release leaves it.
pub fn i2(log: &[Entry]) -> Verdict {
    for entry in log
        .iter()
        .filter(|entry| entry.path.contains("/leases/") && !entry.direct)
    {
        let (Some(before), Some(after)) = (&entry.before, &entry.after) else {
            continue;
        };
        let (old, new) = (spec_of(Some(before)), spec_of(Some(after)));
        let acquired = old.2 != new.2 && !new.2.is_empty();
        if acquired && new.1 != old.1 + 1 || new.2.is_empty() && new.1 != old.1 || new.1 < old.1 {
            return Err(format!("I2: {} went from {old:?} to {new:?}", entry.path));
        }
    }
    Ok(())
}

/// I3: no write was sent without time left on the lease.
pub fn i3(log: &[Entry]) -> Verdict {
    match writes(log).find(|write| number(&write.spec["left"]) == 0) {
        Some(write) => Err(format!("I3: a write of {} was sent after its deadline", write.epoch)),
        None => Ok(()),
    }
}

/// I4: nothing of an epoch is accepted after its release.
pub fn i4(log: &[Entry]) -> Verdict {
    let mut released: BTreeSet<String> = BTreeSet::new();
    for entry in log {
        if entry.path.contains("/leases/") && !entry.direct {
            let (old, new) = (spec_of(entry.before.as_ref()), spec_of(entry.after.as_ref()));
            if !old.2.is_empty() && new.2.is_empty() && entry.after.is_some() {
                released.insert(format!("{}:{}", old.0, old.1));
            }
        } else if let Some(epoch) = entry.after.as_ref().and_then(|object| object["spec"]["epoch"].as_str())
            && entry.path.contains("/objects/")
            && released.contains(epoch)
        {
            return Err(format!("I4: a write of {epoch} came after its release"));
        }
    }
    Ok(())
}

/// I6: an epoch that wrote for this long looked at every object of its shard. `slots` tells how many a Lease has.
pub fn i6(log: &[Entry], slots: usize, after_ms: u128) -> Verdict {
    let mut first: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut times: BTreeMap<&str, (tokio::time::Instant, tokio::time::Instant)> = BTreeMap::new();
    for write in writes(log) {
        let time = times.entry(write.epoch).or_insert((write.entry.at, write.entry.at));
        time.1 = write.entry.at;
        if write.spec["first"] == true {
            first.entry(write.epoch).or_default().insert(&write.entry.path);
        }
    }
    for (epoch, (from, to)) in times {
        let seen = first.get(epoch).map_or(0, BTreeSet::len);
        if to.duration_since(from).as_millis() > after_ms && seen < slots {
            return Err(format!("I6: epoch {epoch} looked at {seen} of {slots} objects"));
        }
    }
    Ok(())
}

/// I7: the first action on an object in an epoch that was handed over is on state as new as the releaser's writes.
pub fn i7(log: &[Entry]) -> Verdict {
    let stale = |write: &Write<'_>| {
        write.spec["first"] == true && number(&write.spec["basedOn"]) < number(&write.spec["wanted"])
    };
    match writes(log).find(stale) {
        Some(write) => Err(format!(
            "I7: {} acted on {} before {}",
            write.epoch, write.spec["basedOn"], write.spec["wanted"]
        )),
        None => Ok(()),
    }
}

/// The ones that hold in any weather.
pub fn all(log: &[Entry]) -> Verdict {
    i1(log).and(i2(log)).and(i3(log)).and(i4(log)).and(i7(log))
}

/// For a red seed: `SIM_LOG=1`.
pub fn print(log: &[Entry]) {
    let Some(begun) = log.first().map(|entry| entry.at) else {
        return;
    };
    for entry in log {
        let what = match (&entry.after, entry.path.contains("/leases/")) {
            (None, _) => "deleted".to_owned(),
            (Some(lease), true) => {
                let note = |key: &str| &lease["metadata"]["annotations"][format!("workload.codeflare.dev/{key}")];
                let notes = ["desired-holder", "desired-backup"].map(note);
                format!("{:?} wanted {notes:?}", spec_of(Some(lease)))
            }
            (Some(object), false) => format!("{} left {}", object["spec"]["epoch"], object["spec"]["left"]),
        };
        let name = entry.path.rsplit('/').next().unwrap_or_default();
        let by = if entry.direct { " (by hand)" } else { "" };
        println!("{:>8} {name} {what}{by}", entry.at.duration_since(begun).as_millis());
    }
}
