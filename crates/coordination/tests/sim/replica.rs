//! A replica of a pretended controller: it obeys the roles, writes to the objects of its shards through the write guard,
//! keeps a cache that lags behind, and drains when told to.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use appwrapper_coordination::{
    Clock, Identity, LeaseTimings, Tenure, fenced, guarded_client,
    shards::{
        Barrier, Handover, LeaderOptions, RingNames, Role, Roles, ShardCount, ShardId, ShardSet, ShardSetHandle,
        ShardSetOptions, Slot, Takeover,
    },
    testing::TokioClock,
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::Instant};

use super::{Link, Rng, Server, Stoppable, Weather, identity, sleep_ms};

pub const OBJECTS: &str = "/apis/sim.dev/v1/namespaces/ns/objects";

pub const LEADER: &str = "f134c674.codeflare.dev";

pub fn object_path(slot: Slot) -> String {
    format!("{OBJECTS}/slot-{}", slot.label())
}

pub fn names() -> RingNames {
    RingNames::new("appwrapper", "workload.codeflare.dev")
}

/// What a broken variant leaves out. Each makes one invariant red.
#[allow(clippy::struct_excessive_bools, reason = "any of them alone or with others")]
#[derive(Debug, Clone, Copy, Default)]
pub struct Broken {
    /// Writes past the guard.
    pub no_guard: bool,
    /// Goes on writing after the drain.
    pub writes_after_drain: bool,
    /// Does not wait for the releaser's versions.
    pub no_barrier: bool,
    /// Does not look at every object of a new shard.
    pub no_resync: bool,
}

/// All tenures that were ever given out, for the oracle.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Vec<(String, Tenure, Instant)>>>, Arc<Mutex<Vec<Tenure>>>);

impl Registry {
    pub fn note(&self, pod: &str, tenure: &Tenure) {
        let mut all = self.0.lock().unwrap();
        if !all.iter().any(|(_, known, _)| known == tenure) {
            all.push((pod.to_owned(), tenure.clone(), Instant::now()));
        }
    }

    /// Whether this is the first time that somebody begins to hand this tenure over.
    fn first_hand_over(&self, tenure: &Tenure) -> bool {
        let mut begun = self.1.lock().unwrap();
        let first = !begun.contains(tenure);
        if first {
            begun.push(tenure.clone());
        }
        first
    }

    /// Who holds a live tenure of this Lease.
    pub fn live(&self, lease: &str) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter()
            .filter(|(_, t, _)| t.lease() == lease && t.is_live())
            .map(|(pod, ..)| pod.clone())
            .collect()
    }
}

#[derive(Clone)]
pub struct ReplicaOptions {
    pub pod: String,
    pub nonce: u32,
    pub template: String,
    pub shards: u32,
    pub backups: usize,
    pub timings: LeaseTimings,
    pub seed: u64,
    pub weather: Weather,
    pub broken: Broken,
    pub clock: TokioClock,
    /// Longest delay of the cache, in milliseconds.
    pub cache_lag: u64,
    /// From one write to a shard to the next, in milliseconds: what a simulation spends most of its time on.
    pub pause: (u64, u64),
}

impl ReplicaOptions {
    pub fn of(pod: &str, seed: u64) -> Self {
        Self {
            pod: pod.to_owned(),
            nonce: 1,
            template: "t1".to_owned(),
            shards: 4,
            backups: 1,
            timings: LeaseTimings::standard(),
            seed,
            weather: Weather::CALM,
            broken: Broken::default(),
            clock: TokioClock::default(),
            cache_lag: 20,
            pause: (150, 550),
        }
    }
}

pub struct Replica {
    pub options: ReplicaOptions,
    pub link: Link,
    pub handle: ShardSetHandle,
    tasks: Vec<JoinHandle<()>>,
}

struct Worker {
    stop: watch::Sender<bool>,
    task: JoinHandle<Handover>,
    tenure: Tenure,
}

#[derive(Clone)]
struct Crew {
    options: ReplicaOptions,
    link: Link,
    registry: Registry,
    cache: Cache,
    handle: ShardSetHandle,
}

/// Objects as the watch delivers them, late.
#[derive(Clone)]
struct Cache {
    objects: Arc<Mutex<BTreeMap<String, Value>>>,
    version: watch::Sender<u128>,
}

impl Cache {
    fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().unwrap().get(path).cloned()
    }
}

