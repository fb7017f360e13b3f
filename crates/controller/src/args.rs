//! Flags and environment. A flag beats the environment, that beats the configuration file, that beats the default.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use appwrapper_api::{GoDuration, config::Config};
use appwrapper_coordination::{LeaseTimings, shards::ShardCount};
use appwrapper_metrics::telemetry::Format;
use clap::{Parser, Subcommand};

/// Runs AppWrappers: queues, deploys, watches over and retries groups of Kubernetes objects as one workload.
#[derive(Clone, Debug, Parser)]
#[command(name = "appwrapper-controller", version)]
pub struct Args {
    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Configuration file, with the YAML keys of the Go controller. Defaults hold without one.
    #[arg(long, env = "APPWRAPPER_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where metrics are served: HOST:PORT, :PORT, or 0 for nowhere. Beats controllerManager.metrics.bindAddress.
    #[arg(long, env = "APPWRAPPER_METRICS_BIND_ADDRESS", value_name = "ADDRESS")]
    pub metrics_bind_address: Option<String>,
    /// Whether metrics are served over TLS to callers that the API server knows and that may read /metrics. `false` is plain
    /// HTTP for everybody, for development.
    #[arg(long, env = "APPWRAPPER_METRICS_SECURE", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub metrics_secure: bool,
    /// Directory with tls.crt and tls.key for metrics, which are followed; without it a certificate is made at start.
    #[arg(long, env = "APPWRAPPER_METRICS_CERT_PATH", value_name = "DIRECTORY")]
    pub metrics_cert_path: Option<PathBuf>,
    /// Where probes are answered. Beats controllerManager.health.bindAddress.
    #[arg(long, env = "APPWRAPPER_HEALTH_BIND_ADDRESS", value_name = "ADDRESS")]
    pub health_bind_address: Option<String>,
    /// Namespace of the controller, where its Leases live.
    #[arg(long, env = "APPWRAPPER_NAMESPACE", value_name = "NAME", global = true)]
    pub namespace: Option<String>,
    /// Name of this replica; its pod's name by default.
    #[arg(long, env = "APPWRAPPER_IDENTITY", value_name = "NAME")]
    pub identity: Option<String>,
    /// Uid of this replica's pod, so that a container that restarts in its pod takes its Leases back at once.
    #[arg(long, env = "APPWRAPPER_POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,
    /// How long a Lease lasts without renewal. The other times of leader election follow from it.
    #[arg(long, env = "APPWRAPPER_LEASE_DURATION", value_name = "DURATION", default_value = "10s", value_parser = seconds)]
    pub lease_duration: Duration,
    /// After how long without a renewal a holder stops by itself; below the lease duration. Six tenths of it by default.
    #[arg(long, env = "APPWRAPPER_LEASE_RENEW_DEADLINE", value_name = "DURATION", value_parser = seconds)]
    pub lease_renew_deadline: Option<Duration>,
    /// Shares of the work that replicas hold, 1 to 64. With 1 one replica does everything, and AppWrappers need no slot.
    #[arg(long, env = "APPWRAPPER_SHARDS", value_name = "NUMBER", default_value = "8", value_parser = shards)]
    pub shards: ShardCount,
    /// Replicas besides the holder that keep a shard's caches warm, for a fast hand-over at the price of memory.
    #[arg(long, env = "APPWRAPPER_WARM_BACKUPS", value_name = "NUMBER", default_value_t = 1)]
    pub warm_backups: u8,
    /// Hash of this replica's pod template (label pod-template-hash): in a rollout, shards go to the newest.
    #[arg(long, env = "APPWRAPPER_POD_TEMPLATE_HASH", value_name = "HASH", default_value = "")]
    pub pod_template_hash: String,
    /// AppWrappers that are worked on at once.
    #[arg(long, env = "APPWRAPPER_CONCURRENCY", value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub concurrency: u16,
    /// Form of log lines: json or text.
    #[arg(long, env = "APPWRAPPER_LOG_FORMAT", value_name = "FORMAT", default_value = "json")]
    pub log_format: Format,
    /// More log lines; may be given up to three times.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// What the program can do besides running.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Print who holds which shard, by the Leases
    Shards,
}

