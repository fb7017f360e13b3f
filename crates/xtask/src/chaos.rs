//! `cargo xtask chaos`: real replicas under faults, with the audit log as the judge.
//!
//! The cluster, the replicas, the faults and the judge are in `appwrapper_testkit::chaos`. The command prints a line per round
//! and ends at the first violation; the logs are kept then. The same seed makes the same choices again.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use appwrapper_testkit::chaos::{self, Chaos, Fault, Options, Round};
use appwrapper_testkit::controller::ControllerOptions;
use appwrapper_testkit::programs::{OF_A_CLUSTER, Programs};

use crate::cargo::{self, CONTROLLER};

/// Arguments of `cargo xtask chaos`.
#[derive(clap::Args)]
pub struct Args {
    /// How often each fault befalls
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// What all choices follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these faults; may be given more than once
    #[arg(long = "fault")]
    faults: Vec<Fault>,
    /// How long a Lease lasts, in seconds
    #[arg(long, default_value_t = 10)]
    lease_seconds: u64,
}

/// Runs the rounds. An error means that something happened that must not.
pub async fn run(args: &Args) -> Result<()> {
    let started = Instant::now();
    let program = cargo::build(CONTROLLER).await?;
    Programs::find(&OF_A_CLUSTER).await?;
    let cluster = chaos::cluster("chaos").await?;
    let options = Options {
        controller: ControllerOptions::default().program(program),
        lease: Duration::from_secs(args.lease_seconds),
        seed: args.seed,
    };
    let mut chaos = Chaos::start(&cluster, options).await?;
    let done = rounds(&mut chaos, args).await;
    if done.is_err() {
        eprintln!("the logs are kept in {}", chaos.keep_logs()?.display());
    }
    let last = done.with_context(|| format!("seed {}", args.seed))?;
    chaos.end().await?;
    cluster.stop().await?;
    if let Some(last) = last {
        println!(
            "chaos: {} rounds in {:.0} s, {}",
            last.number,
            started.elapsed().as_secs_f32(),
            last.verdict
        );
    }
    Ok(())
}

async fn rounds(chaos: &mut Chaos<'_>, args: &Args) -> Result<Option<Round>> {
    let all = Fault::ALL.map(|(_, fault)| fault);
    let faults: &[Fault] = if args.faults.is_empty() { &all } else { &args.faults };
    let mut last = None;
    for _ in 0..args.rounds {
        for fault in faults {
            let round = chaos.round(*fault).await?;
            println!("{round}");
            if !round.verdict.violations.is_empty() {
                bail!("{}", round.verdict);
            }
            last = Some(round);
        }
    }
    Ok(last)
}
