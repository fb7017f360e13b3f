use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use opentelemetry_sdk::trace::InMemorySpanExporter;

use super::*;
use crate::{Build, Registry};

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn options(format: Format) -> Options {
    Options {
        format,
        verbosity: 0,
        filter: None,
        service: "appwrapper-test",
        version: "1".to_owned(),
    }
}

fn process() -> (Registry, Process) {
    let registry = Registry::new(1);
    let process = Process::new(&registry, &Build::default());
    (registry, process)
}

fn logged(options: &Options, provider: Option<&SdkTracerProvider>, work: impl FnOnce()) -> (String, Registry) {
    let (registry, process) = process();
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let subscriber = subscriber(options, &process, provider, false, move || writer.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, work);
    (buffer.text(), registry)
}

fn in_memory() -> (SdkTracerProvider, InMemorySpanExporter) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    (provider, exporter)
}

fn work() {
    // Not `name`: in a JSON line that is the name of the span itself.
    let _span = tracing::info_span!(
        "AppWrapper reconcile",
        k8s.namespace.name = "a",
        appwrapper.name = "b",
        appwrapper.shard = 3
    )
    .entered();
    tracing::info!(event = "race_survived", "survived a race");
}

#[test]
fn a_json_line_carries_the_ids_of_its_trace_and_the_fields_of_its_span() {
    let (provider, exporter) = in_memory();
    let (text, _) = logged(&options(Format::Json), Some(&provider), work);
    let line: serde_json::Value = serde_json::from_str(text.trim_end()).expect(&text);
    let spans = exporter.get_finished_spans().unwrap();
    assert_eq!(spans.len(), 1);
    assert_eq!(line["trace_id"], spans[0].span_context.trace_id().to_string());
    assert_eq!(line["span_id"], spans[0].span_context.span_id().to_string());
    assert_eq!(line["event"], "race_survived");
    assert_eq!(line["span"]["appwrapper.name"], "b");
    assert_eq!(line["span"]["appwrapper.shard"], 3);
}

#[test]
fn a_text_line_carries_them_too() {
    let (provider, exporter) = in_memory();
    let (text, _) = logged(&options(Format::Text), Some(&provider), work);
    let trace = exporter.get_finished_spans().unwrap()[0].span_context.trace_id();
    assert!(text.contains(&format!("trace_id={trace}")), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn without_traces_a_line_has_no_ids() {
    let (text, _) = logged(&options(Format::Json), None, work);
    let line: serde_json::Value = serde_json::from_str(text.trim_end()).expect(&text);
    assert!(line.get("trace_id").is_none());
    assert_eq!(line["span"]["k8s.namespace.name"], "a");
}

#[test]
fn verbosity_and_filter_choose_the_lines_that_are_written_and_counted() {
    let lines = || {
        tracing::info!("always");
        tracing::debug!("with -v");
        tracing::warn!(target: "opentelemetry_sdk", "never");
        tracing::info!(target: "kube_leader_election", "only from warn on");
    };
    let count = |options: &Options| logged(options, None, lines);
    let (text, registry) = count(&options(Format::Text));
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        registry
            .encode()
            .unwrap()
            .contains("appwrapper_log_events_total{level=\"info\"} 1\n")
    );
    let (text, _) = count(&Options {
        verbosity: 1,
        ..options(Format::Text)
    });
    assert_eq!(text.lines().count(), 2, "{text}");
    let (text, _) = count(&Options {
        filter: Some("off".to_owned()),
        ..options(Format::Text)
    });
    assert_eq!(text, "");
    assert!(
        filter(&Options {
            filter: Some("a=b=c".to_owned()),
            ..options(Format::Text)
        })
        .is_err()
    );
}

fn provider_from(variables: &'static [(&'static str, &'static str)]) -> Result<Option<SdkTracerProvider>, Error> {
    let (_, process) = process();
    let value = |name| {
        variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    };
    traces::provider(&options(Format::Json), &process, value)
}

#[tokio::test]
async fn traces_are_off_unless_an_endpoint_is_set() {
    assert!(provider_from(&[]).unwrap().is_none());
    assert!(
        provider_from(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")])
            .unwrap()
            .is_none()
    );
    assert!(provider_from(&[("OTEL_SERVICE_NAME", "x")]).unwrap().is_none());
    assert!(
        provider_from(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
            ("OTEL_SDK_DISABLED", "true")
        ])
        .unwrap()
        .is_none()
    );
    assert!(
        provider_from(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1")])
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_variable_that_cannot_be_followed_is_named_with_its_remedy() {
    let error = provider_from(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
    ])
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("OTEL_EXPORTER_OTLP_PROTOCOL") && error.contains("4317"),
        "{error}"
    );
    let error = provider_from(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent/ca.pem"),
    ])
    .unwrap_err()
    .to_string();
    assert!(error.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"), "{error}");
}
