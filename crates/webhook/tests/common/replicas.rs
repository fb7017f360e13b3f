//! Replicas that look after their own certificates, in the test's process.
//!
//! Each is what a process runs: it follows the Secret, and looks after the certificates while it holds the Lease. A prober asks
//! every second whether the two configurations trust what each replica serves, as the API server would at a call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use appwrapper_coordination::{
    ClaimPolicy, GuardedLease, Identity, LeaseParams, LeaseTimings, Supervisor, SupervisorOptions, testing::TokioClock,
};
use appwrapper_metrics::{Build, Health, WebhookMetrics};
use appwrapper_testkit::api_server::{ApiServer, Match};
use appwrapper_webhook::certs::{
    bundle::{Configuration, Configurations},
    clock::ServerClock,
    gate::Gate,
    issue::Issuing,
    material::{Certificate, Material},
    replica::{Memory, Names, Replica},
    resolver::Resolver,
    rotator::{Options, Rotator},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::{task::JoinSet, time::sleep};

pub const NAMESPACE: &str = "appwrapper-system";
pub const SECRET: &str = "appwrapper-webhook-server-cert";
pub const LEASE: &str = "appwrapper-webhook-certificates";
pub const MINUTE: Duration = Duration::from_secs(60);

/// Everything that the manifests ship.
pub fn installed() -> ApiServer {
    let server = super::api_server();
    server.create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE, "namespace": NAMESPACE}}));
    create_secret(&server);
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "m"),
        ("ValidatingWebhookConfiguration", "v"),
    ] {
        server.create(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "webhooks": [{"name": "x.workload.codeflare.dev", "clientConfig": {"service": {
                "name": "appwrapper-webhook-service", "namespace": NAMESPACE, "path": "/x",
            }}}],
        }));
    }
    server
}

pub fn create_secret(server: &ApiServer) {
    server.create(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}}));
}

pub fn secret(server: &ApiServer) -> Material {
    let object = server.get("secrets", NAMESPACE, SECRET).unwrap();
    Material::of(&serde_json::from_value((*object).clone()).unwrap()).0
}

pub fn configurations() -> Configurations {
    Configurations {
        mutating: "m".into(),
        validating: "v".into(),
    }
}

pub fn bundles(server: &ApiServer) -> [Configuration; 2] {
    [
        ("mutatingwebhookconfigurations", "m"),
        ("validatingwebhookconfigurations", "v"),
    ]
    .map(|(plural, name)| serde_json::from_value((*server.get(plural, "", name).unwrap()).clone()).unwrap())
}

pub fn common_bundle(server: &ApiServer) -> Vec<Certificate> {
    let [mutating, validating] = bundles(server);
    let bundle = mutating.certificates();
    assert_eq!(bundle, validating.certificates());
    bundle
}

pub fn issuing(serving_minutes: i64, authority_minutes: i64) -> Issuing {
    Issuing {
        authority_name: "appwrapper-ca".into(),
        organisation: "appwrapper".into(),
        names: vec![format!("appwrapper-webhook-service.{NAMESPACE}.svc")],
        authority_life: SignedDuration::from_mins(authority_minutes),
        serving_life: SignedDuration::from_mins(serving_minutes),
    }
}

/// A clock that follows tokio's, shifted by some minutes.
pub fn clock(shift_minutes: i64) -> ServerClock {
    let start: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
    let begun = BEGUN.with(|begun| *begun);
    ServerClock::new(move || {
        let passed = SignedDuration::try_from(begun.elapsed()).unwrap();
        start + passed + SignedDuration::from_mins(shift_minutes)
    })
}

thread_local! {
    /// Each test has a thread and a paused clock of its own.
    static BEGUN: tokio::time::Instant = tokio::time::Instant::now();
}

pub fn names(replica: &str) -> Names {
    Names {
        namespace: NAMESPACE.into(),
        secret: SECRET.into(),
        lease: LEASE.into(),
        replica: replica.into(),
    }
}

