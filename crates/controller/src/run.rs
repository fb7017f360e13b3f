//! The wiring of one process, from top to bottom.
//!
//! Watches start first and outlive tenures, so that caches are warm when the Lease comes. While the Lease is held, the queue
//! runs. A part that ends unexpectedly ends the process: Kubernetes restarts it, and nothing is half alive.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use appwrapper_api::config::Config;
use appwrapper_cache_management::{Registry, Selector, Settings};
use appwrapper_coordination::{
    BootClock, ClaimPolicy, Creation, EventSink, GuardedLease, Identity, LeaseChange, LeaseEvent, LeaseHandle,
    LeaseParams, LeaseTimings, LeaseWatch, ReleaseNote, Supervisor, SupervisorOptions, lease_client,
};
use appwrapper_metrics::{
    Build, Health, Metrics,
    health::NotReady,
    labels::Renewal,
    serve::{Content, Server},
    telemetry,
};
use appwrapper_reconciler::Defaults;
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    args::{Args, address},
    client,
    limiter::Limiter,
    nodes,
    shard::{Environment, Shard},
};

/// Lease of the Go controller, kept so that the two never act together (design/decisions.md 7).
const LEASE: &str = "f134c674.codeflare.dev";
/// Confirmations per second for all AppWrappers together, and at once.
const CONFIRMATIONS: (f64, f64) = (50.0, 100.0);

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
    metrics.lease.set_duration(timings.duration);
    let client = client::measured(kube_config.clone(), &metrics).context("cannot make a client")?;
    let lease_client = lease_client(kube_config, &timings).context("cannot make a client for Leases")?;

    let health = Health::new();
    let unsynced = health.not_ready("caches", "AppWrappers and pods are not listed yet");
    let tasks = TaskTracker::new();
    let ended = CancellationToken::new();
    let spawn = |name: &'static str, task: Pin<Box<dyn Future<Output = ()> + Send>>| {
        let ended = ended.clone();
        tasks.spawn(async move {
            task.await;
            tracing::error!(task = name, "a part of the process ended that should not have");
            ended.cancel();
        });
    };

    let (node_sender, node_changes) = watch::channel(());
    let faults = nodes::Faults::default();
    let environment = Environment {
        client: client.clone(),
        metrics: Arc::clone(&metrics),
        defaults: Defaults::new(&config.appwrapper),
        nodes: faults.clone(),
        node_changes,
        limiter: Arc::new(Limiter::new(CONFIRMATIONS.0, CONFIRMATIONS.1)),
        concurrency: usize::from(concurrency),
        replica,
        settings: Settings::default(),
        clock: Arc::new(jiff::Timestamp::now),
    };
    let (shard, watching) = Shard::new(environment, Selector::all());
    spawn("shard", watching);
    spawn("readiness", Box::pin(ready(Arc::clone(&shard), unsynced)));
    if let Some(autopilot) = config.appwrapper.autopilot.filter(|autopilot| autopilot.monitor_nodes) {
        spawn(
            "nodes",
            Box::pin(nodes::watch(client.clone(), autopilot, faults, node_sender)),
        );
    }

    serve(
        &tasks,
        &shutdown,
        health_bind_address.or(config.controller_manager.health.bind_address),
        Server::new()
            .health(&health)
            .debug("caches", cache_page(Arc::clone(shard.registry()))),
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

    let watch = LeaseWatch::named(client.clone(), &namespace, LEASE, timings.rpc_timeout);
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
            events: Some(lease_events(&metrics)),
            standby_poll: timings.renew_period,
        },
    )?;
    let supervised = tokio::spawn(supervisor.run());
    // Hurries a hand-over up; the supervisor's own reads decide.
    let observed = lease.clone();
    tokio::spawn(watch.run(move |change| match change {
        LeaseChange::Seen(lease) => observed.observe(*lease),
        LeaseChange::All(_) | LeaseChange::Gone(_) => observed.look(),
    }));
    tokio::spawn(watch_lease(lease.clone(), health.clone(), clock, timings.duration));
    let outcome = tokio::select! {
        result = act(&shard, &metrics, &lease, &shutdown) => result,
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
    shard: &Shard,
    metrics: &Metrics,
    lease: &LeaseHandle,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    loop {
        let tenure = tokio::select! {
            tenure = lease.held() => tenure?,
            () = shutdown.cancelled() => return Ok(()),
        };
        tracing::info!(lease = tenure.lease(), epoch = %tenure.epoch(), "the Lease is ours");
        metrics.lease.set_leader(true);
        shard.hold(&tenure, shutdown).await;
        metrics.lease.set_leader(false);
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

/// What happens to the Lease, as metrics.
fn lease_events(metrics: &Arc<Metrics>) -> EventSink {
    let metrics = Arc::clone(metrics);
    Arc::new(move |event| match event {
        LeaseEvent::Renewed { took, .. } => metrics.lease.renewal(0, Renewal::Renewed, *took),
        LeaseEvent::Failed { reason, .. } => {
            let result = match *reason {
                "conflict" => Renewal::Conflict,
                "timeout" => Renewal::Timeout,
                _ => Renewal::Error,
            };
            metrics.lease.renewal(0, result, Duration::ZERO);
        }
        _ => {}
    })
}

/// Ready once the caches are listed. Not asked again: an API server that is away later must not restart anything.
async fn ready(shard: Arc<Shard>, unsynced: NotReady) {
    shard.synced().await;
    unsynced.ready();
    std::future::pending::<()>().await;
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
