//! `cargo xtask cluster`: a local cluster to try things on, which stays until it is taken down.
//!
//! It is the same cluster that the tests start for themselves: real etcd, API server, controller manager and scheduler,
//! and kwok playing nodes and pods. With `--real-node` one node is real, as root, and runs containers. The first start on a
//! machine builds the programs, which takes minutes.

use std::ffi::OsString;

use anyhow::{Context as _, Result, bail};
use appwrapper_testkit::cluster::{Cluster, ClusterOptions, Component};
use appwrapper_testkit::programs::{OF_A_CLUSTER, OF_A_REAL_NODE, Programs};
use appwrapper_testkit::progress::Progress;
use appwrapper_testkit::real_node::{RealNode, requirements};
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
        /// One real node with containerd and kubelet instead; needs root and Debian packages
        #[arg(long, conflicts_with_all = ["audit", "nodes", "gpu_nodes"])]
        real_node: bool,
        /// Install the Debian packages that a real node needs and that are missing
        #[arg(long, requires = "real_node")]
        install: bool,
    },
    /// End a cluster and remove its files
    Down {
        #[command(flatten)]
        which: Which,
        /// The cluster is one of a real node
        #[arg(long)]
        real_node: bool,
    },
    /// Run a command inside the cluster of a real node, kubectl for example
    Exec {
        #[command(flatten)]
        which: Which,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
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
            real_node,
            install,
        } => {
            if real_node {
                return up_real_node(&name, install).await;
            }
            let options = ClusterOptions::named(name).keep().nodes(nodes, gpu_nodes);
            up(if audit { options.audited() } else { options }).await
        }
        Action::Down {
            which: Which { name },
            real_node,
        } => down(&name, real_node).await,
        Action::Exec {
            which: Which { name },
            command,
        } => exec(&name, &command).await,
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

async fn up_real_node(name: &str, install: bool) -> Result<()> {
    if install {
        requirements::install().await?;
    }
    if RealNode::names()?.iter().any(|one| one == name) {
        println!("real node {name} is up already");
        return describe_real_node(&RealNode::attach(name).await?).await;
    }
    requirements::check().context("with --install the packages are installed")?;
    Programs::find(&OF_A_REAL_NODE).await?;
    let progress = Progress::start(format!("starting real node {name}"));
    let node = RealNode::start(name, true).await?;
    progress.done();
    describe_real_node(&node).await?;
    println!("\ntry    cargo xtask cluster exec --name {name} -- kubectl get nodes");
    println!("end    cargo xtask cluster down --real-node --name {name}");
    Ok(())
}

async fn exec(name: &str, command: &[OsString]) -> Result<()> {
    let node = RealNode::attach(name).await?;
    let (program, arguments) = command.split_first().context("a command has a name")?;
    let status = node.inside(program)?.args(arguments).status().await?;
    if !status.success() {
        bail!("{} ended: {status}", program.display());
    }
    Ok(())
}

async fn down(name: &str, real_node: bool) -> Result<()> {
    if real_node {
        RealNode::end_named(name)?;
    } else {
        Cluster::attach(name).await?.stop().await?;
    }
    println!("cluster {name} is down");
    Ok(())
}

async fn status() -> Result<()> {
    let names = Cluster::names()?;
    let real_nodes = RealNode::names()?;
    if names.is_empty() && real_nodes.is_empty() {
        println!("no cluster; start one with: cargo xtask cluster up");
    }
    for name in names {
        match Cluster::attach(&name).await {
            Ok(cluster) => describe(&cluster),
            Err(error) => println!("cluster {name} cannot be used: {error:#}"),
        }
    }
    for name in real_nodes {
        match RealNode::attach(&name).await {
            Ok(node) => describe_real_node(&node).await?,
            Err(error) => println!("real node {name} cannot be used: {error:#}"),
        }
    }
    Ok(())
}

async fn describe_real_node(node: &RealNode) -> Result<()> {
    println!("real node {}", node.name());
    println!("  ready       {}", if node.is_ready().await? { "yes" } else { "no" });
    println!("  logs        {}", node.logs().display());
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
