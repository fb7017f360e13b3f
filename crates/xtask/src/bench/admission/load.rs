//! Sends reviews over kept connections.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_rustls::TlsConnector;

use super::server::{SERVER_NAME, Server};

type Connection = Arc<Mutex<SendRequest<Full<Bytes>>>>;

/// Connections to the webhook.
pub struct Load {
    connections: Vec<Connection>,
}

impl Load {
    /// Connects so often.
    pub async fn connect(server: &Server, connections: usize) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(server.authority().await?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let mut open = Vec::new();
        for _ in 0..connections.max(1) {
            let stream = TcpStream::connect(server.address()).await?;
            stream.set_nodelay(true)?;
            let connector = TlsConnector::from(Arc::clone(&config));
            let stream = connector.connect(SERVER_NAME.try_into()?, stream).await?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            open.push(Arc::new(Mutex::new(sender)));
        }
        Ok(Self { connections: open })
    }

    /// One request and its answer.
    pub async fn send(&self, path: &str, body: &[u8]) -> Result<Bytes> {
        let connection = self.connections.first().context("there is no connection")?;
        send(connection, path, Bytes::copy_from_slice(body)).await
    }

    /// So many a second, however long they take. How long each took, from when it was due.
    pub async fn paced(&self, path: &'static str, body: &[u8], rate: u32, for_: Duration) -> Result<Vec<Duration>> {
        let body = Bytes::copy_from_slice(body);
        let mut ticks = interval(Duration::from_secs(1) / rate.max(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (mut under_way, begun) = (JoinSet::new(), Instant::now());
        for connection in self.connections.iter().cycle() {
            let due = ticks.tick().await;
            if begun.elapsed() >= for_ {
                break;
            }
            let (connection, body) = (Arc::clone(connection), body.clone());
            under_way.spawn(async move { send(&connection, path, body).await.map(|_| due.elapsed()) });
        }
        under_way.join_all().await.into_iter().collect()
    }

    /// One behind the other on each connection. How long each took.
    pub async fn saturated(&self, path: &'static str, body: &[u8], for_: Duration) -> Result<Vec<Duration>> {
        let (body, begun) = (Bytes::copy_from_slice(body), Instant::now());
        let mut under_way = JoinSet::new();
        for connection in &self.connections {
            let (connection, body) = (Arc::clone(connection), body.clone());
            under_way.spawn(async move {
                let mut times = Vec::new();
                while begun.elapsed() < for_ {
                    let sent = Instant::now();
                    send(&connection, path, body.clone()).await?;
                    times.push(sent.elapsed());
                }
                Ok(times)
            });
        }
        let times: Result<Vec<_>> = under_way.join_all().await.into_iter().collect();
        Ok(times?.concat())
    }
}

async fn send(connection: &Connection, path: &str, body: Bytes) -> Result<Bytes> {
    let request = Request::post(format!("{path}?timeout=5s")).header("host", SERVER_NAME);
    let request = request
        .header("content-type", "application/json")
        .body(Full::new(body))?;
    let mut sender = connection.lock().await;
    sender.ready().await?;
    let answer: Response<_> = sender.send_request(request).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    // The floor is a path that does not exist.
    let expected = if path == "/" {
        StatusCode::NOT_FOUND
    } else {
        StatusCode::OK
    };
    ensure!(status == expected, "{status}: {:.300}", String::from_utf8_lossy(&body));
    Ok(body)
}
