//! The wiring of one process, read from top to bottom.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::Duration,
};

use appwrapper_api::config::{BindConfig, CertConfig, Config};
use appwrapper_coordination::{LeaseTimings, lease_client};
use appwrapper_metrics::{Build, Health, WebhookMetrics, serve::Server, telemetry};
use appwrapper_serving::endpoint;
use jiff::SignedDuration;
use kube::Client;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::{
    access::Access,
    args::{self, Certificates, Serve},
    certs::{
        bundle::Configurations,
        clock::ServerClock,
        files::Files,
        gate::Gate,
        issue::Issuing,
        lease,
        replica::{Memory, Names, Replica},
        resolver::Resolver,
        rotator::{Options, Rotator},
    },
    check::{self, Report},
    client,
    error::Error,
    serve,
    service::Service,
    validate::Validator,
};

/// Where a pod finds its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// From one sign of life to the next.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// For what is left of traces at the end, and for the release of the Lease.
const FLUSH: Duration = Duration::from_secs(3);

/// Checks manifests.
pub fn check(options: &args::Check) -> Result<Report, Error> {
    let args::Check {
        files,
        config,
        namespace,
    } = options;
    let (config, _) = read_config(config.as_deref())?;
    Ok(check::files(files, namespace.as_deref(), &config.appwrapper))
}

/// Serves until SIGTERM or SIGINT.
pub async fn serve(options: Serve) -> Result<(), Error> {
    let Serve {
        config,
        bind_address,
        health_bind_address,
        metrics_bind_address,
        metrics_secure,
        namespace,
        certificates,
        certificate_lease,
        certificate_names,
        certificate_lifetime,
        authority_lifetime,
        bundle_settle_time,
        drain_time,
        pod_name,
        pod_uid,
        log_format,
        log,
        verbose,
    } = options;
    let (config, config_hash) = read_config(config.as_deref())?;
    let namespace =
        namespace.or_else(|| Some(config.cert_management.namespace.clone()).filter(|name| !name.is_empty()));
    let namespace = namespace.map_or_else(own_namespace, Ok)?;
    let pod_name = pod_name
        .or_else(host_name)
        .unwrap_or_else(|| "appwrapper-webhook".into());

    let mut kube_config = kube::Config::infer().await?;
    // A retry would outlast the time that a caller gives us, and a write must not be sent twice.
    kube_config.default_retry = false;
    kube_config.connect_timeout = Some(Duration::from_secs(2));
    let metrics = WebhookMetrics::new(&Build {
        config_hash,
        api_host: kube_config
            .cluster_url
            .authority()
            .map(ToString::to_string)
            .unwrap_or_default(),
        ..Build::default()
    });
    let telemetry = telemetry::init(
        &telemetry::Options {
            format: log_format,
            verbosity: verbose,
            filter: log,
            service: "appwrapper-webhook",
            version: env!("CARGO_PKG_VERSION").into(),
        },
        &metrics.process,
    )?;
    let health = Health::new();
    let stop = CancellationToken::new();
    let timings = LeaseTimings::for_duration(lease::DURATION)?;
    let lease_client = lease_client(kube_config.clone(), &timings).map_err(Error::request("cannot make a client"))?;
    let client = Client::try_from(kube_config).map_err(Error::request("cannot make a client"))?;
    let client = client::counted(&client, metrics.client.clone());

    // A runtime that is starved or wedged misses this; a slow API server does not.
    let heartbeat = health.watch_loop("runtime", HEARTBEAT * 6);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            heartbeat.made();
        }
    });

    // Probes first: what the start waits for should be readable from outside.
    let resolver = Resolver::new(metrics.admission.clone());
    let mut metrics_page = Server::new().metrics(metrics.registry());
    if metrics_secure {
        metrics_page = endpoint::secured(metrics_page, Arc::<Resolver>::clone(&resolver), client.clone())?;
    }
    let manager = &config.controller_manager;
    let pages = [
        (
            health_bind_address,
            "probes",
            "controllerManager.health.bindAddress",
            &manager.health,
            Server::new().health(&health),
        ),
        (
            metrics_bind_address,
            "metrics",
            "controllerManager.metrics.bindAddress",
            &manager.metrics,
            metrics_page,
        ),
    ];
    for (flag, what, field, configured, server) in pages {
        if let Some(address) = flag.map_or_else(|| configured_address(field, configured), |flag| Ok(Some(flag)))? {
            let listener = listen(address).await?;
            let address = listener
                .local_addr()
                .map_err(|source| Error::Listen { address, source })?;
            tracing::info!(%address, scheme = server.scheme(), what, "serving");
            tokio::spawn(server.serve(listener, stop.clone()));
        }
    }

    let clock = ServerClock::default();
    let certs = &config.cert_management;
    let configurations = Configurations {
        mutating: certs.mutating_webhook_config_name.clone(),
        validating: certs.validating_webhook_config_name.clone(),
    };
    let gate = Gate::new(
        client.clone(),
        configurations.clone(),
        clock.clone(),
        metrics.admission.clone(),
        &health,
    );
    let lease = match certificates {
        Certificates::Files => {
            let directory = certs.certificate_dir.clone().into();
            tokio::spawn(Files::new(directory, Arc::clone(&resolver), gate, metrics.admission.clone()).run());
            None
        }
        Certificates::Managed => {
            let names = Names {
                namespace: namespace.clone(),
                secret: certs.webhook_secret_name.clone(),
                lease: certificate_lease,
                replica: pod_name.clone(),
            };
            let memory = Arc::new(Memory::default());
            let lease = lease::keep(&lease_client, &names, pod_uid.as_deref(), timings)?;
            let issuing = issuing(
                certs,
                &namespace,
                certificate_names,
                certificate_lifetime,
                authority_lifetime,
            );
            let options = Options {
                names: names.clone(),
                configurations,
                issuing,
                settle: signed(bundle_settle_time),
            };
            let rotator = Rotator::new(client.clone(), options, clock.clone(), Arc::clone(&memory));
            tokio::spawn(rotator.run(lease.clone()));
            let replica = Replica::new(
                client.clone(),
                names,
                clock,
                Arc::clone(&resolver),
                memory,
                gate,
                metrics.admission.clone(),
            );
            tokio::spawn(replica.run());
            Some(lease)
        }
    };

    let reviews = config.appwrapper.user_rbac_admission_check;
    if !reviews {
        tracing::warn!(
            "userRBACAdmissionCheck is off: whoever may create AppWrappers can create what the controller can"
        );
    }
    let access = Access::new(client, reviews, metrics.admission.clone());
    let default_queue = config.appwrapper.default_queue_name.clone();
    let validator = Validator::new(config.appwrapper, access);
    let service = Arc::new(Service::new(validator, default_queue, metrics.admission.clone()));
    let listener = listen(bind_address).await?;
    tracing::info!(address = %bind_address, ?certificates, "serving");
    let server = tokio::spawn(serve::serve(
        listener,
        serve::tls(resolver)?,
        Arc::clone(&service),
        stop.clone(),
    ));

    wait_for_signal().await?;
    tracing::info!(seconds = drain_time.as_secs(), "draining");
    let draining = health.not_ready("drain", "the process is about to end");
    service.drain();
    tokio::time::sleep(drain_time).await;
    if let Some(lease) = lease {
        // A replica that is not told so would wait for the Lease to run out, nothing worse.
        let _ = tokio::time::timeout(FLUSH, lease::release(&lease)).await;
    }
    stop.cancel();
    let _ = server.await;
    drop(draining);
    telemetry.shutdown(FLUSH).await;
    Ok(())
}