pub fn options(replica: &str, issuing: Issuing) -> Options {
    Options {
        names: names(replica),
        configurations: configurations(),
        issuing,
        settle: SignedDuration::from_secs(30),
    }
}

/// One process.
pub struct Process {
    pub resolver: Arc<Resolver>,
    pub health: Health,
    pub metrics: Arc<WebhookMetrics>,
    tasks: JoinSet<()>,
}

impl Process {
    pub fn start(server: &ApiServer, name: &str, issuing: Issuing, shift_minutes: i64) -> Self {
        let client = server.client_as(name);
        let metrics = WebhookMetrics::new(&Build::default());
        let admission = metrics.admission.clone();
        let health = Health::new();
        let clock = clock(shift_minutes);
        let resolver = Resolver::new(admission.clone());
        let gate = Gate::new(
            client.clone(),
            configurations(),
            clock.clone(),
            admission.clone(),
            &health,
        );
        let memory = Arc::new(Memory::default());
        let timings = LeaseTimings::for_duration(Duration::from_secs(30)).unwrap();
        let boot: appwrapper_coordination::SharedClock = Arc::new(TokioClock::default());
        let identity = Identity::of_pod(name, None).unwrap();
        let params = LeaseParams {
            namespace: NAMESPACE.into(),
            name: LEASE.into(),
            identity: identity.clone(),
            timings,
            creation: None,
        };
        let backend = GuardedLease::new(&client, params, Arc::clone(&boot)).unwrap();
        let supervisor = SupervisorOptions {
            lease: LEASE.into(),
            identity,
            timings,
            clock: boot,
            policy: ClaimPolicy::After(Duration::ZERO),
            standby_poll: timings.renew_period,
            seed: Some(1),
            events: None,
        };
        let (lease, supervisor) = Supervisor::new(backend, supervisor).unwrap();
        let rotator = Rotator::new(
            client.clone(),
            options(name, issuing),
            clock.clone(),
            Arc::clone(&memory),
        );
        let replica = Replica::new(
            client,
            names(name),
            clock,
            Arc::clone(&resolver),
            memory,
            gate,
            admission,
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { supervisor.run().await.unwrap() });
        tasks.spawn(rotator.run(lease));
        tasks.spawn(replica.run());
        Self {
            resolver,
            health,
            metrics,
            tasks,
        }
    }

    pub fn serial(&self) -> String {
        self.resolver.serving().unwrap().leaf.serial.clone()
    }

    pub async fn ready(&self) {
        wait("ready", || self.health.ready().ok).await;
    }

    pub fn kill(&mut self) {
        self.tasks.abort_all();
    }
}

pub fn three(server: &ApiServer, issuing: &Issuing) -> Vec<Process> {
    ["webhook-0", "webhook-1", "webhook-2"]
        .map(|name| Process::start(server, name, issuing.clone(), 0))
        .into()
}

pub async fn wait(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1200 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(500)).await;
    }
    panic!("not within ten minutes: {what}");
}

/// Asks every second whether each replica would be accepted. Counts refusals.
pub fn probe(server: &ApiServer, replicas: &[Process]) -> (Arc<AtomicUsize>, JoinSet<()>) {
    let refused = Arc::new(AtomicUsize::new(0));
    let resolvers: Vec<_> = replicas.iter().map(|process| Arc::clone(&process.resolver)).collect();
    let (server, count, clock) = (server.clone(), Arc::clone(&refused), clock(0));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            sleep(Duration::from_secs(1)).await;
            let bundles = bundles(&server);
            for resolver in &resolvers {
                let pair = resolver.serving().unwrap();
                for bundle in &bundles {
                    if let Err(fault) = bundle.trusts(&pair, clock.now()) {
                        eprintln!("{} refused: {fault}", clock.now());
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        }
    });
    (refused, tasks)
}

pub fn secret_writes(server: &ApiServer) -> usize {
    server.count(&Match::writes().resource("secrets"))
}

pub async fn wait_long(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..7200 {
        if holds() {
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
    panic!("not within two hours: {what}");
}
