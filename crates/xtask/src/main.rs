//! Developer commands, run as `cargo xtask COMMAND`.
//!
//! Each command is a file of its own beside this one, with its arguments and a `run` function. To add one: write the
//! file, and add a variant to [`Command`] and an arm to [`main`].

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod cluster;
mod generate;

/// Developer commands of the AppWrapper controller.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start, end or look at a local Kubernetes cluster of processes
    Cluster(cluster::Args),
    /// Write the files that are generated from the code: the CRD and the table of metrics
    Generate(generate::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Cluster(args) => cluster::run(args).await,
        Command::Generate(args) => generate::run(args),
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
