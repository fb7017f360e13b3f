//! One replica: a pod, perhaps a proxy, and the process that runs in the pod now.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::cluster::Cluster;
use crate::controller::{ACCOUNT, Controller, ControllerOptions, NAMESPACE};
use crate::proxy::Proxy;

/// A replica.
pub struct Replica {
    name: String,
    options: ControllerOptions,
    starts: usize,
    process: Option<Controller>,
    proxy: Option<Proxy>,
}

impl Replica {
    pub(super) async fn start(cluster: &Cluster, options: ControllerOptions, proxied: bool) -> Result<Self> {
        let name = options.name().to_owned();
        let uid = create_pod(cluster.client(), &name).await?;
        let mut options = options.arg(format!("--pod-uid={uid}"));
        let proxy = if proxied {
            let proxy = Proxy::in_front_of(cluster).await?;
            options = options.through(&proxy);
            Some(proxy)
        } else {
            None
        };
        let mut replica = Self {
            name,
            options,
            starts: 0,
            process: None,
            proxy,
        };
        replica.restart(cluster).await?;
        Ok(replica)
    }

    /// Starts the process, which must not run.
    pub(super) async fn restart(&mut self, cluster: &Cluster) -> Result<()> {
        if self.is_running()? {
            bail!("{} runs already", self.name);
        }
        let options = self.options.clone().after_starts(self.starts);
        self.starts += 1;
        self.process = Some(Controller::spawn(cluster, &options).await?);
        Ok(())
    }

    pub(super) async fn until_it_works(&mut self) -> Result<()> {
        let process = self.process.as_mut();
        process
            .with_context(|| format!("{} does not run", self.name))?
            .until_it_works()
            .await
    }

    pub(super) async fn remove(mut self, cluster: &Cluster) -> Result<()> {
        if let Some(process) = self.process.take() {
            process.resume();
            process.stop().await?;
        }
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        // Nothing else looks at the pod, so it need not be waited for.
        pods.delete(&self.name, &DeleteParams::default().grace_period(0))
            .await?;
        Ok(())
    }

    pub(super) fn leave(mut self) {
        self.process.take().into_iter().for_each(Controller::leave);
    }

    /// Its name, which is that of its pod.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process, if there is one.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn process(&self) -> Result<&Controller> {
        self.process
            .as_ref()
            .with_context(|| format!("{} does not run", self.name))
    }

    /// Whether its process is there, running or paused.
    ///
    /// # Errors
    ///
    /// When that cannot be known.
    pub fn is_running(&mut self) -> Result<bool> {
        match &mut self.process {
            None => Ok(false),
            Some(process) => Ok(process.ended()?.is_none()),
        }
    }

    /// Kills the process, as a node that fails does.
    ///
    /// # Errors
    ///
    /// When it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), Controller::kill)
    }

    /// Asks the process to end, and does not wait.
    pub fn terminate(&self) {
        self.process.iter().for_each(Controller::terminate);
    }

    /// What stands between it and the API server.
    ///
    /// # Errors
    ///
    /// When nothing does.
    pub fn proxy(&self) -> Result<&Proxy> {
        self.proxy
            .as_ref()
            .with_context(|| format!("{} has no proxy", self.name))
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let none = || format!("{} does not run", self.name);
        self.process.as_ref().map_or_else(none, Controller::log_tail)
    }
}

/// A pod of that name, which kwok plays; returns its uid. Without it the collector would remove the replica's Lease, which
/// the pod owns.
async fn create_pod(client: Client, name: &str) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "serviceAccountName": ACCOUNT,
            // The namespace takes no others.
            "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "manager",
                "image": "appwrapper-controller",
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    });
    let pod: Pod = serde_json::from_value(pod)?;
    let mut created = pods.create(&PostParams::default(), &pod).await;
    if matches!(&created, Err(kube::Error::Api(status)) if status.code == 409) {
        // Of an earlier fleet, whose processes have ended with it.
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        created = pods.create(&PostParams::default(), &pod).await;
    }
    let created = created.with_context(|| format!("creating pod {name}"))?;
    created.uid().context("a created pod has a uid")
}
