//! Prometheus and Alertmanager beside a cluster, with the rules of this repository, as an operator would run them; and Jaeger.
//!
//! The programs are the system's own ([`PROMETHEUS`], [`ALERTMANAGER`]): nothing is built or downloaded for them, and only
//! Prometheus is indispensable. Our processes are found by their logs, so one that is added or started again is
//! scraped without being told of. Scrapes carry the token of an account with ClusterRole `appwrapper-metrics-reader`, which
//! opens the API server's own metrics as well.

mod config;
mod discovery;
mod program;
mod query;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::cluster::Cluster;
use crate::cluster::apply::apply_yaml;
use crate::controller::{NAMESPACE, serving};
use discovery::Discovery;
pub use program::Program;
use program::{Running, free_port};
pub use query::{Series, Span};

/// Collects and judges.
pub const PROMETHEUS: Program = Program {
    name: "prometheus",
    package: "prometheus",
};
/// Delivers alerts.
pub const ALERTMANAGER: Program = Program {
    name: "prometheus-alertmanager",
    package: "prometheus-alertmanager",
};
/// Shows traces; not packaged, to be put into the search path by hand.
pub const JAEGER: Program = Program {
    name: "jaeger",
    package: "",
};

/// Where Jaeger takes traces, and where it shows them. It has no simple option for either.
const JAEGER_OTLP: &str = "http://127.0.0.1:4317";
const JAEGER_PAGE: &str = "http://127.0.0.1:16686";
/// How long Prometheus may take until it answers.
const START: Duration = Duration::from_secs(30);

const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: appwrapper-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus-reads-metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: appwrapper-metrics-reader}
subjects:
- {kind: ServiceAccount, name: prometheus, namespace: appwrapper-system}
";

/// How it is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// From one scrape, and one look at the rules, to the next.
    pub interval: Duration,
    /// A folder of pages that Prometheus serves below `/user/`.
    pub pages: Option<PathBuf>,
}

/// The running programs. They end when this is dropped, unless they are [left](Monitoring::leave), and in any case with
/// the cluster.
pub struct Monitoring {
    prometheus: Running,
    address: String,
    alertmanager: Option<(Running, String)>,
    jaeger: Option<Running>,
    discovery: Discovery,
}

impl Monitoring {
    /// Starts what is installed. The cluster must have been prepared by [`install`](crate::controller::install).
    ///
    /// # Errors
    ///
    /// When Prometheus is not installed or does not start.
    pub async fn start(cluster: &Cluster, options: &Options) -> Result<Self> {
        let program = PROMETHEUS.find()?;
        let folder = cluster.dir().join("monitoring");
        std::fs::create_dir_all(&folder)?;
        apply_yaml(&cluster.client(), ACCOUNT).await?;
        let token = cluster.service_account_token(NAMESPACE, "prometheus").await?;
        std::fs::write(folder.join("token"), token)?;

        let alertmanager = match ALERTMANAGER.find() {
            Ok(program) => Some(start_alertmanager(cluster, &folder, &program)?),
            Err(_) => None,
        };
        let jaeger = JAEGER
            .find()
            .ok()
            .map(|program| Running::start(cluster, &program, "jaeger", &[]));

        let address = format!("127.0.0.1:{}", free_port()?);
        let config = config::prometheus(
            &cluster.server(),
            options.interval,
            alertmanager.as_ref().map(|(_, address)| address.as_str()),
        );
        let file = |name: &str| folder.join(name).display().to_string();
        std::fs::write(folder.join("prometheus.yml"), config)?;
        let mut arguments = vec![
            format!("--config.file={}", file("prometheus.yml")),
            format!("--storage.tsdb.path={}", file("data")),
            format!("--web.listen-address={address}"),
            "--log.level=warn".to_owned(),
        ];
        if let Some(pages) = &options.pages {
            arguments.push(format!("--web.user-assets={}", pages.display()));
        }
        let discovery = Discovery::start(cluster.dir().to_owned(), folder.clone());
        let mut monitoring = Self {
            prometheus: Running::start(cluster, &program, "prometheus", &arguments)?,
            address,
            alertmanager,
            jaeger: jaeger.transpose()?,
            discovery,
        };
        monitoring.until_ready().await?;
        Ok(monitoring)
    }

    async fn until_ready(&mut self) -> Result<()> {
        let until = Instant::now() + START;
        loop {
            if let Some(status) = self.prometheus.ended()? {
                bail!("prometheus ended: {status}; see {}", self.prometheus.log().display());
            }
            match serving::get(&self.address, "/-/ready").await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= until => return Err(error).context("prometheus does not start"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// What to run our programs with, so that their traces arrive.
    pub fn variables(&self) -> Vec<(&'static str, &'static str)> {
        let traced = [("OTEL_EXPORTER_OTLP_ENDPOINT", JAEGER_OTLP)];
        traced.into_iter().filter(|_| self.jaeger.is_some()).collect()
    }

    /// What can be looked at, by name.
    pub fn links(&self) -> Vec<(&'static str, String)> {
        let mut links = vec![("prometheus", format!("http://{}/alerts", self.address))];
        links.extend(
            self.alertmanager
                .iter()
                .map(|(_, address)| ("alertmanager", format!("http://{address}"))),
        );
        links.extend(self.jaeger.iter().map(|_| ("jaeger", JAEGER_PAGE.to_owned())));
        links
    }

    /// The address of a page of [`Options::pages`].
    pub fn page(&self, name: &str) -> String {
        format!("http://{}/user/{name}", self.address)
    }

    /// Leaves everything running until the cluster ends. Processes that are started later are not found any more.
    pub fn leave(mut self) {
        self.discovery.write_now();
        self.prometheus.leave();
        if let Some((running, _)) = &mut self.alertmanager {
            running.leave();
        }
        if let Some(running) = &mut self.jaeger {
            running.leave();
        }
    }
}

fn start_alertmanager(cluster: &Cluster, folder: &Path, program: &Path) -> Result<(Running, String)> {
    let address = format!("127.0.0.1:{}", free_port()?);
    let file = folder.join("alertmanager.yml");
    std::fs::write(&file, config::alertmanager())?;
    let arguments = [
        format!("--config.file={}", file.display()),
        format!("--storage.path={}", folder.join("alertmanager").display()),
        format!("--web.listen-address={address}"),
        // Alone: no port for others of its kind.
        "--cluster.listen-address=".to_owned(),
    ];
    Ok((Running::start(cluster, program, "alertmanager", &arguments)?, address))
}
