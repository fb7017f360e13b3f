//! The process: build, configuration, memory against its limit, runtime, log lines, lost spans.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus::process_collector::ProcessCollector;
use prometheus::{Counter, IntCounter, IntCounterVec, IntGauge};

use crate::Build;
use crate::labels::Level;
use crate::registry::Registry;
use crate::table;

/// Metrics of the process itself.
#[derive(Clone)]
pub struct Process {
    /// Spans thrown away; the exporter of traces counts here.
    pub(crate) spans_dropped: IntCounter,
    log_events: IntCounterVec,
}

impl Process {
    pub(crate) fn new(registry: &Registry, build: &Build) -> Self {
        registry.add(ProcessCollector::for_self());
        registry
            .gauges(&table::BUILD_INFO)
            .with_label_values(&[build.version.as_str(), build.revision.as_str(), build.rustc.as_str()])
            .set(1);
        registry
            .gauges(&table::CONFIG_HASH)
            .with_label_values(&[build.config_hash.as_str()])
            .set(1);
        let limit = cgroup_memory_limit(|path| std::fs::read_to_string(path).ok());
        registry
            .gauge(&table::MEMORY_LIMIT)
            .set(limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(0));
        let runtime = Runtime::new(registry);
        registry.before_scrape(move || runtime.measure());
        Self {
            spans_dropped: registry.counter(&table::TRACE_DROPPED),
            log_events: registry.counters(&table::LOG_EVENTS),
        }
    }

    /// A line was logged.
    pub(crate) fn log_event(&self, level: Level) {
        self.log_events.with_label_values(&[level.as_str()]).inc();
    }
}

/// Tokio's own figures. Those that need the unstable build flag are left out.
struct Runtime {
    busy: Counter,
    workers: IntGauge,
    tasks: IntGauge,
    queue: IntGauge,
    /// The runtime that was current when the metrics were made; none in plain tests.
    handle: Option<tokio::runtime::Handle>,
    last_busy: Arc<Mutex<f64>>,
}

impl Runtime {
    fn new(registry: &Registry) -> Self {
        Self {
            busy: registry.float_counter(&table::TOKIO_BUSY),
            workers: registry.gauge(&table::TOKIO_WORKERS),
            tasks: registry.gauge(&table::TOKIO_TASKS),
            queue: registry.gauge(&table::TOKIO_QUEUE),
            handle: tokio::runtime::Handle::try_current().ok(),
            last_busy: Arc::default(),
        }
    }

    fn measure(&self) {
        let Some(handle) = &self.handle else { return };
        let metrics = handle.metrics();
        let set = |gauge: &IntGauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.workers, metrics.num_workers());
        set(&self.tasks, metrics.num_alive_tasks());
        set(&self.queue, metrics.global_queue_depth());
        let busy: f64 = (0..metrics.num_workers())
            .map(|worker| metrics.worker_total_busy_duration(worker).as_secs_f64())
            .sum();
        let mut last = self.last_busy.lock().unwrap_or_else(PoisonError::into_inner);
        if busy > *last {
            self.busy.inc_by(busy - *last);
            *last = busy;
        }
    }
}

/// The memory limit of this process' control group, v2 or v1; `None` without one.
///
/// The root of the mount is the container's own group in a container, which is where a limit matters.
fn cgroup_memory_limit(read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let v2 = read("/sys/fs/cgroup/memory.max");
    let text = v2.or_else(|| read("/sys/fs/cgroup/memory/memory.limit_in_bytes"))?;
    // v1 says "no limit" with the largest page-aligned number, v2 with `max`.
    text.trim().parse().ok().filter(|limit| *limit < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(path: &'static str, text: &'static str) -> Option<u64> {
        cgroup_memory_limit(move |asked| (asked == path).then(|| text.to_owned()))
    }

    #[test]
    fn the_memory_limit_is_read_from_either_version() {
        assert_eq!(limit("/sys/fs/cgroup/memory.max", "134217728\n"), Some(134_217_728));
        assert_eq!(
            limit("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1024\n"),
            Some(1024)
        );
        assert_eq!(limit("/sys/fs/cgroup/memory.max", "max\n"), None);
        assert_eq!(
            limit("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            None
        );
        assert_eq!(cgroup_memory_limit(|_| None), None);
    }
}
