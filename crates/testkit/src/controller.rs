//! Our controller as a process against a [`Cluster`], with the rights of its ServiceAccount and no others.
//!
//! [`install`] applies what the overlay `deploy/overlays/dev` holds: the CRD, the namespace, the account and its roles.
//! [`Controller::start`] then runs the program with a kubeconfig made from a token of that account, and returns when it
//! works: caches listed, all shards held, or, among others, its own share warm. It ends when it is dropped, unless it is
//! [left](Controller::leave) running, and in any case with its cluster. [`metrics`] reads what it exports, [`usage`] what it
//! costs. Several of them are a [`Fleet`](crate::fleet::Fleet).

pub mod metrics;
pub mod options;
pub mod usage;

pub(crate) mod serving;

use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::api::{Api, ListParams};
use rustix::process::{Pid, Signal, kill_process};

pub use options::{ControllerOptions, program, shipped_config};

use crate::cluster::{Cluster, apply, client_from};
use metrics::Scrape;
use serving::Addresses;

/// The namespace of the installation.
pub const NAMESPACE: &str = "appwrapper-system";
/// The controller's ServiceAccount.
pub const ACCOUNT: &str = "appwrapper-controller-manager";

/// How long it may take until it works; longer than the Lease of one that was killed.
const START: Duration = Duration::from_secs(40);
/// How long it may take to end when asked to: its own drain and a little more.
const END: Duration = Duration::from_secs(15);
/// How many of the log's last lines an error shows.
const LOG_LINES: usize = 15;

/// A running controller.
pub struct Controller {
    child: Option<Child>,
    pid: u32,
    log: PathBuf,
    addresses: Addresses,
    joins: bool,
}

