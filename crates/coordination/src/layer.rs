//! The tower layer that makes `kube-leader-election` safe to use (ha-sharding.md, 1.4a).
//!
//! The crate reads a Lease and patches it without a version, believes wall clocks, waits for ever and does not look at
//! answers. The layer sits in the client that the crate is given, serves exactly one Lease, and
//! - adds the remembered `resourceVersion` to each patch, so that a stale one is a 409 instead of a second leader;
//! - rewrites what the crate reads so that it comes to our verdict (see `record.rs`);
//! - answers a read from memory when nothing can have changed but by a write that the next patch would collide with;
//! - bounds every request at the client and, by `timeout=`, at the server; sets one common field manager;
//! - checks that the answer to a write names this process and this epoch.
//!
//! What went wrong is left in the memory, so that nobody has to take the crate's errors apart.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{client::Body, core::Status};
use serde_json::{Value, json};
use tower::{BoxError, Layer, Service, ServiceExt, util::BoxCloneService};

use crate::{error::Error, record::Memory};

/// Field manager of every write to `spec` of a Lease. The crate would use the holder's identity: one manager per start.
pub const FIELD_MANAGER: &str = "appwrapper-lease";

type Inner = BoxCloneService<Request<Body>, Response<Body>, BoxError>;

/// Memory shared by the layer and the owner of the Lease.
pub(crate) type SharedMemory = Arc<Mutex<Memory>>;

/// Locks the memory. A panic elsewhere cannot leave it half written: every change is a plain assignment.
pub(crate) fn recall(memory: &SharedMemory) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wraps a client's service for one Lease.
#[derive(Debug, Clone)]
pub(crate) struct LeaseLayer {
    memory: SharedMemory,
    path: Arc<str>,
    rpc_timeout: Duration,
}

/// The wrapped service.
#[derive(Debug, Clone)]
pub(crate) struct LeaseService {
    inner: Inner,
    layer: LeaseLayer,
}

// === impl LeaseLayer ===

impl LeaseLayer {
    pub(crate) fn new(memory: SharedMemory, namespace: &str, name: &str, rpc_timeout: Duration) -> Self {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        Self {
            memory,
            path: path.into(),
            rpc_timeout,
        }
    }

    fn recall(&self) -> MutexGuard<'_, Memory> {
        recall(&self.memory)
    }

    fn fail(&self, error: Error) -> BoxError {
        let text = error.to_string();
        // The first failure of a call is its cause; what the crate tries after it is only a consequence.
        self.recall().failure.get_or_insert(error);
        text.into()
    }

    fn unexpected(&self, what: impl Into<String>) -> BoxError {
        let lease = self.recall().name.clone();
        self.fail(Error::Unexpected {
            lease,
            what: what.into(),
        })
    }

    async fn handle(self, inner: Inner, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let collection = self.path.rsplit_once('/').map_or("", |(collection, _)| collection);
        let (method, path) = (request.method().clone(), request.uri().path());
        if method == Method::GET && path == &*self.path {
            self.read(inner, request).await
        } else if method == Method::PATCH && path == &*self.path {
            self.write(inner, request).await
        } else if method == Method::POST && path == collection {
            self.create(inner, request).await
        } else {
            Err(self.unexpected(format!("request {method} {path}")))
        }
    }

    async fn read(&self, inner: Inner, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let remembered = self.recall().take_fresh();
        let lease = if let Some(lease) = remembered {
            lease
        } else {
            let (status, bytes) = self.exchange(inner, request).await?;
            if status == StatusCode::NOT_FOUND {
                let mut memory = self.recall();
                memory.forget();
                if !memory.may_create() {
                    let lease = memory.name.clone();
                    memory.failure.get_or_insert(Error::Missing { lease });
                }
            }
            if !status.is_success() {
                return answer(status, bytes);
            }
            let lease = self.parse(&bytes)?;
            let mut memory = self.recall();
            memory.observe(&lease);
            memory.distrust();
            lease
        };
        let seen = self.recall().as_seen_by_the_crate(lease);
        answer(StatusCode::OK, serde_json::to_vec(&seen)?)
    }

    async fn write(&self, inner: Inner, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, mut body) = self.take_apart(request).await?;
        let releases = body.pointer("/spec/holderIdentity").and_then(Value::as_str) == Some("");
        let claims = !releases && body.pointer("/spec/holderIdentity").is_some();
        let prepared = {
            let mut memory = self.recall();
            let prepared = metadata(&mut body).zip(memory.version()).map(|(metadata, version)| {
                metadata.insert("resourceVersion".to_owned(), json!(version));
                if releases && !memory.note.is_empty() {
                    metadata.insert("annotations".to_owned(), json!(memory.note));
                }
            });
            // Whatever becomes of the write, what we knew is no longer the last word.
            memory.distrust();
            memory.sent_at = Some(memory.clock.now());
            prepared
        };
        if prepared.is_none() {
            return Err(self.unexpected("write before any read"));
        }
        let request = Request::from_parts(parts, Body::from(serde_json::to_vec(&body)?));
        let (status, bytes) = self.exchange(inner, request).await?;
        if status.is_success() {
            let lease = self.parse(&bytes)?;
            self.check_answer(&lease, releases, claims)?;
        }
        answer(status, bytes)
    }

    async fn create(&self, inner: Inner, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, mut body) = self.take_apart(request).await?;
        let creation = {
            let memory = self.recall();
            memory
                .creation
                .clone()
                .filter(|_| memory.failure.is_none() && memory.may_create())
        };
        let Some(creation) = creation else {
            return Err(self.unexpected("creation"));
        };
        if let Some(metadata) = metadata(&mut body) {
            metadata.insert("labels".to_owned(), json!(creation.labels));
            metadata.insert("annotations".to_owned(), json!(creation.annotations));
            if let Some(owner) = &creation.owner {
                metadata.insert("ownerReferences".to_owned(), json!([owner]));
            }
        }
        if let (false, Some(spec)) = (creation.at_once, body.get_mut("spec").and_then(Value::as_object_mut)) {
            // Nobody's, but not untouched: whoever sees it waits. From here on, a holder of an earlier one cannot renew.
            spec.insert("holderIdentity".to_owned(), json!(""));
        }
        {
            let mut memory = self.recall();
            memory.sent_at = Some(memory.clock.now());
        }
        let request = Request::from_parts(parts, Body::from(serde_json::to_vec(&body)?));
        let (status, bytes) = self.exchange(inner, request).await?;
        if status.is_success() {
            let lease = self.parse(&bytes)?;
            self.check_answer(&lease, !creation.at_once, creation.at_once)?;
        }
        answer(status, bytes)
    }

    /// A success that names another holder or epoch is none (D3).
    fn check_answer(&self, lease: &Lease, releases: bool, claims: bool) -> Result<(), BoxError> {
        let mut memory = self.recall();
        memory.observe(lease);
        let named = memory.holder() == Some(memory.me.as_str());
        let good = if releases {
            memory.holder().is_none()
        } else if claims {
            named
        } else {
            memory.is_ours()
        };
        drop(memory);
        if good {
            Ok(())
        } else {
            Err(self.unexpected("answer: it names another holder or epoch"))
        }
    }

    async fn take_apart(&self, request: Request<Body>) -> Result<(http::request::Parts, Value), BoxError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        Ok((parts, serde_json::from_slice(&bytes)?))
    }

    /// Sends one request within the limit and reads the whole answer.
    async fn exchange(&self, inner: Inner, request: Request<Body>) -> Result<(StatusCode, Vec<u8>), BoxError> {
        let request = bounded(request, self.rpc_timeout)?;
        let method = request.method().clone();
        let sent = async {
            let response = inner.oneshot(request).await?;
            let status = response.status();
            let bytes = response.into_body().collect_bytes().await?;
            Ok::<_, BoxError>((status, bytes.to_vec()))
        };
        let lease = self.recall().name.clone();
        let (status, bytes) = match tokio::time::timeout(self.rpc_timeout, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(source)) => {
                let text = source.to_string();
                return Err(self.fail(Error::Request {
                    lease,
                    source: text.into(),
                }));
            }
            Err(_) => {
                return Err(self.fail(Error::Timeout {
                    lease,
                    limit: self.rpc_timeout,
                }));
            }
        };
        let message = || {
            let status = serde_json::from_slice::<Status>(&bytes).ok();
            status.map(|status| status.message).unwrap_or_default()
        };
        let failure = match status.as_u16() {
            200..300 => None,
            403 => Some(Error::Forbidden {
                lease,
                message: message(),
            }),
            // A read that finds nothing is no failure yet; a patch that does is.
            404 if method == Method::GET => None,
            404 if method == Method::PATCH => Some(Error::Missing { lease }),
            409 => Some(Error::Conflict { lease }),
            code => Some(Error::Request {
                lease,
                source: format!("HTTP {code}: {}", message()).into(),
            }),
        };
        if let Some(failure) = failure {
            self.recall().failure.get_or_insert(failure);
        }
        Ok((status, bytes))
    }

    fn parse(&self, bytes: &[u8]) -> Result<Lease, BoxError> {
        serde_json::from_slice(bytes).map_err(|error| self.unexpected(format!("answer: {error}")))
    }
}

