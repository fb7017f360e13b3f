//! A client whose every write passes a tenure's guard (layer F0 of ha-sharding.md, section 4).
//!
//! [`guarded_client`] wraps a client for one tenure: each request other than a read asks the guard at the moment it is sent,
//! is bounded by what is left of the write bound at the client and at the server (`timeout=`, else a queued request may
//! run a minute later), and counts as in flight until the server has answered for certain. Since the wrapping is
//! around the whole client, nothing sits between the check and the connection but kube's own stack, and that must have
//! `default_retry` off: a retry below the guard would send a write minutes after its check.
//!
//! Reads pass untouched: they harm nobody, and warm caches outlive the tenure.

use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use kube::{Client, client::Body};
use tower::BoxError;

use crate::{
    layer::with_query,
    tenure::{Fenced, WriteGuard},
};

/// A client that writes only under this guard. Cheap; make one per tenure. Must be called inside a runtime.
pub fn guarded_client(client: &Client, guard: WriteGuard) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, guard) = (client.clone(), guard.clone());
        async move { send(&client, &guard, request).await }
    });
    Client::new(service, namespace)
}

/// Whether a write failed because the guard refused it, or was cut off with its outcome unknown.
pub fn fenced(error: &kube::Error) -> Option<Fenced> {
    match error {
        kube::Error::Service(source) => source.downcast_ref::<Fenced>().copied(),
        _ => None,
    }
}

/// A write that got no answer within its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer to the write within {0:?}; it may still take effect")]
pub struct WriteTimeout(pub Duration);

async fn send(client: &Client, guard: &WriteGuard, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(client.send(request).await?);
    }
    let bound = guard.tenure().write_bound();
    let request = with_query(request, &[("timeout", format!("{}ms", bound.as_millis().max(1)))])?;
    // Nothing is awaited between here and the sending.
    let permit = guard.check()?;
    match tokio::time::timeout(permit.time_limit(), client.send(request)).await {
        Ok(Ok(response)) => {
            if is_certain(response.status()) {
                permit.settle();
            }
            Ok(response)
        }
        // Refused connections cannot be told from cut ones here: both count as unknown until the bound has passed.
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(WriteTimeout(bound).into()),
    }
}

/// Whether the write is over. A gateway's error or a server's time-out says nothing about the store.
fn is_certain(status: StatusCode) -> bool {
    !matches!(
        status,
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
    )
}
