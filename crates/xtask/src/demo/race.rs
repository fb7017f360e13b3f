//! The reason for this project, live: the controller hears of Jobs two seconds late, and fails nothing for it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use appwrapper_api::Phase;
use appwrapper_testkit::cluster::Cluster;
use appwrapper_testkit::controller::Controller;
use appwrapper_testkit::proxy::Proxy;
use tokio::time::timeout_at;

use super::NAMESPACE;
use crate::wrappers::{self, Watch};

const APPWRAPPERS: usize = 10;
const LAG: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(60);

/// Submits AppWrappers while the controller's watch of Jobs lags, and waits until all have ended.
pub async fn run(cluster: &Cluster, controller: &Controller, proxy: &Proxy) -> Result<()> {
    let client = cluster.client();
    let before = survived(controller).await?;
    let jobs = proxy.rules().gate("jobs");
    jobs.delay(LAG);
    let mut watch = Watch::start(&client, NAMESPACE).await?;
    for index in 0..APPWRAPPERS {
        let object = wrappers::with_job(&format!("race-{index}"), &[("appwrapper.test/run-seconds", "3")]);
        wrappers::create(&client, NAMESPACE, &object).await?;
    }
    println!("{APPWRAPPERS} AppWrappers are submitted");

    let mut ended: BTreeMap<String, Phase> = BTreeMap::new();
    let until = (Instant::now() + DEADLINE).into();
    while ended.len() < APPWRAPPERS {
        let Ok(wrapper) = timeout_at(until, watch.next()).await else {
            break;
        };
        let wrapper = wrapper?;
        let name = wrapper.metadata.name.unwrap_or_default();
        if let Some(phase @ (Phase::Succeeded | Phase::Failed)) = wrapper.status.phase()
            && name.starts_with("race-")
        {
            ended.insert(name, phase);
        }
    }
    jobs.delay(Duration::ZERO);

    let survived = survived(controller).await? - before;
    let failed = ended.values().filter(|phase| **phase == Phase::Failed).count();
    println!("race survived: {survived}, failed: {failed}");
    if failed > 0 || ended.len() < APPWRAPPERS || survived == 0 {
        bail!(
            "the race: {failed} of {APPWRAPPERS} failed, {} did not end, {survived} survived",
            APPWRAPPERS - ended.len()
        );
    }
    Ok(())
}

/// How often the API server had what the cache did not.
async fn survived(controller: &Controller) -> Result<u64> {
    let metrics = controller.metrics().await?;
    Ok(metrics.count("appwrapper_component_confirmations_total", &[("outcome", "live")]))
}
