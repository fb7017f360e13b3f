//! Export of traces over OTLP, by the standard variables alone.
//!
//! Read by the SDK and the exporter themselves: the endpoint, `_HEADERS`, `_TIMEOUT`, `_COMPRESSION`, `_INSECURE`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER[_ARG]`, `OTEL_BSP_*`. Read here, since they are not: whether an
//! endpoint is set at all, `OTEL_SDK_DISABLED`, `OTEL_TRACES_EXPORTER`, `_PROTOCOL`, `_CERTIFICATE`, and the size of the
//! queue for counting what is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::HeaderMap;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TraceContextExt;
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::WithTonicConfig;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor};
use prometheus::IntCounter;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::{Error, Options};
use crate::process::Process;

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const CERTIFICATES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
];
/// The SDK's own default of `OTEL_BSP_MAX_QUEUE_SIZE`.
const QUEUE: usize = 2048;

/// The provider of traces, if an endpoint is set and nothing switches traces off.
pub(super) fn provider(
    options: &Options,
    process: &Process,
    variable: impl Fn(&'static str) -> Option<String>,
) -> Result<Option<SdkTracerProvider>, Error> {
    // An empty variable counts as unset, as the specification asks.
    let variable = |name| variable(name).filter(|value| !value.trim().is_empty());
    let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, variable(name)?)));

    let disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let none = variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    if disabled || none || first(ENDPOINTS).is_none() {
        return Ok(None);
    }
    if let Some((variable, value)) = first(PROTOCOLS).filter(|(_, value)| value != "grpc") {
        let remedy = "this program exports over gRPC only: unset the variable or use \"grpc\", usually on port 4317";
        return Err(Error::Variable {
            variable,
            value,
            remedy,
        });
    }
    let mut exporter = opentelemetry_otlp::SpanExporter::builder().with_tonic();
    if let Some((variable, path)) = first(CERTIFICATES) {
        let Ok(pem) = std::fs::read(&path) else {
            let remedy = "the file cannot be read: give the path of a PEM file with the collector's authority";
            return Err(Error::Variable {
                variable,
                value: path,
                remedy,
            });
        };
        exporter = exporter.with_tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)));
    }
    let exporter = exporter.build().map_err(Error::Exporter)?;
    let queue = variable("OTEL_BSP_MAX_QUEUE_SIZE")
        .and_then(|size| size.parse().ok())
        .unwrap_or(QUEUE);
    Ok(Some(provider_with(
        exporter,
        queue,
        resource(options, variable("OTEL_SERVICE_NAME")),
        process,
    )))
}

fn provider_with<E: SpanExporter + 'static>(
    exporter: E,
    queue: usize,
    resource: Resource,
    process: &Process,
) -> SdkTracerProvider {
    let load = Arc::new(Load::default());
    let dropped = process.spans_dropped.clone();
    let exporter = Observed {
        inner: exporter,
        load: load.clone(),
        dropped: dropped.clone(),
    };
    let next = BatchSpanProcessor::builder(exporter).build();
    SdkTracerProvider::builder()
        .with_resource(resource)
        .with_span_processor(Bounded {
            next,
            load,
            queue,
            dropped,
        })
        .build()
}

/// The environment wins over what the program says of itself.
fn resource(options: &Options, service: Option<String>) -> Resource {
    Resource::builder()
        .with_attribute(KeyValue::new("service.version", options.version.clone()))
        .with_service_name(service.unwrap_or_else(|| options.service.to_owned()))
        .build()
}

/// Makes `span` a child of the caller's span, if the request has a W3C `traceparent` header. The API server sends one with
/// its admission requests; a header that does not parse is ignored.
pub fn follow_caller(headers: &HeaderMap, span: &tracing::Span) {
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
    if context.span().span_context().is_valid() {
        // Fails when nothing exports traces: then there is no parent to have.
        let _ = span.set_parent(context);
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(hyper::header::HeaderName::as_str).collect()
    }
}

/// Spans between [`Bounded`] and the collector, and whether the collector takes them.
#[derive(Debug, Default)]
struct Load {
    waiting: AtomicUsize,
    failing: AtomicBool,
}

/// Drops spans when the queue is full, and counts them. The SDK's queue does the first but tells nobody.
#[derive(Debug)]
struct Bounded {
    next: BatchSpanProcessor,
    load: Arc<Load>,
    queue: usize,
    dropped: IntCounter,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.next.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.load.waiting.fetch_add(1, Ordering::Relaxed) < self.queue {
            self.next.on_end(span);
        } else {
            self.load.waiting.fetch_sub(1, Ordering::Relaxed);
            self.dropped.inc();
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.next.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.next.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.next.set_resource(resource);
    }
}

/// Counts what the collector did not take, and says once when it is lost and once when it is back.
#[derive(Debug)]
struct Observed<E> {
    inner: E,
    load: Arc<Load>,
    dropped: IntCounter,
}

impl<E: SpanExporter> SpanExporter for Observed<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.inner.export(batch).await;
        self.load.waiting.fetch_sub(count, Ordering::Relaxed);
        let failing = result.is_err();
        if let Err(error) = &result {
            self.dropped.inc_by(count as u64);
            if !self.load.failing.swap(failing, Ordering::Relaxed) {
                tracing::warn!(%error, "the collector of traces does not take spans: they are dropped until it does");
            }
        } else if self.load.failing.swap(failing, Ordering::Relaxed) {
            tracing::info!("the collector of traces takes spans again");
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
