//! Deterministic simulation: an API server in memory, seeded links, paused time.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part")]

pub mod link;
pub mod oracle;
pub mod replica;
pub mod scene;
pub mod server;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use appwrapper_coordination::{
    ClaimPolicy, Creation, EventSink, GuardedLease, Identity, LeaseHandle, LeaseParams, LeaseTimings, SharedClock,
    Supervisor, SupervisorOptions, testing::TokioClock,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub use link::{Link, Rng, Weather};
pub use replica::{Broken, Registry, Replica, ReplicaOptions, object_path};
pub use server::Server;

pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";

pub fn lease_path(name: &str) -> String {
    format!("{LEASES}/{name}")
}

/// A Lease as some tool may have left it.
#[allow(clippy::needless_pass_by_value, reason = "it is always given a literal")]
pub fn lease(spec: Value) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": spec})
}

/// Runs a test on one thread with paused time: the same seed gives the same run.
pub fn run<F: Future<Output = T>, T>(test: F) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}

/// Which seeds to run: so many, unless `SIM_SEEDS` and `SIM_FIRST` say otherwise.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("SIM_FIRST").unwrap_or(0);
    first..first + number("SIM_SEEDS").unwrap_or(default)
}

/// Runs seeds on all cores; the first that is red is reported with its number.
pub fn on_all_cores(seeds: std::ops::Range<u64>, simulate: impl Fn(u64) -> oracle::Verdict + Sync) {
    let next = std::sync::atomic::AtomicU64::new(seeds.start);
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(wrong) = simulate(seed) {
                        // The others need not go on.
                        next.store(seeds.end, std::sync::atomic::Ordering::Relaxed);
                        panic!("seed {seed}: {wrong}");
                    }
                }
            });
        }
    });
}

pub async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

pub fn identity(pod: &str, nonce: &str) -> Identity {
    Identity::with_nonce(pod, Some(&format!("{pod}-uid")), nonce).unwrap()
}

/// A future that is not polled while its process is stopped.
pub struct Stoppable<F> {
    future: Pin<Box<F>>,
    stopped: Arc<link::Gate>,
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<F> Stoppable<F> {
    pub fn new(link: &Link, future: F) -> Self {
        Self {
            future: Box::pin(future),
            stopped: link.stopped(),
            wait: None,
        }
    }
}

impl<F: Future> Future for Stoppable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<F::Output> {
        if self.stopped.is_shut() && self.wait.is_none() {
            let stopped = Arc::clone(&self.stopped);
            self.wait = Some(Box::pin(async move { stopped.opened().await }));
        }
        if let Some(wait) = &mut self.wait {
            if wait.as_mut().poll(context).is_pending() {
                return std::task::Poll::Pending;
            }
            self.wait = None;
        }
        self.future.as_mut().poll(context)
    }
}

/// One Lease under supervision by one replica.
pub struct Candidate {
    pub handle: LeaseHandle,
    pub task: JoinHandle<Result<(), appwrapper_coordination::Error>>,
    pub link: Link,
    pub clock: TokioClock,
}

pub struct CandidateOptions<'a> {
    pub lease: &'a str,
    pub identity: Identity,
    pub timings: LeaseTimings,
    pub policy: ClaimPolicy,
    pub seed: u64,
    pub weather: Weather,
    pub clock: TokioClock,
    pub events: Option<EventSink>,
    pub at_once: bool,
}

impl CandidateOptions<'_> {
    pub fn of(pod: &str, seed: u64) -> CandidateOptions<'static> {
        CandidateOptions {
            lease: "lock",
            identity: identity(pod, "n1"),
            timings: LeaseTimings::standard(),
            policy: ClaimPolicy::After(Duration::ZERO),
            seed,
            weather: Weather::CALM,
            clock: TokioClock::default(),
            events: None,
            at_once: true,
        }
    }
}

impl Candidate {
    pub fn start(server: &Server, options: CandidateOptions<'_>) -> Self {
        let CandidateOptions {
            lease,
            identity,
            timings,
            policy,
            seed,
            weather,
            clock,
            events,
            at_once,
        } = options;
        let link = Link::new(server, weather, seed);
        let shared: SharedClock = Arc::new(clock.clone());
        let params = LeaseParams {
            namespace: "ns".to_owned(),
            name: lease.to_owned(),
            identity: identity.clone(),
            timings,
            creation: Some(Creation {
                at_once,
                ..Creation::default()
            }),
        };
        let backend = GuardedLease::new(&link.client(), params, Arc::clone(&shared)).unwrap();
        let options = SupervisorOptions {
            lease: lease.to_owned(),
            identity,
            timings,
            clock: shared,
            policy,
            standby_poll: timings.renew_period,
            seed: Some(seed),
            events,
        };
        let (handle, supervisor) = Supervisor::new(backend, options).unwrap();
        let task = tokio::spawn(Stoppable::new(&link, supervisor.run()));
        Self {
            handle,
            task,
            link,
            clock,
        }
    }

    pub fn is_live(&self) -> bool {
        self.handle
            .state()
            .borrow()
            .tenure()
            .is_some_and(appwrapper_coordination::Tenure::is_live)
    }

    /// The process ends without a word.
    pub fn kill(self) {
        self.task.abort();
        self.link.cut(true);
    }
}
