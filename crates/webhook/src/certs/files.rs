//! Certificates from mounted files, read again every ten seconds; what does not fit together stays unused.

use std::{path::PathBuf, sync::Arc, time::Duration};

use appwrapper_metrics::{Admission, labels::Reload};
use appwrapper_serving::files;

use super::{gate::Gate, resolver::Resolver};

/// From one reading to the next.
const PERIOD: Duration = Duration::from_secs(10);
/// The same, until the certificate is trusted.
const HURRY: Duration = Duration::from_secs(1);

/// Feeds the resolver from a directory with `tls.crt` and `tls.key`.
pub struct Files {
    mounted: files::Files,
    resolver: Arc<Resolver>,
    gate: Gate,
    metrics: Admission,
}

impl Files {
    /// Reads nothing yet.
    pub fn new(directory: PathBuf, resolver: Arc<Resolver>, gate: Gate, metrics: Admission) -> Self {
        Self {
            mounted: files::Files::new(directory),
            resolver,
            gate,
            metrics,
        }
    }

    /// Follows the files for ever.
    pub async fn run(mut self) {
        loop {
            self.reload().await;
            let trusted = self.check().await;
            tokio::time::sleep(if trusted { PERIOD } else { HURRY }).await;
        }
    }

    async fn reload(&mut self) {
        match self.mounted.read().await {
            Ok(Some(pair)) => self.resolver.load(pair),
            Ok(None) => self.metrics.reload(Reload::Unchanged),
            Err(fault) => self.fault(&fault),
        }
    }

    fn fault(&self, fault: &str) {
        self.metrics.reload(Reload::Error);
        tracing::error!(
            fault,
            "the certificate files cannot be used; what was loaded stays in use"
        );
        self.gate.wait(fault);
    }

    async fn check(&mut self) -> bool {
        let Some(pair) = self.resolver.serving() else {
            return false;
        };
        match self.gate.read().await {
            Ok(configurations) => {
                self.gate.tell(&configurations, &pair);
                self.gate.trusts(&configurations, &pair).is_ok()
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the webhook configurations");
                self.gate
                    .wait(&format!("cannot read the webhook configurations: {error}"));
                false
            }
        }
    }
}
