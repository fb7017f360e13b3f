//! `cargo xtask cluster`: a local cluster to try things on, which stays until it is taken down.
//!
//! It is the same cluster that the tests start for themselves: real etcd, API server, controller manager and scheduler,
//! and kwok playing nodes and pods. The first start on a machine builds the programs, which takes minutes.

use anyhow::Result;
use appwrapper_testkit::cluster::{Cluster, ClusterOptions, Component};
use appwrapper_testkit::programs::{OF_A_CLUSTER, Programs};
use appwrapper_testkit::progress::Progress;
use clap::Subcommand;

/// What to do with which cluster.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start a cluster and leave it running
    Up {
        #[command(flatten)]
        which: Which,
        /// Write an audit log by tests/controlplane/audit-policy.yaml
        #[arg(long)]
        audit: bool,
        /// How many nodes
        #[arg(long, default_value_t = 4)]
        nodes: u32,
        /// How many of them have GPUs
        #[arg(long, default_value_t = 2)]
        gpu_nodes: u32,
    },
    /// End a cluster and remove its files
    Down {
        #[command(flatten)]
        which: Which,
    },
    /// List the clusters on this machine and what runs of them
    Status,
}

#[derive(clap::Args)]
struct Which {
    /// The cluster's name
    #[arg(long, default_value = "dev")]
    name: String,
}

/// Carries the command out.
pub async fn run(args: Args) -> Result<()> {
    match args.action {
        Action::Up {
            which: Which { name },
            audit,
            nodes,
            gpu_nodes,
        } => {
            let options = ClusterOptions::named(name).keep().nodes(nodes, gpu_nodes);
            up(if audit { options.audited() } else { options }).await
        }
        Action::Down { which: Which { name } } => down(&name).await,
        Action::Status => status().await,
    }
}

async fn up(options: ClusterOptions) -> Result<()> {
    if Cluster::names()?.iter().any(|name| name == options.name()) {
        println!("cluster {} is up already", options.name());
        describe(&Cluster::attach(options.name()).await?);
        return Ok(());
    }
    Programs::find(&OF_A_CLUSTER).await?;
    let progress = Progress::start(format!("starting cluster {}", options.name()));
    let cluster = Cluster::start(options).await?;
    progress.done();
    describe(&cluster);
    println!("\ntry    export KUBECONFIG={}", cluster.kubeconfig().display());
    println!(
        "       {} get nodes",
        cluster.kubectl()?.as_std().get_program().display()
    );
    println!("end    cargo xtask cluster down --name {}", cluster.name());
    Ok(())
}

async fn down(name: &str) -> Result<()> {
    Cluster::attach(name).await?.stop().await?;
    println!("cluster {name} is down");
    Ok(())
}

async fn status() -> Result<()> {
    let names = Cluster::names()?;
    if names.is_empty() {
        println!("no cluster; start one with: cargo xtask cluster up");
    }
    for name in names {
        match Cluster::attach(&name).await {
            Ok(cluster) => describe(&cluster),
            Err(error) => println!("cluster {name} cannot be used: {error:#}"),
        }
    }
    Ok(())
}

fn describe(cluster: &Cluster) {
    let (running, ended): (Vec<_>, Vec<_>) = Component::ALL.iter().partition(|one| cluster.is_running(**one));
    let list = |components: Vec<&Component>| components.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    println!("cluster {} at {}", cluster.name(), cluster.server());
    println!("  running     {}", list(running));
    if !ended.is_empty() {
        println!("  not running {}", list(ended));
    }
    println!("  kubeconfig  {}", cluster.kubeconfig().display());
    println!("  logs        {}", cluster.logs().display());
    if let Some(audit_log) = cluster.audit_log() {
        println!("  audit log   {}", audit_log.display());
    }
}
