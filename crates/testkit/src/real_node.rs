//! A cluster of one node that really runs containers: etcd, API server, controller manager, scheduler, containerd,
//! kubelet and kube-proxy, without a container engine and without an image registry.
//!
//! It needs root and a few Debian packages; [`requirements`] says which are missing. Everything runs in mount, network and
//! process `namespaces` of its own and ends with the first process in them. From outside, the API server is reached
//! through a `passage` on loopback. What is not kept apart are the cgroups, which lie below one named like the cluster, and
//! the few kernel settings that a kubelet makes (`vm.overcommit_memory`, `kernel.panic`).
//!
//! There is no DNS. Images are made here (`images`, [`image`](crate::image)) and imported.

pub mod requirements;

mod images;
mod namespaces;
mod passage;
mod pki;
mod processes;
mod settings;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{Api, Client};
use tokio::process::Command;
use tokio::time::Instant;

use crate::cluster::access;
use crate::cluster::place::{self, Owner, Place, REAL_NODES};
use crate::cluster::ready::{self, wait};
use crate::programs::{KUBECTL, OF_A_REAL_NODE, Programs};
use namespaces::Namespaces;
use passage::Passage;
use processes::Processes;

/// How long the start of one part may take; images are made meanwhile.
const DEADLINE: Duration = Duration::from_secs(120);

/// The only node's name.
pub const NODE: &str = "node-1";

/// A running cluster of one real node.
pub struct RealNode {
    place: Place,
    programs: Programs,
    namespaces: Namespaces,
    passage: Passage,
    client: Client,
    /// There while this process answers for the cluster: what drops it, ends it.
    owner: Option<Owner>,
}

impl RealNode {
    /// Starts a cluster and waits until its node is ready. With `keep` it outlives this process.
    ///
    /// # Errors
    ///
    /// When something that it needs is missing, when a cluster of that name exists, or when it is not ready in time. The last
    /// carries the ends of the logs.
    pub async fn start(name: &str, keep: bool) -> Result<Self> {
        crate::install_crypto();
        requirements::check()?;
        let programs = Programs::find(&OF_A_REAL_NODE).await?;
        place::sweep(REAL_NODES, end)?;
        let place = Place::named(REAL_NODES, name)?;
        let owner = place.take()?;
        match Self::start_in(&place, programs).await {
            Ok(mut node) => {
                if keep {
                    place.mark_kept()?;
                } else {
                    node.owner = Some(owner);
                }
                Ok(node)
            }
            Err(error) => {
                let tails = place::log_tails(&logs(&place), processes::NAMES);
                end(&place);
                Err(anyhow!("real node {name} did not start: {error:#}\n{tails}"))
            }
        }
    }

    async fn start_in(place: &Place, programs: Programs) -> Result<Self> {
        let dir = place.dir();
        std::fs::create_dir_all(logs(place))?;
        let namespaces = Namespaces::create(dir).await?;
        pki::write(dir)?;
        settings::write(dir, place.name())?;
        let mut processes = Processes::new(dir, &namespaces, &programs);
        let passage = Passage::to_api_server(&namespaces).await?;
        let kubeconfig = pki::outside_kubeconfig(dir, &passage.url())?;
        let client = Client::try_from(access::config_from(&kubeconfig).await?)?;

        let until = Instant::now() + DEADLINE;
        processes.start_api_server()?;
        processes.start_runtime()?;
        let started = async {
            wait(until, "the API server is ready", || async {
                let request = http::Request::get("/readyz").body(Vec::new())?;
                Ok((client.request_text(request).await? == "ok").then_some(()))
            })
            .await?;
            images::import_own(dir, &namespaces, until).await
        };
        processes.unless_one_ends(started).await?;
        processes.start_controllers()?;
        processes.start_node()?;
        let ready = async {
            wait(until, "the node is ready", || async {
                let node = Api::<Node>::all(client.clone()).get(NODE).await?;
                Ok(ready::is_ready(&node).then_some(()))
            })
            .await?;
            wait(until, "the default service account exists", || async {
                let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
                Ok(accounts.get_opt("default").await?)
            })
            .await
        };
        processes.unless_one_ends(ready).await?;
        Ok(Self {
            place: place.clone(),
            programs,
            namespaces,
            passage,
            client,
            owner: None,
        })
    }

    /// Uses a cluster that was started to be kept. Dropping it leaves it running; [`RealNode::stop`] ends it.
    ///
    /// # Errors
    ///
    /// When there is no such cluster.
    pub async fn attach(name: &str) -> Result<Self> {
        crate::install_crypto();
        let place = Place::named(REAL_NODES, name)?;
        if !place.exists() {
            bail!("there is no real node {name:?}; running are: {:?}", Self::names()?);
        }
        let namespaces = Namespaces::existing(place.dir())?;
        let passage = Passage::to_api_server(&namespaces).await?;
        let kubeconfig = pki::outside_kubeconfig(place.dir(), &passage.url())?;
        Ok(Self {
            client: Client::try_from(access::config_from(&kubeconfig).await?)?,
            programs: Programs::find(&[KUBECTL]).await?,
            place,
            namespaces,
            passage,
            owner: None,
        })
    }

