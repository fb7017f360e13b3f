//! The reason for this project, live: every replica hears of Jobs two seconds late, and fails nothing for it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use appwrapper_api::Phase;
use appwrapper_testkit::cluster::Cluster;
use appwrapper_testkit::fleet::Fleet;
use tokio::time::timeout_at;

use super::NAMESPACE;
use appwrapper_testkit::wrappers::{self, Watch};

const APPWRAPPERS: usize = 10;
const LAG: Duration = Duration::from_secs(2);
const DEADLINE: Duration = Duration::from_secs(60);

/// Submits AppWrappers while the replicas' watches of Jobs lag, and waits until all have ended.
pub async fn run(cluster: &Cluster, fleet: &mut Fleet<'_>) -> Result<()> {
    fleet.covered().await?;
    let client = cluster.client();
    let before = survived(fleet).await?;
    lag(fleet, LAG)?;
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
    lag(fleet, Duration::ZERO)?;

    let survived = survived(fleet).await? - before;
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

/// Has what the replicas hear of Jobs come so much later.
fn lag(fleet: &Fleet<'_>, lag: Duration) -> Result<()> {
    for replica in fleet.replicas() {
        replica.proxy()?.rules().gate("jobs").delay(lag);
    }
    Ok(())
}

/// How often the API server had what a cache did not.
async fn survived(fleet: &Fleet<'_>) -> Result<u64> {
    let mut survived = 0;
    for replica in fleet.replicas() {
        let metrics = replica.process()?.metrics().await?;
        survived += metrics.count("appwrapper_component_confirmations_total", &[("outcome", "live")]);
    }
    Ok(survived)
}
