//! What the five dashboards show.

use super::grafana::{CLUSTER, Dashboard, JOB, NAMESPACE, RESOURCE, SHARD, heatmap, lines, row, stat, table};

const OURS: &str = "name=~\"[mv]appwrapper[.]workload[.]codeflare[.]dev\"";

pub fn all() -> Vec<Dashboard> {
    vec![overview(), missing(), shards(), admission(), runtime()]
}

fn overview() -> Dashboard {
    Dashboard {
        uid: "appwrapper-overview",
        title: "AppWrapper: overview",
        description: "Are AppWrappers served as promised, and what becomes of them?",
        variables: &[CLUSTER, JOB, NAMESPACE],
        panels: vec![
            row("Service levels"),
            stat("Controllers and webhooks up", "none", "Replicas that Prometheus reaches, by job.").red_below(2.0)
                .wide(6)
                .query("sum by (job) (up{@job})", "{{job}}"),
            stat("Admission: budget left", "percentunit", "Share of the error budget of 30 days (0.1 %) that is left. Times without calls count as good.").red_below(0.0).wide(6)
                .query("1 - avg_over_time(cluster:appwrapper_admission_errors:ratio_rate1h{@}[30d]) / 0.001", "admission"),
            stat("Pick-up: budget left", "percentunit", "Share of the budget of 30 days (1 % of keys may wait longer than 5 s) that is left.").red_below(0.0).wide(6)
                .query("1 - avg_over_time(cluster:appwrapper_pickup_errors:ratio_rate1h{@}[30d]) / 0.01", "pick-up"),
            stat("Reconciles: budget left", "percentunit", "Share of the budget of 30 days (1 % of reconciles may fail) that is left.").red_below(0.0).wide(6)
                .query("1 - avg_over_time(cluster:appwrapper_reconcile_errors:ratio_rate1h{@}[30d]) / 0.01", "reconciles"),
            lines("Admission: errors against the objective", "percentunit", "Calls of the webhooks that failed, as the API server counts them, with the objective as a line.").red_from(0.001)
                .query("cluster:appwrapper_admission_errors:ratio_rate5m{@}", "5 minutes")
                .query("cluster:appwrapper_admission_errors:ratio_rate1h{@}", "1 hour"),
            lines("Pick-up: errors against the objective", "percentunit", "Keys that waited longer than 5 s for a permit, with the objective as a line.").red_from(0.01)
                .query("cluster:appwrapper_pickup_errors:ratio_rate5m{@}", "5 minutes")
                .query("cluster:appwrapper_pickup_errors:ratio_rate1h{@}", "1 hour"),
            lines("Reconciles: errors against the objective", "percentunit", "Reconciles that ended with an error, with the objective as a line.").red_from(0.01)
                .query("cluster:appwrapper_reconcile_errors:ratio_rate5m{@}", "5 minutes")
                .query("cluster:appwrapper_reconcile_errors:ratio_rate1h{@}", "1 hour"),
            row("AppWrappers"),
            lines("AppWrappers by phase", "none", "How many there are, as the owners of the shards report.").stacked()
                .query("sum by (phase) (appwrapper_appwrappers{@})", "{{phase}}"),
            lines("Transitions by phase", "ops", "Entries into each phase per second, of the chosen namespaces.")
                .query("sum by (phase) (rate(appwrapper_phase_total{@, namespace=~\"$namespace\"}[$__rate_interval]))", "{{phase}}"),
            lines("Longest in a phase", "s", "Age of the AppWrapper that has been in each passing phase longest, and what is allowed.")
                .query("time() - min by (phase) (appwrapper_phase_oldest_entry_timestamp_seconds{@, phase=~\"Resuming|Suspending|Resetting|Terminating\"})", "{{phase}}")
                .query("max by (phase) (appwrapper_phase_allowance_seconds{@})", "{{phase}} allowed"),
            lines("From creation to Running", "s", "Half, and 99 % of the AppWrappers ran for the first time within this time, queueing included.")
                .query("histogram_quantile(0.5, sum by (le) (rate(appwrapper_submit_to_running_seconds_bucket{@}[$__rate_interval])))", "half")
                .query("histogram_quantile(0.99, sum by (le) (rate(appwrapper_submit_to_running_seconds_bucket{@}[$__rate_interval])))", "99 %"),
            lines("Time spent in a phase (p90)", "s", "Observed when the phase is left.")
                .query("histogram_quantile(0.9, sum by (phase, le) (rate(appwrapper_phase_duration_seconds_bucket{@}[$__rate_interval])))", "{{phase}}"),
            lines("Retries by reason", "none", "Resets: all components deleted and created again.")
                .query("sum by (reason) (increase(appwrapper_retries_total{@}[$__rate_interval]))", "{{reason}}"),
            table("Failures by namespace and reason", "none", "AppWrappers that ended in Failed within the chosen time.")
                .query("sum by (namespace, reason) ((appwrapper_failures_total{@, namespace=~\"$namespace\"} unless appwrapper_failures_total{@, namespace=~\"$namespace\"} offset $__range) or increase(appwrapper_failures_total{@, namespace=~\"$namespace\"}[$__range])) > 0", "{{namespace}} {{reason}}"),
            table("Version and configuration of each process", "none", "More than one version or hash of a job: a roll-out is under way, or stuck.")
                .query("count by (job, instance, version, revision, rustc) (appwrapper_build_info{@job})", "{{instance}} {{version}}")
                .query("count by (job, instance, hash) (appwrapper_config_hash_info{@job})", "{{instance}} {{hash}}"),
            lines("Operations on components", "ops", "Creates and deletes by how they ended.")
                .query("sum by (verb, result) (rate(appwrapper_component_operations_total{@}[$__rate_interval]))", "{{verb}} {{result}}"),
            lines("Forced deletions and foreign objects", "none", "Objects deleted without grace, and objects that claimed to belong to an AppWrapper and do not.")
                .query("sum by (kind) (increase(appwrapper_forced_deletions_total{@}[$__rate_interval]))", "forced: {{kind}}")
                .query("sum by (reason) (increase(appwrapper_foreign_objects_total{@}[$__rate_interval]))", "foreign: {{reason}}"),
            lines("Log lines", "ops", "Lines per second by level.")
                .query("sum by (level) (rate(appwrapper_log_events_total{@job}[$__rate_interval]))", "{{level}}"),
        ],
    }
}

