//! Slots, shards, and the names and labels that belong to them.
//!
//! A *slot* (64 of them, for ever) is a label on objects, given once. A *shard* is a group of slots, one Lease each. Moving
//! a shard is one write to its Lease; no object is ever relabelled, also not when the number of shards changes, since
//! that only groups the slots anew. The grouping is slot modulo count: shards differ by one slot at most.
//!
//! Here a slot is a number: which object gets which is for the objects' owner to say (`appwrapper_api::Slot`).
//!
//! A [`ShardId`] carries its count, so that "shard 3 of 8" and "shard 3 of 16" are never mixed up.

use std::{collections::BTreeMap, fmt};

use crate::error::Error;

/// Number of slots. Fixed: labels in clusters depend on it.
pub const SLOTS: u8 = 64;

/// A slot, 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u8);

/// How many shards there are, 1 to 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardCount(u8);

/// One shard of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId {
    of: ShardCount,
    index: u8,
}

/// Names of the Leases, labels and annotations of one ring of replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingNames {
    prefix: String,
    domain: String,
}

// === impl Slot ===

impl Slot {
    /// All slots.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SLOTS).map(Self)
    }

    /// The slot of that number, if there is one.
    pub fn new(number: u8) -> Option<Self> {
        (number < SLOTS).then_some(Self(number))
    }

    /// Value of the slot label: two hexadecimal digits.
    pub fn label(self) -> String {
        format!("{:02x}", self.0)
    }

    /// Reads a label's value; none if no label of ours looks like that.
    pub fn from_label(value: &str) -> Option<Self> {
        let plain = value.len() == 2 && value.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        u8::from_str_radix(value, 16)
            .ok()
            .filter(|slot| plain && *slot < SLOTS)
            .map(Self)
    }

    /// The shard that looks after it.
    pub fn shard(self, of: ShardCount) -> ShardId {
        ShardId {
            of,
            index: self.0 % of.0,
        }
    }

    /// Label selector for the objects that have no slot: those without the label, and those whose label names none.
    pub fn none_selector(slot_label: &str) -> String {
        format!("{slot_label} notin ({})", labels(Self::all()))
    }
}

// === impl ShardCount ===

impl ShardCount {
    /// Eight, the default.
    pub const DEFAULT: Self = Self(8);

    /// A count of 1 to 64.
    pub fn new(count: u32) -> Result<Self, Error> {
        let refuse = || Error::InvalidSetting {
            field: "shards",
            value: count.to_string(),
            remedy: format!("use a number from 1 to {SLOTS}"),
        };
        match u8::try_from(count) {
            Ok(count) if (1..=SLOTS).contains(&count) => Ok(Self(count)),
            _ => Err(refuse()),
        }
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// All shards of this count.
    pub fn shards(self) -> impl Iterator<Item = ShardId> {
        (0..self.0).map(move |index| ShardId { of: self, index })
    }
}

// === impl ShardId ===

impl ShardId {
    /// Its number, from 0.
    pub fn index(self) -> u8 {
        self.index
    }

    /// Of how many.
    pub fn of(self) -> ShardCount {
        self.of
    }

    /// Its slots.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        Slot::all().filter(move |slot| slot.shard(self.of) == self)
    }

    /// Label selector for its objects, under the given slot label.
    pub fn selector(self, slot_label: &str) -> String {
        format!("{slot_label} in ({})", labels(self.slots()))
    }

    /// Label selector for its objects and those that have no slot; none if that is everything.
    pub fn lenient_selector(self, slot_label: &str) -> Option<String> {
        let mut others = Slot::all().filter(|slot| slot.shard(self.of) != self).peekable();
        others.peek()?;
        Some(format!("{slot_label} notin ({})", labels(others)))
    }

    /// Reads `<i>-of-<S>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (index, count) = text.split_once("-of-")?;
        let of = ShardCount::new(count.parse().ok()?).ok()?;
        let id = Self {
            of,
            index: index.parse().ok()?,
        };
        (id.index < of.0 && id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-of-{}", self.index, self.of.0)
    }
}

// === impl RingNames ===

