//! Whether the API server would accept what is served: the same chain building that a client does.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use rustls::{RootCertStore, client::WebPkiServerVerifier, client::danger::ServerCertVerifier};
use rustls_pki_types::{ServerName, UnixTime};

use crate::certificate::{Certificate, Pair};

/// Checks that one of the anchors vouches for the pair, for this name, now. The error says why not.
pub fn check<'a>(
    pair: &Pair,
    anchors: impl Iterator<Item = &'a Certificate>,
    name: &str,
    now: Timestamp,
) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(anchors.map(|anchor| anchor.der.clone()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| error.to_string())?;
    let name = ServerName::try_from(name).map_err(|error| format!("{name:?}: {error}"))?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0)));
    let (leaf, intermediates) = pair.certified.cert.split_first().ok_or("no certificate")?;
    let outcome = verifier.verify_server_cert(leaf, intermediates, &name, &[], now);
    outcome.map(|_| ()).map_err(|error| error.to_string())
}
