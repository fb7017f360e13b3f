//! `cargo xtask demo`: AppWrappers run to their ends under three replicas of our controller, whichever of them dies, and a
//! lagging watch fails none.
//!
//! A cluster is started, or the one of that name used. The replicas and the webhook run as processes with the rights of their
//! own ServiceAccounts, each replica through a proxy of the testkit. [`samples`] are submitted and watched until each has
//! ended as it should; [`failover`] ends and kills replicas; then [`race`] holds back what the replicas see of Jobs.
//! Everything that was started ends with the command, unless `--keep` leaves it up.

mod board;
mod failover;
mod observe;
mod race;
mod samples;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use appwrapper_testkit::controller::{self, ControllerOptions};
use appwrapper_testkit::fleet::{Fleet, Ring};
use appwrapper_testkit::programs::{OF_A_CLUSTER, Programs};
use appwrapper_testkit::progress::Progress;
use appwrapper_testkit::webhook::Webhook;
use appwrapper_testkit::wrappers;

use crate::cargo::{self, CONTROLLER, WEBHOOK};

/// Where the AppWrappers of the demo are.
const NAMESPACE: &str = "appwrapper-demo";
const REPLICAS: usize = 3;
/// How long Leases last: the default. Shorter ones are lost on a machine that builds something meanwhile.
const LEASE: Duration = Duration::from_secs(10);
/// How long what an earlier demo left may take to be gone.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// Arguments of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Leave the cluster, the replicas, the webhook and the AppWrappers up, and print how to look around
    #[arg(long)]
    keep: bool,
    /// Run Prometheus, Alertmanager, Jaeger and a page of dashboards beside it, as far as they are installed
    #[arg(long)]
    observe: bool,
    /// The cluster's name; one that is up is used
    #[arg(long, default_value = "dev")]
    name: String,
}

/// Runs the demo. An error means that something did not end as expected.
pub async fn run(args: Args) -> Result<()> {
    let started = Instant::now();
    heading("the cluster, three replicas of the controller, the webhook");
    let program = cargo::build(CONTROLLER).await?;
    let webhook = cargo::build(WEBHOOK).await?;
    let cluster = cluster(&args).await?;
    let lease = format!("--lease-duration={}s", LEASE.as_secs());
    let mut options = ControllerOptions::default().program(&program).arg(lease);

    let progress = Progress::start("installing the CRD and the roles, starting replicas and webhook");
    // Those of an earlier demo, if it was kept.
    cluster.end_guests();
    controller::install(&cluster).await?;
    wrappers::namespace(&cluster.client(), NAMESPACE).await?;
    let observed = if args.observe {
        Some(observe::Observed::start(&cluster).await?)
    } else {
        None
    };
    if let Some(observed) = &observed {
        options = observed.traced(options);
    }
    let mut fleet = Fleet::new(&cluster, options.clone()).proxied();
    start(&mut fleet).await?;
    let webhook = Webhook::start(&cluster, &webhook, NAMESPACE).await?;
    wrappers::delete_all(&cluster.client(), NAMESPACE, CLEAN_UP).await?;
    progress.done();
    println!("real etcd, kube-apiserver, controller manager and scheduler; kwok plays the nodes and the pods");
    println!(
        "{} as processes with the rights of their ServiceAccount, Leases of {} s; every AppWrapper passes the webhook",
        fleet.names().join(", "),
        LEASE.as_secs()
    );
    observed.iter().for_each(observe::Observed::links);

    heading("samples from deploy/samples");
    let samples = samples::run(&cluster).await;
    heading("failover: the leader is killed, then a holder of shards ended, then another one killed");
    let failover = failover::run(&cluster, &mut fleet, &program).await;
    heading("the race: watch events of Jobs reach every replica 2 s late");
    let race = race::run(&cluster, &mut fleet).await;

    let failures: Vec<String> = [&samples, &failover, &race]
        .into_iter()
        .filter_map(|part| part.as_ref().err().map(|error| format!("{error:#}")))
        .collect();
    if !failures.is_empty() {
        println!("\n{}", fleet.log_tails());
    }
    if !args.keep && !cluster.ends_when_dropped() {
        // The cluster was there before and stays. While the replicas run, since they have to let them go.
        wrappers::delete_all(&cluster.client(), NAMESPACE, CLEAN_UP).await?;
    }
    fleet.stop().await?;
    if args.keep {
        // The proxies end with this command, so the replicas that stay talk to the API server itself.
        let mut fleet = Fleet::new(&cluster, options);
        start(&mut fleet).await?;
        webhook.leave();
        look_around(&cluster, fleet)?;
        if let Some(observed) = observed {
            observed.links();
            observed.leave();
        }
    } else {
        webhook.stop(&cluster).await?;
    }
    if failures.is_empty() {
        println!(
            "\ndemo: everything ended as expected, after {:.0} s",
            started.elapsed().as_secs_f32()
        );
        return Ok(());
    }
    bail!("demo: {}", failures.join("; "))
}

async fn start(fleet: &mut Fleet<'_>) -> Result<()> {
    for _ in 0..REPLICAS {
        fleet.add().await?;
    }
    let names: Vec<String> = fleet.names().into_iter().map(str::to_owned).collect();
    fleet.until_all_work().await?;
    let held = |ring: &Ring| ring.is_held(&names.iter().map(String::as_str).collect::<Vec<_>>());
    fleet.until("every shard is held", CLEAN_UP, held).await.map(drop)
}

async fn cluster(args: &Args) -> Result<Cluster> {
    if Cluster::names()?.contains(&args.name) {
        println!("cluster {} is up already", args.name);
        return Cluster::attach(&args.name).await;
    }
    Programs::find(&OF_A_CLUSTER).await?;
    let options = ClusterOptions::named(&args.name);
    let progress = Progress::start(format!("starting cluster {}", args.name));
    let cluster = Cluster::start(if args.keep { options.keep() } else { options }).await?;
    progress.done();
    Ok(cluster)
}

fn look_around(cluster: &Cluster, fleet: Fleet<'_>) -> Result<()> {
    let kubectl = cluster.kubectl()?;
    let kubectl = kubectl.as_std().get_program().display();
    heading("left up; to look around");
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("{kubectl} -n {NAMESPACE} get appwrappers");
    println!("{kubectl} -n {NAMESPACE} describe appwrapper sample-failing-job");
    println!("{kubectl} -n {NAMESPACE} get events --sort-by .metadata.creationTimestamp");
    for replica in fleet.replicas() {
        let process = replica.process()?;
        println!("{}", replica.name());
        println!("  metrics  {}", process.metrics_url());
        println!("  caches   {}/debug/caches", process.probes_url());
        println!("  shards   {}/debug/shards", process.probes_url());
        println!("  log      {}", process.log().display());
    }
    println!("end      cargo xtask cluster down --name {}", cluster.name());
    fleet.leave();
    Ok(())
}

fn heading(text: &str) {
    println!("\n=== {text}");
}
