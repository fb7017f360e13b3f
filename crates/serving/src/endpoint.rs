//! The secured `/metrics`: a certificate for it, TLS, and the review of who asks.

use std::{path::PathBuf, sync::Arc, time::Duration};

use appwrapper_metrics::serve::Server;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use rustls::server::ResolvesServerCert;

use crate::{
    files::Files,
    holder::{Holder, tls},
    issue::Issuing,
    reviewer::Reviewer,
};

/// From one reading of the files to the next.
const PERIOD: Duration = Duration::from_secs(10);
/// Life of a certificate that is made at start. No scraper can verify it, so none looks at its end either.
const LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// Why metrics cannot be served over TLS.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The mounted certificate cannot be used.
    #[error("{0}")]
    Files(String),
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// `server` behind TLS, for callers that the API server knows and that may read the page they ask for.
pub fn secured(server: Server, certificate: Arc<dyn ResolvesServerCert>, client: Client) -> Result<Server, Error> {
    Ok(server.secured(tls(certificate, &["http/1.1"])?, Arc::new(Reviewer::new(client))))
}

/// A certificate from a directory, which is followed from then on, or else one of our own making for these names.
pub async fn certificate(directory: Option<PathBuf>, names: Vec<String>) -> Result<Arc<Holder>, Error> {
    let holder = Arc::new(Holder::default());
    if let Some(directory) = directory {
        let mut files = Files::new(directory);
        if let Some(pair) = files.read().await.map_err(Error::Files)? {
            holder.load(pair);
        }
        tokio::spawn(follow(files, Arc::clone(&holder)));
    } else {
        let (issuing, now) = (issuing(names), Timestamp::now());
        holder.load(issuing.pair(&issuing.authority(now)?, now)?);
    }
    Ok(holder)
}

async fn follow(mut files: Files, holder: Arc<Holder>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        match files.read().await {
            Ok(Some(pair)) => holder.load(pair),
            Ok(None) => {}
            Err(fault) => tracing::error!(
                fault,
                "the certificate files cannot be used; what was loaded stays in use"
            ),
        }
    }
}

fn issuing(names: Vec<String>) -> Issuing {
    Issuing {
        authority_name: "appwrapper-metrics".to_owned(),
        organisation: "appwrapper".to_owned(),
        names,
        authority_life: LIFE,
        serving_life: LIFE,
    }
}
