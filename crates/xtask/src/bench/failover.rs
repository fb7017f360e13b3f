//! `cargo xtask bench failover`: for how long shards are in nobody's hands when replicas end, die, restart and are replaced.
//!
//! Three replicas work on a steady stream of AppWrappers. In each round something befalls one of them, or all in turn, at
//! another moment of the renewals. Measured are, for the shards that moved: how long after the event their new holder began
//! to act, by the controllers' own logs; the longest that an AppWrapper waited to be Running; and the longest gap in the
//! progress of all their AppWrappers. The last has a floor, the time from one AppWrapper of a shard to the next, so it says
//! most of all shards together.

mod event;
mod log;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use appwrapper_api::{Phase, Slot};
use appwrapper_testkit::controller::ControllerOptions;
use appwrapper_testkit::fleet::{Fleet, Ring};
use appwrapper_testkit::load::{Load, longest_gap, longest_wait};
use appwrapper_testkit::progress::Progress;
use appwrapper_testkit::wrappers;
use serde::Serialize;

use super::stage::{DEADLINE, NAMESPACE, Stage};
use super::times::{Spread, round};
use event::Event;

const REPLICAS: usize = 3;
/// As many as a controller has by default.
const SHARDS: usize = 8;
/// How long the stream runs before the event and after everything is held again.
const AROUND: Duration = Duration::from_secs(1);

/// Arguments of `cargo xtask bench failover`.
#[derive(clap::Args)]
pub struct Args {
    /// How often each event is measured
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Only this event; may be given more than once
    #[arg(long = "event")]
    events: Vec<Event>,
    /// AppWrappers per second
    #[arg(long, default_value_t = 10)]
    rate: u32,
    /// How long a Lease lasts, in seconds
    #[arg(long, default_value_t = 10)]
    lease_seconds: u64,
    /// Measure this program instead of building one for release
    #[arg(long)]
    program: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    lease_seconds: u64,
    rate: u32,
    cpus: usize,
    /// What else ran on the machine counts: the load when the benchmark began, as `uptime` shows it.
    load_average: String,
    /// The longest gap in all progress while nothing befell anybody.
    gap_in_all_at_rest_seconds: f64,
    /// The longest wait to be Running meanwhile.
    longest_wait_at_rest_seconds: f64,
    events: Vec<Measured>,
}

/// All rounds of one event.
#[derive(Serialize)]
struct Measured {
    event: String,
    target: &'static str,
    met: bool,
    rounds: usize,
    /// One value per shard that moved.
    acted_on_again_seconds: Option<Spread>,
    /// One value per round, as the ones below.
    longest_wait_of_moved_seconds: Option<Spread>,
    longest_gap_of_moved_seconds: Option<Spread>,
    longest_gap_in_all_seconds: Option<Spread>,
    /// How often a shard changed hands in a round, for the one that did most often.
    most_moves_of_a_shard: usize,
    /// AppWrappers that did not succeed.
    failed: usize,
    each: Vec<Round>,
}

#[derive(Serialize)]
struct Round {
    moved: BTreeSet<usize>,
    most_moves_of_a_shard: usize,
    acted_on_again_seconds: Vec<f64>,
    longest_wait_of_moved_seconds: f64,
    longest_gap_of_moved_seconds: f64,
    longest_gap_in_all_seconds: f64,
    failed: usize,
}

/// Measures, and prints the figures.
pub async fn run(args: &Args) -> Result<()> {
    let load_average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let stage = Stage::set_with(args.program.clone()).await?;
    let lease = Duration::from_secs(args.lease_seconds);
    let options = ControllerOptions::default()
        .program(&stage.program)
        .arg(format!("--lease-duration={}s", args.lease_seconds));
    let mut fleet = Fleet::new(&stage.cluster, options);
    for _ in 0..REPLICAS {
        fleet.add().await?;
    }
    let mut bench = Bench {
        stage: &stage,
        fleet,
        every: Duration::from_secs(1) / args.rate.max(1),
        lease,
        rounds: 0,
    };
    let measured = bench.measure(args).await;
    if measured.is_err() {
        eprintln!("{}", bench.fleet.log_tails());
    }
    let (at_rest, events) = measured?;
    bench.fleet.stop().await?;
    let report = Report {
        lease_seconds: args.lease_seconds,
        rate: args.rate,
        cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        load_average: load_average.trim().to_owned(),
        gap_in_all_at_rest_seconds: at_rest.0,
        longest_wait_at_rest_seconds: at_rest.1,
        events,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    if report.events.iter().any(|event| event.failed > 0) {
        bail!("AppWrappers did not succeed");
    }
    Ok(())
}

struct Bench<'s> {
    stage: &'s Stage,
    fleet: Fleet<'s>,
    every: Duration,
    lease: Duration,
    rounds: u32,
}

