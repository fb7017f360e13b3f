//! The webhook as a process, with the rights of its ServiceAccount.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use appwrapper_testkit::cluster::{Cluster, apply};
use appwrapper_testkit::controller::{NAMESPACE, usage};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::cargo::root;

/// Path of the mutating webhook.
pub const MUTATE: &str = "/mutate-workload-codeflare-dev-v1beta2-appwrapper";
/// Path of the validating webhook.
pub const VALIDATE: &str = "/validate-workload-codeflare-dev-v1beta2-appwrapper";
/// The name in its certificate.
pub const SERVER_NAME: &str = "appwrapper-webhook-service.appwrapper-system.svc";
const ACCOUNT: &str = "appwrapper-webhook";
const SECRET: &str = "appwrapper-webhook-server-cert";
const START: Duration = Duration::from_secs(60);

/// A running webhook.
pub struct Server {
    child: Child,
    pid: u32,
    address: SocketAddr,
    secrets: Api<Secret>,
}

/// Applies what is shipped, of which nothing runs: there is no node.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let mut kustomize = cluster.kubectl()?;
    kustomize.arg("kustomize").arg(root().join("deploy/overlays/default"));
    let rendered = kustomize.stdin(Stdio::null()).output().await?;
    if !rendered.status.success() {
        bail!(
            "rendering the manifests: {}",
            String::from_utf8_lossy(&rendered.stderr).trim()
        );
    }
    apply::apply_yaml(&cluster.client(), &String::from_utf8(rendered.stdout)?).await?;
    Ok(())
}

impl Server {
    /// Starts it, and waits until it is ready.
    pub async fn start(cluster: &Cluster, program: &Path, access_reviews: bool) -> Result<Self> {
        let shipped = std::fs::read_to_string(root().join("deploy/base/config.yaml"))?;
        let key = "userRBACAdmissionCheck: ";
        let config = cluster.dir().join("webhook.yaml");
        std::fs::write(
            &config,
            shipped.replace(&format!("{key}true"), &format!("{key}{access_reviews}")),
        )?;
        let kubeconfig = cluster.dir().join("webhook.kubeconfig");
        cluster
            .service_account_kubeconfig(NAMESPACE, ACCOUNT, None, &kubeconfig)
            .await?;
        let (address, health) = (free_address().await?, free_address().await?);
        let log = std::fs::File::create(cluster.dir().join("webhook.log"))?;
        let child = Command::new(program)
            .arg("--config")
            .arg(&config)
            .args([
                "--bind-address",
                &address.to_string(),
                "--health-bind-address",
                &health.to_string(),
            ])
            .args([
                "--metrics-bind-address",
                "127.0.0.1:0",
                "--namespace",
                NAMESPACE,
                "--pod-name",
                "bench",
            ])
            // Nobody has to be told that it ends.
            .args(["--drain-time", "0s", "--bundle-settle-time", "1s"])
            .env("KUBECONFIG", &kubeconfig)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("running {}", program.display()))?;
        let pid = child.id().context("the webhook has a process id")?;
        cluster.adopt(pid)?;
        let secrets = Api::namespaced(cluster.client(), NAMESPACE);
        let mut server = Self {
            child,
            pid,
            address,
            secrets,
        };
        server.until_ready(health, &cluster.dir().join("webhook.log")).await?;
        Ok(server)
    }

    async fn until_ready(&mut self, health: SocketAddr, log: &Path) -> Result<()> {
        let until = Instant::now() + START;
        while !is_ready(health).await {
            if self.child.try_wait()?.is_some() || Instant::now() >= until {
                bail!(
                    "the webhook is not ready:\n{}",
                    std::fs::read_to_string(log).unwrap_or_default()
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Where it serves.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Who has signed its certificate.
    pub async fn authority(&self) -> Result<CertificateDer<'static>> {
        let secret = self.secrets.get(SECRET).await?;
        let pem = secret
            .data
            .and_then(|mut data| data.remove("ca.crt"))
            .context("the Secret has no ca.crt")?;
        CertificateDer::from_pem_slice(&pem.0).map_err(|error| anyhow::anyhow!("ca.crt: {error}"))
    }

    /// What it holds in memory now.
    pub fn rss_mib(&self) -> Result<f64> {
        Ok(usage::of(self.pid)?.rss_mib)
    }

    /// The most that it ever had.
    pub fn peak_rss_mib(&self) -> Result<f64> {
        Ok(usage::of(self.pid)?.peak_rss_mib)
    }

    /// Ends it.
    pub async fn stop(mut self) -> Result<()> {
        self.child.kill().await.context("ending the webhook")
    }
}

async fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?)
}

async fn is_ready(address: SocketAddr) -> bool {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return false;
    };
    let mut answer = String::new();
    let request = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.starts_with("HTTP/1.1 200")
}
