//! Logs and traces of a process.
//!
//! Logs go to standard error, as text or as JSON lines, with the ids of the current trace. Traces are exported only if one
//! of the standard variables `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set; without it
//! there is no exporter and no cost. Nothing here waits for a collector: spans go into a bounded queue, what does not fit
//! is dropped and counted, and the flush at the end has a time limit.

mod logs;
mod traces;

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::process::Process;

pub use traces::follow_caller;

/// Name under which our spans are made.
const SCOPE: &str = "appwrapper";

/// What a user may set.
#[derive(Clone, Debug)]
pub struct Options {
    /// Form of a log line.
    pub format: Format,
    /// How often `-v` was given: 0 info, 1 debug of our own code, 2 trace of our own and debug of the client, 3 debug of
    /// everything.
    pub verbosity: u8,
    /// A filter in the syntax of `RUST_LOG`, which wins over `verbosity`.
    pub filter: Option<String>,
    /// `service.name` of traces, unless `OTEL_SERVICE_NAME` says otherwise.
    pub service: &'static str,
    /// `service.version` of traces.
    pub version: String,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    #[default]
    Json,
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(Error::Format(text.to_owned())),
        }
    }
}

/// Why logs and traces cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a form of log lines.
    #[error("log format {0:?} is not known: use \"text\" or \"json\"")]
    Format(String),
    /// The filter does not parse.
    #[error("log filter {filter:?} is not valid: use for example \"info,appwrapper=debug\"")]
    Filter {
        /// The text that was given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// A variable of OpenTelemetry has a value that cannot be followed.
    #[error("{variable}={value:?} cannot be followed: {remedy}")]
    Variable {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The exporter does not accept its configuration.
    #[error("cannot export traces: check the OTEL_EXPORTER_OTLP_* variables")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
    /// Somebody else has set up logs in this process.
    #[error("logs are set up already")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Logs and traces that are set up. Call [`Telemetry::shutdown`] at the end.
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// Sets up logs and traces of this process, including those of crates that use `log`. Call it inside the tokio runtime that
/// lives as long as the process: the exporter uses it.
pub fn init(options: &Options, process: &Process) -> Result<Telemetry, Error> {
    let provider = traces::provider(options, process, |name| std::env::var(name).ok())?;
    let ansi = options.format == Format::Text && std::io::stderr().is_terminal();
    subscriber(options, process, provider.as_ref(), ansi, std::io::stderr)?
        .try_init()
        .map_err(Error::Twice)?;
    Ok(Telemetry { provider })
}

/// Everything that listens to spans and events.
fn subscriber<W>(
    options: &Options,
    process: &Process,
    provider: Option<&SdkTracerProvider>,
    ansi: bool,
    writer: W,
) -> Result<impl Subscriber + Send + Sync + 'static, Error>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = filter(options)?;
    let dispatch = logs::Dispatches::default();
    let lines = logs::lines(options.format, ansi, writer, dispatch.clone());
    let counted = logs::Counter::new(process.clone(), dispatch);
    let traces = provider.map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer(SCOPE))
            // The source line and the thread tell an operator nothing and cost on every span.
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(LevelFilter::INFO)
    });
    Ok(tracing_subscriber::registry()
        .with(traces)
        .with(lines.and_then(counted).with_filter(filter)))
}

fn filter(options: &Options) -> Result<EnvFilter, Error> {
    // The leader election logs every poll of a held Lease. OpenTelemetry's own lines would repeat at each failed export:
    // `traces` says once when the collector is lost and once when it is back.
    let quiet = "kube_leader_election=warn,h2=warn,hyper=warn,tower=warn,tonic=warn,opentelemetry=off";
    let default = match options.verbosity {
        0 => format!("info,{quiet}"),
        1 => format!("info,{quiet},appwrapper=debug"),
        2 => format!("info,{quiet},appwrapper=trace,kube=debug"),
        _ => "debug,appwrapper=trace,opentelemetry=off".to_owned(),
    };
    let filter = options
        .filter
        .as_deref()
        .filter(|filter| !filter.trim().is_empty())
        .unwrap_or(&default);
    EnvFilter::try_new(filter).map_err(|source| Error::Filter {
        filter: filter.to_owned(),
        source,
    })
}

impl Telemetry {
    /// Whether traces are exported.
    pub fn exports_traces(&self) -> bool {
        self.provider.is_some()
    }

    /// Sends what is left of the traces, for at most `limit`.
    pub async fn shutdown(self, limit: Duration) {
        let Some(provider) = self.provider else { return };
        // The SDK blocks: on a thread of its own, and not waited for if even its own limit fails.
        let flush = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(limit));
        match tokio::time::timeout(limit, flush).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "traces were not flushed"),
            Ok(Err(error)) => tracing::warn!(%error, "traces were not flushed"),
            Err(_) => tracing::warn!(limit_s = limit.as_secs_f64(), "traces were not flushed in time"),
        }
    }
}

#[cfg(test)]
mod tests;