fn shards(text: &str) -> Result<ShardCount, String> {
    let count: u32 = text
        .parse()
        .map_err(|_| format!("{text} is not a number from 1 to 64"))?;
    ShardCount::new(count).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let duration: GoDuration = text
        .parse()
        .map_err(|error: appwrapper_api::duration::ParseDurationError| error.to_string())?;
    u64::try_from(duration.as_nanos())
        .ok()
        .filter(|nanoseconds| *nanoseconds > 0)
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("{text} is not positive; a Lease lasts at least a second"))
}

impl Args {
    /// Runs the process to its end.
    pub fn run(self) -> anyhow::Result<()> {
        let config = self.read_config()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        match &self.command {
            None => runtime.block_on(crate::run::run(self, config)),
            Some(Command::Shards) => {
                let namespace = self.namespace()?;
                print!("{}", runtime.block_on(crate::run::shards(&namespace))?);
                Ok(())
            }
        }
    }

    /// The times of all Leases, checked.
    pub fn timings(&self) -> anyhow::Result<LeaseTimings> {
        let mut timings = LeaseTimings::for_duration(self.lease_duration).context("--lease-duration")?;
        if let Some(deadline) = self.lease_renew_deadline {
            timings.renew_deadline = deadline;
            timings.validate().context("--lease-renew-deadline")?;
        }
        Ok(timings)
    }

    fn read_config(&self) -> anyhow::Result<Config> {
        let Some(path) = &self.config else {
            return Ok(Config::default());
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("--config: cannot read {}; mount the ConfigMap there", path.display()))?;
        Config::from_yaml(&text).with_context(|| format!("--config {}", path.display()))
    }

    /// The namespace that was given, or the one of the service account.
    pub fn namespace(&self) -> anyhow::Result<String> {
        const FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
        // The Go controller reads this variable.
        let given = self.namespace.clone().or_else(|| std::env::var("NAMESPACE").ok());
        match given.or_else(|| std::fs::read_to_string(FILE).ok()) {
            Some(namespace) if !namespace.trim().is_empty() => Ok(namespace.trim().to_owned()),
            _ => bail!("the controller's namespace is not known; set --namespace or APPWRAPPER_NAMESPACE"),
        }
    }

    /// The name of this replica.
    pub fn replica(&self) -> String {
        let given = self.identity.clone().or_else(|| std::env::var("POD_NAME").ok());
        given
            .or_else(|| std::env::var("HOSTNAME").ok())
            .unwrap_or_else(|| "appwrapper-controller".to_owned())
    }
}

/// The address in the notation of Go: `:8081` is every interface, `0` is none.
pub fn address(text: &str) -> Option<String> {
    match text {
        "" | "0" => None,
        text if text.starts_with(':') => Some(format!("0.0.0.0{text}")),
        text => Some(text.replace("localhost:", "127.0.0.1:")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_in_go() {
        assert_eq!(address(":8081").as_deref(), Some("0.0.0.0:8081"));
        assert_eq!(address("localhost:0").as_deref(), Some("127.0.0.1:0"));
        assert_eq!(address("0"), None);
    }

    #[test]
    fn a_bad_count_of_shards_is_refused_with_the_limits() {
        for count in ["0", "65", "-1", "many"] {
            let flag = format!("--shards={count}");
            let error = Args::try_parse_from(["appwrapper-controller", &flag])
                .unwrap_err()
                .to_string();
            assert!(error.contains("--shards") && error.contains("1 to 64"), "{error}");
        }
        let args = Args::try_parse_from(["appwrapper-controller"]).unwrap();
        assert_eq!((args.shards.get(), args.warm_backups), (8, 1));
    }

    #[test]
    fn a_lease_must_outlast_the_renew_deadline() {
        let timings = |flags: [&str; 2]| {
            let args = Args::try_parse_from(std::iter::once("appwrapper-controller").chain(flags)).unwrap();
            args.timings().map_err(|error| format!("{error:#}"))
        };
        let error = timings(["--lease-duration=10s", "--lease-renew-deadline=10s"]).unwrap_err();
        assert!(
            error.contains("renew deadline") && error.contains("less than the lease duration"),
            "{error}"
        );
        assert!(timings(["--lease-duration=10s", "--lease-renew-deadline=5s"]).is_ok());
    }

    #[test]
    fn a_duration_that_is_none_is_refused() {
        assert!(seconds("10s").is_ok());
        for text in ["0", "-1s", "ten"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