    /// The names of the real nodes on this machine, those of running tests included.
    ///
    /// # Errors
    ///
    /// When the cache folder is not known or cannot be read.
    pub fn names() -> Result<Vec<String>> {
        place::names(REAL_NODES)
    }

    /// Ends the cluster of that name and removes its folder; whatever state it is in.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn end_named(name: &str) -> Result<()> {
        let place = Place::named(REAL_NODES, name)?;
        if !place.exists() {
            bail!("there is no real node {name:?}; running are: {:?}", Self::names()?);
        }
        end(&place);
        Ok(())
    }

    /// Ends the cluster and removes its folder.
    pub fn stop(mut self) {
        end(&self.place);
        self.owner = None;
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        self.place.name()
    }

    /// The cluster's folder; a test may put files of its own there.
    pub fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// The folder of the logs.
    pub fn logs(&self) -> PathBuf {
        logs(&self.place)
    }

    /// The API server's audit log, one JSON event a line.
    pub fn audit_log(&self) -> PathBuf {
        self.dir().join(processes::AUDIT_LOG)
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Whether the node takes pods.
    ///
    /// # Errors
    ///
    /// When the API server does not answer.
    pub async fn is_ready(&self) -> Result<bool> {
        Ok(ready::is_ready(&Api::<Node>::all(self.client()).get(NODE).await?))
    }

    /// The API server as this process reaches it.
    pub fn server(&self) -> String {
        self.passage.url()
    }

    /// A kubectl with all rights, by way of this process.
    ///
    /// # Errors
    ///
    /// When the program is not there.
    pub fn kubectl(&self) -> Result<Command> {
        let mut command = Command::new(self.programs.path(KUBECTL)?);
        command
            .arg("--kubeconfig")
            .arg(pki::outside_path(self.dir()))
            // What it learns of kinds must not outlive the cluster.
            .arg("--cache-dir")
            .arg(self.dir().join("kubectl"));
        Ok(command)
    }

    /// A program inside the namespaces, where `kubectl` is found and has all rights.
    ///
    /// # Errors
    ///
    /// When kubectl is not there.
    pub fn inside(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let folder = self
            .programs
            .path(KUBECTL)?
            .parent()
            .context("a program is in a folder")?;
        let path = std::env::join_paths(
            std::iter::once(folder.to_owned())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        )?;
        let mut command = Command::from(self.namespaces.enter_here(program));
        command
            .env("PATH", path)
            .env("KUBECONFIG", pki::inside_path(self.dir()));
        Ok(command)
    }

    /// Ends a container as a crash does.
    ///
    /// # Errors
    ///
    /// When there is none with this id.
    pub async fn kill_container(&self, id: &str) -> Result<()> {
        images::containerd(&self.namespaces, &["tasks", "kill", "--signal", "SIGKILL", id]).await
    }

    /// Has a container run out of memory: a process beside its own takes all that its limit leaves. The kernel ends the one
    /// whose score is higher, which is the container's, and then the other.
    ///
    /// # Errors
    ///
    /// When the container has no cgroup.
    pub async fn exhaust_memory(&self, pod_uid: &str, container: &str) -> Result<()> {
        let cgroup = settings::memory_cgroup(self.name(), pod_uid, container)?;
        let script = "echo $$ > \"$0/cgroup.procs\" && exec tail /dev/zero";
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", script])
            .arg(cgroup)
            .stdout(Stdio::null())
            .kill_on_drop(true);
        command.status().await.context("filling the memory of a container")?;
        Ok(())
    }

    /// Makes an image from an archive known to the node, so that pods can use it.
    ///
    /// # Errors
    ///
    /// When containerd refuses it.
    pub async fn import(&self, archive: &Path) -> Result<()> {
        images::import(&self.namespaces, archive).await
    }
}

impl Drop for RealNode {
    fn drop(&mut self) {
        if self.owner.is_some() {
            end(&self.place);
        }
    }
}

/// Ends a cluster without a runtime and without failing, as a drop must.
fn end(place: &Place) {
    if let Ok(namespaces) = Namespaces::existing(place.dir()) {
        namespaces.end();
    }
    settings::remove_cgroups(place.name());
    if let Err(error) = place.remove() {
        eprintln!("real node {}: {error:#}", place.name());
    }
}

fn logs(place: &Place) -> PathBuf {
    place.dir().join("logs")
}

/// Runs a program to its end.
async fn run(command: std::process::Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut command = Command::from(command);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("running {name}"))?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
