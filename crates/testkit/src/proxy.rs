//! A proxy in front of a real API server that spoils what the tests ask it to spoil.
//!
//! A client reaches it by plain HTTP on loopback, with a bearer token as credentials
//! ([`Cluster::service_account_kubeconfig`](crate::cluster::Cluster::service_account_kubeconfig) writes such a
//! kubeconfig); the proxy speaks TLS to the API server and passes the token on, so permissions are the real ones. One
//! proxy per client tells clients apart even when their user agents are the same.
//!
//! Requests are refused, delayed, left without an answer and so on by the same rules as on the fake API server
//! ([`Match`], [`Effect`]). Watches pass line by line through a [`WatchGate`], which holds them back, delays them, and
//! ends them in every way a watch can end. Every request is counted and logged. `forward` is a request's way through,
//! `stream` that of a watch. Connections that are upgraded (exec, port-forward) are not supported.

mod effect;
mod forward;
mod gate;
mod record;
mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

pub use gate::WatchGate;
pub use record::{Records, RequestKind};

use crate::api_server::{Effect, Fault, Faults, Match};
use crate::cluster::Cluster;
use forward::Upstream;
use gate::Gates;

/// A running proxy; it ends when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    rules: Rules,
    records: Arc<Records>,
    stop: CancellationToken,
}

/// What a proxy spoils. Clones are handles to the same rules.
#[derive(Clone, Default)]
pub struct Rules {
    faults: Arc<Faults>,
    gates: Arc<Gates>,
}

impl Rules {
    /// Adds a rule for requests. It hits every matching request until it is told otherwise or removed.
    pub fn add(&self, matching: Match, effect: Effect) -> Fault {
        self.faults.add(matching, effect)
    }

    /// The gate for watches of a resource, by plural (`jobs`) or in full (`jobs.batch`); `*` is all resources.
    pub fn gate(&self, resource: &str) -> WatchGate {
        WatchGate::new(self.gates.clone(), resource)
    }

    /// Removes all rules and opens all gates.
    pub fn clear(&self) {
        self.faults.clear();
        self.gates.clear();
    }
}

impl Proxy {
    /// A proxy in front of a cluster's API server.
    ///
    /// # Errors
    ///
    /// When no port can be listened on.
    pub async fn in_front_of(cluster: &Cluster) -> Result<Self> {
        Self::start(cluster.config()).await
    }

    /// A proxy in front of the API server of a client configuration. Only its address and certificate authority are
    /// used; who asks is up to the proxy's clients.
    ///
    /// # Errors
    ///
    /// When no port can be listened on, or the certificate authority is no certificate.
    pub async fn start(upstream: &kube::Config) -> Result<Self> {
        crate::install_crypto();
        let rules = Rules::default();
        let records = Arc::new(Records::default());
        let upstream = Arc::new(Upstream::new(upstream, rules.clone(), records.clone())?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("listening on loopback")?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        tokio::spawn(
            stop.clone()
                .run_until_cancelled_owned(accept(listener, upstream, stop.clone())),
        );
        Ok(Self {
            address,
            rules,
            records,
            stop,
        })
    }

    /// The URL clients use as their API server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The rules, to add to and remove from at any time.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// What was asked so far.
    pub fn records(&self) -> &Records {
        &self.records
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(listener: TcpListener, upstream: Arc<Upstream>, stop: CancellationToken) {
    loop {
        // A client that went away before it was accepted is no reason to end.
        let Ok((connection, _)) = listener.accept().await else {
            continue;
        };
        tokio::spawn(
            stop.clone()
                .run_until_cancelled_owned(serve(connection, upstream.clone())),
        );
    }
}

/// Serves one connection. It ends with an error where a rule breaks it, which is what the rule is for.
async fn serve(connection: TcpStream, upstream: Arc<Upstream>) {
    let _ = connection.set_nodelay(true);
    let service = service_fn(move |request| {
        let upstream = upstream.clone();
        async move { upstream.handle(request).await.map_err(io::Error::other) }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(connection), service)
        .await;
}
