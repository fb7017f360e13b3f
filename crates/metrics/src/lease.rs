//! Leases, shards and who owns them, as this replica sees it.
//!
//! Every replica exports `appwrapper_shard_owned` for every shard: an alert on "nobody owns it" needs the zeros.

use std::time::{Duration, SystemTime};

use prometheus::{Gauge, GaugeVec, Histogram, IntCounterVec, IntGauge, IntGaugeVec};

use crate::confirm::unix_seconds;
use crate::labels::{Election, Fence, Renewal, Transition};
use crate::registry::Registry;
use crate::table;

/// Shards and their Leases.
#[derive(Clone)]
pub struct Lease {
    owned: IntGaugeVec,
    renewals: IntCounterVec,
    renew_duration: Histogram,
    last_renew: GaugeVec,
    duration: Gauge,
    transitions: IntCounterVec,
    takeover: Histogram,
    fenced: IntCounterVec,
    leader: IntGauge,
}

impl Lease {
    pub(crate) fn new(registry: &Registry, shards: u32) -> Self {
        registry.gauge(&table::SHARDS_CONFIGURED).set(i64::from(shards));
        Self {
            owned: registry.gauges(&table::SHARD_OWNED),
            renewals: registry.counters(&table::LEASE_RENEWALS),
            renew_duration: registry.histogram(&table::LEASE_RENEW_DURATION),
            last_renew: registry.float_gauges(&table::LEASE_LAST_RENEW),
            duration: registry.float_gauge(&table::LEASE_DURATION),
            transitions: registry.counters(&table::SHARD_TRANSITIONS),
            takeover: registry.histogram(&table::SHARD_TAKEOVER),
            fenced: registry.counters(&table::FENCED_WRITES),
            leader: registry
                .gauges(&table::LEADER)
                .with_label_values(&[Election::Leader.as_str()]),
        }
    }

    /// The configured duration of a Lease.
    pub fn set_duration(&self, duration: Duration) {
        self.duration.set(duration.as_secs_f64());
    }

    /// An attempt to renew the Lease of `shard` ended. A renewal sets the time of the last one.
    pub fn renewal(&self, shard: u32, result: Renewal, took: Duration) {
        let shard = shard.to_string();
        self.renewals
            .with_label_values(&[shard.as_str(), result.as_str()])
            .inc();
        self.renew_duration.observe(took.as_secs_f64());
        if result == Renewal::Renewed {
            self.last_renew
                .with_label_values(&[shard.as_str()])
                .set(unix_seconds(SystemTime::now()));
        }
    }

    /// Ownership of `shard` changed.
    pub fn transition(&self, shard: u32, kind: Transition) {
        let shard = shard.to_string();
        self.transitions
            .with_label_values(&[shard.as_str(), kind.as_str()])
            .inc();
        let owned = kind == Transition::Acquired;
        self.owned.with_label_values(&[shard.as_str()]).set(i64::from(owned));
        if owned {
            self.last_renew
                .with_label_values(&[shard.as_str()])
                .set(unix_seconds(SystemTime::now()));
        } else {
            // Only the owner exports it: an old time of a shard given away would look like an expiry.
            drop(self.last_renew.remove_label_values(&[shard.as_str()]));
        }
    }

    /// The first reconcile of a shard was done, this long after its Lease was gained.
    pub fn takeover(&self, took: Duration) {
        self.takeover.observe(took.as_secs_f64());
    }

    /// A write was refused because the Lease of `shard` was no longer safe.
    pub fn fenced(&self, shard: u32, layer: Fence) {
        self.fenced
            .with_label_values(&[shard.to_string().as_str(), layer.as_str()])
            .inc();
    }

    /// Whether this replica is the leader.
    pub fn set_leader(&self, leader: bool) {
        self.leader.set(i64::from(leader));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_is_exported_and_only_the_owner_has_a_renewal_time() {
        let registry = Registry::new(3);
        let lease = Lease::new(&registry, 3);
        lease.transition(1, Transition::Acquired);
        let page = registry.encode().unwrap();
        assert!(page.contains("appwrapper_shard_owned{shard=\"0\"} 0\n"));
        assert!(page.contains("appwrapper_shard_owned{shard=\"1\"} 1\n"));
        assert!(page.contains("last_renew_timestamp_seconds{shard=\"1\"}"));
        lease.transition(1, Transition::Lost);
        let page = registry.encode().unwrap();
        assert!(page.contains("appwrapper_shard_owned{shard=\"1\"} 0\n"));
        assert!(!page.contains("last_renew_timestamp_seconds{"));
        assert!(page.contains("appwrapper_shard_transitions_total{kind=\"lost\",shard=\"1\"} 1\n"));
    }
}
