//! `cargo xtask bench race`: no AppWrapper fails because a watch lags, and none lives on whose component is really gone.
//!
//! The controller hears of Jobs late, by the testkit's proxy. Of most AppWrappers the Job is there the whole time, so all
//! must succeed. Of some the Job is deleted as soon as they run, which is before the controller has heard that it was
//! created: all of these must fail.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use appwrapper_api::Phase;
use appwrapper_testkit::controller::{Controller, ControllerOptions, usage};
use appwrapper_testkit::progress::Progress;
use appwrapper_testkit::proxy::Proxy;
use k8s_openapi::api::batch::v1::Job;
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde::Serialize;
use tokio::sync::mpsc;

use super::stage::{NAMESPACE, Stage, submit};
use super::times::{self, Life, Spread, round};
use appwrapper_testkit::wrappers::{self, Watch};

/// Prefix of those whose Job stays.
const KEPT: &str = "kept";
/// Prefix of those whose Job is deleted.
const DELETED: &str = "deleted";

/// Arguments of `cargo xtask bench race`.
#[derive(clap::Args)]
pub struct Args {
    /// How much later than they happened the controller hears of changes of Jobs, in milliseconds
    #[arg(long, default_value_t = 2000)]
    lag_ms: u64,
    /// How many AppWrappers whose Job stays
    #[arg(long, default_value_t = 300)]
    n: usize,
    /// How many AppWrappers whose Job is deleted meanwhile
    #[arg(long, default_value_t = 30)]
    deleted: usize,
    /// How many are submitted at once
    #[arg(long, default_value_t = 50)]
    at_once: usize,
}

#[derive(Serialize)]
struct Report {
    lag_ms: u64,
    seconds: f64,
    kept: Kept,
    deleted: Deleted,
    controller: Told,
    cpu_seconds: f64,
    peak_rss_mib: f64,
}

/// What became of those whose Job stays.
#[derive(Serialize)]
struct Kept {
    submitted: usize,
    succeeded: usize,
    /// Must be 0.
    failed: usize,
    /// Must be 0.
    not_ended: usize,
    submit_to_running_seconds: Option<Spread>,
}

/// What became of those whose Job was deleted.
#[derive(Serialize)]
struct Deleted {
    submitted: usize,
    /// Deleted before the controller can have heard of the creation.
    during_the_lag: usize,
    failed: usize,
    /// Of these, for a missing component.
    failed_as_missing: usize,
    /// Kept alive wrongly. Must be 0.
    not_failed: usize,
    deletion_to_failed_seconds: Option<Spread>,
}

/// What the controller counted.
#[derive(Serialize)]
struct Told {
    races_survived: u64,
    confirmed_missing: u64,
    confirmation_errors: u64,
    confirmations_deferred: u64,
    /// Must be 0.
    unconfirmed_verdicts: u64,
}

/// Measures, and prints the figures.
pub async fn run(args: &Args) -> Result<()> {
    let stage = Stage::set().await?;
    let proxy = Proxy::in_front_of(&stage.cluster).await?;
    let options = ControllerOptions::default().program(&stage.program).through(&proxy);
    let controller = Controller::start(&stage.cluster, options).await?;
    let client = stage.cluster.client();

    // The watch of Jobs begins with the first one, and a list is not held back.
    let watch = Watch::start(&client, NAMESPACE).await?;
    wrappers::create(&client, NAMESPACE, &wrappers::with_job("first", &[])).await?;
    times::follow(watch, 1, |_| ()).await?;
    proxy.rules().gate("jobs").delay(Duration::from_millis(args.lag_ms));

    let progress = Progress::start(format!(
        "{} AppWrappers, and {} whose Job is deleted, {} ms of lag",
        args.n, args.deleted, args.lag_ms
    ));
    let report = measure(args, &client, &controller).await;
    if report.is_err() {
        eprintln!("{}", controller.log_tail());
    }
    let report = report?;
    progress.done();
    println!("{}", serde_json::to_string_pretty(&report)?);
    let (kept, deleted) = (&report.kept, &report.deleted);
    if kept.failed + kept.not_ended + deleted.not_failed > 0 || report.controller.unconfirmed_verdicts > 0 {
        bail!(
            "{} failed wrongly, {} did not end, {} were kept alive wrongly",
            kept.failed,
            kept.not_ended,
            deleted.not_failed
        );
    }
    Ok(())
}

