//! What every benchmark needs: a cluster, the controller's program, and many objects submitted at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use appwrapper_testkit::controller;
use appwrapper_testkit::programs::{OF_A_CLUSTER, Programs, controlplane_dir};
use appwrapper_testkit::progress::Progress;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};

use crate::cargo::{self, RELEASED_CONTROLLER};
use appwrapper_testkit::wrappers;

/// Where what is submitted lives.
pub const NAMESPACE: &str = "appwrapper-bench";
/// How long everything submitted may take to end, and again to be gone.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// A cluster that the CRD and the roles are installed in, and the program to measure.
pub struct Stage {
    /// The cluster. It ends with this.
    pub cluster: Cluster,
    /// The controller as it is shipped.
    pub program: PathBuf,
}

impl Stage {
    /// Builds and starts.
    pub async fn set() -> Result<Self> {
        Self::set_with(None).await
    }

    /// Starts, with this program or the one that it builds.
    pub async fn set_with(program: Option<PathBuf>) -> Result<Self> {
        let program = match program {
            Some(program) => program,
            None => cargo::build(RELEASED_CONTROLLER).await?,
        };
        Programs::find(&OF_A_CLUSTER).await?;
        let progress = Progress::start("starting a cluster");
        let policy = controlplane_dir().join("audit-policy-controller.yaml");
        let cluster = Cluster::start(ClusterOptions::unique("bench").audited_by(policy)).await?;
        controller::install(&cluster).await?;
        wrappers::namespace(&cluster.client(), NAMESPACE).await?;
        progress.done();
        Ok(Self { cluster, program })
    }
}

/// Submits objects, so many at once, by a function that is given their names; returns when each was sent.
pub async fn submit<F>(
    names: Vec<String>,
    at_once: usize,
    create: impl Fn(String) -> F,
) -> Result<BTreeMap<String, Instant>>
where
    F: Future<Output = Result<()>>,
{
    stream::iter(names)
        .map(|name| {
            let creating = create(name.clone());
            async move {
                let sent = Instant::now();
                creating.await?;
                Ok((name, sent))
            }
        })
        .buffer_unordered(at_once.max(1))
        .try_collect()
        .await
}

/// Deletes all Jobs, and waits until they and all pods are gone.
pub async fn clear_jobs(client: &Client) -> Result<()> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    jobs.delete_collection(&DeleteParams::background(), &ListParams::default())
        .await
        .context("deleting the Jobs")?;
    let until = Instant::now() + DEADLINE;
    let one = ListParams::default().limit(1);
    while !(jobs.list_metadata(&one).await?.items.is_empty() && pods.list_metadata(&one).await?.items.is_empty()) {
        if Instant::now() >= until {
            bail!("the Jobs are not gone {} s after their deletion", DEADLINE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
