//! The TLS server in the test's process, and connections as the API server makes them.

use std::{net::SocketAddr, sync::Arc};

use appwrapper_webhook::{
    certs::{issue::Issuing, material::Certificate, resolver::Resolver},
    serve,
};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes};
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::{MUTATE, VALIDATE, Webhook, apply, component, pod, review, user, wrapper};

pub fn issuing() -> Issuing {
    Issuing {
        authority_name: "appwrapper-ca".into(),
        organisation: "appwrapper".into(),
        names: vec!["127.0.0.1".into()],
        authority_life: SignedDuration::from_hours(48),
        serving_life: SignedDuration::from_hours(24),
    }
}

/// A running TLS server.
pub struct Running {
    pub address: SocketAddr,
    pub resolver: Arc<Resolver>,
    pub webhook: Webhook,
    pub stop: CancellationToken,
    pub task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub async fn start() -> Self {
        let webhook = Webhook::new("");
        let resolver = Resolver::new(webhook.metrics.admission.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let tls = serve::tls(Arc::clone(&resolver) as _).unwrap();
        let task = tokio::spawn(serve::serve(listener, tls, Arc::clone(&webhook.service), stop.clone()));
        Self {
            address,
            resolver,
            webhook,
            stop,
            task,
        }
    }
}

/// A connection as the API server makes it, with the bundle it has at that moment.
pub async fn connect(
    address: SocketAddr,
    bundle: &[Certificate],
    protocol: &[u8],
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    connect_from("127.0.0.1", address, bundle, protocol).await
}

/// The same from another address of this machine.
pub async fn connect_from(
    own: &str,
    address: SocketAddr,
    bundle: &[Certificate],
    protocol: &[u8],
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.iter().map(|certificate| certificate.der.clone()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let socket = TcpSocket::new_v4().map_err(|error| error.to_string())?;
    socket
        .bind(SocketAddr::new(own.parse().unwrap(), 0))
        .map_err(|error| error.to_string())?;
    let stream = socket.connect(address).await.map_err(|error| error.to_string())?;
    let name = "127.0.0.1".try_into().unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())
}

pub fn request(body: &str) -> Request<Full<Bytes>> {
    Request::post(VALIDATE)
        .header("host", "webhook")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_owned())))
        .unwrap()
}

/// One review on a connection of its own.
pub async fn ask(address: SocketAddr, bundle: &[Certificate], body: &str) -> Result<(), String> {
    let stream = connect(address, bundle, b"http/1.1").await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let answer = sender
        .send_request(request(body))
        .await
        .map_err(|error| error.to_string())?;
    let status = answer.status();
    let bytes = answer
        .into_body()
        .collect()
        .await
        .map_err(|error| error.to_string())?
        .to_bytes();
    drop(sender);
    let _ = driver.await;
    let review: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if status == 200 && review["response"]["allowed"] == true {
        Ok(())
    } else {
        Err(review.to_string())
    }
}

pub async fn labelled(webhook: &Webhook) -> String {
    let mut object = wrapper(vec![component(pod("p"))]);
    let mutated = webhook
        .post(MUTATE, review("CREATE", &user(), &object, &Value::Null))
        .await;
    apply(&mut object, &mutated.response);
    review("CREATE", &user(), &object, &Value::Null)
}
