//! Certificates from mounted files, as cert-manager provides them.
//!
//! Both files are read again every ten seconds and compared. A mounted Secret is swapped by a symbolic link, which
//! notifications of the files themselves do not see, and reading two small files costs nothing. Between the two reads the
//! pair may be exchanged: it then does not match, stays unused, and the next round is right.

use std::{path::PathBuf, sync::Arc, time::Duration};

use appwrapper_metrics::{Admission, labels::Reload};

use super::{gate::Gate, material::Pair, resolver::Resolver};

/// From one reading to the next.
const PERIOD: Duration = Duration::from_secs(10);
/// The same, until the certificate is trusted.
const HURRY: Duration = Duration::from_secs(1);

/// Feeds the resolver from a directory with `tls.crt` and `tls.key`.
pub struct Files {
    directory: PathBuf,
    resolver: Arc<Resolver>,
    gate: Gate,
    metrics: Admission,
    last: Option<(Vec<u8>, Vec<u8>)>,
}

impl Files {
    /// Reads nothing yet.
    pub fn new(directory: PathBuf, resolver: Arc<Resolver>, gate: Gate, metrics: Admission) -> Self {
        Self {
            directory,
            resolver,
            gate,
            metrics,
            last: None,
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
        let read = async |name: &str| {
            let path = self.directory.join(name);
            tokio::fs::read(&path)
                .await
                .map_err(|error| format!("{}: {error}", path.display()))
        };
        let files = match (read("tls.crt").await, read("tls.key").await) {
            (Ok(chain), Ok(key)) => (chain, key),
            (Err(fault), _) | (_, Err(fault)) => return self.fault(&fault),
        };
        if self.last.as_ref() == Some(&files) {
            return self.metrics.reload(Reload::Unchanged);
        }
        match Pair::read(&files.0, &files.1) {
            Ok(pair) => {
                self.resolver.load(pair);
                self.last = Some(files);
            }
            Err(fault) => self.fault(&format!("{}: {fault}", self.directory.display())),
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