impl Bench<'_> {
    async fn measure(&mut self, args: &Args) -> Result<((f64, f64), Vec<Measured>)> {
        let progress = Progress::start("at rest");
        self.fleet.settled().await?;
        let at_rest = self.at_rest().await?;
        progress.done();
        let all = Event::ALL.map(|(_, event)| event);
        let events: &[Event] = if args.events.is_empty() { &all } else { &args.events };
        let mut measured = Vec::new();
        for event in events {
            let mut progress = Progress::start(format!("{event}, {} rounds", args.rounds));
            let mut each = Vec::new();
            for number in 0..args.rounds {
                progress.note(format!("round {}", number + 1));
                each.push(self.round(*event).await?);
            }
            progress.done();
            measured.push(Measured::of(*event, self.lease, each));
        }
        Ok((at_rest, measured))
    }

    async fn load(&mut self) -> Result<Load> {
        self.rounds += 1;
        let prefix = format!("r{}-", self.rounds);
        let client = self.stage.cluster.client();
        Load::start(&client, NAMESPACE, &prefix, self.every, |name| {
            wrappers::with_job(name, &[])
        })
        .await
    }

    async fn at_rest(&mut self) -> Result<(f64, f64)> {
        let load = self.load().await?;
        tokio::time::sleep(AROUND).await;
        let from = Instant::now();
        tokio::time::sleep(AROUND * 5).await;
        let to = Instant::now();
        let lives = load.finish(DEADLINE).await?;
        wrappers::delete_all(&self.stage.cluster.client(), NAMESPACE, DEADLINE).await?;
        let (gap, wait) = (
            longest_gap(&lives, |_| true, from, to),
            longest_wait(&lives, |_| true, to),
        );
        Ok((seconds(gap), seconds(wait)))
    }

    async fn round(&mut self, event: Event) -> Result<Round> {
        // After a rollout the next one goes on at once; balance may still be under way otherwise.
        let before = self.fleet.settled().await?;
        let load = self.load().await?;
        // Not always at the same moment between two renewals.
        let phase = Duration::from_millis(u64::from(self.rounds * 377 % 2_000));
        tokio::time::sleep(AROUND + phase).await;

        let from = Instant::now();
        let begun = event.befall(&mut self.fleet, &before).await?;
        let names = self.fleet.names();
        let held = |ring: &Ring| ring.is_held(&names);
        let limit = self.lease * 3 + Duration::from_secs(10);
        self.fleet.until("every shard is held", limit, held).await?;
        // Held is not acted on yet: the caches may have to be listed.
        tokio::time::sleep(AROUND * 2).await;
        let to = Instant::now();
        let after = self.fleet.ring().await?;
        let taken = log::taken(self.stage.cluster.dir(), begun.at)?;
        let lives = load.finish(DEADLINE).await?;
        wrappers::delete_all(&self.stage.cluster.client(), NAMESPACE, DEADLINE).await?;

        let changes = |number: &usize| {
            let count = |ring: &Ring| ring.shards.get(number).map_or(0, |shard| shard.transitions);
            usize::try_from(count(&after) - count(&before)).unwrap_or(0)
        };
        let moved: BTreeSet<usize> = before
            .shards
            .keys()
            .filter(|number| changes(number) > 0)
            .copied()
            .collect();
        let of_moved = |slot: Slot| moved.contains(&(usize::from(slot.number()) % SHARDS));
        let acted: Vec<f64> = moved
            .iter()
            .filter_map(|number| taken.longest(*number, event.counts_from_release()))
            .map(round)
            .collect();
        if acted.len() < moved.len() {
            bail!("the logs do not tell who took over each of shards {moved:?}");
        }
        Ok(Round {
            most_moves_of_a_shard: moved.iter().map(changes).max().unwrap_or(0),
            acted_on_again_seconds: acted,
            longest_wait_of_moved_seconds: seconds(longest_wait(&lives, of_moved, to)),
            longest_gap_of_moved_seconds: seconds(longest_gap(&lives, of_moved, from, to)),
            longest_gap_in_all_seconds: seconds(longest_gap(&lives, |_| true, from, to)),
            failed: lives
                .values()
                .filter(|life| life.end() != Some(Phase::Succeeded))
                .count(),
            moved,
        })
    }
}

impl Measured {
    fn of(event: Event, lease: Duration, each: Vec<Round>) -> Self {
        let acted = Spread::of(each.iter().flat_map(|round| round.acted_on_again_seconds.clone()));
        let per_round = |figure: fn(&Round) -> f64| Spread::of(each.iter().map(figure));
        Self {
            event: event.to_string(),
            target: event.target(),
            met: acted.as_ref().is_some_and(|acted| event.is_met(acted, lease)),
            rounds: each.len(),
            longest_wait_of_moved_seconds: per_round(|round| round.longest_wait_of_moved_seconds),
            longest_gap_of_moved_seconds: per_round(|round| round.longest_gap_of_moved_seconds),
            longest_gap_in_all_seconds: per_round(|round| round.longest_gap_in_all_seconds),
            acted_on_again_seconds: acted,
            most_moves_of_a_shard: each.iter().map(|round| round.most_moves_of_a_shard).max().unwrap_or(0),
            failed: each.iter().map(|round| round.failed).sum(),
            each,
        }
    }
}

fn seconds(duration: Duration) -> f64 {
    round(duration.as_secs_f64())
}
