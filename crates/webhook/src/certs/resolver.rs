//! Hands the certificate in use to each new connection. Loading another one takes effect at once and disturbs nobody.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use appwrapper_metrics::{
    Admission,
    labels::{Certificate as Kind, Reload},
};
use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::material::{Certificate, Pair};

/// The certificate in use.
pub struct Resolver {
    pair: ArcSwapOption<Pair>,
    metrics: Admission,
}

impl Resolver {
    /// Nothing is served yet.
    pub fn new(metrics: Admission) -> Arc<Self> {
        Arc::new(Self {
            pair: ArcSwapOption::empty(),
            metrics,
        })
    }

    /// What is served.
    pub fn serving(&self) -> Option<Arc<Pair>> {
        self.pair.load_full()
    }

    /// Serves this from now on.
    pub fn load(&self, pair: Pair) {
        let leaf = &pair.leaf;
        tracing::info!(serial = leaf.serial, until = %leaf.not_after, "serving certificate loaded");
        self.metrics
            .certificate(Kind::Serving, system_time(leaf.not_before), system_time(leaf.not_after));
        self.metrics.reload(Reload::Reloaded);
        self.pair.store(Some(Arc::new(pair)));
    }

    /// The authority behind it, for the metric.
    pub fn authority(&self, certificate: &Certificate) {
        let (start, end) = (system_time(certificate.not_before), system_time(certificate.not_after));
        self.metrics.certificate(Kind::Ca, start, end);
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.pair.load().as_ref().map(|pair| Arc::clone(&pair.certified))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pair.load().fmt(f)
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0))
}
