//! `cargo xtask bench admission`: how long the webhook takes for a review, how many it answers, and what it holds in memory.
//!
//! The reviews are those of the validating webhook, which does the most, sent as the API server sends them: over kept
//! connections, with HTTP/1.1 in TLS. Measured twice: with access reviews, each of which is a round trip to the API server,
//! and without. The floor is a request over the same connections that is answered without being looked at.

mod load;
mod reviews;
mod server;

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use appwrapper_testkit::programs::{OF_A_CLUSTER, Programs};
use appwrapper_testkit::progress::Progress;
use serde::Serialize;

use self::{load::Load, reviews::body, server::Server};
use super::times::{Spread, round};
use crate::cargo::{self, RELEASED_WEBHOOK};

/// No more than this for one review of a hundred, without the access review's round trip.
const P99_AIM_MS: f64 = 10.0;
/// No more than this in memory at the paced rate.
const RSS_AIM_MIB: f64 = 20.0;

/// Arguments of `cargo xtask bench admission`.
#[derive(clap::Args)]
pub struct Args {
    /// Reviews per second where they are paced
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// How long each measurement lasts, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Connections at once
    #[arg(long, default_value_t = 8)]
    connections: usize,
}

#[derive(Serialize)]
struct Report {
    cpus: usize,
    rate: u32,
    connections: usize,
    /// A request that is answered without being looked at, at the same rate.
    floor_ms: Spread,
    without_access_reviews: Measured,
    with_access_reviews: Measured,
}

#[derive(Serialize)]
struct Measured {
    sizes: Vec<Size>,
    /// When it had just begun to serve, and the most that it ever had.
    idle_rss_mib: f64,
    peak_rss_mib: f64,
    reached: bool,
}

#[derive(Serialize)]
struct Size {
    components: usize,
    bytes: usize,
    /// At the rate, from the moment at which a review was due.
    paced_ms: Spread,
    /// The p99 of that over the floor's.
    p99_over_floor: f64,
    rss_mib_at_rate: f64,
    /// As many as the connections allow, one behind the other.
    reviews_per_second: f64,
    saturated_ms: Spread,
}

/// Measures, and prints the figures.
pub async fn run(args: &Args) -> Result<()> {
    let program = cargo::build(RELEASED_WEBHOOK).await?;
    Programs::find(&OF_A_CLUSTER).await?;
    let progress = Progress::start("starting a cluster");
    let cluster = Cluster::start(ClusterOptions::unique("bench-admission").nodes(0, 0)).await?;
    server::install(&cluster).await?;
    progress.done();

    let for_ = Duration::from_secs(args.seconds);
    let server = Server::start(&cluster, &program, false).await?;
    let load = Load::connect(&server, args.connections).await?;
    let floor = spread(&load.paced("/", b"", args.rate, for_).await?)?;
    let without = measure(args, &server, &load, &floor).await?;
    server.stop().await?;
    let server = Server::start(&cluster, &program, true).await?;
    let load = Load::connect(&server, args.connections).await?;
    let with = measure(args, &server, &load, &floor).await?;
    server.stop().await?;
    cluster.stop().await?;

    let report = Report {
        cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        rate: args.rate,
        connections: args.connections,
        floor_ms: floor,
        without_access_reviews: without,
        with_access_reviews: with,
    };
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

async fn measure(args: &Args, server: &Server, load: &Load, floor: &Spread) -> Result<Measured> {
    let for_ = Duration::from_secs(args.seconds);
    let idle = server.rss_mib()?;
    let mut sizes = Vec::new();
    for components in [1, 10, 100] {
        let progress = Progress::start(format!("reviews of {components} components"));
        let body = body(load, components).await?;
        // The first asks what the kinds are, which is remembered.
        load.paced(server::VALIDATE, &body, args.rate, Duration::from_secs(1))
            .await?;
        let paced = spread(&load.paced(server::VALIDATE, &body, args.rate, for_).await?)?;
        let rss = server.rss_mib()?;
        let saturated = load.saturated(server::VALIDATE, &body, for_).await?;
        let count = u32::try_from(saturated.len()).context("that many reviews")?;
        sizes.push(Size {
            components,
            bytes: body.len(),
            p99_over_floor: round(paced.p99 / floor.p99),
            paced_ms: paced,
            rss_mib_at_rate: round(rss),
            reviews_per_second: round(f64::from(count) / for_.as_secs_f64()),
            saturated_ms: spread(&saturated)?,
        });
        progress.done();
    }
    let reached = |size: &Size| size.paced_ms.p99 < P99_AIM_MS && size.rss_mib_at_rate < RSS_AIM_MIB;
    Ok(Measured {
        reached: sizes.iter().all(reached),
        sizes,
        idle_rss_mib: round(idle),
        peak_rss_mib: round(server.peak_rss_mib()?),
    })
}

fn spread(times: &[Duration]) -> Result<Spread> {
    match Spread::of(times.iter().map(|time| time.as_secs_f64() * 1000.0)) {
        Some(spread) => Ok(spread),
        None => bail!("nothing was answered"),
    }
}