fn missing() -> Dashboard {
    Dashboard {
        uid: "appwrapper-missing",
        title: "AppWrapper: missing components",
        description: "When the cache lacks a component: was it really missing? Each verdict is confirmed by a read past the cache.",
        variables: &[CLUSTER, NAMESPACE, RESOURCE],
        panels: vec![
            stat("Verdicts without a confirming read", "none", "The tripwire. Anything but 0 is a defect of the controller.").red_from(1.0).decimals(0)
                .query("sum(increase(appwrapper_unconfirmed_verdicts_total{@}[$__range]))", "unconfirmed"),
            stat("Races survived", "none", "Reads past the cache that found the component alive: without them these AppWrappers would have been reset.").decimals(0)
                .query("sum(increase(appwrapper_component_confirmations_total{@, resource=~\"$resource\", outcome=\"live\"}[$__range]))", "survived"),
            stat("Confirmed gone", "none", "Reads past the cache that agreed: deleted, being deleted, or replaced by another object of the name.").decimals(0)
                .query("sum(increase(appwrapper_component_confirmations_total{@, resource=~\"$resource\", outcome=~\"missing|terminating|replaced\"}[$__range]))", "gone"),
            stat("Open verdicts", "none", "AppWrappers that wait for an answer now.")
                .query("sum(appwrapper_component_confirmations_pending{@})", "open"),
            stat("Longest open verdict", "s", "Age of the verdict that has waited longest; 0 when none is open.").red_from(120.0)
                .query("(time() - min(appwrapper_component_confirmation_oldest_pending_timestamp_seconds{@} > 0)) or vector(0)", "oldest"),
            stat("Namespaces folded", "none", "Namespaces counted together as _overflow because a metric's cap was reached.")
                .query("max(appwrapper_namespaces_folded{@})", "folded"),
            lines("Cached reads", "ops", "What the cache answered: the denominator of every figure here.").wide(12)
                .query("sum by (result) (rate(appwrapper_component_cached_reads_total{@, resource=~\"$resource\"}[$__rate_interval]))", "{{result}}"),
            lines("Confirmations by outcome", "none", "Reads past the cache. live: a race survived. error, deferred: no answer yet, so no verdict.").wide(12)
                .query("sum by (outcome) (increase(appwrapper_component_confirmations_total{@, resource=~\"$resource\"}[$__rate_interval]))", "{{outcome}}"),
            lines("Confirmed missing by namespace", "none", "AppWrappers found unhealthy because reads past the cache agreed, over 15 minutes.").wide(12)
                .query("sum by (namespace, resource) (cluster_namespace_resource:appwrapper_missing_component_verdicts:increase15m{@, namespace=~\"$namespace\", resource=~\"$resource\"})", "{{namespace}} {{resource}}"),
            lines("Duration of confirmations", "s", "Of one read past the cache, answered or not.").red_from(1.0).wide(12)
                .query("histogram_quantile(0.5, sum by (le) (rate(appwrapper_component_confirmation_duration_seconds_bucket{@}[$__rate_interval])))", "half")
                .query("histogram_quantile(0.99, sum by (le) (rate(appwrapper_component_confirmation_duration_seconds_bucket{@}[$__rate_interval])))", "99 %"),
            lines("From our create to the watch (p99)", "s", "From the answer to our own create until the watch delivers it: the lag of the cache.").red_from(5.0)
                .query("histogram_quantile(0.99, sum by (resource, le) (rate(appwrapper_write_to_watch_seconds_bucket{@, resource=~\"$resource\"}[$__rate_interval])))", "{{resource}}"),
            lines("Catching up after a race (p99)", "s", "From a read that found the component alive until the cache shows it.")
                .query("histogram_quantile(0.99, sum by (resource, le) (rate(appwrapper_cache_catchup_seconds_bucket{@, resource=~\"$resource\"}[$__rate_interval])))", "{{resource}}"),
            lines("Alive but not in the cache", "none", "Components beyond the catch-up limit; usually their label was removed.").red_from(1.0)
                .query("max by (resource) (appwrapper_cache_divergent_components{@, resource=~\"$resource\"})", "{{resource}}"),
            heatmap("Lag of the cache", "How many of our own creates reached the cache after which time.").wide(24)
                .query("sum by (le) (increase(appwrapper_write_to_watch_seconds_bucket{@, resource=~\"$resource\"}[$__rate_interval]))", "{{le}}"),
        ],
    }
}

