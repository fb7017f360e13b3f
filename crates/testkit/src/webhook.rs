//! Our admission webhook as a process, called by the API server of a [`Cluster`] under a URL.
//!
//! Everything but the address is as shipped: the overlay's account, roles, Secret, Lease and configurations are applied, and
//! the process sees to its certificates by itself.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{DeleteParams, DynamicObject};
use kube::{Api, ResourceExt as _};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::cluster::Cluster;
use crate::cluster::apply::{apply_yaml, parse};
use crate::controller::{NAMESPACE, render};
use crate::wrappers;

const ACCOUNT: &str = "appwrapper-webhook";
const MUTATING: &str = "appwrapper-mutating-webhook-configuration";
const VALIDATING: &str = "appwrapper-validating-webhook-configuration";
/// What of the overlay runs in a cluster only.
const NOT_HERE: [&str; 3] = ["Deployment", "Service", "PodDisruptionBudget"];
/// How long it may take until AppWrappers are admitted.
const START: Duration = Duration::from_secs(40);
/// How long it may take to end.
const END: Duration = Duration::from_secs(15);

/// A running webhook. It ends when it is dropped, unless it is left, and in any case with its cluster.
pub struct Webhook(Option<Child>);

impl Webhook {
    /// Applies the manifests, starts the program, and waits until it admits AppWrappers into this namespace. The cluster must
    /// have been prepared by [`install`](crate::controller::install).
    ///
    /// # Errors
    ///
    /// When a manifest is refused, or AppWrappers are not admitted in time.
    pub async fn start(cluster: &Cluster, program: &Path, namespace: &str) -> Result<Self> {
        let file = |ending: &str| cluster.dir().join(format!("webhook.{ending}"));
        let (log, kubeconfig) = (file("log"), file("kubeconfig"));
        let address = free_address()?;
        for object in manifests(cluster, &address).await? {
            apply_yaml(&cluster.client(), &serde_json::to_string(&object)?).await?;
        }
        cluster
            .service_account_kubeconfig(NAMESPACE, ACCOUNT, None, &kubeconfig)
            .await?;
        let output = std::fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let child = Command::new(program)
            .args(["--bind-address", &address, "--health-bind-address", "127.0.0.1:0"])
            .args(["--metrics-bind-address", "127.0.0.1:0", "--namespace", NAMESPACE])
            .args(["--certificate-names", "127.0.0.1", "--pod-name", "webhook-0"])
            // Nobody waits for an endpoint to be withdrawn.
            .args(["--drain-time", "1s"])
            .env("KUBECONFIG", &kubeconfig)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("running {}", program.display()))?;
        cluster.adopt(child.id().context("a started process has an id")?)?;
        let mut webhook = Self(Some(child));
        match webhook.until_it_admits(cluster, namespace).await {
            Ok(()) => Ok(webhook),
            Err(error) => Err(error.context(format!("the log is {}", log.display()))),
        }
    }

    async fn until_it_admits(&mut self, cluster: &Cluster, namespace: &str) -> Result<()> {
        let until = Instant::now() + START;
        loop {
            if let Some(status) = self.0.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("the webhook ended: {status}");
            }
            match wrappers::would_be_created(&cluster.client(), namespace, &wrappers::with_job("probe", &[])).await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= until => {
                    return Err(error).context("the webhook does not admit in time");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Takes the configurations away, without which nothing would be admitted any more, and ends the process.
    ///
    /// # Errors
    ///
    /// When the configurations cannot be deleted.
    pub async fn stop(mut self, cluster: &Cluster) -> Result<()> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
        mutating.delete(MUTATING, &DeleteParams::default()).await?;
        validating.delete(VALIDATING, &DeleteParams::default()).await?;
        let Some(mut child) = self.0.take() else { return Ok(()) };
        terminate(&child);
        if tokio::time::timeout(END, child.wait()).await.is_err() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Leaves it running until its cluster ends.
    pub fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.0.iter().for_each(terminate);
    }
}

fn terminate(child: &Child) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// The webhook's share of the default overlay, called under a URL.
async fn manifests(cluster: &Cluster, address: &str) -> Result<Vec<DynamicObject>> {
    let mut objects = parse(&render(cluster, "default").await?)?;
    objects.retain(|object| {
        let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
        let name = object.name_any();
        !NOT_HERE.contains(&kind) && (name.starts_with(ACCOUNT) || name == MUTATING || name == VALIDATING)
    });
    for object in &mut objects {
        let hooks = object.data.get_mut("webhooks").and_then(Value::as_array_mut);
        for hook in hooks.into_iter().flatten() {
            let path = hook.pointer("/clientConfig/service/path").and_then(Value::as_str);
            let url = format!("https://{address}{}", path.unwrap_or_default());
            hook["clientConfig"] = json!({ "url": url });
        }
    }
    Ok(objects)
}

/// A free address on loopback. It has to be known before the program starts, since the API server is told of it.
fn free_address() -> Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}
