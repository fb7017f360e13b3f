//! Reads an exposition, and uses every metric once.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_imports
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use appwrapper_metrics::labels::*;
use appwrapper_metrics::{Build, Metrics, WebhookMetrics};

/// One metric family of a scrape.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub help: String,
    /// Labels (without `le`) of each series, with its value.
    pub series: Vec<(BTreeMap<String, String>, f64)>,
    pub buckets: BTreeSet<String>,
}

/// Splits a page into families, buckets and sums under the name of their histogram. Also the number of series.
pub fn parse(page: &str) -> (BTreeMap<String, Family>, usize) {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut count = 0;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            kind.clone_into(&mut families.entry(name.to_owned()).or_default().kind);
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            help.clone_into(&mut families.entry(name.to_owned()).or_default().help);
        } else {
            count += 1;
            let (head, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = head.split_once('{').unwrap_or((head, ""));
            let mut labels = labels_of(labels.trim_end_matches('}'));
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .filter_map(|suffix| name.strip_suffix(suffix))
                .find(|base| families.get(*base).is_some_and(|family| family.kind == "histogram"))
                .unwrap_or(name)
                .to_owned();
            let family = families.get_mut(&base).unwrap_or_else(|| panic!("{name} has no TYPE"));
            if let Some(bound) = labels.remove("le") {
                family.buckets.insert(bound);
            }
            family.series.push((labels, value.parse().unwrap()));
        }
    }
    (families, count)
}

fn labels_of(text: &str) -> BTreeMap<String, String> {
    // No value of ours has a comma, a quote or an equals sign in it.
    text.split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap();
            (name.to_owned(), value.trim_matches('"').to_owned())
        })
        .collect()
}

pub fn controller(shards: u32) -> Arc<Metrics> {
    Metrics::new(&Build {
        shards,
        ..Build::default()
    })
}

pub fn webhook() -> Arc<WebhookMetrics> {
    WebhookMetrics::new(&Build::default())
}

/// Uses each metric of the controller at least once, through the public interface.
pub fn use_controller(metrics: &Metrics, namespaces: usize) {
    let second = Duration::from_secs(1);
    for namespace in (0..namespaces).map(|namespace| format!("team-{namespace}")) {
        for phase in Phase::ALL {
            metrics.phase(&namespace, *phase);
        }
        for reason in Reason::ALL {
            metrics.states.failure(&namespace, *reason);
        }
        for resource in Resource::ALL {
            metrics.confirm.verdict(&namespace, *resource);
        }
    }
    for resource in Resource::ALL {
        metrics.cache.synced(*resource, second);
        metrics.cache.event(*resource, WatchEvent::Applied, 1);
        metrics.cache.restart(*resource, WatchRestart::Closed);
        metrics.cache.version(*resource, 7);
        metrics.confirm.cached_read(*resource, Cached::Miss);
        metrics.confirm.outcome(*resource, Outcome::Live, second);
        metrics.cache.writing(*resource, "a/b").answered();
        metrics.cache.delivered(*resource, "a/b");
        metrics
            .states
            .operation(Operation::Create, *resource, OperationResult::Success);
    }
    for (index, phase) in Phase::ALL.iter().enumerate() {
        metrics
            .states
            .observe(&format!("a/{index}"), 0, *phase, SystemTime::now());
        metrics.states.set_allowance(*phase, second);
    }
    for shard in 0..16 {
        metrics.lease.transition(shard, Transition::Acquired);
        metrics.lease.renewal(shard, Renewal::Renewed, second);
        metrics.lease.fenced(shard, Fence::Guard);
        metrics.states.own_shard(shard);
    }
    metrics.lease.set_leader(true);
    metrics.lease.set_duration(10 * second);
    metrics.lease.takeover(second);
    metrics.states.retry(Reason::FoundFailedPods);
    metrics.states.forced_deletion(Forced::Pod);
    metrics.states.foreign(Foreign::LabelClaim);
    metrics.states.first_running(second);
    metrics.confirm.unconfirmed();
    metrics.confirm.open("a/b");
    metrics.reconcile.waiting().start().done(ReconcileResult::Success);
    metrics.reconcile.set_max_concurrent(Controller::AppWrapper, 4);
    metrics.reconcile.conflict();
    metrics.reconcile.stale();
    for method in Method::ALL {
        for code in [Some(200), Some(201), Some(404), Some(409), Some(429), Some(500), None] {
            metrics.client.request(*method, code, second);
        }
    }
}

/// The same for the webhook.
pub fn use_webhook(metrics: &WebhookMetrics) {
    let second = Duration::from_secs(1);
    let (start, end) = (SystemTime::now() - second, SystemTime::now() + 3600 * second);
    let admission = &metrics.admission;
    for webhook in Webhook::ALL {
        admission.request(*webhook).answered(WebhookCode::Ok);
        admission.decision(*webhook, AdmissionOperation::Create, DecisionReason::Accepted);
        admission.set_ca_current(*webhook, true);
    }
    for kind in Certificate::ALL {
        admission.certificate(*kind, start, end);
    }
    admission.access_review(AccessReview::Allowed, Some(second));
    admission.set_access_review_enabled(true);
    admission.discovery(Discovery::Cached);
    admission.reload(Reload::Reloaded);
    admission.set_draining(true);
    metrics.client.request(Method::Get, Some(200), second);
}