impl RingNames {
    /// Names that begin with `prefix` (`appwrapper`), keys under `domain` (`workload.codeflare.dev`).
    pub fn new(prefix: &str, domain: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            domain: domain.to_owned(),
        }
    }

    /// Name of a shard's Lease.
    pub fn shard_lease(&self, shard: ShardId) -> String {
        format!("{}-shard-{shard}", self.prefix)
    }

    /// The shard that a Lease is for.
    pub fn shard_of(&self, lease: &str) -> Option<ShardId> {
        ShardId::parse(lease.strip_prefix(&self.prefix)?.strip_prefix("-shard-")?)
    }

    /// Name of a member's Lease.
    pub fn member_lease(&self, pod: &str) -> String {
        format!("{}-member-{pod}", self.prefix)
    }

    /// The member that a Lease is for.
    pub fn member_of<'a>(&self, lease: &'a str) -> Option<&'a str> {
        lease.strip_prefix(&self.prefix)?.strip_prefix("-member-")
    }

    /// Name of the Lease whose annotations say how many shards there are. Nobody holds it.
    pub fn map_lease(&self) -> String {
        format!("{}-map", self.prefix)
    }

    /// The label on every Lease of the ring.
    pub fn label(&self) -> (String, String) {
        (format!("{}/ring", self.domain), self.prefix.clone())
    }

    /// The label as a map.
    pub fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([self.label()])
    }

    /// The label as a selector.
    pub fn selector(&self) -> String {
        let (key, value) = self.label();
        format!("{key}={value}")
    }

    /// An annotation's key.
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.domain)
    }
}

fn labels(slots: impl Iterator<Item = Slot>) -> String {
    slots.map(Slot::label).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_slot_belongs_to_exactly_one_shard_of_every_count() {
        for count in 1..=64 {
            let count = ShardCount::new(count).unwrap();
            let all: Vec<Slot> = count.shards().flat_map(ShardId::slots).collect();
            assert_eq!(all.len(), 64);
            assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 64);
            let sizes: Vec<usize> = count.shards().map(|shard| shard.slots().count()).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        }
    }

    #[test]
    fn labels_read_back_and_forged_ones_do_not() {
        for slot in Slot::all() {
            assert_eq!(Slot::from_label(&slot.label()), Some(slot));
        }
        for forged in ["", "0", "40", "ff", "3F", "+1", " 1", "001", "zz"] {
            assert_eq!(Slot::from_label(forged), None, "{forged}");
        }
    }

    #[test]
    fn names_read_back() {
        let names = RingNames::new("appwrapper", "workload.codeflare.dev");
        let shard = ShardId::parse("3-of-8").unwrap();
        assert_eq!(names.shard_lease(shard), "appwrapper-shard-3-of-8");
        assert_eq!(names.shard_of("appwrapper-shard-3-of-8"), Some(shard));
        assert_eq!(names.member_of("appwrapper-member-ctl-0"), Some("ctl-0"));
        assert_eq!(
            shard.selector("workload.codeflare.dev/slot"),
            "workload.codeflare.dev/slot in (03,0b,13,1b,23,2b,33,3b)"
        );
        for wrong in ["8-of-8", "03-of-8", "0-of-0", "0-of-65", "x-of-8", "3"] {
            assert_eq!(ShardId::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_count_outside_1_to_64_is_refused_with_a_remedy() {
        for count in [0, 65, 256, u32::MAX] {
            let text = ShardCount::new(count).unwrap_err().to_string();
            assert!(
                text.contains("shards") && text.contains(&count.to_string()) && text.contains("1 to 64"),
                "{text}"
            );
        }
    }

    #[test]
    fn selectors_split_what_has_a_slot_and_let_everybody_see_the_rest() {
        let halves: Vec<ShardId> = ShardCount::new(2).unwrap().shards().collect();
        let lenient = halves[0].lenient_selector("slot").unwrap();
        assert!(
            lenient.starts_with("slot notin (01,03,") && lenient.ends_with("3d,3f)"),
            "{lenient}"
        );
        let only = ShardCount::new(1).unwrap().shards().next().unwrap();
        assert_eq!(only.lenient_selector("slot"), None);
        assert!(Slot::none_selector("slot").starts_with("slot notin (00,01,02,"));
        assert_eq!(
            (Slot::new(63).map(Slot::label), Slot::new(64)),
            (Some("3f".to_owned()), None)
        );
    }
}
