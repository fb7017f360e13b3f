//! The wiring of one process, from top to bottom.
//!
//! Watches start first and outlive tenures, so that caches are warm when the Lease comes. While the Lease is held, the queue
//! runs. A part that ends unexpectedly ends the process: Kubernetes restarts it, and nothing is half alive.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use appwrapper_api::{AppWrapper, config::Config};
use appwrapper_cache_management::{Registry, Selector, Settings};
use appwrapper_coordination::{
    BootClock, ClaimPolicy, Creation, GuardedLease, Identity, LeaseHandle, LeaseParams, LeaseTimings, ReleaseNote,
    Supervisor, SupervisorOptions, Tenure, guarded_client, lease_client,
};
use appwrapper_metrics::{
    Build, Health, Metrics,
    health::NotReady,
    serve::{Content, Server},
    telemetry,
};
use appwrapper_reconciler::Defaults;
use kube::{
    Client,
    runtime::reflector::{self, Store},
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    args::{Args, address},
    client,
    cluster::KubeCluster,
    limiter::Limiter,
    memories::Memories,
    nodes,
    observer::CacheObserver,
    queue::{self, Work},
    teller::{Publisher, Teller, teller},
    wrappers::{self, Route},
};

/// Lease of the Go controller, kept so that the two never act together (design/decisions.md 7).
const LEASE: &str = "f134c674.codeflare.dev";
/// Confirmations per second for all AppWrappers together, and at once.
const CONFIRMATIONS: (f64, f64) = (50.0, 100.0);
/// Triggers that may wait to be taken in.
const TRIGGERS: usize = 4_096;
/// How long passes under way may take to end after SIGTERM. The pod's grace period is longer.
const DRAIN: Duration = Duration::from_secs(8);

/// What lives as long as the process.
struct Process {
    client: Client,
    registry: Arc<Registry>,
    store: Store<AppWrapper>,
    route: Route,
    memories: Arc<Memories>,
    faults: nodes::Faults,
    limiter: Arc<Limiter>,
    defaults: Defaults,
    teller: Teller,
    concurrency: usize,
    replica: String,
}

