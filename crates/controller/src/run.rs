//! The wiring of one process, from top to bottom.
//!
//! Everything that serves is there before the replica begins, so that a process that waits can be asked why. A part that
//! ends unexpectedly ends the process: Kubernetes restarts it, and nothing is half alive.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use appwrapper_api::{
    GoDuration,
    config::{Config, FaultToleranceConfig},
};
use appwrapper_cache_management::{Kinds, Settings};
use appwrapper_coordination::{
    BootClock, Identity, State, lease_client,
    shards::{Roster, ShardCount, ShardSetHandle},
};
use appwrapper_metrics::{
    Build, Health, Metrics,
    labels::{Controller, Phase},
    serve::{Content, Server},
    telemetry,
};
use appwrapper_reconciler::Defaults;
use appwrapper_serving::endpoint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    args::{Args, address},
    client,
    keeper::Board,
    limiter::Limiter,
    nodes,
    observer::Totals,
    page,
    replica::{Replica, ReplicaOptions},
    rights,
    shard::Environment,
};

/// Confirmations per second for all AppWrappers together, and at once.
const CONFIRMATIONS: (f64, f64) = (50.0, 100.0);

/// Runs the process until it is told to stop.
pub async fn run(args: Args, config: Config) -> anyhow::Result<()> {
    let namespace = args.namespace()?;
    let replica = args.replica();
    let timings = args.timings()?;
    let Args {
        command: _,
        config: _,
        metrics_bind_address,
        metrics_secure,
        metrics_cert_path,
        health_bind_address,
        namespace: _,
        identity: _,
        pod_uid,
        lease_duration: _,
        lease_renew_deadline: _,
        shards,
        warm_backups,
        pod_template_hash,
        concurrency,
        log_format,
        verbose,
    } = args;
    let identity = Identity::of_pod(&replica, pod_uid.as_deref()).context("--identity")?;
    let shutdown = on_signal()?;

    let kube_config = kube::Config::infer()
        .await
        .context("no API server is configured; set KUBECONFIG or run in a cluster")?;
    let metrics = Metrics::new(&build(&config, &kube_config, shards));
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
    metrics
        .reconcile
        .set_max_concurrent(Controller::AppWrapper, usize::from(concurrency));
    metrics.reconcile.set_max_concurrent(Controller::NodeMonitor, 1);
    for (phase, allowance) in allowances(&config.appwrapper.fault_tolerance) {
        metrics.states.set_allowance(phase, allowance);
    }
    let client = client::measured(kube_config.clone(), &metrics).context("cannot make a client")?;
    let lease_client = lease_client(kube_config, &timings).context("cannot make a client for Leases")?;
    rights::on_leases(&lease_client, &namespace).await?;

    let health = Health::new();
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
    let settings = Settings::default();
    let environment = Environment {
        client: client.clone(),
        metrics: Arc::clone(&metrics),
        defaults: Defaults::new(&config.appwrapper),
        nodes: faults.clone(),
        node_changes,
        limiter: Arc::new(Limiter::new(CONFIRMATIONS.0, CONFIRMATIONS.1)),
        permits: Arc::new(Semaphore::new(usize::from(concurrency))),
        kinds: Arc::new(Kinds::new(client.clone(), &settings)),
        totals: Totals::default(),
        replica: replica.clone(),
        settings,
        clock: Arc::new(jiff::Timestamp::now),
    };
    if let Some(autopilot) = config.appwrapper.autopilot.filter(|autopilot| autopilot.monitor_nodes) {
        spawn(
            "nodes",
            Box::pin(nodes::watch(
                client.clone(),
                autopilot,
                faults,
                node_sender,
                Arc::clone(&metrics),
            )),
        );
    }

    let options = ReplicaOptions {
        lease_client,
        namespace,
        identity,
        template: pod_template_hash,
        owner: pod_uid.map(|uid| owner(&replica, uid)),
        timings,
        clock: BootClock::shared(),
        shards,
        backups: usize::from(warm_backups),
        seed: None,
    };
    let replica = Replica::new(options, environment)?;
    serve(
        &tasks,
        &shutdown,
        health_bind_address.or(config.controller_manager.health.bind_address),
        Server::new()
            .health(&health)
            .debug("caches", cache_page(replica.board().clone()))
            .debug("shards", shard_page(replica.handle().clone())),
        "probes",
    )
    .await?;
    let mut page = Server::new().metrics(metrics.registry());
    if metrics_secure {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = endpoint::certificate(metrics_cert_path, names)
            .await
            .context("--metrics-cert-path")?;
        page = endpoint::secured(page, certificate, client)?;
    }
    serve(
        &tasks,
        &shutdown,
        metrics_bind_address.or(config.controller_manager.metrics.bind_address),
        page,
        "metrics",
    )
    .await?;

    let outcome = tokio::select! {
        result = replica.run(health, shutdown.clone()) => result,
        () = ended.cancelled() => bail!("a part of the process ended; see the log"),
    };
    telemetry.shutdown(Duration::from_secs(1)).await;
    outcome
}