fn issuing(certs: &CertConfig, namespace: &str, more: Vec<String>, serving: Duration, authority: Duration) -> Issuing {
    let mut names = vec![format!("{}.{namespace}.svc", certs.webhook_service_name)];
    names.extend(more);
    Issuing {
        authority_name: certs.certificate_name.clone(),
        organisation: certs.certificate_org.clone(),
        names,
        authority_life: signed(authority),
        serving_life: signed(serving),
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// The configuration, and its hash for the metric.
fn read_config(path: Option<&Path>) -> Result<(Config, String), Error> {
    let Some(path) = path else {
        return Ok((Config::default(), "default".into()));
    };
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })?;
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    Ok((Config::from_yaml(&text)?, format!("{:016x}", hasher.finish())))
}

fn own_namespace() -> Result<String, Error> {
    let text = std::fs::read_to_string(NAMESPACE_FILE).map_err(|_| Error::Namespace)?;
    Some(text.trim().to_owned())
        .filter(|name| !name.is_empty())
        .ok_or(Error::Namespace)
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let plain: String = name
        .trim()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .collect();
    Some(plain).filter(|name| !name.is_empty())
}

fn configured_address(field: &'static str, configured: &BindConfig) -> Result<Option<SocketAddr>, Error> {
    match configured.bind_address.as_deref() {
        None | Some("0" | "") => Ok(None),
        Some(text) => args::address(text)
            .map(Some)
            .map_err(|fault| Error::Address { field, fault }),
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address)
        .await
        .map_err(|source| Error::Listen { address, source })
}

async fn wait_for_signal() -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
