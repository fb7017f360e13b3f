//! `cargo xtask bench burst`: what the controller adds to the time that Jobs take anyway.
//!
//! In one run, first plain Jobs: the floor, which is what etcd, the API server, the Job controller, the scheduler and kwok
//! need. Then as many AppWrappers with one such Job each. Times are taken where a user takes them: from sending the
//! AppWrapper until its watch shows the phase.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use appwrapper_api::Phase;
use appwrapper_testkit::controller::{Controller, ControllerOptions, usage};
use appwrapper_testkit::progress::Progress;
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::watcher::{self, Event, watcher};
use serde::Serialize;
use tokio::time::timeout_at;

use super::requests::{Mark, Requests};
use super::stage::{DEADLINE, NAMESPACE, Stage, clear_jobs, submit};
use super::times::{self, Spread, round};
use appwrapper_testkit::wrappers::{self, Watch};

/// Arguments of `cargo xtask bench burst`.
#[derive(clap::Args)]
pub struct Args {
    /// How many Jobs, and how many AppWrappers
    #[arg(long, default_value_t = 300)]
    n: usize,
    /// How many are submitted at once
    #[arg(long, default_value_t = 50)]
    at_once: usize,
    /// How often everything is measured
    #[arg(long, default_value_t = 1)]
    runs: usize,
}

#[derive(Serialize)]
struct Report {
    n: usize,
    at_once: usize,
    cpus: usize,
    median: Median,
    runs: Vec<Run>,
}

/// The middle of all runs, one figure at a time.
#[derive(Serialize)]
struct Median {
    ratio: f64,
    running_p50: f64,
    cpu_seconds: f64,
    peak_rss_mib: f64,
    writes_per_appwrapper: f64,
    gets_per_appwrapper: f64,
}

#[derive(Serialize)]
struct Run {
    /// From the first Job sent to the last one complete.
    floor_seconds: f64,
    /// From the first AppWrapper sent to the last one Succeeded.
    appwrappers_seconds: f64,
    /// The second over the first.
    ratio: f64,
    submit_to_running_seconds: Spread,
    submit_to_succeeded_seconds: Spread,
    /// The controller's CPU time during the burst, and with its start.
    cpu_seconds: f64,
    cpu_seconds_since_start: f64,
    peak_rss_mib: f64,
    /// That of this process, which submits and watches on the same machine.
    client_cpu_seconds: f64,
    requests: Requests,
}

/// Measures, and prints the figures.
pub async fn run(args: &Args) -> Result<()> {
    let stage = Stage::set().await?;
    let mut runs = Vec::new();
    for number in 1..=args.runs {
        runs.push(measure(&stage, args, number).await?);
    }
    let median = |figure: fn(&Run) -> f64| Spread::of(runs.iter().map(figure)).map_or(0.0, |spread| spread.p50);
    let report = Report {
        n: args.n,
        at_once: args.at_once,
        cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        median: Median {
            ratio: median(|run| run.ratio),
            running_p50: median(|run| run.submit_to_running_seconds.p50),
            cpu_seconds: median(|run| run.cpu_seconds),
            peak_rss_mib: median(|run| run.peak_rss_mib),
            writes_per_appwrapper: median(|run| run.requests.writes_per_appwrapper),
            gets_per_appwrapper: median(|run| run.requests.gets_per_appwrapper),
        },
        runs,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

async fn measure(stage: &Stage, args: &Args, number: usize) -> Result<Run> {
    let client = stage.cluster.client();
    let progress = Progress::start(format!("run {number} of {}: {} plain Jobs", args.runs, args.n));
    let floor = floor(stage, args).await?;
    clear_jobs(&client).await?;
    progress.done();

    let progress = Progress::start(format!("run {number} of {}: {} AppWrappers", args.runs, args.n));
    let options = ControllerOptions::default().program(&stage.program);
    let controller = Controller::start(&stage.cluster, options).await?;
    let run = burst(stage, args, &controller, floor).await;
    if run.is_err() {
        eprintln!("{}", controller.log_tail());
    }
    let run = run?;
    wrappers::delete_all(&client, NAMESPACE, DEADLINE).await?;
    clear_jobs(&client).await?;
    controller.stop().await?;
    progress.done();
    Ok(run)
}

/// Plain Jobs.
async fn floor(stage: &Stage, args: &Args) -> Result<Duration> {
    let jobs: Api<Job> = Api::namespaced(stage.cluster.client(), NAMESPACE);
    let mut events = watcher(jobs.clone(), watcher::Config::default()).boxed();
    while !matches!(events.next().await.transpose()?, Some(Event::InitDone)) {}
    let finished = async {
        let mut complete = std::collections::BTreeSet::new();
        let until = (Instant::now() + DEADLINE).into();
        while complete.len() < args.n {
            let event = timeout_at(until, events.next())
                .await
                .context("the Jobs did not end in time")?;
            if let Some(Event::Apply(job)) = event.transpose()?
                && job.status.is_some_and(|status| status.completion_time.is_some())
            {
                complete.insert(job.metadata.name);
            }
        }
        Ok(Instant::now())
    };
    let started = Instant::now();
    let create = async |name: String| {
        let job: Job = serde_json::from_value(wrappers::job(&name, &[]))?;
        jobs.create(&PostParams::default(), &job).await?;
        Ok(())
    };
    let (_, ended) = tokio::try_join!(submit(names("job", args.n), args.at_once, create), finished)?;
    Ok(ended - started)
}

async fn burst(stage: &Stage, args: &Args, controller: &Controller, floor: Duration) -> Result<Run> {
    let client = stage.cluster.client();
    let watch = Watch::start(&client, NAMESPACE).await?;
    let before = (usage::of(controller.pid())?, usage::of(std::process::id())?);
    let mark = Mark::now(&stage.cluster)?;
    let started = Instant::now();
    let create = async |name: String| wrappers::create(&client, NAMESPACE, &wrappers::with_job(&name, &[])).await;
    let (submitted, lives) = tokio::try_join!(
        submit(names("burst", args.n), args.at_once, create),
        times::follow(watch, args.n, |_| ())
    )?;
    let after = (usage::of(controller.pid())?, usage::of(std::process::id())?);

    let mut running = Vec::new();
    let mut succeeded = Vec::new();
    let mut last = started;
    for (name, sent) in &submitted {
        let life = lives.get(name);
        let Some((Phase::Succeeded, at)) = life.and_then(|life| life.ended) else {
            bail!("AppWrapper {name} did not succeed: {life:?}");
        };
        running.extend(life.and_then(|life| life.running).map(|at| (at - *sent).as_secs_f64()));
        succeeded.push((at - *sent).as_secs_f64());
        last = last.max(at);
    }
    let total = last - started;
    Ok(Run {
        floor_seconds: round(floor.as_secs_f64()),
        appwrappers_seconds: round(total.as_secs_f64()),
        ratio: round(total.as_secs_f64() / floor.as_secs_f64()),
        submit_to_running_seconds: Spread::of(running).context("nothing was submitted")?,
        submit_to_succeeded_seconds: Spread::of(succeeded).context("nothing was submitted")?,
        cpu_seconds: round(after.0.cpu_seconds - before.0.cpu_seconds),
        cpu_seconds_since_start: round(after.0.cpu_seconds),
        peak_rss_mib: round(after.0.peak_rss_mib),
        client_cpu_seconds: round(after.1.cpu_seconds - before.1.cpu_seconds),
        requests: mark.requests(args.n)?,
    })
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{prefix}-{index}")).collect()
}