/// The table of shards, from the Leases alone.
pub async fn shards(namespace: &str) -> anyhow::Result<String> {
    let client = kube::Client::try_default()
        .await
        .context("no API server is configured; set KUBECONFIG or run in a cluster")?;
    page::read(client, namespace).await
}

/// Our pod, with which our member Lease goes.
fn owner(pod: &str, uid: String) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.to_owned(),
        uid,
        ..OwnerReference::default()
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
    tracing::info!(address = %listener.local_addr()?, scheme = server.scheme(), what, "serving");
    tasks.spawn(server.serve(listener, shutdown.clone()));
    Ok(())
}

fn cache_page(board: Board) -> impl Fn() -> Content + Send + Sync + 'static {
    move || {
        let mut lines = vec!["SHARD  KIND  SYNCED  OBJECTS  LAST EVENT  LAST ERROR".to_owned()];
        for (id, shard) in board.shards() {
            lines.extend(shard.registry().status().into_iter().map(|kind| {
                let event = kind.last_event.map_or_else(|| "-".to_owned(), |at| at.to_string());
                let error = kind
                    .last_error
                    .map(|(at, reason, _)| format!("{at} {}", reason.as_str()));
                let error = error.unwrap_or_else(|| "-".to_owned());
                format!(
                    "{id}  {}  {}  {}  {event}  {error}",
                    kind.type_ref, kind.synced, kind.objects
                )
            }));
        }
        Content::Text(lines.join("\n") + "\n")
    }
}

fn shard_page(handle: ShardSetHandle) -> impl Fn() -> Content + Send + Sync + 'static {
    move || {
        let roster: Roster = handle.roster().borrow().clone();
        let leader = match &*handle.leader().borrow() {
            State::Held(tenure) => Some(tenure.holder().to_owned()),
            State::Standby { holder } => holder.clone(),
            State::Lost => None,
        };
        Content::Text(page::table(&roster, leader.as_deref(), jiff::Timestamp::now()))
    }
}

/// How long an AppWrapper may stay in each phase that should pass.
fn allowances(tolerance: &FaultToleranceConfig) -> [(Phase, Duration); 4] {
    let time = |period: GoDuration| Duration::try_from(period.signed()).unwrap_or_default();
    let deletion = time(tolerance.forceful_deletion_grace_period);
    [
        (Phase::Resuming, time(tolerance.admission_grace_period)),
        (Phase::Resetting, deletion + time(tolerance.retry_pause)),
        (Phase::Suspending, deletion),
        (Phase::Terminating, deletion),
    ]
}

fn build(config: &Config, kube_config: &kube::Config, shards: ShardCount) -> Build {
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
        shards: shards.get().into(),
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
