//! Flags and environment. A flag beats its variable, that beats the configuration file, that beats the default.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use appwrapper_metrics::telemetry::Format;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Admission webhook for AppWrappers.
#[derive(Debug, Parser)]
#[command(name = "appwrapper-webhook", version, about)]
pub struct Cli {
    /// What to do; serving is the default.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of the server.
    #[command(flatten)]
    pub serve: Serve,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Checks manifests without a cluster: the structural rules, with file, line and field of each fault.
    Check(Check),
}

/// Options of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Manifests in YAML or JSON; `-` is the standard input.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Configuration file of the installation, for its allow-list and limits.
    #[arg(long, env = "APPWRAPPER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Namespace of AppWrappers that name none.
    #[arg(long, short)]
    pub namespace: Option<String>,
}

/// Options of the server.
#[derive(Debug, Args)]
pub struct Serve {
    /// Configuration file, with the keys of the Go controller.
    #[arg(long, env = "APPWRAPPER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where to serve admission.
    #[arg(long, env = "APPWRAPPER_WEBHOOK_BIND_ADDRESS", default_value = ":9443", value_parser = address)]
    pub bind_address: SocketAddr,
    /// Where to answer probes; the file's controllerManager.health.bindAddress if absent.
    #[arg(long, env = "APPWRAPPER_HEALTH_BIND_ADDRESS", value_parser = address)]
    pub health_bind_address: Option<SocketAddr>,
    /// Where to serve metrics; the file's controllerManager.metrics.bindAddress if absent.
    #[arg(long, env = "APPWRAPPER_METRICS_BIND_ADDRESS", value_parser = address)]
    pub metrics_bind_address: Option<SocketAddr>,
    /// Whether metrics are served over TLS, with the certificate of admission, to callers that the API server knows and
    /// that may read /metrics.
    #[arg(long, env = "APPWRAPPER_METRICS_SECURE", default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub metrics_secure: bool,
    /// Namespace of the webhook; that of its service account if absent.
    #[arg(long, env = "APPWRAPPER_NAMESPACE")]
    pub namespace: Option<String>,
    /// Where certificates come from.
    #[arg(long, env = "APPWRAPPER_CERTIFICATES", value_enum, default_value_t = Certificates::Managed)]
    pub certificates: Certificates,
    /// Lease by which the replicas agree who looks after the certificates.
    #[arg(
        long,
        env = "APPWRAPPER_CERTIFICATE_LEASE",
        default_value = "appwrapper-webhook-certificates"
    )]
    pub certificate_lease: String,
    /// Further names or addresses in the managed certificate, beside the Service's.
    #[arg(long, env = "APPWRAPPER_CERTIFICATE_NAMES", value_delimiter = ',')]
    pub certificate_names: Vec<String>,
    /// Life of the managed serving certificate; renewed after two thirds.
    #[arg(long, env = "APPWRAPPER_CERTIFICATE_LIFETIME", default_value = "2160h", value_parser = duration)]
    pub certificate_lifetime: Duration,
    /// Life of the managed authority; renewed after two thirds.
    #[arg(long, env = "APPWRAPPER_AUTHORITY_LIFETIME", default_value = "4320h", value_parser = duration)]
    pub authority_lifetime: Duration,
    /// Time that a changed caBundle needs to reach every API server.
    #[arg(long, env = "APPWRAPPER_BUNDLE_SETTLE_TIME", default_value = "30s", value_parser = duration)]
    pub bundle_settle_time: Duration,
    /// How long to serve on after SIGTERM; longer than an endpoint takes to be withdrawn, and shorter than the pod's grace.
    #[arg(long, env = "APPWRAPPER_DRAIN_TIME", default_value = "20s", value_parser = duration)]
    pub drain_time: Duration,
    /// Name of this pod.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: Option<String>,
    /// Uid of this pod.
    #[arg(long, env = "POD_UID")]
    pub pod_uid: Option<String>,
    /// Form of log lines: json or text.
    #[arg(long, env = "APPWRAPPER_LOG_FORMAT", default_value = "json")]
    pub log_format: Format,
    /// Filter of log lines, as in RUST_LOG.
    #[arg(long, env = "APPWRAPPER_LOG")]
    pub log: Option<String>,
    /// More log lines; repeat for still more.
    #[arg(long, short, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// Where certificates come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Certificates {
    /// The replicas look after them by themselves.
    Managed,
    /// Mounted files (certManagement.certificateDir), from cert-manager for example.
    Files,
}

/// An address as Go programs write it: `:9443` is every interface.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') {
        format!("[::]{text}")
    } else {
        text.replace("localhost", "127.0.0.1")
    };
    full.parse()
        .map_err(|_| format!("{text:?} is no address: write :9443 or 127.0.0.1:9443"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: appwrapper_api::GoDuration = text
        .parse()
        .map_err(|_| format!("{text:?} is no duration: write 30s or 1h30m"))?;
    Duration::try_from(parsed.signed()).map_err(|_| format!("{text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let cli = Cli::parse_from(["appwrapper-webhook", "check", "a.yaml", "b.yaml"]);
        assert!(matches!(cli.command, Some(Command::Check(check)) if check.files.len() == 2));
    }

    #[test]
    fn addresses_may_be_written_as_in_go() {
        assert_eq!(address(":9443").unwrap().port(), 9443);
        assert_eq!(address("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
        assert_eq!(address("localhost:8081").unwrap().to_string(), "127.0.0.1:8081");
        assert!(address("nine").is_err());
    }
}
