//! The certificate in use, with what the metrics tell of it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use appwrapper_metrics::{
    Admission,
    labels::{Certificate as Kind, Reload},
};
use appwrapper_serving::holder::Holder;
use jiff::Timestamp;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::material::{Certificate, Pair};

/// The certificate in use.
pub struct Resolver {
    holder: Holder,
    metrics: Admission,
}

impl Resolver {
    /// Nothing is served yet.
    pub fn new(metrics: Admission) -> Arc<Self> {
        Arc::new(Self {
            holder: Holder::default(),
            metrics,
        })
    }

    /// What is served.
    pub fn serving(&self) -> Option<Arc<Pair>> {
        self.holder.serving()
    }

    /// Serves this from now on.
    pub fn load(&self, pair: Pair) {
        let leaf = &pair.leaf;
        self.metrics
            .certificate(Kind::Serving, system_time(leaf.not_before), system_time(leaf.not_after));
        self.metrics.reload(Reload::Reloaded);
        self.holder.load(pair);
    }

    /// The authority behind it, for the metric.
    pub fn authority(&self, certificate: &Certificate) {
        let (start, end) = (system_time(certificate.not_before), system_time(certificate.not_after));
        self.metrics.certificate(Kind::Ca, start, end);
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.holder.resolve(hello)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holder.fmt(f)
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0))
}
