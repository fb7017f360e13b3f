//! A client for watches that cannot hang and cannot spin.
//!
//! Two gaps of kube 4.2 (`Client::request_events`, `watcher`) would blind a cache without a word:
//! * since kube 4 a client has no read timeout, so starting a watch over a dead connection waits for ever;
//! * the HTTP status of a watch start is not looked at, so a refusal with an empty or foreign body ends at once and is
//!   tried again at once, without an error and without a pause.
//!
//! This service sits on top of the ordinary client, gives the start of a watch a time limit, and turns a refusal into
//! the error it is. Everything else passes through unchanged. kube 5 checks the status itself. Since kube's watcher
//! keeps bookmarks to itself, a watch that was opened is also the one sign of life that a quiet kind gives.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use kube::{
    Client,
    client::Body,
    core::{Status, response::StatusSummary},
};
use tower::{BoxError, Service};

/// A client like `client` whose watches start within `limit` or fail, and which says when one has started.
pub(crate) fn guarded(client: Client, limit: Duration, started: Started) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(Guard { client, limit, started }, namespace)
}

/// Is called when a watch has started.
pub(crate) type Started = Arc<dyn Fn() + Send + Sync>;

#[derive(Clone)]
struct Guard {
    client: Client,
    limit: Duration,
    started: Started,
}

impl Service<Request<Body>> for Guard {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner client waits for its own readiness in `send`.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, limit, started } = self.clone();
        async move {
            if !is_watch(&request) {
                return Ok(client.send(request).await?);
            }
            let start = async {
                let response = client.send(request).await?;
                if response.status().is_success() {
                    Ok(response)
                } else {
                    Err(refusal(response).await)
                }
            };
            let response = tokio::time::timeout(limit, start).await??;
            started();
            Ok(response)
        }
        .boxed()
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    request
        .uri()
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

async fn refusal(response: Response<Body>) -> BoxError {
    let code = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.unwrap_or_default();
    let status = serde_json::from_slice::<Status>(&body)
        .ok()
        .filter(|status| status.code != 0)
        .unwrap_or_else(|| Status {
            status: Some(StatusSummary::Failure),
            code,
            message: String::from_utf8_lossy(&body).chars().take(200).collect(),
            ..Status::default()
        });
    kube::Error::Api(Box::new(status)).into()
}