fn shards() -> Dashboard {
    Dashboard {
        uid: "appwrapper-shards",
        title: "AppWrapper: shards and leases",
        description: "Who owns which shard, how safe its Lease is, and how quickly another takes over.",
        variables: &[CLUSTER, SHARD],
        panels: vec![
            stat("Shards configured", "none", "The number that every replica is configured for.")
                .query("max(appwrapper_shards_configured{@})", "configured"),
            stat("Shards owned", "none", "Shards that some replica owns. Equal to the number configured in health.")
                .query("sum(max by (shard) (appwrapper_shard_owned{@}))", "owned"),
            stat("Leaders", "none", "Replicas that hold the leader's Lease: 1 in health.").red_from(2.0)
                .query("sum(leader_election_master_status{@})", "leaders"),
            table("Owner of each shard", "none", "Exactly one row for each shard.")
                .query("max by (shard, instance) (appwrapper_shard_owned{@, shard=~\"$shard\"}) == 1", "{{shard}} {{instance}}"),
            lines("Changes of ownership", "none", "Acquired, released on purpose, or lost.").wide(12)
                .query("sum by (kind) (increase(appwrapper_shard_transitions_total{@, shard=~\"$shard\"}[$__rate_interval]))", "{{kind}}"),
            lines("Take-over (p99)", "s", "From a Lease gained to the first reconcile done.")
                .query("histogram_quantile(0.99, sum by (le) (rate(appwrapper_shard_takeover_seconds_bucket{@}[$__rate_interval])))", "99 %"),
            lines("Age of the last renewal", "s", "At the moment of the scrape, for the owner of each shard, with the duration of a Lease.")
                .query("timestamp(appwrapper_shard_lease_last_renew_timestamp_seconds{@, shard=~\"$shard\"}) - appwrapper_shard_lease_last_renew_timestamp_seconds{@, shard=~\"$shard\"}", "shard {{shard}}")
                .query("max(appwrapper_shard_lease_duration_seconds{@})", "Lease duration"),
            lines("Renewals that failed", "percentunit", "Share of the attempts to renew that did not succeed.").red_from(0.3)
                .query("sum by (shard) (rate(appwrapper_shard_lease_renewals_total{@, shard=~\"$shard\", result!=\"renewed\"}[$__rate_interval])) / sum by (shard) (rate(appwrapper_shard_lease_renewals_total{@, shard=~\"$shard\"}[$__rate_interval]))", "shard {{shard}}"),
            lines("Duration of renewals (p99)", "s", "Half, and 99 % of the attempts ended within this time.")
                .query("histogram_quantile(0.5, sum by (le) (rate(appwrapper_shard_lease_renew_duration_seconds_bucket{@}[$__rate_interval])))", "half")
                .query("histogram_quantile(0.99, sum by (le) (rate(appwrapper_shard_lease_renew_duration_seconds_bucket{@}[$__rate_interval])))", "99 %"),
            lines("AppWrappers by shard", "none", "As the owner of each shard reports.").stacked()
                .query("max by (shard) (appwrapper_shard_appwrappers{@, shard=~\"$shard\"})", "shard {{shard}}"),
            lines("Fenced writes", "none", "Writes refused because the Lease was no longer safe, by the layer that refused.")
                .query("sum by (layer) (increase(appwrapper_shard_fenced_writes_total{@, shard=~\"$shard\"}[$__rate_interval]))", "{{layer}}"),
            lines("Put off and refused", "none", "Reconciles put off because the cached AppWrapper was old, and status patches refused because it had changed.")
                .query("sum(increase(appwrapper_stale_reconciles_total{@}[$__rate_interval]))", "old copy")
                .query("sum(increase(appwrapper_status_conflicts_total{@}[$__rate_interval]))", "conflict"),
        ],
    }
}

