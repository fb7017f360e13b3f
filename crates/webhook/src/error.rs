//! What can go wrong outside a request.

use std::path::PathBuf;

/// Why the process cannot start, or a round about the certificates did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] appwrapper_api::config::ConfigError),
    /// The webhook's own namespace is not known.
    #[error("the namespace is not known outside a pod; give --namespace")]
    Namespace,
    /// An address of the configuration file cannot be used.
    #[error("{field}: {fault}")]
    Address {
        /// The key.
        field: &'static str,
        /// What is wrong with it.
        fault: String,
    },
    /// A port cannot be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// There is no way to the API server.
    #[error("cannot find the API server; set KUBECONFIG outside a pod: {0}")]
    Infer(#[from] kube::config::InferConfigError),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// Metrics cannot be served over TLS.
    #[error("metrics: {0}")]
    Metrics(#[from] appwrapper_serving::endpoint::Error),
    /// Logs or traces cannot be set up.
    #[error(transparent)]
    Telemetry(#[from] appwrapper_metrics::telemetry::Error),
    /// The certificate Lease cannot be used.
    #[error(transparent)]
    Lease(#[from] appwrapper_coordination::Error),
    /// The API server refused or did not answer.
    #[error("{what}: {source}")]
    Request {
        /// What was asked.
        what: &'static str,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// A key or certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    /// The signal handler cannot be installed.
    #[error("cannot wait for signals: {0}")]
    Signal(std::io::Error),
}

impl Error {
    /// For `map_err`: what was asked when the request failed.
    pub fn request(what: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| Self::Request {
            what,
            source: Box::new(source),
        }
    }
}
