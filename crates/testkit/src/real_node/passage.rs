//! A way from this machine's loopback to the API server inside a node's network namespace, for as long as this process
//! lives.
//!
//! A socket belongs to the namespace of the thread that opened it, whoever uses it afterwards. So one thread moves into the
//! namespace and opens connections there, and the runtime copies between them and those that it accepts outside.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc;

use anyhow::Result;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::namespaces::{ADDRESS, Namespaces};
use super::settings::API_PORT;

type Answer = oneshot::Sender<std::io::Result<TcpStream>>;

/// The way; it is closed when this is dropped.
pub struct Passage {
    address: SocketAddr,
    _open: DropGuard,
}

impl Passage {
    /// Opens it.
    pub async fn to_api_server(namespaces: &Namespaces) -> Result<Self> {
        let target = SocketAddr::new(ADDRESS.parse()?, API_PORT);
        let network = namespaces.network()?;
        let (wanted, requests) = mpsc::channel::<Answer>();
        std::thread::Builder::new()
            .name("passage".to_owned())
            .spawn(move || connect(&network, target, &requests))?;

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let open = CancellationToken::new();
        let closed = open.clone();
        tokio::spawn(async move {
            let accept = async {
                while let Ok((mut outside, _)) = listener.accept().await {
                    let (answer, connected) = oneshot::channel();
                    if wanted.send(answer).is_err() {
                        return;
                    }
                    tokio::spawn(async move {
                        let mut inside = tokio::net::TcpStream::from_std(connected.await??)?;
                        tokio::io::copy_bidirectional(&mut outside, &mut inside).await?;
                        anyhow::Ok(())
                    });
                }
            };
            closed.run_until_cancelled(accept).await;
        });
        Ok(Self {
            address,
            _open: open.drop_guard(),
        })
    }

    /// The URL of the API server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// Opens connections inside until nobody asks any more.
fn connect(network: &File, target: SocketAddr, requests: &mpsc::Receiver<Answer>) {
    let entered = move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network));
    while let Ok(answer) = requests.recv() {
        let connection = entered.map_err(std::io::Error::from).and_then(|()| {
            let connection = TcpStream::connect(target)?;
            connection.set_nonblocking(true)?;
            Ok(connection)
        });
        let _ = answer.send(connection);
    }
}
