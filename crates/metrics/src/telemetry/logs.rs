//! Log lines: form, ids of the trace, count by level.

use std::fmt;
use std::sync::{Arc, OnceLock};

use opentelemetry::trace::{SpanContext, TraceContextExt};
use tracing::dispatcher::{Dispatch, WeakDispatch};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::Format;
use crate::labels::Level;
use crate::process::Process;

/// Where the subscriber of a layer is to be found. While an event is dispatched, asking `tracing` for the current one can
/// answer "none".
#[derive(Clone, Default)]
pub(super) struct Dispatches(Arc<OnceLock<WeakDispatch>>);

impl Dispatches {
    /// The ids of the trace that the span belongs to, if it belongs to one.
    fn trace(&self, span: &tracing::span::Id) -> Option<SpanContext> {
        let dispatch = self.0.get()?.upgrade()?;
        let context = tracing_opentelemetry::get_otel_context(span, &dispatch)?;
        let context = context.span().span_context().clone();
        context.is_valid().then_some(context)
    }
}

/// The layer that writes lines.
pub(super) fn lines<S, W>(
    format: Format,
    ansi: bool,
    writer: W,
    dispatch: Dispatches,
) -> Box<dyn Layer<S> + Send + Sync + 'static>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(ansi);
    match format {
        Format::Text => {
            let inner = tracing_subscriber::fmt::format();
            Box::new(layer.event_format(Correlated {
                inner,
                format,
                dispatch,
            }))
        }
        Format::Json => {
            let inner = tracing_subscriber::fmt::format()
                .json()
                .flatten_event(true)
                .with_current_span(true)
                .with_span_list(false);
            Box::new(layer.fmt_fields(JsonFields::new()).event_format(Correlated {
                inner,
                format,
                dispatch,
            }))
        }
    }
}

/// A form of lines, with `trace_id` and `span_id` added at the end.
struct Correlated<F> {
    inner: F,
    format: Format,
    dispatch: Dispatches,
}

impl<S, N, F> FormatEvent<S, N> for Correlated<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let trace = context
            .lookup_current()
            .and_then(|span| self.dispatch.trace(&span.id()));
        let Some(trace) = trace else {
            return self.inner.format_event(context, writer, event);
        };
        let mut line = String::with_capacity(256);
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end();
        let (trace, span) = (trace.trace_id(), trace.span_id());
        match (self.format, line.strip_suffix('}')) {
            (Format::Json, Some(open)) => {
                writeln!(writer, "{open},\"trace_id\":\"{trace}\",\"span_id\":\"{span}\"}}")
            }
            _ => writeln!(writer, "{line} trace_id={trace} span_id={span}"),
        }
    }
}

/// Counts lines by level, and remembers the subscriber for the lines' sake.
pub(super) struct Counter {
    process: Process,
    dispatch: Dispatches,
}

impl Counter {
    pub(super) fn new(process: Process, dispatch: Dispatches) -> Self {
        Self { process, dispatch }
    }
}

impl<S: Subscriber> Layer<S> for Counter {
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        // Only the first is ours: a layer belongs to one subscriber.
        let _ = self.dispatch.0.set(subscriber.downgrade());
    }

    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        self.process.log_event(match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            tracing::Level::INFO => Level::Info,
            tracing::Level::DEBUG => Level::Debug,
            tracing::Level::TRACE => Level::Trace,
        });
    }
}
