//! Several whole replicas on one fake API server, under paused time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use appwrapper_api::{SLOT_LABEL, Slot, config::Config};
use appwrapper_cache_management::{Kinds, Settings};
use appwrapper_controller::{
    limiter::Limiter,
    nodes,
    observer::Totals,
    replica::{LEADER_LEASE, Replica, ReplicaOptions},
    shard::Environment,
};
use appwrapper_coordination::{
    Identity, LeaseTimings,
    shards::{Role, ShardCount, ShardId, ShardSetHandle},
    testing::TokioClock,
};
use appwrapper_metrics::{Build, Health, Metrics};
use appwrapper_reconciler::Defaults;
use appwrapper_testkit::api_server::{ApiServer, Change, Effect, Match};
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::job;

pub const SYSTEM: &str = "appwrapper-system";

/// The server, and what is asked of it.
pub struct Ring {
    pub server: ApiServer,
    pub shards: u32,
}

/// One replica.
pub struct Member {
    pub name: &'static str,
    pub handle: ShardSetHandle,
    pub health: Health,
    pub metrics: Arc<Metrics>,
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Ring {
    pub fn new(shards: u32) -> Self {
        let server = ApiServer::new();
        // As the manifests ship it.
        server.create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEADER_LEASE, "namespace": SYSTEM}, "spec": {}}));
        Self { server, shards }
    }

    /// Starts a replica.
    pub fn start(&self, name: &'static str) -> Member {
        self.start_as(name, name, 1)
    }

    /// Starts a replica whose client has a name of its own.
    pub fn start_as(&self, name: &'static str, author: &str, seed: u64) -> Member {
        self.start_in_pod(name, None, author, seed)
    }

    /// Starts a replica that knows the uid of its pod.
    pub fn start_in_pod(&self, name: &'static str, uid: Option<&str>, author: &str, seed: u64) -> Member {
        let metrics = Metrics::new(&Build {
            shards: self.shards,
            ..Build::default()
        });
        let (client, clock) = (self.server.client_as(author), self.server.clone());
        let (_, node_changes) = watch::channel(());
        let environment = Environment {
            client: client.clone(),
            metrics: Arc::clone(&metrics),
            defaults: Defaults::new(&Config::default().appwrapper),
            nodes: nodes::Faults::default(),
            node_changes,
            limiter: Arc::new(Limiter::new(50.0, 100.0)),
            permits: Arc::new(Semaphore::new(16)),
            kinds: Arc::new(Kinds::new(client.clone(), &Settings::default())),
            totals: Totals::default(),
            replica: name.to_owned(),
            settings: Settings::default(),
            clock: Arc::new(move || clock.now()),
        };
        let options = ReplicaOptions {
            lease_client: client,
            namespace: SYSTEM.to_owned(),
            identity: Identity::with_nonce(name, uid, &format!("n{seed}")).unwrap(),
            template: "t".to_owned(),
            owner: None,
            timings: LeaseTimings::standard(),
            clock: Arc::new(TokioClock::default()),
            shards: ShardCount::new(self.shards).unwrap(),
            backups: 1,
            seed: Some(seed + u64::from(name.as_bytes()[0])),
        };
        let replica = Replica::new(options, environment).unwrap();
        let (handle, health, stop) = (replica.handle().clone(), Health::new(), CancellationToken::new());
        let task = tokio::spawn(replica.run(health.clone(), stop.clone()));
        Member {
            name,
            handle,
            health,
            metrics,
            stop,
            task,
        }
    }

    /// Three replicas that have shared the work evenly, with warm backups.
    pub async fn three(&self) -> [Member; 3] {
        let members = ["a", "b", "c"].map(|name| self.start(name));
        let even = |members: &[&Member]| {
            let counts: Vec<u32> = members
                .iter()
                .map(|member| u32::try_from(member.holds().len()).unwrap())
                .collect();
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            counts.iter().sum::<u32>() == self.shards && most - least <= 1
        };
        self.until("evenly shared", 90, || even(&members.each_ref())).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        members
    }

    /// Submits an AppWrapper with one Job of its name, as the webhook would have labelled it.
    pub fn submit(&self, name: &str) {
        let slot = Slot::of("team", name).to_string();
        self.submit_labelled(name, &json!({SLOT_LABEL: slot}));
    }

    pub fn submit_all(&self, names: &[String]) {
        for name in names {
            self.submit(name);
        }
    }

    pub fn submit_labelled(&self, name: &str, labels: &Value) {
        self.server.create(json!({
            "apiVersion": "workload.codeflare.dev/v1beta2",
            "kind": "AppWrapper",
            "metadata": {"name": name, "namespace": "team", "labels": labels},
            "spec": {"components": [job(name)]},
        }));
    }

    pub fn wrapper(&self, name: &str) -> Arc<Value> {
        self.server.get("appwrappers", "team", name).unwrap()
    }

    pub fn phase(&self, name: &str) -> String {
        self.wrapper(name)["status"]["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Waits for something for so many seconds; how long it took.
    pub async fn until(&self, what: &str, seconds: u64, mut met: impl FnMut() -> bool) -> Duration {
        let begun = Instant::now();
        while !met() {
            assert!(
                begun.elapsed() < Duration::from_secs(seconds),
                "not within {seconds} s: {what}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        begun.elapsed()
    }

    pub async fn all_running(&self, names: &[String], seconds: u64) -> Duration {
        self.until("all AppWrappers run", seconds, || {
            names.iter().all(|name| self.phase(name) == "Running")
        })
        .await
    }

    /// Creations of Jobs, by name.
    pub fn jobs_made(&self) -> BTreeMap<String, usize> {
        let mut made = BTreeMap::new();
        for change in self.server.history() {
            if change.resource == "jobs.batch" && change.before.is_none() {
                *made.entry(change.name).or_default() += 1;
            }
        }
        made
    }

    /// Exactly one Job was ever made for each of these AppWrappers.
    pub fn assert_made_once(&self, names: &[String]) {
        let made = self.jobs_made();
        let wanted: BTreeMap<String, usize> = names.iter().map(|name| (name.clone(), 1)).collect();
        assert_eq!(made, wanted);
    }

    /// Changes of AppWrappers by replicas after this version.
    pub fn writes_since(&self, revision: u64) -> Vec<Change> {
        let by_replica = |change: &Change| ["a", "b", "c"].contains(&change.author.as_str());
        let history = self.server.history().into_iter();
        history
            .filter(|change| {
                change.revision > revision && change.resource.starts_with("appwrappers") && by_replica(change)
            })
            .collect()
    }
}

impl Member {
    /// The shards it acts on.
    pub fn holds(&self) -> BTreeSet<ShardId> {
        let roles = self.handle.roles();
        let roles = roles.borrow();
        let held = roles.iter().filter(|(_, role)| matches!(role, Role::Holder { .. }));
        held.map(|(id, _)| *id).collect()
    }

    /// SIGTERM.
    pub async fn terminate(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// SIGKILL: not a request more.
    pub fn kill(self, server: &ApiServer) {
        server.faults().add(Match::any().author(self.name), Effect::Hang);
        self.task.abort();
    }

    /// How it ended.
    pub async fn end(self) -> anyhow::Result<()> {
        self.task.await.unwrap()
    }

    pub fn metric(&self, line: &str) -> f64 {
        let text = self.metrics.registry().encode().unwrap();
        text.lines()
            .filter(|found| found.starts_with(line))
            .filter_map(|found| found.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }
}

/// Each shard is held by exactly one of them.
pub fn assert_shared(members: &[&Member], shards: u32) {
    let held: Vec<ShardId> = members.iter().flat_map(|member| member.holds()).collect();
    let distinct: BTreeSet<&ShardId> = held.iter().collect();
    assert_eq!(
        (held.len(), distinct.len()),
        (shards as usize, shards as usize),
        "{held:?}"
    );
}

pub fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{prefix}-{index}")).collect()
}
