//! What must be true before a test may use a cluster: the API server says it is ready, the controller manager has made
//! the service account without which no pod can be created, and kwok has taken up every node.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::{ClusterOptions, node};

const DEADLINE: Duration = Duration::from_secs(60);

/// Creates the nodes and waits for everything.
pub async fn make_ready(client: &Client, options: &ClusterOptions) -> Result<()> {
    let until = Instant::now() + DEADLINE;
    wait(until, "the API server is ready", || async {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        Ok((client.request_text(request).await? == "ok").then_some(()))
    })
    .await?;
    node::create(client, options).await.context("creating the nodes")?;
    wait(until, "the default service account exists", || async {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
        Ok(accounts.get_opt("default").await?)
    })
    .await?;
    wait(until, "every node is ready", || async {
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
        Ok(nodes.iter().all(is_ready).then_some(()))
    })
    .await
}

/// Whether a node takes pods.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

/// Asks until there is an answer. An error counts as none, and is the cause of the error at the deadline.
pub async fn wait<T, F, A>(until: Instant, what: &str, mut ask: F) -> Result<T>
where
    F: FnMut() -> A,
    A: Future<Output = Result<Option<T>>>,
{
    loop {
        let answer = ask().await;
        if let Ok(Some(answer)) = answer {
            return Ok(answer);
        }
        if Instant::now() >= until {
            answer.with_context(|| format!("waiting until {what}"))?;
            bail!("not in time: {what}");
        }
        sleep(Duration::from_millis(50)).await;
    }
}
