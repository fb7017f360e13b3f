//! No replica blacks anything out: the leader and holders of shards are killed and ended while AppWrappers keep coming.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use appwrapper_testkit::cluster::Cluster;
use appwrapper_testkit::controller::NAMESPACE as SYSTEM;
use appwrapper_testkit::fleet::{Fleet, Ring};
use appwrapper_testkit::load::{Load, longest_gap, longest_wait};
use appwrapper_testkit::wrappers;
use tokio::process::Command;

use super::{LEASE, NAMESPACE};

/// From one AppWrapper to the next.
const EVERY: Duration = Duration::from_millis(150);
/// How long the stream runs before something is done, and after it is over.
const AROUND: Duration = Duration::from_secs(1);
/// How long AppWrappers may take to end.
const DEADLINE: Duration = Duration::from_secs(60);

/// What is done to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Kill,
    Terminate,
}

/// Does it thrice: to the leader, and to a holder of shards in either way.
pub async fn run(cluster: &Cluster, fleet: &mut Fleet<'_>, program: &Path) -> Result<()> {
    fleet.settled().await?;
    print!("{}", table(cluster, program).await?);
    println!("\nan AppWrapper every {} ms meanwhile", EVERY.as_millis());
    let mut slow = Vec::new();
    for (deed, leader) in [(Deed::Kill, true), (Deed::Terminate, false), (Deed::Kill, false)] {
        let ring = fleet.covered().await?;
        let whom = choose(fleet, &ring, leader).context("somebody holds a shard")?;
        if !befall(cluster, fleet, deed, &whom, &ring.held_by(&whom)).await? {
            slow.push(format!("{} {whom}", deed.signal()));
        }
    }
    println!();
    print!("{}", table(cluster, program).await?);
    if !slow.is_empty() {
        bail!("not handed over: {}", slow.join(", "));
    }
    Ok(())
}

fn choose(fleet: &Fleet<'_>, ring: &Ring, leader: bool) -> Option<String> {
    let fits = |name: &&str| !ring.held_by(name).is_empty() && (ring.leader.as_deref() == Some(*name)) == leader;
    let names = fleet.names();
    // A leader that holds nothing is as good.
    let found = names.iter().find(|name| fits(name)).map(|name| (*name).to_owned());
    found.or_else(|| ring.leader.clone().filter(|_| leader))
}

/// Does it, measures, and puts another replica in its place. Whether the shards came into other hands as they should.
async fn befall(
    cluster: &Cluster,
    fleet: &mut Fleet<'_>,
    deed: Deed,
    whom: &str,
    shards: &BTreeSet<usize>,
) -> Result<bool> {
    let leads = fleet.ring().await?.leader.as_deref() == Some(whom);
    let (client, prefix) = (cluster.client(), format!("during-{whom}-"));
    let make = |name: &str| wrappers::with_job(name, &[]);
    let load = Load::start(&client, NAMESPACE, &prefix, EVERY, make).await?;
    tokio::time::sleep(AROUND).await;
    let from = Instant::now();
    match deed {
        Deed::Kill => fleet.replica_mut(whom)?.kill()?,
        Deed::Terminate => fleet.replica(whom)?.terminate(),
    }
    let gone =
        |ring: &Ring| ring.held_by(whom).is_empty() && ring.leader.as_deref().is_some_and(|leader| leader != whom);
    let others: Vec<&str> = fleet.names().into_iter().filter(|name| *name != whom).collect();
    let taken = |ring: &Ring| gone(ring) && ring.is_held(&others);
    fleet.until("others have taken over", LEASE * 4, taken).await?;
    let held = from.elapsed();
    tokio::time::sleep(AROUND).await;
    let to = Instant::now();
    let lives = load.finish(DEADLINE).await?;
    let of_shards = |slot: appwrapper_api::Slot| shards.contains(&(usize::from(slot.number()) % SHARDS));
    let gap = longest_gap(&lives, of_shards, from, to);
    let wait = longest_wait(&lives, of_shards, to);
    let others = longest_gap(&lives, |slot| !of_shards(slot), from, to);
    println!(
        "{} to {whom}{}: its {} shards were in other hands after {:.1} s",
        deed.signal(),
        if leads { ", the leader" } else { "" },
        shards.len(),
        held.as_secs_f32()
    );
    println!(
        "    longest gap in their progress {:.2} s, longest wait of an AppWrapper {:.2} s; the other shards' gap {:.2} s",
        gap.as_secs_f32(),
        wait.as_secs_f32(),
        others.as_secs_f32()
    );
    fleet.add().await?;
    fleet.remove(whom).await?;
    // Later than this nothing was handed over: a Lease has run out.
    Ok(deed == Deed::Kill || held < LEASE)
}

/// As many as a controller has by default.
const SHARDS: usize = 8;

/// Who holds what, as the controller's own command prints it.
async fn table(cluster: &Cluster, program: &Path) -> Result<String> {
    let mut command = Command::new(program);
    command
        .args(["shards", "--namespace", SYSTEM])
        .env("KUBECONFIG", cluster.kubeconfig());
    let output = command.kill_on_drop(true).output().await?;
    if !output.status.success() {
        bail!(
            "appwrapper-controller shards: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Deed {
    fn signal(self) -> &'static str {
        match self {
            Self::Kill => "SIGKILL",
            Self::Terminate => "SIGTERM",
        }
    }
}