fn admission() -> Dashboard {
    Dashboard {
        uid: "appwrapper-admission",
        title: "AppWrapper: admission",
        description: "The webhooks, as they and as the API server see them. A webhook that is down cannot count itself: the API server is the authority.",
        variables: &[CLUSTER],
        panels: vec![
            row("As the API server sees it"),
            lines("Calls", "ops", "Calls by webhook.")
                .query(&format!("sum by (name) (rate(apiserver_admission_webhook_request_total{{@, {OURS}}}[$__rate_interval]))"), "{{name}}"),
            lines("Failed calls, as the API server sees them", "ops", "Connection, TLS, timeout or a malformed answer; denials are not among them.").red_from(0.001)
                .query(&format!("sum by (name, error_type) (rate(apiserver_admission_webhook_rejection_count{{@, {OURS}, error_type!=\"no_error\"}}[$__rate_interval]))"), "{{name}} {{error_type}}")
                .query(&format!("sum by (name) (rate(apiserver_admission_webhook_fail_open_count{{@, {OURS}}}[$__rate_interval]))"), "{{name}} let through"),
            lines("Duration of calls (p99), as the API server sees it", "s", "Network and TLS included. The buckets end at 2.5 s.").red_from(1.0)
                .query(&format!("histogram_quantile(0.99, sum by (name, le) (rate(apiserver_admission_webhook_admission_duration_seconds_bucket{{@, {OURS}}}[$__rate_interval])))"), "{{name}}"),
            row("As the webhooks see it"),
            lines("Decisions", "ops", "Allowed, denied, or errored for want of an answer.")
                .query("sum by (operation, decision) (rate(appwrapper_webhook_decisions_total{@}[$__rate_interval]))", "{{operation}} {{decision}}"),
            lines("Denials by reason", "none", "The rule that decided.")
                .query("sum by (reason) (increase(appwrapper_webhook_decisions_total{@, decision!=\"allowed\"}[$__rate_interval]))", "{{reason}}"),
            lines("Own duration (p99)", "s", "Inside the webhook, network not included.")
                .query("histogram_quantile(0.99, sum by (webhook, le) (rate(controller_runtime_webhook_latency_seconds_bucket{@, job=\"appwrapper-webhook\"}[$__rate_interval])))", "{{webhook}}"),
            lines("Answers by status", "ops", "HTTP status of the webhook's answers.")
                .query("sum by (code) (rate(controller_runtime_webhook_requests_total{@, job=\"appwrapper-webhook\"}[$__rate_interval]))", "{{code}}"),
            lines("Requests under way", "none", "By webhook, and replicas that answer their last requests.")
                .query("sum by (webhook) (controller_runtime_webhook_requests_in_flight{@, job=\"appwrapper-webhook\"})", "{{webhook}}")
                .query("sum(appwrapper_webhook_draining{@})", "draining"),
            lines("Panics", "none", "Requests that panicked: a defect.").red_from(1.0)
                .query("sum(increase(controller_runtime_webhook_panics_total{@, job=\"appwrapper-webhook\"}[$__rate_interval]))", "panics"),
            row("Access reviews and discovery"),
            stat("Access reviews on", "bool_yes_no", "Whether the configuration asks if the user may create what is wrapped.").red_below(1.0)
                .query("min(appwrapper_webhook_access_review_enabled{@})", "on"),
            lines("Access reviews", "ops", "Questions by answer.").wide(7)
                .query("sum by (result) (rate(appwrapper_webhook_access_reviews_total{@}[$__rate_interval]))", "{{result}}"),
            lines("Duration of access reviews (p99)", "s", "Of those that asked the API server.").wide(7)
                .query("histogram_quantile(0.99, sum by (le) (rate(appwrapper_webhook_access_review_duration_seconds_bucket{@}[$__rate_interval])))", "99 %"),
            lines("Discovery", "ops", "Questions about wrapped kinds, by where the answer came from.").wide(6)
                .query("sum by (result) (rate(appwrapper_webhook_discovery_lookups_total{@}[$__rate_interval]))", "{{result}}"),
            row("Certificates"),
            lines("Certificates: lifetime left", "percentunit", "Share of each certificate's own lifetime.").red_from(1.01)
                .query("(appwrapper_webhook_certificate_not_after_timestamp_seconds{@} - time()) / (appwrapper_webhook_certificate_not_after_timestamp_seconds{@} - appwrapper_webhook_certificate_not_before_timestamp_seconds{@})", "{{kind}} {{instance}}"),
            lines("Trust in the served certificate", "none", "1 when the webhook configuration trusts the certificate that is served.")
                .query("min by (webhook) (appwrapper_webhook_ca_bundle_current{@})", "{{webhook}}"),
            lines("Readings of the certificate", "none", "By how they ended.")
                .query("sum by (result) (increase(appwrapper_webhook_certificate_reloads_total{@}[$__rate_interval]))", "{{result}}"),
        ],
    }
}