/// Applies the CRD, the namespace, the account and its roles, and waits until the roles are in force.
///
/// # Errors
///
/// When the manifests cannot be rendered or are refused.
pub async fn install(cluster: &Cluster) -> Result<()> {
    let manifests = render(cluster, "dev").await?;
    apply::apply_yaml(&cluster.client(), &manifests).await?;

    let kubeconfig = cluster.dir().join("installed.kubeconfig");
    cluster
        .service_account_kubeconfig(NAMESPACE, ACCOUNT, None, &kubeconfig)
        .await?;
    let client = client_from(&kubeconfig).await?;
    let (wrappers, leases) = (
        Api::<appwrapper_api::AppWrapper>::all(client.clone()),
        Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(client, NAMESPACE),
    );
    let one = ListParams::default().limit(1);
    let until = Instant::now() + START;
    loop {
        match tokio::try_join!(wrappers.list(&one), leases.list(&one)) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= until => return Err(error).context("using the controller's account"),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The manifests of an overlay.
pub(crate) async fn render(cluster: &Cluster, overlay: &str) -> Result<String> {
    let overlay = repository().join("deploy/overlays").join(overlay);
    let mut kustomize = cluster.kubectl()?;
    let rendered = kustomize
        .arg("kustomize")
        .arg(&overlay)
        .stdin(Stdio::null())
        .output()
        .await?;
    if !rendered.status.success() {
        bail!(
            "rendering {}: {}",
            overlay.display(),
            String::from_utf8_lossy(&rendered.stderr).trim()
        );
    }
    String::from_utf8(rendered.stdout).context("manifests are text")
}

impl Controller {
    /// Starts it and waits until it works. The cluster must have been prepared by [`install`].
    ///
    /// # Errors
    ///
    /// When it ends or does not work in time; the error carries the end of its log.
    pub async fn start(cluster: &Cluster, options: ControllerOptions) -> Result<Self> {
        let mut controller = Self::spawn(cluster, &options).await?;
        controller.until_it_works().await?;
        Ok(controller)
    }

    /// Starts it and does not wait.
    ///
    /// # Errors
    ///
    /// When it cannot be run.
    pub async fn spawn(cluster: &Cluster, options: &ControllerOptions) -> Result<Self> {
        let file = |ending: &str| cluster.dir().join(format!("{}.{ending}", options.files()));
        let (log, kubeconfig) = (file("log"), file("kubeconfig"));
        let server = options.server.as_deref();
        cluster
            .service_account_kubeconfig(NAMESPACE, ACCOUNT, server, &kubeconfig)
            .await?;
        let output = std::fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let child = options
            .command(&kubeconfig)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("running {}", options.program.display()))?;
        let pid = child.id();
        let controller = Self {
            child: Some(child),
            pid,
            log,
            addresses: Addresses::default(),
            joins: options.joins,
        };
        cluster.adopt(pid)?;
        Ok(controller)
    }

    /// Waits until it works.
    ///
    /// # Errors
    ///
    /// When it ends or does not work in time; the error carries the end of its log.
    pub async fn until_it_works(&mut self) -> Result<()> {
        let until = Instant::now() + START;
        loop {
            if let Some(status) = self.ended()? {
                bail!("the controller ended: {status}; {}", self.log_tail());
            }
            let works = self.works().await;
            if let Ok(true) = works {
                return Ok(());
            }
            if Instant::now() >= until {
                let tail = self.log_tail();
                works.with_context(|| format!("the controller does not work in time; {tail}"))?;
                bail!("the controller does not work in time: it is not ready or does not hold every shard; {tail}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    ///
    /// When that cannot be known.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.as_mut().map(Child::try_wait).transpose()?.flatten())
    }

    async fn works(&mut self) -> Result<bool> {
        self.addresses = Addresses::read(&self.log)?;
        let probes = self.addresses.probes.as_deref().context("no address of probes")?;
        if serving::get(probes, "/readyz").await.is_err() {
            return Ok(false);
        }
        let scrape = self.metrics().await?;
        let owned = scrape.sum("appwrapper_shard_owned", &[]);
        let shards = scrape.sum("appwrapper_shards_configured", &[]);
        Ok(self.joins || (scrape.sum("leader_election_master_status", &[]) >= 1.0 && owned >= shards))
    }

    /// What it exports now.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn metrics(&self) -> Result<Scrape> {
        let address = self.addresses.metrics.as_deref().context("no address of metrics")?;
        Ok(Scrape::parse(&serving::get(address, "/metrics").await?))
    }

    /// What its page about its caches says.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn caches(&self) -> Result<String> {
        let address = self.addresses.probes.as_deref().context("no address of probes")?;
        serving::get(address, "/debug/caches").await
    }

    /// Where it serves metrics.
    pub fn metrics_url(&self) -> String {
        format!(
            "http://{}/metrics",
            self.addresses.metrics.as_deref().unwrap_or_default()
        )
    }

    /// Where it answers probes.
    pub fn probes_url(&self) -> String {
        format!("http://{}", self.addresses.probes.as_deref().unwrap_or_default())
    }

    /// Its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let mut lines: Vec<&str> = text.lines().rev().take(LOG_LINES).collect();
        lines.reverse();
        format!("the end of {}:\n{}", self.log.display(), lines.join("\n"))
    }

    /// Asks it to end and does not wait: it finishes what is under way and hands over what it holds. [`Controller::stop`]
    /// waits.
    pub fn terminate(&self) {
        self.child.iter().for_each(|child| signal(child, Signal::TERM));
    }

    /// Stops it where it stands, as a machine that hangs.
    pub fn pause(&self) {
        self.child.iter().for_each(|child| signal(child, Signal::STOP));
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.child.iter().for_each(|child| signal(child, Signal::CONT));
    }

    /// Asks it to end, and waits for that.
    ///
    /// # Errors
    ///
    /// When it does not end in time, or not in order.
    pub async fn stop(mut self) -> Result<()> {
        self.terminate();
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let until = Instant::now() + END;
        loop {
            match child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the controller ended: {status}; {}", self.log_tail()),
                None if Instant::now() >= until => {
                    child.kill()?;
                    child.wait()?;
                    bail!("the controller did not end in time; {}", self.log_tail());
                }
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Ends it as a failing node does: nothing is finished, and its Lease runs out by itself.
    ///
    /// # Errors
    ///
    /// When it cannot be killed.
    pub fn kill(mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Leaves it running until its cluster ends.
    pub fn leave(mut self) {
        self.child = None;
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // One that is paused would never hear of it.
        self.resume();
        self.terminate();
        let Some(child) = &mut self.child else { return };
        let until = Instant::now() + END;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn signal(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
