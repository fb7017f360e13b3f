//! Answers scrapes and probes over HTTP, plain or [secured](Server::secured).
//!
//! A [`Server`] has only the pages it was given: `/metrics`, the probes, `/debug/…`. Debug pages answer to callers on the
//! loopback interface alone, since they name objects. Connections are few, short and bounded, so that nobody can hold the
//! process by its probes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::health::{Health, Report};
use crate::registry::{self, Registry};

/// Connections served at once. The kubelet and two or three scrapers need a handful.
const CONNECTIONS: usize = 64;
/// For the head of a request, and between two requests of a connection.
const IDLE: Duration = Duration::from_secs(30);
/// For the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For requests under way at the end.
const DRAIN: Duration = Duration::from_secs(5);

type Page = Arc<dyn Fn() -> Content + Send + Sync>;

/// What a debug page shows.
#[derive(Clone, Debug)]
pub enum Content {
    /// Text.
    Text(String),
    /// A JSON document.
    Json(String),
}

/// Says who may read a page.
#[async_trait::async_trait]
pub trait Guard: Send + Sync {
    /// Whether the bearer of `token` may do this. Must answer in a few seconds.
    async fn admit(&self, token: Option<&str>, method: &Method, path: &str) -> Result<(), Refusal>;
}

/// Why a page is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no token, or nobody's.
    Unknown,
    /// Its bearer has no right to it.
    Forbidden,
    /// It could not be found out.
    Unanswered,
}

/// What stands before the pages.
#[derive(Clone)]
struct Security {
    tls: TlsAcceptor,
    guard: Arc<dyn Guard>,
}

/// The pages of one listener.
#[derive(Clone, Default)]
pub struct Server {
    security: Option<Security>,
    metrics: Option<Registry>,
    health: Option<Health>,
    debug: BTreeMap<String, Page>,
}

/// The next connection; `None` once `stop` is cancelled.
pub async fn accept(listener: &TcpListener, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) => {
                // Out of file descriptors, or a connection that was reset before we took it: both pass.
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

impl Server {
    /// A server without pages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `/metrics`.
    #[must_use]
    pub fn metrics(mut self, registry: &Registry) -> Self {
        self.metrics = Some(registry.clone());
        self
    }

    /// Adds `/livez`, `/readyz` and, for probes made for the Go controller, `/healthz`.
    #[must_use]
    pub fn health(mut self, health: &Health) -> Self {
        self.health = Some(health.clone());
        self
    }

    /// Adds `/debug/{name}`, for callers on the loopback interface. `page` must not block.
    #[must_use]
    pub fn debug(mut self, name: &str, page: impl Fn() -> Content + Send + Sync + 'static) -> Self {
        self.debug.insert(name.to_owned(), Arc::new(page));
        self
    }

    /// Puts TLS and a guard before all pages.
    #[must_use]
    pub fn secured(mut self, tls: ServerConfig, guard: Arc<dyn Guard>) -> Self {
        let tls = TlsAcceptor::from(Arc::new(tls));
        self.security = Some(Security { tls, guard });
        self
    }

    /// `https` if it is secured, or else `http`.
    pub fn scheme(&self) -> &'static str {
        if self.security.is_some() { "https" } else { "http" }
    }

    /// Serves until `shutdown`, then finishes the requests under way.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        let server = Arc::new(self);
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        let tasks = TaskTracker::new();
        while let Some((stream, peer)) = accept(&listener, &shutdown).await {
            let Ok(permit) = connections.clone().try_acquire_owned() else {
                continue;
            };
            let (server, shutdown) = (server.clone(), shutdown.clone());
            tasks.spawn(async move {
                server.connection(stream, peer, shutdown).await;
                drop(permit);
            });
        }
        tasks.close();
        // Whoever is slower than this has lost interest.
        let _ = tokio::time::timeout(DRAIN, tasks.wait()).await;
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, shutdown: CancellationToken) {
        let Some(security) = &self.security else {
            return self.requests(stream, peer, shutdown).await;
        };
        match tokio::time::timeout(HANDSHAKE, security.tls.accept(stream)).await {
            Ok(Ok(stream)) => self.requests(stream, peer, shutdown).await,
            Ok(Err(error)) => tracing::debug!(%error, %peer, "no TLS"),
            Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
        }
    }

    async fn requests<S>(self: Arc<Self>, stream: S, peer: SocketAddr, shutdown: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let server = self.clone();
            async move { Ok::<_, Infallible>(server.guarded(request, peer).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            tracing::debug!(%error, %peer, "connection ended early");
        }
    }

    async fn guarded(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<Full<Bytes>> {
        let (head, _) = request.into_parts();
        let path = head.uri.path();
        if let Some(Security { guard, .. }) = &self.security
            && let Err(refusal) = guard.admit(bearer(&head.headers), &head.method, path).await
        {
            return refused(refusal);
        }
        self.answer(&head.method, path, peer).await
    }

    async fn answer(&self, method: &Method, path: &str, peer: SocketAddr) -> Response<Full<Bytes>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        // controller-runtime also serves each check by its own name below the probe, such as /readyz/readyz.
        let probe = path.strip_suffix('/').unwrap_or(path);
        match (probe, &self.metrics, &self.health) {
            ("/metrics", Some(registry), _) => scrape(registry.clone()).await,
            ("/livez" | "/healthz" | "/healthz/healthz", _, Some(health)) => report(health.live()),
            ("/readyz" | "/readyz/readyz", _, Some(health)) => report(health.ready()),
            _ => self.debug_page(path, peer),
        }
    }

    fn debug_page(&self, path: &str, peer: SocketAddr) -> Response<Full<Bytes>> {
        let page = path.strip_prefix("/debug/").and_then(|name| self.debug.get(name));
        match page {
            Some(_) if !peer.ip().to_canonical().is_loopback() => text(
                StatusCode::FORBIDDEN,
                "debug pages answer on the loopback interface only: use a port-forward\n",
            ),
            Some(page) => match page() {
                Content::Text(body) => content(StatusCode::OK, "text/plain; charset=utf-8", body),
                Content::Json(body) => content(StatusCode::OK, "application/json", body),
            },
            None => text(StatusCode::NOT_FOUND, "not found\n"),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn refused(refusal: Refusal) -> Response<Full<Bytes>> {
    match refusal {
        Refusal::Unknown => {
            let mut response = text(StatusCode::UNAUTHORIZED, "send the bearer token of an account\n");
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            response
        }
        Refusal::Forbidden => text(
            StatusCode::FORBIDDEN,
            "the account may not read this page: bind ClusterRole appwrapper-metrics-reader to it\n",
        ),
        Refusal::Unanswered => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "the API server did not say whether the account may read this page\n",
        ),
    }
}

async fn scrape(registry: Registry) -> Response<Full<Bytes>> {
    // A page of thousands of series takes milliseconds to write: not on a thread that renews Leases.
    match tokio::task::spawn_blocking(move || registry.encode()).await {
        Ok(Ok(page)) => content(StatusCode::OK, registry::CONTENT_TYPE, page),
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
    }
}

fn report(report: Report) -> Response<Full<Bytes>> {
    let status = if report.ok {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    content(status, "text/plain; charset=utf-8", report.text)
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    content(status, "text/plain; charset=utf-8", body.to_owned())
}

fn content(status: StatusCode, media_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
