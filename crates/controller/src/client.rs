//! Clients for the API server.
//!
//! No client here replays requests by itself: a create that is sent again for minutes behind our back would outlive the
//! right to send it, and the queue's own retry is the one that is counted and bounded.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use appwrapper_metrics::{Metrics, labels::Method};
use http::Request;
use kube::{Client, Config, client::Body};

/// Longest silence on a connection: a watch sends bookmarks about every minute.
const READ_TIMEOUT: Duration = Duration::from_secs(295);

/// A client whose requests are counted and timed.
pub fn measured(mut config: Config, metrics: &Arc<Metrics>) -> Result<Client, kube::Error> {
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(READ_TIMEOUT);
    let namespace = config.default_namespace.clone();
    let inner = Client::try_from(config)?;
    let metrics = Arc::clone(metrics);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, metrics) = (inner.clone(), Arc::clone(&metrics));
        async move {
            let method = Method::of(request.method().as_str());
            let sent = Instant::now();
            let answer = inner.send(request).await;
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            metrics.client.request(method, code, sent.elapsed());
            answer
        }
    });
    Ok(Client::new(service, namespace))
}
