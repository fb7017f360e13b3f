//! How many shards there are, and the barrier that changes it.
//!
//! The map is a Lease that nobody holds; its annotations carry a generation, the count, and the next count while a change
//! is under way. Only the leader writes it, by compare-and-swap. The order that keeps two generations from acting at once:
//! 1. the leader writes the next count: the generation is *closing*;
//! 2. holders that see it drain and release, and nobody may begin a tenure: every tenure begins with a quorum read of the
//!    map *after* the claim ([`ShardMap::allows`]), so a replica whose watch has stopped is caught as well;
//! 3. the leader deletes each old Lease once it is free or expired, with its version as precondition, so a claim in between
//!    wins and is waited for;
//! 4. when a list shows none left, it writes the next generation; members claim the new Leases.
//!
//! A claim before step 1 is seen by the list of step 4; one after it sees the closing map and is given back.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;

use super::slot::{RingNames, ShardCount, ShardId};

/// What the map says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardMap {
    /// Grows with each change.
    pub generation: u64,
    /// The count in force.
    pub count: ShardCount,
    /// The count to come, while a change is under way.
    pub next: Option<ShardCount>,
}

// === impl ShardMap ===

impl ShardMap {
    /// The first map of a ring.
    pub fn first(count: ShardCount) -> Self {
        Self {
            generation: 1,
            count,
            next: None,
        }
    }

    /// Reads the map's Lease. None if it is not there or makes no sense; then nobody may begin a tenure.
    pub fn read(lease: &Lease, names: &RingNames) -> Option<Self> {
        let annotations = lease.metadata.annotations.as_ref()?;
        let count = |key: &str| ShardCount::new(annotations.get(&names.key(key))?.parse().ok()?).ok();
        let generation = annotations.get(&names.key("generation"))?.parse().ok()?;
        let next = match annotations.get(&names.key("next-shards")) {
            // A next count that cannot be read still closes the generation.
            Some(_) => Some(count("next-shards").or_else(|| count("shards"))?),
            None => None,
        };
        Some(Self {
            generation,
            count: count("shards")?,
            next,
        })
    }

    /// The annotations that say it; `None` removes one.
    pub fn annotations(&self, names: &RingNames) -> BTreeMap<String, Option<String>> {
        BTreeMap::from([
            (names.key("generation"), Some(self.generation.to_string())),
            (names.key("shards"), Some(self.count.get().to_string())),
            (names.key("next-shards"), self.next.map(|next| next.get().to_string())),
        ])
    }

    /// Whether a tenure of this shard may go on.
    pub fn allows(&self, shard: ShardId) -> bool {
        self.next.is_none() && shard.of() == self.count
    }

    /// The shards in force; none while a change is under way.
    pub fn shards(&self) -> Vec<ShardId> {
        if self.next.is_some() {
            Vec::new()
        } else {
            self.count.shards().collect()
        }
    }

    /// The same, closing towards another count.
    #[must_use]
    pub fn closing(self, next: ShardCount) -> Self {
        Self {
            next: Some(next),
            ..self
        }
    }

    /// The generation after a closing one.
    #[must_use]
    pub fn advanced(self) -> Self {
        Self {
            generation: self.generation + 1,
            count: self.next.unwrap_or(self.count),
            next: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> RingNames {
        RingNames::new("appwrapper", "workload.codeflare.dev")
    }

    fn written(map: ShardMap) -> Lease {
        let annotations = map
            .annotations(&names())
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .collect();
        let mut lease = Lease::default();
        lease.metadata.annotations = Some(annotations);
        lease
    }

    #[test]
    fn a_map_reads_back_and_a_closing_one_allows_nothing() {
        let map = ShardMap::first(ShardCount::DEFAULT);
        let closing = map.closing(ShardCount::new(16).unwrap());
        let next = closing.advanced();
        for map in [map, closing, next] {
            assert_eq!(ShardMap::read(&written(map), &names()), Some(map));
        }
        let shard = ShardId::parse("3-of-8").unwrap();
        assert!(map.allows(shard) && !closing.allows(shard) && !next.allows(shard));
        assert!(next.allows(ShardId::parse("3-of-16").unwrap()));
        assert_eq!(
            (closing.shards().len(), next.shards().len(), next.generation),
            (0, 16, 2)
        );
    }

    #[test]
    fn a_spoilt_next_count_closes_and_a_spoilt_map_is_none() {
        let mut lease = written(ShardMap::first(ShardCount::DEFAULT));
        let annotations = lease.metadata.annotations.as_mut().unwrap();
        annotations.insert(names().key("next-shards"), "many".to_owned());
        assert!(ShardMap::read(&lease, &names()).unwrap().next.is_some());
        lease
            .metadata
            .annotations
            .as_mut()
            .unwrap()
            .insert(names().key("shards"), "0".to_owned());
        assert_eq!(ShardMap::read(&lease, &names()), None);
        assert_eq!(ShardMap::read(&Lease::default(), &names()), None);
    }
}
