//! `cargo xtask demo`: AppWrappers run to their ends under our controller, and a lagging watch fails none.
//!
//! A cluster is started, or the one of that name used. The controller runs as a process with the rights of its own
//! ServiceAccount, through the proxy of the testkit. [`samples`] are submitted and watched until each has ended as it
//! should; then [`race`] holds back what the controller sees of Jobs. Everything that was started ends with the command,
//! unless `--keep` leaves it up.

mod board;
mod race;
mod samples;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use appwrapper_testkit::controller::{self, Controller, ControllerOptions};
use appwrapper_testkit::programs::{OF_A_CLUSTER, Programs};
use appwrapper_testkit::progress::Progress;
use appwrapper_testkit::proxy::Proxy;

use crate::cargo::{self, CONTROLLER};
use crate::wrappers;

/// Where the AppWrappers of the demo are.
const NAMESPACE: &str = "appwrapper-demo";
/// How long what an earlier demo left may take to be gone.
const CLEAN_UP: Duration = Duration::from_secs(60);

/// Arguments of `cargo xtask demo`.
#[derive(clap::Args)]
pub struct Args {
    /// Leave the cluster, the controller and the AppWrappers up, and print how to look around
    #[arg(long)]
    keep: bool,
    /// The cluster's name; one that is up is used
    #[arg(long, default_value = "dev")]
    name: String,
}

/// Runs the demo. An error means that something did not end as expected.
pub async fn run(args: Args) -> Result<()> {
    let started = Instant::now();
    heading("the cluster and the controller");
    let program = cargo::build(CONTROLLER).await?;
    let cluster = cluster(&args).await?;
    let options = ControllerOptions::default().program(&program);
    let proxy = Proxy::in_front_of(&cluster).await?;

    let progress = Progress::start("installing the CRD and the roles, starting the controller");
    // That of an earlier demo, if it was kept.
    cluster.end_guests();
    controller::install(&cluster).await?;
    wrappers::namespace(&cluster.client(), NAMESPACE).await?;
    let controller = Controller::start(&cluster, options.clone().through(&proxy)).await?;
    wrappers::delete_all(&cluster.client(), NAMESPACE, CLEAN_UP).await?;
    progress.done();
    println!("real etcd, kube-apiserver, controller manager and scheduler; kwok plays the nodes and the pods");
    println!(
        "controller: process {}, with the rights of its ServiceAccount",
        controller.pid()
    );

    heading("samples from deploy/samples");
    let samples = samples::run(&cluster).await;
    heading("the race: watch events of Jobs reach the controller 2 s late");
    let race = race::run(&cluster, &controller, &proxy).await;

    let failures: Vec<String> = [&samples, &race]
        .into_iter()
        .filter_map(|part| part.as_ref().err().map(|error| format!("{error:#}")))
        .collect();
    if !failures.is_empty() {
        println!("\n{}", controller.log_tail());
    }
    if !args.keep && !cluster.ends_when_dropped() {
        // The cluster was there before and stays. While the controller runs, since it has to let them go.
        wrappers::delete_all(&cluster.client(), NAMESPACE, CLEAN_UP).await?;
    }
    controller.stop().await?;
    if args.keep {
        // The proxy ends with this command, so the controller that stays talks to the API server itself.
        look_around(&cluster, Controller::start(&cluster, options).await?)?;
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

fn look_around(cluster: &Cluster, controller: Controller) -> Result<()> {
    let kubectl = cluster.kubectl()?;
    let kubectl = kubectl.as_std().get_program().display();
    heading("left up; to look around");
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("{kubectl} -n {NAMESPACE} get appwrappers");
    println!("{kubectl} -n {NAMESPACE} describe appwrapper sample-failing-job");
    println!("{kubectl} -n {NAMESPACE} get events --sort-by .metadata.creationTimestamp");
    println!("metrics  {}", controller.metrics_url());
    println!("caches   {}/debug/caches", controller.probes_url());
    println!("log      {}", controller.log().display());
    println!("end      cargo xtask cluster down --name {}", cluster.name());
    controller.leave();
    Ok(())
}

fn heading(text: &str) {
    println!("\n=== {text}");
}