/// Runs the process until it is told to stop.
pub async fn run(args: Args, config: Config) -> anyhow::Result<()> {
    let namespace = args.namespace()?;
    let replica = args.replica();
    let Args {
        config: _,
        metrics_bind_address,
        health_bind_address,
        namespace: _,
        identity: _,
        pod_uid,
        lease_duration,
        concurrency,
        log_format,
        verbose,
    } = args;
    let timings = LeaseTimings::for_duration(lease_duration).context("--lease-duration")?;
    let identity = Identity::of_pod(&replica, pod_uid.as_deref()).context("--identity")?;
    let shutdown = on_signal()?;

    let kube_config = kube::Config::infer()
        .await
        .context("no API server is configured; set KUBECONFIG or run in a cluster")?;
    let metrics = Metrics::new(&build(&config, &kube_config));
    let telemetry = telemetry::init(
        &telemetry::Options {
            format: log_format,
            verbosity: verbose,
            filter: std::env::var("RUST_LOG").ok(),
            service: "appwrapper-controller",
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
        &metrics.process,
    )
    .context("cannot set up logs and traces")?;
    let client = client::measured(kube_config.clone(), &metrics).context("cannot make a client")?;
    let lease_client = lease_client(kube_config, &timings).context("cannot make a client for Leases")?;

    let health = Health::new();
    let unsynced = health.not_ready("caches", "AppWrappers and pods are not listed yet");
    let tasks = TaskTracker::new();
    let ended = CancellationToken::new();
    let spawn = |name: &'static str, task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        let ended = ended.clone();
        tasks.spawn(async move {
            task.await;
            tracing::error!(task = name, "a part of the process ended that should not have");
            ended.cancel();
        });
    };

    let (teller, publisher) = teller(Arc::clone(&metrics));
    let (idle, _) = mpsc::channel(1);
    let observer = Arc::new(CacheObserver(Arc::clone(&metrics)));
    let registry = Arc::new(Registry::new(
        client.clone(),
        Selector::all(),
        idle,
        observer,
        Settings::default(),
    ));
    registry.start_pods();
    let (store, writer) = reflector::store();
    let process = Process {
        client: client.clone(),
        registry: Arc::clone(&registry),
        store: store.clone(),
        route: Route::default(),
        memories: Arc::default(),
        faults: nodes::Faults::default(),
        limiter: Arc::new(Limiter::new(CONFIRMATIONS.0, CONFIRMATIONS.1)),
        defaults: Defaults::new(&config.appwrapper),
        teller,
        concurrency: usize::from(concurrency),
        replica,
    };
    let watching = wrappers::watch(
        client.clone(),
        writer,
        process.route.clone(),
        Arc::clone(&process.memories),
        registry.view(),
    );
    spawn("AppWrapper watch", Box::pin(watching));
    spawn(
        "readiness",
        Box::pin(ready(store.clone(), Arc::clone(&registry), unsynced)),
    );
    spawn("idle kinds", Box::pin(retire(store, Arc::clone(&registry))));
    let (node_sender, node_changed) = watch::channel(());
    if let Some(autopilot) = config.appwrapper.autopilot.filter(|autopilot| autopilot.monitor_nodes) {
        let watching = nodes::watch(client.clone(), autopilot, process.faults.clone(), node_sender);
        spawn("node watch", Box::pin(watching));
    }

    serve(
        &tasks,
        &shutdown,
        health_bind_address.or(config.controller_manager.health.bind_address),
        Server::new()
            .health(&health)
            .debug("caches", cache_page(Arc::clone(&registry))),
        "probes",
    )
    .await?;
    serve(
        &tasks,
        &shutdown,
        metrics_bind_address.or(config.controller_manager.metrics.bind_address),
        Server::new().metrics(metrics.registry()),
        "metrics",
    )
    .await?;

    let params = LeaseParams {
        namespace,
        name: LEASE.to_owned(),
        identity: identity.clone(),
        timings,
        creation: Some(Creation::default()),
    };
    let clock = BootClock::shared();
    let backend = GuardedLease::new(&lease_client, params, Arc::clone(&clock)).context("cannot use the Lease")?;
    let (lease, supervisor) = Supervisor::new(
        backend,
        SupervisorOptions {
            lease: LEASE.to_owned(),
            identity,
            timings,
            clock: Arc::clone(&clock),
            policy: ClaimPolicy::After(Duration::ZERO),
            seed: None,
            events: None,
            standby_poll: timings.renew_period,
        },
    )?;
    let supervised = tokio::spawn(supervisor.run());
    tokio::spawn(watch_lease(lease.clone(), health.clone(), clock, timings.duration));
    let outcome = tokio::select! {
        result = act(&process, &lease, &shutdown, publisher, node_changed) => result,
        () = ended.cancelled() => bail!("a part of the process ended; see the log"),
        result = supervised => match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(anyhow::Error::new(error).context("leader election")),
            Err(error) => Err(anyhow::Error::new(error).context("leader election")),
        },
    };
    telemetry.shutdown(Duration::from_secs(1)).await;
    outcome
}

/// Acts while the Lease is held, from tenure to tenure, until the process is to stop.
async fn act(
    process: &Process,
    lease: &LeaseHandle,
    shutdown: &CancellationToken,
    mut publisher: Publisher,
    node_changed: watch::Receiver<()>,
) -> anyhow::Result<()> {
    loop {
        let tenure = tokio::select! {
            tenure = lease.held() => tenure?,
            () = shutdown.cancelled() => return Ok(()),
        };
        tracing::info!(lease = tenure.lease(), epoch = %tenure.epoch(), "the Lease is ours");
        process.teller.metrics().lease.set_leader(true);
        hold(process, &tenure, shutdown, &mut publisher, node_changed.clone()).await;
        process.teller.metrics().lease.set_leader(false);
        process.route.close();
        process.memories.clear();
        process.registry.view().forget_all();
        if shutdown.is_cancelled() {
            let drained = tenure.drain().await;
            if let Err(error) = lease.release(drained, ReleaseNote::new()).await {
                tracing::warn!(%error, "the Lease was not released; it runs out by itself");
            }
            return Ok(());
        }
        tracing::warn!(lease = tenure.lease(), "the Lease was lost; waiting for it");
    }
}

