//! `cargo xtask bench memory`: what a replica keeps in memory of objects that are none of its business.
//!
//! Beside ever more foreign Jobs with large annotations, then foreign pods too, a controller is started anew each time and its
//! peak is read once it works, since it lists everything at its start. The last one then runs AppWrappers of its own, and goes
//! on while foreign Jobs come and go.

use std::time::Duration;

use anyhow::{Context as _, Result};
use appwrapper_testkit::controller::{Controller, ControllerOptions, usage};
use appwrapper_testkit::progress::Progress;
use appwrapper_testkit::wrappers::{self, Watch};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::stage::{DEADLINE, NAMESPACE, Stage, submit};
use super::times::round;

/// Where the foreign objects live.
const ELSEWHERE: &str = "appwrapper-bench-foreign";
/// How many objects are created at once.
const AT_ONCE: usize = 20;
/// After its start, for caches that are filled a little later; nothing tells when that is.
const SETTLE: Duration = Duration::from_secs(3);

/// Arguments of `cargo xtask bench memory`.
#[derive(clap::Args)]
pub struct Args {
    /// How many foreign Jobs, step by step
    #[arg(long, value_delimiter = ',', default_values_t = [0, 500, 5000])]
    jobs: Vec<usize>,
    /// The size of the annotation of each
    #[arg(long, default_value_t = 180)]
    annotation_kib: usize,
    /// How many foreign pods, after the last step
    #[arg(long, default_value_t = 20_000)]
    pods: usize,
    /// How many AppWrappers of its own
    #[arg(long, default_value_t = 1000)]
    own: usize,
    /// How many foreign Jobs come and go at the end
    #[arg(long, default_value_t = 1000)]
    churn: usize,
}

#[derive(Serialize)]
struct Report {
    annotation_kib: usize,
    steps: Vec<Step>,
    /// Between the first and the last step without pods or AppWrappers.
    mib_per_1000_foreign_jobs: f64,
}

#[derive(Serialize)]
struct Step {
    foreign_jobs: usize,
    foreign_pods: usize,
    own_appwrappers: usize,
    foreign_jobs_come_and_gone: usize,
    peak_rss_mib: f64,
}

/// Measures, and prints the figures.
pub async fn run(args: &Args) -> Result<()> {
    let stage = Stage::set().await?;
    let client = stage.cluster.client();
    wrappers::namespace(&client, ELSEWHERE).await?;
    let (jobs, pods): (Api<Job>, Api<Pod>) = (
        Api::namespaced(client.clone(), ELSEWHERE),
        Api::namespaced(client.clone(), ELSEWHERE),
    );
    let annotation = "x".repeat(args.annotation_kib * 1024);
    let mut steps = Vec::new();
    let mut there = 0;
    for &wanted in &args.jobs {
        let progress = Progress::start(format!("{wanted} foreign Jobs"));
        let names = (there..wanted).map(|index| format!("foreign-{index}")).collect();
        submit(names, AT_ONCE, |name| create(&jobs, foreign_job(&name, &annotation))).await?;
        there = there.max(wanted);
        let controller = start(&stage).await?;
        steps.push(step(args, &controller, there, 0, 0, 0)?);
        controller.stop().await?;
        progress.done();
    }
    let slope = slope(&steps);

    let progress = Progress::start(format!("{} foreign pods", args.pods));
    let names = (0..args.pods).map(|index| format!("foreign-{index}")).collect();
    submit(names, AT_ONCE, |name| create(&pods, foreign_pod(&name))).await?;
    let controller = start(&stage).await?;
    steps.push(step(args, &controller, there, args.pods, 0, 0)?);
    progress.done();

    let progress = Progress::start(format!("{} AppWrappers", args.own));
    own(&stage, args.own).await?;
    steps.push(step(args, &controller, there, args.pods, args.own, 0)?);
    progress.done();

    let progress = Progress::start(format!("{} foreign Jobs come and go", args.churn));
    let names = (0..args.churn).map(|index| format!("passing-{index}")).collect();
    submit(names, AT_ONCE, async |name| {
        create(&jobs, foreign_job(&name, &annotation)).await?;
        jobs.delete(&name, &DeleteParams::background()).await?;
        Ok(())
    })
    .await?;
    steps.push(step(args, &controller, there, args.pods, args.own, args.churn)?);
    controller.stop().await?;
    progress.done();

    let report = Report {
        annotation_kib: args.annotation_kib,
        steps,
        mib_per_1000_foreign_jobs: slope,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

async fn start(stage: &Stage) -> Result<Controller> {
    let options = ControllerOptions::default().program(&stage.program);
    let controller = Controller::start(&stage.cluster, options).await?;
    tokio::time::sleep(SETTLE).await;
    Ok(controller)
}

fn step(
    args: &Args,
    controller: &Controller,
    foreign_jobs: usize,
    foreign_pods: usize,
    own_appwrappers: usize,
    foreign_jobs_come_and_gone: usize,
) -> Result<Step> {
    let peak_rss_mib = round(usage::of(controller.pid())?.peak_rss_mib);
    eprintln!(
        "{foreign_jobs} foreign Jobs of {} KiB, {foreign_pods} foreign pods, {own_appwrappers} AppWrappers, \
         {foreign_jobs_come_and_gone} Jobs come and gone: {peak_rss_mib} MiB",
        args.annotation_kib
    );
    Ok(Step {
        foreign_jobs,
        foreign_pods,
        own_appwrappers,
        foreign_jobs_come_and_gone,
        peak_rss_mib,
    })
}

fn slope(steps: &[Step]) -> f64 {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return 0.0;
    };
    let more = u32::try_from(last.foreign_jobs.saturating_sub(first.foreign_jobs)).unwrap_or(u32::MAX);
    if more == 0 {
        return 0.0;
    }
    round((last.peak_rss_mib - first.peak_rss_mib) * 1000.0 / f64::from(more))
}

/// Runs AppWrappers to their ends; they stay.
async fn own(stage: &Stage, count: usize) -> Result<()> {
    let client = stage.cluster.client();
    let mut watch = Watch::start(&client, NAMESPACE).await?;
    let names = (0..count).map(|index| format!("own-{index}")).collect();
    submit(names, AT_ONCE, async |name| {
        wrappers::create(&client, NAMESPACE, &wrappers::with_job(&name, &[])).await
    })
    .await?;
    let until = Instant::now() + DEADLINE;
    let mut ended = std::collections::BTreeSet::new();
    while ended.len() < count {
        let wrapper = timeout_at(until, watch.next()).await;
        let wrapper = wrapper.context("the AppWrappers did not end in time")??;
        if wrapper.status.phase == "Succeeded" {
            ended.extend(wrapper.metadata.name);
        }
    }
    Ok(())
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: kube::Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object)?)
        .await
        .context("creating a foreign object")?;
    Ok(())
}

/// A Job that never makes a pod.
fn foreign_job(name: &str, annotation: &str) -> Value {
    let mut job = wrappers::job(name, &[]);
    let change = json!({"metadata": {"annotations": {"bench": annotation}}, "spec": {"suspend": true}});
    json_patch::merge(&mut job, &change);
    job
}

/// A pod that nobody schedules.
fn foreign_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": "foreign" } },
        "spec": { "schedulerName": "nobody", "containers": [{ "name": "work", "image": "busybox:1.37" }] },
    })
}