impl Replica {
    pub fn start(server: &Server, registry: &Registry, options: ReplicaOptions) -> Self {
        let link = Link::new(server, options.weather, options.seed);
        let client = link.client();
        // As the manifests ship it.
        let leader = super::lease_path(LEADER);
        if server.get(&leader).is_none() {
            server.put(&leader, super::lease(json!({})));
        }
        let set = ShardSetOptions {
            namespace: "ns".to_owned(),
            names: names(),
            leader_lease: LEADER.to_owned(),
            identity: identity_of(&options),
            template: options.template.clone(),
            owner: None,
            timings: options.timings,
            clock: Arc::new(options.clock.clone()),
            leader: LeaderOptions {
                backups: options.backups,
                ..LeaderOptions::new(ShardCount::new(options.shards).unwrap())
            },
            seed: Some(options.seed),
            events: None,
        };
        let (handle, set) = ShardSet::new(client.clone(), client, set).unwrap();
        let cache = Cache {
            objects: Arc::default(),
            version: watch::channel(0).0,
        };
        let crew = Crew {
            options: options.clone(),
            link: link.clone(),
            registry: registry.clone(),
            cache: cache.clone(),
            handle: handle.clone(),
        };
        let (feed_server, feed_link) = (server.clone(), link.clone());
        let (lag, seed) = (options.cache_lag, options.seed);
        let tasks = vec![
            spawn(&link, async move {
                set.run().await.unwrap();
            }),
            spawn(
                &link,
                async move { feed(feed_server, feed_link, cache, lag, seed).await },
            ),
            spawn(&link, crew.obey()),
        ];
        Self {
            options,
            link,
            handle,
            tasks,
        }
    }

    /// SIGKILL.
    pub fn kill(self) -> ReplicaOptions {
        for task in &self.tasks {
            task.abort();
        }
        self.link.cut(true);
        self.link.kill();
        self.options
    }

    /// SIGTERM, and the end of the process at the latest after the grace period.
    pub async fn terminate(self) -> ReplicaOptions {
        let _ = tokio::time::timeout(Duration::from_secs(11), self.handle.drain()).await;
        self.kill()
    }

    pub fn ended(&self) -> bool {
        self.tasks.iter().any(JoinHandle::is_finished)
    }

    /// As its readiness says: the leader has placed it, and what it is to have warm is (which here takes no time).
    pub fn is_ready(&self) -> bool {
        *self.handle.placed().borrow()
    }

    pub fn holds(&self) -> BTreeSet<ShardId> {
        let roles = self.handle.roles();

        roles
            .borrow()
            .iter()
            .filter(|(_, role)| matches!(role, Role::Holder { .. }))
            .map(|(id, _)| *id)
            .collect()
    }
}

fn identity_of(options: &ReplicaOptions) -> Identity {
    identity(&options.pod, &format!("n{}", options.nonce))
}

fn spawn(link: &Link, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(Stoppable::new(link, future))
}

async fn feed(server: Server, link: Link, cache: Cache, lag: u64, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xcafe);
    sleep_ms(rng.below(lag + 1)).await;
    link.uncut().await;
    let (objects, version) = (server.list(OBJECTS), server.version());
    let mut events = server.watch(OBJECTS, None, Some(version));
    for object in objects {
        let path = format!("{OBJECTS}/{}", object["metadata"]["name"].as_str().unwrap());
        cache.objects.lock().unwrap().insert(path, object);
    }
    cache.version.send_replace(version.into());
    while let Some(event) = events.recv().await {
        sleep_ms(rng.below(lag + 1)).await;
        link.uncut().await;
        let object = event["object"].clone();
        let path = format!("{OBJECTS}/{}", object["metadata"]["name"].as_str().unwrap());
        let version = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        cache.objects.lock().unwrap().insert(path, object);
        cache.version.send_replace(version);
    }
}

impl Crew {
    async fn obey(self) {
        let mut roles = self.handle.roles();
        let mut workers: BTreeMap<ShardId, Worker> = BTreeMap::new();
        let mut warm: BTreeSet<ShardId> = BTreeSet::new();
        loop {
            let current: Roles = roles.borrow_and_update().clone();
            workers.retain(|id, worker| {
                let still = current.get(id).is_some_and(|role| {
                    matches!(role,
                    Role::Holder { tenure, .. } | Role::HandingOver { tenure } if *tenure == worker.tenure)
                });
                if !still {
                    // The tenure is over; whatever the worker does now, its guard refuses.
                    worker.stop.send_replace(true);
                }
                still
            });
            for (id, role) in current {
                match role {
                    Role::Idle => {
                        if warm.remove(&id) {
                            self.handle.report_warm(id, false);
                        }
                    }
                    Role::Next => {}
                    Role::Warm => {
                        if warm.insert(id) {
                            self.handle.report_warm(id, true);
                        }
                    }
                    Role::Holder { tenure, takeover } => {
                        self.registry.note(&self.options.pod, &tenure);
                        if warm.insert(id) {
                            self.handle.report_warm(id, true);
                        }
                        workers.entry(id).or_insert_with(|| {
                            let stop = watch::channel(false).0;
                            let work = self.clone().work(id, tenure.clone(), takeover, stop.subscribe());
                            Worker {
                                stop,
                                task: tokio::spawn(Stoppable::new(&self.link, work)),
                                tenure,
                            }
                        });
                    }
                    Role::HandingOver { tenure } => {
                        // The role stays until the Lease is released: begin once.
                        if self.registry.first_hand_over(&tenure) {
                            let crew = self.clone();
                            let worker = workers.remove(&id);
                            spawn(&self.link, async move { crew.hand_over(worker, tenure).await });
                        }
                    }
                }
            }
            if roles.changed().await.is_err() {
                return;
            }
        }
    }

