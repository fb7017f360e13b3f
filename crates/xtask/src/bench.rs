//! `cargo xtask bench`: measures the programs as they are shipped, on a cluster of its own.
//!
//! They are built for release and run with the rights of their ServiceAccounts. Progress is told on standard error;
//! the figures are JSON on standard output. Nothing else should run on the machine meanwhile.

mod admission;
mod burst;
mod failover;
mod memory;
mod race;
mod requests;
mod stage;
mod times;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Reviews of AppWrappers with 1, 10 and 100 components, by the webhook
    Admission(admission::Args),
    /// Many AppWrappers at once, each with a Job, against as many plain Jobs
    Burst(burst::Args),
    /// Resident memory of one replica beside objects that are none of its business
    Memory(memory::Args),
    /// Replicas that end, die, restart and are replaced under a steady stream
    Failover(failover::Args),
    /// Many AppWrappers while the controller hears of Jobs late; some of the Jobs are really deleted
    Race(race::Args),
}

/// Runs a benchmark. An error means that an AppWrapper did not end as it must.
pub async fn run(args: &Args) -> Result<()> {
    match &args.bench {
        Bench::Admission(args) => admission::run(args).await,
        Bench::Burst(args) => burst::run(args).await,
        Bench::Memory(args) => memory::run(args).await,
        Bench::Failover(args) => failover::run(args).await,
        Bench::Race(args) => race::run(args).await,
    }
}
