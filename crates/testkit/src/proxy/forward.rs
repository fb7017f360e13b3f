//! One request's way through the proxy: parse, record, spoil, forward, answer.
//!
//! The request's body is read whole, so that rules can see it; the answer is passed on as it comes. An answer to a
//! watch goes through [`stream`].

use std::sync::Arc;

use anyhow::{Context as _, Result};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use tower::BoxError;

use super::record::Records;
use super::{Rules, effect, stream};
use crate::answer;
use crate::api_server::{ApiRequest, ResponseBody, Verb};

/// Headers that concern one connection only.
const HOP_BY_HOP: [header::HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
];

type Forward = dyn Fn(Request<Full<Bytes>>) -> hyper_util::client::legacy::ResponseFuture + Send + Sync;

/// The API server, and what to do on the way to it.
pub struct Upstream {
    scheme: Scheme,
    authority: Authority,
    forward: Box<Forward>,
    rules: Rules,
    records: Arc<Records>,
}

impl Upstream {
    pub fn new(config: &kube::Config, rules: Rules, records: Arc<Records>) -> Result<Self> {
        // Without the identity of the configuration: a client certificate would win over the token passed on.
        let mut anonymous = kube::Config::new(config.cluster_url.clone());
        anonymous.root_cert.clone_from(&config.root_cert);
        anonymous.accept_invalid_certs = config.accept_invalid_certs;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        let connector = anonymous.rustls_https_connector_with_connector(connector)?;

        let parts = config.cluster_url.clone().into_parts();
        Ok(Self {
            scheme: parts.scheme.context("the API server's URL has a scheme")?,
            authority: parts.authority.context("the API server's URL has a host")?,
            forward: forwarder(connector),
            rules,
            records,
        })
    }

    /// Answers one request. An error is a broken connection.
    pub async fn handle(&self, request: Request<Incoming>) -> Result<Response<ResponseBody>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let parsed = ApiRequest::parse(&parts, &body, None);
        let seq = self.records.arrived(&parsed);

        let fault = self.rules.faults.take(&parsed);
        let mut answer = match &fault {
            Some(fault) => answer::before(fault, &parsed).await?,
            None => None,
        };
        if answer.is_none() {
            let forwarded = self.forward(Request::from_parts(parts, body), &parsed).await?;
            answer = Some(match &fault {
                Some(fault) => effect::after(fault, forwarded).await?,
                None => forwarded,
            });
        }
        let answer = answer.unwrap_or_else(|| answer::text(500, "no answer"));
        self.records.answered(seq, answer.status().as_u16());
        Ok(answer)
    }

    async fn forward(&self, request: Request<Bytes>, parsed: &ApiRequest) -> Result<Response<ResponseBody>, BoxError> {
        let (mut parts, body) = request.into_parts();
        remove_hop_by_hop(&mut parts.headers);
        parts.headers.remove(header::HOST);
        let mut uri = parts.uri.into_parts();
        uri.scheme = Some(self.scheme.clone());
        uri.authority = Some(self.authority.clone());
        parts.uri = Uri::from_parts(uri)?;

        let answer = (self.forward)(Request::from_parts(parts, Full::new(body))).await;
        let (mut parts, body) = match answer {
            Ok(answer) => answer.into_parts(),
            Err(error) => return Ok(answer::text(502, format!("the API server did not answer: {error}\n"))),
        };
        remove_hop_by_hop(&mut parts.headers);
        let body = if parsed.verb == Verb::Watch && parts.status.is_success() {
            parts.headers.remove(header::CONTENT_LENGTH);
            stream::pass(body, parsed.clone(), &parts.headers, &self.rules.gates)
        } else {
            body.map_err(BoxError::from).boxed_unsync()
        };
        Ok(Response::from_parts(parts, body))
    }
}

fn forwarder<C: Connect + Clone + Send + Sync + 'static>(connector: C) -> Box<Forward> {
    let client: Client<C, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    Box::new(move |request| client.request(request))
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}
