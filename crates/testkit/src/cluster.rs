//! A real Kubernetes control plane of processes on this machine: etcd, API server, controller manager, scheduler, and
//! kwok, which plays the nodes and the pods. No root and no container engine is needed, and nothing is downloaded.
//!
//! [`Cluster::start`] returns when the cluster serves and its nodes are ready, after two to four seconds. Several run
//! side by side: each has a folder, ports and credentials of its own. A cluster ends with [`Cluster::stop`] or when it
//! is dropped, unless it was to be kept; what a killed test left behind is ended by the next start on the machine.
//!
//! How pods behave, and the annotations that change it, is in `tests/controlplane/stages/pods.yaml`. Where to go next:
//! [`options`] what can be asked for, `access` credentials, `component` pausing and killing parts, [`apply`] manifests.

pub mod apply;
pub mod options;

pub(crate) mod access;
mod component;
mod config;
mod guests;
mod node;
pub(crate) mod place;
mod ports;
pub(crate) mod ready;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, anyhow, bail};
use kube::Client;
use tokio::process::Command;

pub use access::client_from;
pub use component::Component;
pub use options::ClusterOptions;

use crate::programs::{KUBECTL, KWOKCTL, OF_A_CLUSTER, Programs};
use place::{CLUSTERS, Owner, Place};
use ports::Ports;

/// A running cluster.
pub struct Cluster {
    place: Place,
    programs: Programs,
    client: Client,
    config: kube::Config,
    /// There while this process answers for the cluster: what drops it, ends it.
    tenant: Option<Tenant>,
}

/// What a process holds for a cluster that it started and will end.
struct Tenant {
    _owner: Owner,
    ports: Ports,
}

impl Cluster {
    /// Starts a cluster and waits until it can be used.
    ///
    /// # Errors
    ///
    /// When a program cannot be found or built, when a cluster of that name exists, or when the cluster is not ready in
    /// time. The last carries the ends of the components' logs.
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        crate::install_crypto();
        let programs = Programs::find(&OF_A_CLUSTER).await?;
        let kwokctl = programs.path(KWOKCTL)?;
        place::sweep(CLUSTERS, |place| place.end(kwokctl))?;
        let place = Place::named(CLUSTERS, &options.name)?;
        let owner = place.take()?;
        let tenant = Tenant {
            _owner: owner,
            ports: Ports::reserve()?,
        };

        match Self::start_in(&place, &programs, &tenant.ports, &options).await {
            Ok((client, config)) => {
                if options.keep {
                    place.mark_kept()?;
                }
                let tenant = (!options.keep).then_some(tenant);
                Ok(Self {
                    place,
                    programs,
                    client,
                    config,
                    tenant,
                })
            }
            Err(error) => {
                let error = anyhow!(
                    "cluster {} did not start: {error:#}\n{}",
                    place.name(),
                    place.log_tails()
                );
                place.end(programs.path(KWOKCTL)?);
                Err(error)
            }
        }
    }

    async fn start_in(
        place: &Place,
        programs: &Programs,
        ports: &Ports,
        options: &ClusterOptions,
    ) -> Result<(Client, kube::Config)> {
        let files = config::write(place, programs, ports, options)?;
        let mut command = place.kwokctl(programs.path(KWOKCTL)?);
        command
            .args(["create", "cluster", "--name", place.name(), "--kubeconfig"])
            .arg(place.kubeconfig());
        for file in &files {
            command.arg("--config").arg(file);
        }
        let created = async {
            run(command).await.context("creating the cluster with kwokctl")?;
            let config = access::config_from(&place.kubeconfig()).await?;
            let client = Client::try_from(config.clone())?;
            ready::make_ready(&client, options).await?;
            Ok((client, config))
        };
        // kwokctl would wait minutes for an API server that has given up.
        tokio::select! {
            created = created => created,
            ended = component::first_to_end(place) => bail!("{} ended", ended.name()),
        }
    }

    /// Uses a cluster that was started with [`ClusterOptions::keep`], perhaps by another process. Dropping it leaves it
    /// running; [`Cluster::stop`] ends it.
    ///
    /// # Errors
    ///
    /// When there is no such cluster.
    pub async fn attach(name: &str) -> Result<Self> {
        crate::install_crypto();
        let place = Place::named(CLUSTERS, name)?;
        if !place.exists() {
            bail!("there is no cluster {name:?}; running are: {:?}", Self::names()?);
        }
        let programs = Programs::find(&[KWOKCTL, KUBECTL]).await?;
        let config = access::config_from(&place.kubeconfig()).await?;
        Ok(Self {
            client: Client::try_from(config.clone())?,
            config,
            place,
            programs,
            tenant: None,
        })
    }

    /// The names of the clusters on this machine, those of running tests included.
    ///
    /// # Errors
    ///
    /// When the cache folder is not known or cannot be read.
    pub fn names() -> Result<Vec<String>> {
        place::names(CLUSTERS)
    }

    /// Ends the cluster and removes its folder.
    ///
    /// # Errors
    ///
    /// When kwokctl cannot end it.
    pub async fn stop(mut self) -> Result<()> {
        self.end_guests();
        let mut command = self.place.kwokctl(self.programs.path(KWOKCTL)?);
        command
            .args(["delete", "cluster", "--name", self.place.name(), "--kubeconfig"])
            .arg(self.place.kubeconfig());
        run(command).await.context("deleting the cluster with kwokctl")?;
        self.place.remove()?;
        self.tenant = None;
        Ok(())
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        self.place.name()
    }

    /// Whether it ends with this process, since this process has started it and it is not to be kept.
    pub fn ends_when_dropped(&self) -> bool {
        self.tenant.is_some()
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// What [`Cluster::client`] is made from: address, certificate authority, admin identity.
    pub fn config(&self) -> &kube::Config {
        &self.config
    }

    /// A kubeconfig file with all rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.place.kubeconfig()
    }

    /// The cluster's folder; a test may put files of its own there.
    pub fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// The folder of the components' logs.
    pub fn logs(&self) -> PathBuf {
        self.place.logs()
    }

    /// The API server's audit log, one JSON event a line; there when the cluster was started with an audit policy.
    pub fn audit_log(&self) -> Option<PathBuf> {
        Some(self.place.logs().join("audit.log")).filter(|path| path.is_file())
    }

    /// A kubectl for this cluster.
    ///
    /// # Errors
    ///
    /// When the program is not there.
    pub fn kubectl(&self) -> Result<Command> {
        let mut command = Command::new(self.programs.path(KUBECTL)?);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        Ok(command)
    }

    async fn start_components(&self) -> Result<()> {
        let mut command = self.place.kwokctl(self.programs.path(KWOKCTL)?);
        command.args(["start", "cluster", "--name", self.place.name()]);
        run(command).await.context("starting components with kwokctl")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let (Some(_), Ok(kwokctl)) = (&self.tenant, self.programs.path(KWOKCTL)) {
            self.place.end(kwokctl);
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name())
            .field("dir", &self.dir())
            .finish_non_exhaustive()
    }
}

async fn run(mut command: Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