impl<S> Layer<S> for LeaseLayer
where
    S: Service<Request<Body>, Response = Response<Body>, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
{
    type Service = LeaseService;

    fn layer(&self, inner: S) -> LeaseService {
        LeaseService {
            inner: BoxCloneService::new(inner.map_err(Into::into)),
            layer: self.clone(),
        }
    }
}

// === impl LeaseService ===

impl Service<Request<Body>> for LeaseService {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Readiness of the inner service is awaited inside the time limit.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.layer.clone().handle(self.inner.clone(), request))
    }
}

fn metadata(body: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    body.get_mut("metadata").and_then(Value::as_object_mut)
}

fn answer(status: StatusCode, bytes: Vec<u8>) -> Result<Response<Body>, BoxError> {
    Ok(Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .body(Body::from(bytes))?)
}

/// The request with our field manager and with the time limit that the API server is to keep as well.
fn bounded(request: Request<Body>, limit: Duration) -> Result<Request<Body>, BoxError> {
    let mut parameters = vec![("timeout", format!("{}ms", limit.as_millis().max(1)))];
    if request.method() != Method::GET {
        parameters.push(("fieldManager", FIELD_MANAGER.to_owned()));
    }
    with_query(request, &parameters)
}

/// The request with these query parameters set, whatever they were before.
pub(crate) fn with_query(request: Request<Body>, parameters: &[(&str, String)]) -> Result<Request<Body>, BoxError> {
    let (mut parts, body) = request.into_parts();
    let replaced = |pair: &str| {
        let name = pair.split('=').next().unwrap_or_default();
        parameters.iter().any(|(parameter, _)| *parameter == name)
    };
    let kept = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && !replaced(pair));
    let added = parameters.iter().map(|(name, value)| format!("{name}={value}"));
    let query: Vec<String> = kept.map(str::to_owned).chain(added).collect();
    // A full address as well as a bare path: the layer may sit inside or outside of kube's base-address layer.
    let mut uri = parts.uri.clone().into_parts();
    uri.path_and_query = Some(format!("{}?{}", parts.uri.path(), query.join("&")).parse()?);
    parts.uri = http::Uri::from_parts(uri)?;
    Ok(Request::from_parts(parts, body))
}