fn runtime() -> Dashboard {
    Dashboard {
        uid: "appwrapper-runtime",
        title: "AppWrapper: runtime",
        description: "Queue, workers, client of the API server, caches, memory.",
        variables: &[CLUSTER, JOB, RESOURCE],
        panels: vec![
            row("Queue and workers"),
            lines("Waiting keys", "none", "Keys that wait for a permit to run.")
                .query("sum by (name) (workqueue_depth{@job})", "{{name}}"),
            lines("Time in the queue", "s", "99 % of the keys waited less.").red_from(5.0)
                .query("histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket{@job}[$__rate_interval])))", "{{name}}"),
            lines("Arrivals and retries", "ops", "Keys that began to wait, and keys put back after an error.")
                .query("sum by (name) (rate(workqueue_adds_total{@job}[$__rate_interval]))", "{{name}} arrivals")
                .query("sum by (name) (rate(workqueue_retries_total{@job}[$__rate_interval]))", "{{name}} retries"),
            lines("Permits in use", "percentunit", "Share of the permits; at 1 keys wait.")
                .query("sum by (controller) (controller_runtime_active_workers{@job}) / sum by (controller) (controller_runtime_max_concurrent_reconciles{@job})", "{{controller}}"),
            lines("Longest running reconcile", "s", "Age of the longest reconcile that runs now, and the sum of all.").red_from(300.0)
                .query("max by (controller) (workqueue_longest_running_processor_seconds{@job})", "{{controller}} longest")
                .query("sum by (controller) (workqueue_unfinished_work_seconds{@job})", "{{controller}} all"),
            lines("Reconciles by result", "ops", "In controller-runtime's words.")
                .query("sum by (controller, result) (rate(controller_runtime_reconcile_total{@job}[$__rate_interval]))", "{{controller}} {{result}}"),
            lines("Duration of reconciles (p99)", "s", "Of the run, without the wait; and of all the work on a key.")
                .query("histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{@job}[$__rate_interval])))", "{{controller}}")
                .query("histogram_quantile(0.99, sum by (name, le) (rate(workqueue_work_duration_seconds_bucket{@job}[$__rate_interval])))", "{{name}} work"),
            lines("Errors of reconciles", "ops", "All errors, and those that are not tried again.")
                .query("sum by (controller) (rate(controller_runtime_reconcile_errors_total{@job}[$__rate_interval]))", "{{controller}}")
                .query("sum by (controller) (rate(controller_runtime_terminal_reconcile_errors_total{@job}[$__rate_interval]))", "{{controller}} for good"),
            lines("Panics", "none", "Panics are defects.").red_from(1.0)
                .query("sum by (controller) (increase(controller_runtime_reconcile_panics_total{@job}[$__rate_interval]))", "{{controller}} panics"),
            row("Client of the API server"),
            lines("Requests to the API server by status", "ops", "429: the API server throttles. <error>: no answer.")
                .query("sum by (code) (rate(rest_client_requests_total{@job}[$__rate_interval]))", "{{code}}"),
            lines("Duration of requests (p99)", "s", "Until the head of the answer.")
                .query("histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket{@job}[$__rate_interval])))", "{{verb}}"),
            row("Caches"),
            lines("Objects in caches", "none", "Of the fullest replica.").wide(6)
                .query("max by (resource) (appwrapper_cache_objects{@job})", "{{resource}}"),
            lines("Replicas with a complete cache", "none", "By resource.").wide(6)
                .query("sum by (resource) (appwrapper_cache_synced{@job})", "{{resource}}"),
            lines("Age of the last sign of life of each watch", "s", "Events, bookmarks, lists and ordinary restarts count.").red_from(900.0).wide(6)
                .query("time() - min by (resource) (appwrapper_cache_last_event_timestamp_seconds{@job})", "{{resource}}"),
            lines("Spread of cache versions", "none", "Difference of resource versions between the newest and the oldest replica.").wide(6)
                .query("max by (resource) (appwrapper_cache_resource_version{@job}) - min by (resource) (appwrapper_cache_resource_version{@job})", "{{resource}}"),
            lines("Watch events", "ops", "What the watches delivered.")
                .query("sum by (resource, type) (rate(appwrapper_watch_events_total{@job}[$__rate_interval]))", "{{resource}} {{type}}"),
            lines("Restarts of watches", "none", "closed and expired are ordinary.")
                .query("sum by (resource, reason) (increase(appwrapper_watch_restarts_total{@job}[$__rate_interval]))", "{{resource}} {{reason}}"),
            lines("Initial lists (p99)", "s", "Time until a watch had its first complete list.")
                .query("histogram_quantile(0.99, sum by (le) (rate(appwrapper_watch_list_seconds_bucket{@job}[$__rate_interval])))", "99 %"),
            row("Processes"),
            lines("Memory against the limit", "percentunit", "Resident memory as a share of the container's limit; nothing where there is none.").red_from(0.8)
                .query("process_resident_memory_bytes{@job} / (appwrapper_memory_limit_bytes{@job} > 0)", "{{instance}}"),
            lines("Memory", "bytes", "Resident memory.")
                .query("process_resident_memory_bytes{@job}", "{{instance}}"),
            lines("Processor", "none", "Seconds of processor time per second.")
                .query("rate(process_cpu_seconds_total{@job}[$__rate_interval])", "{{instance}}"),
            lines("Runtime busy", "percentunit", "Share of the time that the runtime's threads were busy.")
                .query("sum by (instance) (rate(appwrapper_tokio_busy_seconds_total{@job}[$__rate_interval])) / sum by (instance) (appwrapper_tokio_workers{@job})", "{{instance}}"),
            lines("Tasks", "none", "Tasks alive, and those that wait in the global queue.")
                .query("appwrapper_tokio_alive_tasks{@job}", "{{instance}} alive")
                .query("appwrapper_tokio_queue_depth{@job}", "{{instance}} waiting"),
            lines("Threads and file descriptors", "none", "Threads, and open descriptors as a share of those allowed (in percent).")
                .query("process_threads{@job}", "{{instance}} threads")
                .query("100 * process_open_fds{@job} / process_max_fds{@job}", "{{instance}} descriptors (%)"),
            lines("Start of each process", "s", "Time since the start.")
                .query("time() - process_start_time_seconds{@job}", "{{instance}}"),
            lines("Spans thrown away", "none", "Because the collector of traces did not take them.")
                .query("sum by (job) (increase(appwrapper_trace_spans_dropped_total{@job}[$__rate_interval]))", "{{job}}"),
        ],
    }
}