/// Acts under one tenure.
async fn hold(
    process: &Process,
    tenure: &Tenure,
    shutdown: &CancellationToken,
    publisher: &mut Publisher,
    mut node_changed: watch::Receiver<()>,
) {
    let guard = tenure.write_guard();
    let cluster = KubeCluster::new(
        &process.client,
        guard.clone(),
        Arc::clone(&process.registry),
        Arc::clone(&process.limiter),
        process.teller.clone(),
    );
    let work = Arc::new(Work {
        cluster,
        store: process.store.clone(),
        memories: Arc::clone(&process.memories),
        defaults: process.defaults.clone(),
        nodes: process.faults.clone(),
        teller: process.teller.clone(),
        permits: Semaphore::new(process.concurrency),
        tenure: tenure.clone(),
    });
    let (sender, triggers) = mpsc::channel(TRIGGERS);
    // First the route, then everything that is known: a change in between is looked at twice, not missed.
    process.route.open(sender.clone());
    process.registry.route(sender.clone());
    let everything = async {
        loop {
            if process.store.wait_until_ready().await.is_err() {
                return;
            }
            for wrapper in process.store.state() {
                let _ = sender.send(wrapper.key()).await;
            }
            if node_changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let events = guarded_client(&process.client, guard);
    tokio::select! {
        () = queue::run(work, triggers, shutdown.clone()) => {}
        () = everything => {}
        () = publisher.run(events, &process.replica) => {}
        () = async { shutdown.cancelled().await; tokio::time::sleep(DRAIN).await } => {
            tracing::warn!("passes under way did not end in time and are cut off");
        }
    }
}

/// Ready once the caches are listed. Not asked again: an API server that is away later must not restart anything.
async fn ready(store: Store<AppWrapper>, registry: Arc<Registry>, unsynced: NotReady) {
    let _ = store.wait_until_ready().await;
    let pods = appwrapper_api::TypeRef::new("v1", "Pod");
    while !matches!(registry.ensure(&pods, Duration::from_secs(1)).await, Ok(true)) {}
    unsynced.ready();
    std::future::pending::<()>().await;
}

/// Stops the watches of kinds that no AppWrapper uses any more.
async fn retire(store: Store<AppWrapper>, registry: Arc<Registry>) {
    let mut minute = tokio::time::interval(Duration::from_secs(60));
    loop {
        minute.tick().await;
        if store.wait_until_ready().await.is_ok() {
            registry.retain(&wrappers::kinds_in_use(&store));
        }
    }
}

/// The process is alive while the Lease loop makes progress, whatever the API server does.
async fn watch_lease(
    lease: LeaseHandle,
    health: Health,
    clock: appwrapper_coordination::SharedClock,
    duration: Duration,
) {
    let progress = health.watch_loop("lease", duration * 3);
    let mut seen = lease.last_progress();
    let mut tick = tokio::time::interval(duration / 4);
    loop {
        tick.tick().await;
        let latest = lease.last_progress();
        if latest != seen || clock.now().since(latest) < duration {
            seen = latest;
            progress.made();
        }
    }
}

async fn serve(
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
    bind: Option<String>,
    server: Server,
    what: &'static str,
) -> anyhow::Result<()> {
    let Some(bind) = bind.as_deref().and_then(address) else {
        return Ok(());
    };
    let listener = TcpListener::bind(&bind)
        .await
        .with_context(|| format!("cannot serve {what} on {bind}"))?;
    tracing::info!(address = %listener.local_addr()?, what, "serving");
    tasks.spawn(server.serve(listener, shutdown.clone()));
    Ok(())
}

fn cache_page(registry: Arc<Registry>) -> impl Fn() -> Content + Send + Sync + 'static {
    move || {
        let header = "KIND  SYNCED  OBJECTS  LAST EVENT  LAST ERROR".to_owned();
        let lines = registry.status().into_iter().map(|kind| {
            let event = kind.last_event.map_or_else(|| "-".to_owned(), |at| at.to_string());
            let error = kind
                .last_error
                .map(|(at, reason, _)| format!("{at} {}", reason.as_str()));
            let error = error.unwrap_or_else(|| "-".to_owned());
            format!("{}  {}  {}  {event}  {error}", kind.type_ref, kind.synced, kind.objects)
        });
        Content::Text(std::iter::once(header).chain(lines).collect::<Vec<_>>().join("\n") + "\n")
    }
}

fn build(config: &Config, kube_config: &kube::Config) -> Build {
    let mut hasher = DefaultHasher::new();
    format!("{config:?}").hash(&mut hasher);
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: option_env!("APPWRAPPER_REVISION").unwrap_or("unknown").to_owned(),
        rustc: option_env!("APPWRAPPER_RUSTC").unwrap_or("unknown").to_owned(),
        config_hash: format!("{:016x}", hasher.finish()),
        api_host: kube_config
            .cluster_url
            .authority()
            .map(ToString::to_string)
            .unwrap_or_default(),
        shards: 1,
        namespace_cap: 200,
        divergence_limit: Duration::from_secs(60),
    }
}

/// Cancelled by SIGTERM or SIGINT.
fn on_signal() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let cancel = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        cancel.cancel();
    });
    Ok(token)
}
