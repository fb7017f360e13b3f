//! Every metric in one table.
//!
//! The only source of names, types, labels, allowed values, buckets and texts. The structs of the crate are built from
//! these rows; the page of metrics is written from them; dashboards and rules are checked against them both ways. A new
//! metric begins here.
//!
//! Rules: base units in the name, `_total` on counters, timestamps rather than ages, no object names, user names, error
//! texts or image names as labels. The names that controller-runtime and client-go use, and the Go controller's one
//! metric, are kept as they are: dashboards and alerts that operators already have go on working.

use crate::descriptor::Kind::{Counter, Gauge, Histogram};
use crate::descriptor::{Descriptor, Label, Scope, Start, Values};
use crate::labels;

pub use crate::document::markdown;

/// One row: `NAME: type, "name in the exposition", [labels], scope, start, "help";`
macro_rules! table {
    ($($title:literal {
        $($id:ident: $kind:expr, $name:literal, [$($label:ident),*], $scope:ident, $start:ident, $help:literal;)+
    })+) => {
        $($(
            #[doc = $help]
            pub const $id: Descriptor = Descriptor {
                name: $name,
                kind: $kind,
                labels: &[$($label),*],
                scope: Scope::$scope,
                start: Start::$start,
                help: $help,
            };
        )+)+

        /// The table by section.
        pub const SECTIONS: &[(&str, &[Descriptor])] = &[$(($title, &[$($id),+])),+];
    };
}

/// All rows.
pub fn all() -> impl Iterator<Item = &'static Descriptor> {
    SECTIONS.iter().flat_map(|(_, rows)| rows.iter())
}

const fn closed(name: &'static str, values: &'static [&'static str]) -> Label {
    Label {
        name,
        values: Values::Closed(values),
    }
}

const fn open(name: &'static str, bound: &'static str) -> Label {
    Label {
        name,
        values: Values::Open(bound),
    }
}

const COMPONENT: Label = closed("resource", labels::Resource::COMPONENT_VALUES);
const RESOURCE: Label = closed("resource", labels::Resource::VALUES);
const CACHED: Label = closed("result", labels::Cached::VALUES);
const OUTCOME: Label = closed("outcome", labels::Outcome::VALUES);
const NAMESPACE: Label = Label {
    name: "namespace",
    values: Values::Namespace,
};
const SHARD: Label = Label {
    name: "shard",
    values: Values::Shard,
};
const WATCH_EVENT: Label = closed("type", labels::WatchEvent::VALUES);
const WATCH_RESTART: Label = closed("reason", labels::WatchRestart::VALUES);
const RENEWAL: Label = closed("result", labels::Renewal::VALUES);
const TRANSITION: Label = closed("kind", labels::Transition::VALUES);
const FENCE: Label = closed("layer", labels::Fence::VALUES);
const ELECTION: Label = closed("name", labels::Election::VALUES);
const CONTROLLER: Label = closed("controller", labels::Controller::VALUES);
const QUEUE: Label = closed("name", labels::Controller::VALUES);
const RECONCILE_RESULT: Label = closed("result", labels::ReconcileResult::VALUES);
const REASON: Label = closed("reason", labels::Reason::VALUES);
const OPERATION: Label = closed("verb", labels::Operation::VALUES);
const OPERATION_RESULT: Label = closed("result", labels::OperationResult::VALUES);
const FORCED: Label = closed("kind", labels::Forced::VALUES);
const FOREIGN_REASON: Label = closed("reason", labels::Foreign::VALUES);
const PHASE: Label = closed("phase", labels::Phase::VALUES);
const PHASE_ENTERED: Label = closed("phase", labels::Phase::ENTERED_VALUES);
const CAPPED: Label = closed("metric", labels::CappedMetric::VALUES);
const CODE: Label = open("code", "HTTP status, or `<error>`");
const METHOD: Label = closed("method", labels::Method::VALUES);
const METHOD_AS_VERB: Label = closed("verb", labels::Method::VALUES);
const HOST: Label = open("host", "the one API server the process talks to");
const WEBHOOK: Label = closed("webhook", labels::Webhook::VALUES);
const WEBHOOK_CODE: Label = closed("code", labels::WebhookCode::VALUES);
const ADMISSION_OPERATION: Label = closed("operation", labels::AdmissionOperation::VALUES);
const DECISION: Label = closed("decision", labels::Decision::VALUES);
const DECISION_REASON: Label = closed("reason", labels::DecisionReason::VALUES);
const ACCESS_REVIEW: Label = closed("result", labels::AccessReview::VALUES);
const DISCOVERY_RESULT: Label = closed("result", labels::Discovery::VALUES);
const CERTIFICATE: Label = closed("kind", labels::Certificate::VALUES);
const RELOAD: Label = closed("result", labels::Reload::VALUES);
const VERSION: Label = open("version", "one per process");
const REVISION: Label = open("revision", "one per process");
const RUSTC: Label = open("rustc", "one per process");
const HASH: Label = open("hash", "one per process");
const LEVEL: Label = closed("level", labels::Level::VALUES);

/// A read past the cache takes milliseconds; the upper ones are time limits and retries.
const CONFIRMATION: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Watches are behind by milliseconds in health and by many seconds in trouble.
const LAG: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const LIST: &[f64] = &[0.05, 0.25, 1.0, 5.0, 15.0, 60.0];
const RENEW: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0];
const TAKEOVER: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
const RECONCILE: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];
/// 5 s is the service level for picking up work.
const QUEUE_TIME: &[f64] = &[0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
const PHASES: &[f64] = &[0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0];
const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0];
const ADMISSION: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

