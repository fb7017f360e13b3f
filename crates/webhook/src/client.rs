//! The way to the API server, counted.

use std::time::Instant;

use appwrapper_metrics::{ApiClient, labels::Method};
use http::Request;
use kube::{Client, client::Body};

/// A client that counts its requests by method and code. Must be called inside a runtime.
pub fn counted(client: &Client, metrics: ApiClient) -> Client {
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, metrics) = (client.clone(), metrics.clone());
        async move {
            let (method, begun) = (Method::of(request.method().as_str()), Instant::now());
            let answer = client.send(request).await;
            let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
            metrics.request(method, code, begun.elapsed());
            answer
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use appwrapper_metrics::{Build, WebhookMetrics};
    use appwrapper_testkit::api_server::ApiServer;
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;

    use super::*;

    #[tokio::test]
    async fn requests_are_counted_by_code() {
        let server = ApiServer::new();
        let metrics = WebhookMetrics::new(&Build::default());
        let client = counted(&server.client(), metrics.client.clone());
        assert!(
            Api::<Pod>::default_namespaced(client)
                .get_opt("p")
                .await
                .unwrap()
                .is_none()
        );
        let page = metrics.registry().encode().unwrap();
        let count = page
            .lines()
            .find(|line| line.starts_with("rest_client_requests_total{code=\"404\""))
            .unwrap();
        assert!(count.contains("method=\"GET\"") && count.ends_with(" 1"), "{count}");
    }
}
