//! Developer commands, run as `cargo xtask COMMAND`.
//!
//! Each command is a file of its own beside this one, with its arguments and a `run` function. To add one: write the
//! file, and add a variant to [`Command`] and an arm to [`main`].

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

mod bench;
mod cargo;
mod chaos;
mod cluster;
mod demo;
mod generate;
mod test;

/// Developer commands of the AppWrapper controller.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the programs as they are shipped
    Bench(bench::Args),
    /// Let faults befall three replicas and judge by the audit log what they did
    Chaos(chaos::Args),
    /// Start, end or look at a local Kubernetes cluster of processes
    Cluster(cluster::Args),
    /// See AppWrappers run to their ends under the controller, on a cluster of processes
    Demo(demo::Args),
    /// Run every test, tier by tier
    Test(test::Args),
    /// Write the files that are generated: the CRD, and the alerting rules as a PrometheusRule
    Generate(generate::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let command = Args::parse().command;
    // Dropping a command ends what it has started.
    let done = tokio::select! {
        done = run(command) => done,
        name = interrupted() => Err(anyhow::anyhow!("ended by {name}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Without the backtrace that returning it would print: these errors are for the user.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Bench(args) => bench::run(&args).await,
        Command::Chaos(args) => chaos::run(&args).await,
        Command::Cluster(args) => cluster::run(args).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Test(args) => test::run(&args).await,
        Command::Generate(args) => generate::run(&args),
    }
}

/// Waits for Ctrl-C or a request to end.
async fn interrupted() -> &'static str {
    let listen = |kind| signal(kind).ok();
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
    tokio::select! {
        Some(()) = async { interrupt.as_mut()?.recv().await } => "SIGINT",
        Some(()) = async { terminate.as_mut()?.recv().await } => "SIGTERM",
    }
}