    async fn hand_over(self, worker: Option<Worker>, tenure: Tenure) {
        let mut handover = None;
        if let Some(worker) = worker.filter(|_| !self.options.broken.writes_after_drain) {
            worker.stop.send_replace(true);
            // Stuck: how far its writes went is not known, so nothing can be promised.
            handover = tokio::time::timeout(Duration::from_secs(3), worker.task)
                .await
                .ok()
                .and_then(Result::ok);
        }
        let drained = tenure.drain().await;
        let _ = self.handle.release(drained, handover).await;
    }

    /// Writes to the objects of a shard, first to each once, then here and there.
    async fn work(
        self,
        shard: ShardId,
        tenure: Tenure,
        takeover: Takeover,
        mut stop: watch::Receiver<bool>,
    ) -> Handover {
        let mut rng = Rng::new(self.options.seed ^ u64::from(shard.index()) << 32 ^ 0xbeef);
        let mut handover = Handover::default();
        let mut wanted = 0;
        if let Takeover::Graceful(left) = &takeover {
            wanted = left.version("objects").unwrap_or(0);
            // What was handed to us is handed on, even if we write nothing.
            handover.wrote("objects", &wanted.to_string());
            if !self.options.broken.no_barrier {
                self.pass_barrier(left, &mut stop, &tenure).await;
            }
        }
        let uncached = takeover == Takeover::Abrupt;
        let slots: Vec<Slot> = shard.slots().collect();
        let mut fresh: Vec<Slot> = if self.options.broken.no_resync {
            Vec::new()
        } else {
            slots.clone()
        };
        let client = if self.options.broken.no_guard {
            self.link.client()
        } else {
            guarded_client(&self.link.client(), tenure.write_guard())
        };
        // A stopped or fenced worker goes on to the next wait at most.
        while !*stop.borrow() && (tenure.is_live() || self.options.broken.no_guard) {
            let first = fresh.pop();
            let slot = first.unwrap_or_else(|| slots[usize::try_from(rng.below(slots.len() as u64)).unwrap()]);
            let path = object_path(slot);
            let known = if uncached && first.is_some() {
                self.read(&path).await
            } else {
                self.cache
                    .get(&path)
                    .map(|object| (object, *self.cache.version.borrow()))
            };
            let Some((object, based_on)) = known else {
                sleep_ms(20).await;
                if let Some(slot) = first {
                    fresh.push(slot);
                }
                continue;
            };
            if let Some(written) = self
                .write(&client, &path, &object, based_on, wanted, &tenure, first.is_some())
                .await
            {
                handover.wrote("objects", &written);
            } else if first.is_some() {
                // A conflict: look past the cache, as the controller does.
                if let Some((object, based_on)) = self.read(&path).await
                    && let Some(written) = self
                        .write(&client, &path, &object, based_on, wanted, &tenure, true)
                        .await
                {
                    handover.wrote("objects", &written);
                }
            }
            let pause = if fresh.is_empty() {
                rng.within(self.options.pause)
            } else {
                rng.below(10)
            };
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {}
                () = sleep_ms(pause) => {}
            }
        }
        handover
    }

    async fn pass_barrier(&self, left: &Handover, stop: &mut watch::Receiver<bool>, tenure: &Tenure) {
        let barrier = Barrier::new(left);
        let mut version = self.cache.version.subscribe();
        let ended = tenure.ended();
        while !barrier.is_open() {
            barrier.reached("objects", *version.borrow_and_update());
            tokio::select! {
                biased;
                () = barrier.opened() => {}
                _ = version.changed() => {}
                _ = stop.wait_for(|stop| *stop) => return,
                () = ended.cancelled() => return,
            }
        }
    }

    async fn read(&self, path: &str) -> Option<(Value, u128)> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let client = self.link.client();
        let object: Value = tokio::time::timeout(Duration::from_secs(2), client.request(request))
            .await
            .ok()?
            .ok()?;
        // Newer than anything that a cache may be asked for.
        Some((object, u128::MAX))
    }

    #[allow(clippy::too_many_arguments)]
    async fn write(
        &self,
        client: &kube::Client,
        path: &str,
        object: &Value,
        based_on: u128,
        wanted: u128,
        tenure: &Tenure,
        first: bool,
    ) -> Option<String> {
        let patch = json!({
            "metadata": {"resourceVersion": object["metadata"]["resourceVersion"]},
            "spec": {
                "epoch": tenure.epoch().to_string(), "holder": tenure.holder(), "lease": tenure.lease(),
                "basedOn": based_on.to_string(), "wanted": wanted.to_string(), "first": first,
                "count": object["spec"]["count"].as_u64().unwrap_or(0) + 1,
                // What the sender knew when it sent, for the oracle of I3.
                "left": tenure.deadline().since(self.options.clock.now()).as_millis().to_string(),
            },
        });
        let request = http::Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .body(serde_json::to_vec(&patch).unwrap())
            .unwrap();
        match client.request::<Value>(request).await {
            Ok(written) => Some(written["metadata"]["resourceVersion"].as_str().unwrap().to_owned()),
            Err(error) => {
                let _ = fenced(&error);
                None
            }
        }
    }
}
