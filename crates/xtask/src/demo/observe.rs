//! `--observe`: Prometheus, Alertmanager, Jaeger and a page with our dashboards, beside the demo.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use appwrapper_testkit::cluster::Cluster;
use appwrapper_testkit::controller::ControllerOptions;
use appwrapper_testkit::monitoring::{ALERTMANAGER, JAEGER, Monitoring, Options};
use appwrapper_testkit::progress::Progress;
use tokio::process::Command;

use crate::cargo;

/// From one scrape to the next.
const INTERVAL: Duration = Duration::from_secs(2);

/// What runs beside the demo.
pub struct Observed {
    monitoring: Monitoring,
    has_page: bool,
}

impl Observed {
    /// Starts what is installed, and says what is not.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let pages = match preview().await {
            Ok(pages) => Some(pages),
            Err(missing) => {
                println!("without the page of dashboards: {missing:#}");
                None
            }
        };
        for optional in [ALERTMANAGER, JAEGER] {
            if let Err(missing) = optional.find() {
                println!("without {}: {missing:#}", optional.name);
            }
        }
        let has_page = pages.is_some();
        let options = Options {
            interval: INTERVAL,
            pages,
        };
        let monitoring = Monitoring::start(cluster, &options).await?;
        Ok(Self { monitoring, has_page })
    }

    /// Has a controller send its traces to where they are shown.
    pub fn traced(&self, options: ControllerOptions) -> ControllerOptions {
        let variables = self.monitoring.variables();
        variables
            .into_iter()
            .fold(options, |options, (name, value)| options.env(name, value))
    }

    /// Prints where to look.
    pub fn links(&self) {
        if self.has_page {
            let page = format!("index.html?interval={}", INTERVAL.as_secs());
            println!("dashboards    {}", self.monitoring.page(&page));
        }
        for (name, address) in self.monitoring.links() {
            println!("{name:13} {address}");
        }
    }

    /// Leaves everything running until the cluster ends.
    pub fn leave(self) {
        self.monitoring.leave();
    }
}

/// The folder with the page, built if need be.
async fn preview() -> Result<PathBuf> {
    let folder = cargo::root().join("dashboards/preview");
    let progress = Progress::start("building the page of dashboards");
    if !folder.join("node_modules").is_dir() {
        npm(&folder, &["ci"]).await?;
    }
    npm(&folder, &["run", "build"]).await?;
    progress.done();
    Ok(folder.join("dist"))
}

async fn npm(folder: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new("npm").args(arguments).current_dir(folder).output().await;
    let output = output.context("npm does not run; install the Debian packages nodejs and npm")?;
    if !output.status.success() {
        bail!(
            "npm {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