async fn measure(args: &Args, client: &Client, controller: &Controller) -> Result<Report> {
    let before = usage::of(controller.pid())?;
    let watch = Watch::start(client, NAMESPACE).await?;
    let started = Instant::now();
    // Longer than the lag: a Job that is over proves less.
    let seconds = (args.lag_ms.div_ceil(1000) + 1).to_string();
    let create = async |name: String| {
        let pods = if name.starts_with(DELETED) {
            ("appwrapper.test/hold", "true")
        } else {
            ("appwrapper.test/run-seconds", seconds.as_str())
        };
        wrappers::create(client, NAMESPACE, &wrappers::with_job(&name, &[pods])).await
    };
    let (running, to_delete) = mpsc::unbounded_channel();
    let follow = async {
        // Moved in, so that the deletions end when nothing runs any more.
        let running = running;
        let told = |name: &str| {
            if name.starts_with(DELETED) {
                let _ = running.send(name.to_owned());
            }
        };
        times::follow(watch, args.n + args.deleted, told).await
    };
    let (submitted, lives, deletions) = tokio::try_join!(
        submit(names(args), args.at_once, create),
        follow,
        delete_jobs(client, to_delete)
    )?;
    let after = usage::of(controller.pid())?;
    Ok(Report {
        lag_ms: args.lag_ms,
        seconds: round(started.elapsed().as_secs_f64()),
        kept: kept(&submitted, &lives),
        deleted: deleted(args, &submitted, &lives, &deletions),
        controller: told(controller).await?,
        cpu_seconds: round(after.cpu_seconds - before.cpu_seconds),
        peak_rss_mib: round(after.peak_rss_mib),
    })
}

/// Those whose Job is deleted are spread evenly among the others.
fn names(args: &Args) -> Vec<String> {
    let every = (args.n / args.deleted.max(1)).max(1);
    let mut deleted = (0..args.deleted).map(|index| format!("{DELETED}-{index}"));
    let mut names = Vec::new();
    for index in 0..args.n {
        names.push(format!("{KEPT}-{index}"));
        if index % every == 0 {
            names.extend(deleted.next());
        }
    }
    names.extend(deleted);
    names
}

/// Deletes the Jobs of the AppWrappers that are named; returns when each deletion was answered.
async fn delete_jobs(client: &Client, mut names: mpsc::UnboundedReceiver<String>) -> Result<BTreeMap<String, Instant>> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), NAMESPACE);
    let mut deletions = BTreeMap::new();
    while let Some(name) = names.recv().await {
        let deleted = jobs.delete(&name, &DeleteParams::background()).await;
        deleted.with_context(|| format!("deleting Job {name}"))?;
        deletions.insert(name, Instant::now());
    }
    Ok(deletions)
}

fn kept(submitted: &BTreeMap<String, Instant>, lives: &BTreeMap<String, Life>) -> Kept {
    let kept: Vec<(&Instant, Option<&Life>)> = submitted
        .iter()
        .filter(|(name, _)| name.starts_with(KEPT))
        .map(|(name, sent)| (sent, lives.get(name)))
        .collect();
    let ended = |wanted: Option<Phase>| {
        let phase = |life: &Life| life.ended.map(|(phase, _)| phase);
        kept.iter().filter(|(_, life)| life.and_then(phase) == wanted).count()
    };
    let running = kept
        .iter()
        .filter_map(|(sent, life)| Some((life.as_ref()?.running? - **sent).as_secs_f64()));
    Kept {
        submitted: kept.len(),
        succeeded: ended(Some(Phase::Succeeded)),
        failed: ended(Some(Phase::Failed)),
        not_ended: ended(None),
        submit_to_running_seconds: Spread::of(running),
    }
}

fn deleted(
    args: &Args,
    submitted: &BTreeMap<String, Instant>,
    lives: &BTreeMap<String, Life>,
    deletions: &BTreeMap<String, Instant>,
) -> Deleted {
    let lag = Duration::from_millis(args.lag_ms);
    let failed: Vec<(&str, &Life, Instant)> = lives
        .iter()
        .filter(|(name, _)| name.starts_with(DELETED))
        .filter_map(|(name, life)| match life.ended {
            Some((Phase::Failed, at)) => Some((name.as_str(), life, at)),
            _ => None,
        })
        .collect();
    let missing = |(_, life, _): &&(&str, &Life, Instant)| life.unhealthy.as_deref() == Some("MissingComponent");
    // Running is written right after the Job was created, so its watch event is held for that much longer.
    let in_lag = |(name, at): &(&String, &Instant)| {
        let running = lives.get(*name).and_then(|life| life.running);
        running.is_some_and(|running| at.saturating_duration_since(running) < lag)
    };
    let count = submitted.keys().filter(|name| name.starts_with(DELETED)).count();
    Deleted {
        submitted: count,
        during_the_lag: deletions.iter().filter(in_lag).count(),
        failed: failed.len(),
        failed_as_missing: failed.iter().filter(missing).count(),
        not_failed: count - failed.len(),
        deletion_to_failed_seconds: Spread::of(
            failed
                .iter()
                .filter_map(|(name, _, at)| Some((*at - *deletions.get(*name)?).as_secs_f64())),
        ),
    }
}

async fn told(controller: &Controller) -> Result<Told> {
    let metrics = controller.metrics().await?;
    let outcomes = |names: &[&str]| {
        names
            .iter()
            .map(|name| metrics.count("appwrapper_component_confirmations_total", &[("outcome", name)]))
            .sum()
    };
    Ok(Told {
        races_survived: outcomes(&["live"]),
        confirmed_missing: outcomes(&["missing", "terminating", "replaced"]),
        confirmation_errors: outcomes(&["error"]),
        confirmations_deferred: outcomes(&["deferred"]),
        unconfirmed_verdicts: metrics.count("appwrapper_unconfirmed_verdicts_total", &[]),
    })
}
