//! Several replicas of our controller on one cluster, and what befalls them.
//!
//! Each [`Replica`] is a process under the name and uid of a pod of its own, which the API server knows, so that a process
//! that is started again in its pod takes its shards back at once. On request each talks through a proxy of its own. Who
//! holds what is read from the Leases alone ([`Ring`]). Whatever is waited for has a deadline.

mod replica;
pub mod ring;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

pub use replica::Replica;
pub use ring::Ring;

use crate::cluster::Cluster;
use crate::controller::ControllerOptions;

/// How long the ring may take to settle: a Lease that runs out, the time a newcomer waits, and moves two at a time.
const SETTLED: Duration = Duration::from_secs(90);
/// How often the Leases are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The replicas, oldest first.
pub struct Fleet<'c> {
    cluster: &'c Cluster,
    options: ControllerOptions,
    proxied: bool,
    started: usize,
    replicas: Vec<Replica>,
}

impl<'c> Fleet<'c> {
    /// No replica yet. The cluster must have been prepared by [`install`](crate::controller::install).
    pub fn new(cluster: &'c Cluster, options: ControllerOptions) -> Self {
        Self {
            cluster,
            options: options.joining(),
            proxied: false,
            started: 0,
            replicas: Vec::new(),
        }
    }

    /// Has each replica talk through a proxy of its own.
    #[must_use]
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// What replicas that are added from now on are started with, beside what is the replica's own.
    pub fn options(&mut self) -> &mut ControllerOptions {
        &mut self.options
    }

    /// Starts one more replica and does not wait; returns its name.
    ///
    /// # Errors
    ///
    /// When its pod cannot be created or its process cannot be started.
    pub async fn add(&mut self) -> Result<String> {
        let name = format!("controller-{}", self.started);
        self.started += 1;
        let options = self.options.clone().named(&name);
        let replica = Replica::start(self.cluster, options, self.proxied).await?;
        self.replicas.push(replica);
        Ok(name)
    }

    /// The replicas, oldest first.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// A replica by name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn replica(&self, name: &str) -> Result<&Replica> {
        let found = self.replicas.iter().find(|replica| replica.name() == name);
        found.with_context(|| format!("there is no replica {name}"))
    }

    /// The same, to start or kill.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn replica_mut(&mut self, name: &str) -> Result<&mut Replica> {
        let found = self.replicas.iter_mut().find(|replica| replica.name() == name);
        found.with_context(|| format!("there is no replica {name}"))
    }

    /// Takes a replica away whose process has ended or is ending: waits for the end, and deletes its pod.
    ///
    /// # Errors
    ///
    /// When it does not end in order.
    pub async fn remove(&mut self, name: &str) -> Result<()> {
        let place = self.replicas.iter().position(|replica| replica.name() == name);
        let replica = self
            .replicas
            .remove(place.with_context(|| format!("there is no replica {name}"))?);
        replica.remove(self.cluster).await
    }

    /// Starts the process of a replica again, in its pod.
    ///
    /// # Errors
    ///
    /// When it still runs, or cannot be started.
    pub async fn restart(&mut self, name: &str) -> Result<()> {
        let cluster = self.cluster;
        self.replica_mut(name)?.restart(cluster).await
    }

    /// Who holds what now.
    ///
    /// # Errors
    ///
    /// When the Leases cannot be read.
    pub async fn ring(&self) -> Result<Ring> {
        Ring::read(&self.cluster.client()).await
    }

    /// Waits until this holds of the ring.
    ///
    /// # Errors
    ///
    /// When it does not in time. Failing to read the Leases is waited out: the API server may be what is being tested.
    pub async fn until(&self, what: &str, limit: Duration, holds: impl Fn(&Ring) -> bool) -> Result<Ring> {
        let until = Instant::now() + limit;
        loop {
            let ring = self.ring().await;
            match ring {
                Ok(ring) if holds(&ring) => return Ok(ring),
                Ok(ring) if Instant::now() >= until => bail!("waited {limit:?} until {what}; now {ring}"),
                Err(error) if Instant::now() >= until => return Err(error).with_context(|| format!("until {what}")),
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// The names of the replicas.
    pub fn names(&self) -> Vec<&str> {
        self.replicas.iter().map(Replica::name).collect()
    }

    /// Waits until every replica works.
    ///
    /// # Errors
    ///
    /// When one has ended or does not work in time.
    pub async fn until_all_work(&mut self) -> Result<()> {
        for replica in &mut self.replicas {
            replica.until_it_works().await?;
        }
        Ok(())
    }

    /// Waits until every replica works, and every shard is held by the one that should hold it, with its backups warm.
    ///
    /// # Errors
    ///
    /// When that does not come about in time.
    pub async fn covered(&mut self) -> Result<Ring> {
        self.until_all_work().await?;
        let names = self.names();
        self.until("the shards have warm backups", SETTLED, |ring| ring.is_covered(&names))
            .await
    }

    /// Waits until all of that is so, and the shards are shared evenly, so that nothing is about to move.
    ///
    /// # Errors
    ///
    /// When that does not come about in time.
    pub async fn settled(&mut self) -> Result<Ring> {
        self.until_all_work().await?;
        let names = self.names();
        self.until("the shards are settled", SETTLED, |ring| ring.is_settled(&names))
            .await
    }

    /// Ends all replicas in order, the youngest first.
    ///
    /// # Errors
    ///
    /// When one does not end in order.
    pub async fn stop(mut self) -> Result<()> {
        self.replicas.iter().for_each(Replica::terminate);
        while let Some(replica) = self.replicas.pop() {
            replica.remove(self.cluster).await?;
        }
        Ok(())
    }

    /// The ends of the logs of all replicas.
    pub fn log_tails(&self) -> String {
        let tails: Vec<String> = self.replicas.iter().map(Replica::log_tail).collect();
        tails.join("\n")
    }

    /// Leaves the processes running until the cluster ends. Proxies end now, so this is for replicas without.
    pub fn leave(self) {
        self.replicas.into_iter().for_each(Replica::leave);
    }
}
