//! Admission: requests under controller-runtime's names, decisions by rule, access reviews, certificates.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prometheus::{GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::confirm::unix_seconds;
use crate::labels::{
    AccessReview, AdmissionOperation, Certificate, DecisionReason, Discovery, Reload, Webhook, WebhookCode,
};
use crate::registry::Registry;
use crate::table;

/// Admission metrics of the webhook.
#[derive(Clone)]
pub struct Admission {
    requests: IntCounterVec,
    latency: HistogramVec,
    in_flight: IntGaugeVec,
    panics: IntCounter,
    decisions: IntCounterVec,
    reviews: IntCounterVec,
    review_duration: Histogram,
    review_enabled: IntGauge,
    discovery: IntCounterVec,
    not_before: GaugeVec,
    not_after: GaugeVec,
    reloads: IntCounterVec,
    ca_current: IntGaugeVec,
    draining: IntGauge,
}

impl Admission {
    pub(crate) fn new(registry: &Registry) -> Self {
        let decisions = registry.counters(&table::DECISIONS);
        // A reason has one decision: the other combinations cannot occur and would triple the series.
        for webhook in Webhook::ALL {
            for operation in AdmissionOperation::ALL {
                for reason in DecisionReason::ALL {
                    let decision = reason.decision();
                    let values = [webhook.as_str(), operation.as_str(), decision.as_str(), reason.as_str()];
                    drop(decisions.with_label_values(&values));
                }
            }
        }
        Self {
            requests: registry.counters(&table::WEBHOOK_REQUESTS),
            latency: registry.histograms(&table::WEBHOOK_LATENCY),
            in_flight: registry.gauges(&table::WEBHOOK_IN_FLIGHT),
            panics: registry.counter(&table::WEBHOOK_PANICS),
            decisions,
            reviews: registry.counters(&table::ACCESS_REVIEWS),
            review_duration: registry.histogram(&table::ACCESS_REVIEW_DURATION),
            review_enabled: registry.gauge(&table::ACCESS_REVIEW_ENABLED),
            discovery: registry.counters(&table::DISCOVERY),
            not_before: registry.float_gauges(&table::CERT_NOT_BEFORE),
            not_after: registry.float_gauges(&table::CERT_NOT_AFTER),
            reloads: registry.counters(&table::CERT_RELOADS),
            ca_current: registry.gauges(&table::CA_CURRENT),
            draining: registry.gauge(&table::DRAINING),
        }
    }

    /// A request arrived. Counted when it is dropped, with the code it was given last.
    pub fn request(&self, webhook: Webhook) -> Request {
        self.in_flight.with_label_values(&[webhook.as_str()]).inc();
        Request {
            admission: Arc::new(self.clone()),
            webhook,
            since: Instant::now(),
            code: WebhookCode::Failed,
        }
    }

    /// A request was decided. The reason implies the decision.
    pub fn decision(&self, webhook: Webhook, operation: AdmissionOperation, reason: DecisionReason) {
        let decision = reason.decision();
        let values = [webhook.as_str(), operation.as_str(), decision.as_str(), reason.as_str()];
        self.decisions.with_label_values(&values).inc();
    }

    /// A question whether a user may create a kind was answered; `took` is `None` if from our own cache.
    pub fn access_review(&self, result: AccessReview, took: Option<Duration>) {
        self.reviews.with_label_values(&[result.as_str()]).inc();
        if let Some(took) = took {
            self.review_duration.observe(took.as_secs_f64());
        }
    }

    /// Whether the configuration asks for access reviews.
    pub fn set_access_review_enabled(&self, enabled: bool) {
        self.review_enabled.set(i64::from(enabled));
    }

    /// A question about a kind was answered.
    pub fn discovery(&self, result: Discovery) {
        self.discovery.with_label_values(&[result.as_str()]).inc();
    }

    /// Validity of the certificate in use.
    pub fn certificate(&self, kind: Certificate, not_before: SystemTime, not_after: SystemTime) {
        self.not_before
            .with_label_values(&[kind.as_str()])
            .set(unix_seconds(not_before));
        self.not_after
            .with_label_values(&[kind.as_str()])
            .set(unix_seconds(not_after));
    }

    /// The certificate pair was read.
    pub fn reload(&self, result: Reload) {
        self.reloads.with_label_values(&[result.as_str()]).inc();
    }

    /// Whether the webhook configuration trusts the certificate that is served.
    pub fn set_ca_current(&self, webhook: Webhook, current: bool) {
        self.ca_current
            .with_label_values(&[webhook.as_str()])
            .set(i64::from(current));
    }

    /// The webhook answers its last requests.
    pub fn set_draining(&self, draining: bool) {
        self.draining.set(i64::from(draining));
    }
}

/// An admission request that is being answered.
#[must_use]
pub struct Request {
    admission: Arc<Admission>,
    webhook: Webhook,
    since: Instant,
    code: WebhookCode,
}

impl Request {
    /// The request is answered with this HTTP status.
    pub fn answered(mut self, code: WebhookCode) {
        self.code = code;
    }

    /// Deciding the request panicked.
    pub fn panicked(&self) {
        self.admission.panics.inc();
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Self {
            admission,
            webhook,
            since,
            code,
        } = self;
        let webhook = webhook.as_str();
        admission.in_flight.with_label_values(&[webhook]).dec();
        admission.requests.with_label_values(&[webhook, code.as_str()]).inc();
        admission
            .latency
            .with_label_values(&[webhook])
            .observe(since.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_never_answered_counts_as_failed() {
        let registry = Registry::new(0);
        let admission = Admission::new(&registry);
        admission.request(Webhook::Mutating).answered(WebhookCode::Ok);
        drop(admission.request(Webhook::Mutating));
        let page = registry.encode().unwrap();
        let path = Webhook::Mutating.as_str();
        for code in ["200", "500"] {
            let series = format!("controller_runtime_webhook_requests_total{{code=\"{code}\",webhook=\"{path}\"}} 1\n");
            assert!(page.contains(&series), "{series}");
        }
        assert!(page.contains(&format!("requests_in_flight{{webhook=\"{path}\"}} 0\n")));
    }

    #[test]
    fn only_possible_decisions_start_at_zero() {
        let registry = Registry::new(0);
        let _admission = Admission::new(&registry);
        let page = registry.encode().unwrap();
        let count = page
            .lines()
            .filter(|line| line.starts_with("appwrapper_webhook_decisions_total{"))
            .count();
        assert_eq!(count, 2 * 2 * DecisionReason::ALL.len());
    }
}