table! {
    "Was it really missing?" {
        CACHED_READS: Counter, "appwrapper_component_cached_reads_total", [COMPONENT, CACHED], Controller, Zero,
            "Cached reads of components by what the cache answered: the denominator of every figure on races.";
        CONFIRMATIONS: Counter, "appwrapper_component_confirmations_total", [COMPONENT, OUTCOME], Controller, Zero,
            "Uncached reads of components that the cache did not show, by outcome. live: the cache was behind and the AppWrapper went on.";
        CONFIRMATION_DURATION: Histogram(CONFIRMATION), "appwrapper_component_confirmation_duration_seconds", [OUTCOME], Controller, Zero,
            "Time of one uncached read of a component.";
        CONFIRMATIONS_PENDING: Gauge, "appwrapper_component_confirmations_pending", [], Controller, Zero,
            "AppWrappers whose verdict waits for the answer of an uncached read.";
        CONFIRMATION_OLDEST: Gauge, "appwrapper_component_confirmation_oldest_pending_timestamp_seconds", [], Controller, Zero,
            "Since when the longest open verdict waits; 0 when none is open.";
        VERDICTS: Counter, "appwrapper_missing_component_verdicts_total", [NAMESPACE, COMPONENT], Controller, OnUse,
            "AppWrappers found unhealthy because an uncached read agreed that a component is gone.";
        UNCONFIRMED_VERDICTS: Counter, "appwrapper_unconfirmed_verdicts_total", [], Controller, Zero,
            "Attempts to fail an AppWrapper for a missing component without an uncached read. Must stay 0 for ever.";
        CACHE_CATCHUP: Histogram(LAG), "appwrapper_cache_catchup_seconds", [COMPONENT], Controller, Zero,
            "From an uncached read that found a component until the cache shows it.";
        WRITE_TO_WATCH: Histogram(LAG), "appwrapper_write_to_watch_seconds", [COMPONENT], Controller, Zero,
            "From the answer to our create until the watch delivers the object: the lag of the cache.";
        DIVERGENT: Gauge, "appwrapper_cache_divergent_components", [COMPONENT], Controller, Zero,
            "Components that exist but stay out of the cache for longer than the catch-up limit, such as one whose label was removed.";
    }

    "Caches" {
        CACHE_SYNCED: Gauge, "appwrapper_cache_synced", [RESOURCE], Controller, OnUse,
            "1 when the cache of a resource has its first complete list.";
        CACHE_OBJECTS: Gauge, "appwrapper_cache_objects", [RESOURCE], Controller, OnUse,
            "Objects in the cache.";
        CACHE_LAST_EVENT: Gauge, "appwrapper_cache_last_event_timestamp_seconds", [RESOURCE], Controller, OnUse,
            "Last sign of life of the watch: event, bookmark, list or restart.";
        CACHE_VERSION: Gauge, "appwrapper_cache_resource_version", [RESOURCE], Controller, OnUse,
            "Highest resource version seen by the watch.";
        WATCH_EVENTS: Counter, "appwrapper_watch_events_total", [RESOURCE, WATCH_EVENT], Controller, Zero,
            "What the watches delivered.";
        WATCH_RESTARTS: Counter, "appwrapper_watch_restarts_total", [RESOURCE, WATCH_RESTART], Controller, Zero,
            "Watches that began anew.";
        WATCH_LIST: Histogram(LIST), "appwrapper_watch_list_seconds", [], Controller, Zero,
            "Time of the initial list of a watch.";
    }

    "Shards and leases" {
        SHARD_OWNED: Gauge, "appwrapper_shard_owned", [SHARD], Controller, Zero,
            "1 while this replica owns the shard. Every replica exports every shard.";
        SHARDS_CONFIGURED: Gauge, "appwrapper_shards_configured", [], Controller, Zero,
            "Configured number of shards.";
        LEASE_RENEWALS: Counter, "appwrapper_shard_lease_renewals_total", [SHARD, RENEWAL], Controller, Zero,
            "Attempts to renew the Lease of a shard.";
        LEASE_RENEW_DURATION: Histogram(RENEW), "appwrapper_shard_lease_renew_duration_seconds", [], Controller, Zero,
            "Time of an attempt to renew a Lease.";
        LEASE_LAST_RENEW: Gauge, "appwrapper_shard_lease_last_renew_timestamp_seconds", [SHARD], Controller, OnUse,
            "Last successful renewal; only the owner exports it.";
        LEASE_DURATION: Gauge, "appwrapper_shard_lease_duration_seconds", [], Controller, Zero,
            "Configured duration of a Lease, so that alerts scale with it.";
        SHARD_TRANSITIONS: Counter, "appwrapper_shard_transitions_total", [SHARD, TRANSITION], Controller, Zero,
            "Changes of ownership as this replica saw them.";
        SHARD_TAKEOVER: Histogram(TAKEOVER), "appwrapper_shard_takeover_seconds", [], Controller, Zero,
            "From a Lease gained to the first reconcile done.";
        SHARD_APPWRAPPERS: Gauge, "appwrapper_shard_appwrappers", [SHARD], Controller, OnUse,
            "AppWrappers of a shard; only the owner exports it.";
        FENCED_WRITES: Counter, "appwrapper_shard_fenced_writes_total", [SHARD, FENCE], Controller, Zero,
            "Writes refused because the Lease was no longer safe.";
        LEADER: Gauge, "leader_election_master_status", [ELECTION], Controller, Zero,
            "1 while this replica is the leader, which publishes who should hold which shard.";
    }

    "Reconciles and work queue" {
        RECONCILES: Counter, "controller_runtime_reconcile_total", [CONTROLLER, RECONCILE_RESULT], Controller, Zero,
            "Reconciles by result.";
        RECONCILE_ERRORS: Counter, "controller_runtime_reconcile_errors_total", [CONTROLLER], Controller, Zero,
            "Reconciles that ended with an error.";
        RECONCILE_TERMINAL: Counter, "controller_runtime_terminal_reconcile_errors_total", [CONTROLLER], Controller, Zero,
            "Reconciles that ended with an error that is not tried again. There is none; kept for dashboards that ask for it.";
        RECONCILE_PANICS: Counter, "controller_runtime_reconcile_panics_total", [CONTROLLER], Controller, Zero,
            "Reconciles that panicked.";
        RECONCILE_TIME: Histogram(RECONCILE), "controller_runtime_reconcile_time_seconds", [CONTROLLER], Controller, Zero,
            "Time of a reconcile.";
        ACTIVE_WORKERS: Gauge, "controller_runtime_active_workers", [CONTROLLER], Controller, Zero,
            "Reconciles that run now.";
        MAX_WORKERS: Gauge, "controller_runtime_max_concurrent_reconciles", [CONTROLLER], Controller, Zero,
            "Reconciles that may run at once.";
        QUEUE_DEPTH: Gauge, "workqueue_depth", [QUEUE, CONTROLLER], Controller, Possible,
            "Keys that wait for a permit to run.";
        QUEUE_ADDS: Counter, "workqueue_adds_total", [QUEUE, CONTROLLER], Controller, Possible,
            "Keys that began to wait.";
        QUEUE_DURATION: Histogram(QUEUE_TIME), "workqueue_queue_duration_seconds", [QUEUE, CONTROLLER], Controller, Possible,
            "Time a key waited for a permit to run.";
        QUEUE_WORK: Histogram(RECONCILE), "workqueue_work_duration_seconds", [QUEUE, CONTROLLER], Controller, Possible,
            "Time of processing a key.";
        QUEUE_UNFINISHED: Gauge, "workqueue_unfinished_work_seconds", [QUEUE, CONTROLLER], Controller, Possible,
            "Sum of the ages of all reconciles that run now.";
        QUEUE_LONGEST: Gauge, "workqueue_longest_running_processor_seconds", [QUEUE, CONTROLLER], Controller, Possible,
            "Age of the longest reconcile that runs now.";
        QUEUE_RETRIES: Counter, "workqueue_retries_total", [QUEUE, CONTROLLER], Controller, Possible,
            "Keys put back after an error.";
        STALE_RUNS: Counter, "appwrapper_stale_reconciles_total", [], Controller, Zero,
            "Reconciles that went on with our own last copy, because the cached AppWrapper was older.";
        CONFLICTS: Counter, "appwrapper_status_conflicts_total", [], Controller, Zero,
            "Status patches refused because the AppWrapper had changed since it was read.";
    }

    "Outcomes for AppWrappers" {
        RETRIES: Counter, "appwrapper_retries_total", [REASON], Controller, Zero,
            "Resets of an AppWrapper: all components are deleted and created again.";
        FAILURES: Counter, "appwrapper_failures_total", [NAMESPACE, REASON], Controller, OnUse,
            "AppWrappers that ended in Failed.";
        OPERATIONS: Counter, "appwrapper_component_operations_total", [OPERATION, COMPONENT, OPERATION_RESULT], Controller, Zero,
            "Creates and deletes of components.";
        FORCED_DELETIONS: Counter, "appwrapper_forced_deletions_total", [FORCED], Controller, Zero,
            "Objects deleted without grace because their graceful deletion took too long.";
        FOREIGN: Counter, "appwrapper_foreign_objects_total", [FOREIGN_REASON], Controller, Zero,
            "Objects that claimed to belong to an AppWrapper and were neither counted nor deleted.";
        PHASE_TOTAL: Counter, "appwrapper_phase_total", [NAMESPACE, PHASE_ENTERED], Controller, OnUse,
            "Transitions of AppWrappers into a phase.";
        APPWRAPPERS: Gauge, "appwrapper_appwrappers", [PHASE], Controller, Zero,
            "AppWrappers by phase, of the shards that this replica owns.";
        PHASE_OLDEST: Gauge, "appwrapper_phase_oldest_entry_timestamp_seconds", [PHASE], Controller, OnUse,
            "When the AppWrapper that has been in the phase longest entered it; not exported while there is none.";
        PHASE_ALLOWANCE: Gauge, "appwrapper_phase_allowance_seconds", [PHASE], Controller, OnUse,
            "How long an AppWrapper may stay in the phase by configuration; an annotation of its own may allow more.";
        PHASE_DURATION: Histogram(PHASES), "appwrapper_phase_duration_seconds", [PHASE], Controller, Zero,
            "Time spent in a phase, observed on leaving it.";
        SUBMIT_TO_RUNNING: Histogram(PHASES), "appwrapper_submit_to_running_seconds", [], Controller, Zero,
            "From the creation of an AppWrapper to its first entry into Running.";
        FOLDED: Gauge, "appwrapper_namespaces_folded", [CAPPED], Controller, Zero,
            "Namespaces counted as _overflow because the cap of the metric was reached.";
    }

    "Client of the API server" {
        CLIENT_REQUESTS: Counter, "rest_client_requests_total", [CODE, METHOD, HOST], Both, OnUse,
            "Requests by HTTP status, or `<error>` when there was no answer.";
        CLIENT_DURATION: Histogram(REQUEST), "rest_client_request_duration_seconds", [METHOD_AS_VERB], Both, Zero,
            "Time of a request until the head of its answer.";
    }

    "Webhook" {
        WEBHOOK_REQUESTS: Counter, "controller_runtime_webhook_requests_total", [WEBHOOK, WEBHOOK_CODE], Webhook, Zero,
            "Admission requests by HTTP status of the answer.";
        WEBHOOK_LATENCY: Histogram(ADMISSION), "controller_runtime_webhook_latency_seconds", [WEBHOOK], Webhook, Zero,
            "Time of an admission request.";
        WEBHOOK_IN_FLIGHT: Gauge, "controller_runtime_webhook_requests_in_flight", [WEBHOOK], Webhook, Zero,
            "Admission requests that run now.";
        WEBHOOK_PANICS: Counter, "controller_runtime_webhook_panics_total", [], Webhook, Zero,
            "Admission requests that panicked.";
        DECISIONS: Counter, "appwrapper_webhook_decisions_total", [WEBHOOK, ADMISSION_OPERATION, DECISION, DECISION_REASON], Webhook, Possible,
            "Admission decisions with the rule that decided.";
        ACCESS_REVIEWS: Counter, "appwrapper_webhook_access_reviews_total", [ACCESS_REVIEW], Webhook, Zero,
            "Questions whether the user may create a wrapped kind.";
        ACCESS_REVIEW_DURATION: Histogram(ADMISSION), "appwrapper_webhook_access_review_duration_seconds", [], Webhook, Zero,
            "Time of one SubjectAccessReview.";
        ACCESS_REVIEW_ENABLED: Gauge, "appwrapper_webhook_access_review_enabled", [], Webhook, Zero,
            "0 when the configuration switches access reviews off.";
        DISCOVERY: Counter, "appwrapper_webhook_discovery_lookups_total", [DISCOVERY_RESULT], Webhook, Zero,
            "Questions to discovery about a wrapped kind.";
        CERT_NOT_BEFORE: Gauge, "appwrapper_webhook_certificate_not_before_timestamp_seconds", [CERTIFICATE], Webhook, OnUse,
            "Start of validity of the certificate in use.";
        CERT_NOT_AFTER: Gauge, "appwrapper_webhook_certificate_not_after_timestamp_seconds", [CERTIFICATE], Webhook, OnUse,
            "End of validity of the certificate in use.";
        CERT_RELOADS: Counter, "appwrapper_webhook_certificate_reloads_total", [RELOAD], Webhook, Zero,
            "Readings of the certificate pair.";
        CA_CURRENT: Gauge, "appwrapper_webhook_ca_bundle_current", [WEBHOOK], Webhook, OnUse,
            "1 when the webhook configuration trusts the certificate that is served.";
        DRAINING: Gauge, "appwrapper_webhook_draining", [], Webhook, Zero,
            "1 while the webhook answers its last requests before it ends.";
    }

    "Process" {
        BUILD_INFO: Gauge, "appwrapper_build_info", [VERSION, REVISION, RUSTC], Both, OnUse,
            "Always 1; the build is in the labels.";
        CONFIG_HASH: Gauge, "appwrapper_config_hash_info", [HASH], Both, OnUse,
            "Always 1; the label is a hash of the configuration in force.";
        MEMORY_LIMIT: Gauge, "appwrapper_memory_limit_bytes", [], Both, Zero,
            "Memory limit of the container from its control group; 0 when there is none.";
        TRACE_DROPPED: Counter, "appwrapper_trace_spans_dropped_total", [], Both, Zero,
            "Spans thrown away because the collector did not take them in time.";
        LOG_EVENTS: Counter, "appwrapper_log_events_total", [LEVEL], Both, Zero,
            "Log lines by level.";
        TOKIO_BUSY: Counter, "appwrapper_tokio_busy_seconds_total", [], Both, Zero,
            "Time that all worker threads of the runtime were busy.";
        TOKIO_WORKERS: Gauge, "appwrapper_tokio_workers", [], Both, Zero,
            "Worker threads of the runtime.";
        TOKIO_TASKS: Gauge, "appwrapper_tokio_alive_tasks", [], Both, Zero,
            "Tasks of the runtime that have not ended.";
        TOKIO_QUEUE: Gauge, "appwrapper_tokio_queue_depth", [], Both, Zero,
            "Tasks that wait in the runtime's global queue.";
        PROCESS_CPU: Counter, "process_cpu_seconds_total", [], Both, Zero,
            "Total user and system CPU time spent in seconds.";
        PROCESS_OPEN_FDS: Gauge, "process_open_fds", [], Both, Zero,
            "Number of open file descriptors.";
        PROCESS_MAX_FDS: Gauge, "process_max_fds", [], Both, Zero,
            "Maximum number of open file descriptors.";
        PROCESS_VIRTUAL: Gauge, "process_virtual_memory_bytes", [], Both, Zero,
            "Virtual memory size in bytes.";
        PROCESS_RESIDENT: Gauge, "process_resident_memory_bytes", [], Both, Zero,
            "Resident memory size in bytes.";
        PROCESS_START: Gauge, "process_start_time_seconds", [], Both, Zero,
            "Start time of the process since unix epoch in seconds.";
        PROCESS_THREADS: Gauge, "process_threads", [], Both, Zero,
            "Number of OS threads in the process.";
    }
}
