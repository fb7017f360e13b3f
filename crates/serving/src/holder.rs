//! Hands the certificate in use to each new connection. Loading another one takes effect at once and disturbs nobody.

use std::{fmt, sync::Arc};

use arc_swap::ArcSwapOption;
use rustls::{
    ServerConfig,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::certificate::Pair;

/// The certificate in use.
#[derive(Default)]
pub struct Holder {
    pair: ArcSwapOption<Pair>,
}

impl Holder {
    /// What is served.
    pub fn serving(&self) -> Option<Arc<Pair>> {
        self.pair.load_full()
    }

    /// Serves this from now on.
    pub fn load(&self, pair: Pair) {
        let leaf = &pair.leaf;
        tracing::info!(serial = leaf.serial, until = %leaf.not_after, "serving certificate loaded");
        self.pair.store(Some(Arc::new(pair)));
    }
}

impl ResolvesServerCert for Holder {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.pair.load().as_ref().map(|pair| Arc::clone(&pair.certified))
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pair.load().fmt(f)
    }
}

/// TLS 1.2 and 1.3 with whatever certificate the resolver holds, for these protocols.
pub fn tls(resolver: Arc<dyn ResolvesServerCert>, protocols: &[&str]) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}
