//! The TLS server: accepts, bounds, drains.
//!
//! HTTP/1.1 and HTTP/2. The API server speaks HTTP/1.1 to webhooks and keeps its connections, also to a replica that has
//! left the Service. So the end goes in steps: first every answer asks its caller to reconnect, while new connections are
//! still taken for longer than the withdrawal of an endpoint needs; then what is idle is closed (GOAWAY on HTTP/2), and
//! requests under way are finished.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use appwrapper_metrics::serve::accept;
use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::{ServerConfig, server::ResolvesServerCert};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::service::{Service, Share};

/// Connections at once, in all and of one address. An API server keeps some dozens.
const CONNECTIONS: usize = 2048;
const CONNECTIONS_OF_ONE: usize = 512;
/// For the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For the head of a request, and between two of them: longer than the API server keeps an idle connection (90 s), so that
/// it never writes into one that we are closing.
const IDLE: Duration = Duration::from_secs(150);
/// A silent HTTP/2 connection is asked for a sign of life after this long, and given as long to answer.
const PING: Duration = Duration::from_secs(30);
/// Requests of one HTTP/2 connection at once.
const STREAMS: u32 = 128;
/// For the head of a request.
const HEAD_LIMIT: usize = 64 * 1024;
const HEADER_LIST_LIMIT: u32 = 64 * 1024;
/// For requests under way at the very end: longer than any caller waits for one.
const FINISH: Duration = Duration::from_secs(10);

/// TLS with whatever certificate the resolver holds.
pub fn tls(resolver: Arc<dyn ResolvesServerCert>) -> Result<ServerConfig, rustls::Error> {
    appwrapper_serving::holder::tls(resolver, &["h2", "http/1.1"])
}

/// Serves until `stop`, then finishes the requests under way.
pub async fn serve(listener: TcpListener, tls: ServerConfig, service: Arc<Service>, stop: CancellationToken) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let guests = Arc::new(Guests::default());
    let tasks = TaskTracker::new();
    while let Some((stream, peer)) = accept(&listener, &stop).await {
        let Some(guest) = Guest::admit(&guests, peer) else {
            tracing::debug!(%peer, "too many connections");
            continue;
        };
        let (acceptor, service, stop) = (acceptor.clone(), Arc::clone(&service), stop.clone());
        tasks.spawn(async move {
            connection(stream, &guest, acceptor, service, stop).await;
        });
    }
    drop(listener);
    tasks.close();
    if tokio::time::timeout(FINISH, tasks.wait()).await.is_err() {
        tracing::warn!(connections = tasks.len(), "connections were still busy at the end");
    }
}

async fn connection(
    stream: TcpStream,
    guest: &Guest,
    acceptor: TlsAcceptor,
    service: Arc<Service>,
    stop: CancellationToken,
) {
    let peer = guest.peer;
    // Answers are small and waited for.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, %peer, "no TLS"),
        Err(_) => return tracing::debug!(%peer, "the TLS handshake took too long"),
    };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let share = guest.share.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let service = Arc::clone(&service);
        request.extensions_mut().insert(share.clone());
        async move { Ok::<_, Infallible>(service.answer(request).await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // Settled by the handshake: nobody is waited for to say which of the two it will be.
    let mut builder = if is_http2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    };
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD_LIMIT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_LIST_LIMIT)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(error, %peer, "connection ended early");
    }
}

/// Connections by address.
#[derive(Default)]
struct Guests {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, (usize, Share)>,
}

/// One connection that was let in.
struct Guest {
    guests: Arc<Guests>,
    peer: SocketAddr,
    share: Share,
}

impl Guest {
    fn admit(guests: &Arc<Guests>, peer: SocketAddr) -> Option<Self> {
        let mut counts = guests.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &mut *counts;
        if counts.all >= CONNECTIONS {
            return None;
        }
        let (of_one, share) = counts.by_address.entry(peer.ip().to_canonical()).or_default();
        if *of_one >= CONNECTIONS_OF_ONE {
            return None;
        }
        counts.all += 1;
        *of_one += 1;
        Some(Self {
            guests: Arc::clone(guests),
            peer,
            share: share.clone(),
        })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut counts = self.guests.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all = counts.all.saturating_sub(1);
        let address = self.peer.ip().to_canonical();
        match counts.by_address.get_mut(&address) {
            Some((count, _)) if *count > 1 => *count -= 1,
            _ => drop(counts.by_address.remove(&address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_connections() {
        let guests = Arc::new(Guests::default());
        let (one, other) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:1".parse().unwrap());
        let mut held: Vec<_> = (0..CONNECTIONS_OF_ONE)
            .map(|_| Guest::admit(&guests, one).unwrap())
            .collect();
        assert!(Guest::admit(&guests, one).is_none());
        assert!(Guest::admit(&guests, other).is_some());
        held.pop();
        assert!(Guest::admit(&guests, one).is_some());
        held.clear();
        assert!(guests.counts.lock().unwrap().by_address.is_empty());
    }
}
