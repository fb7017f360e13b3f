//! What is fuzzed: each function takes any bytes as a user could send them, and must not panic. The targets of cargo-fuzz
//! and `tests/fuzz.rs` call the same ones.

#![allow(dead_code, reason = "each target calls one")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "what does not hold is a finding")]

use std::{cell::LazyCell, collections::BTreeMap, convert::Infallible};

use appwrapper_api::{
    ANNOTATION_PREFIX, AppWrapper,
    config::{Config, FaultToleranceConfig},
    kinds::KINDS,
    path::Path,
};
use appwrapper_metrics::{Build, WebhookMetrics, labels::Webhook};
use appwrapper_webhook::{
    access::Access,
    service::Service,
    validate::{Validator, structural_faults},
    warnings,
};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Map, Value, json};

/// Every kind may be wrapped, so that the list of them does not end what is to be tried.
const CONFIG: &str = "appwrapper:\n  defaultQueueName: q\n  admission:\n    allowedKinds: [\"*\"]\n";

thread_local! {
    static GATE: LazyCell<Gate> = LazyCell::new(Gate::new);
}

struct Gate {
    service: Service,
    runtime: tokio::runtime::Runtime,
}

impl Gate {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let config = Config::from_yaml(CONFIG).unwrap().appwrapper;
        let metrics = WebhookMetrics::new(&Build::default()).admission.clone();
        let queue = config.default_queue_name.clone();
        let client = {
            let _guard = runtime.enter();
            let answer = async |request| Ok::<_, Infallible>(api_server(&request));
            kube::Client::new(tower::service_fn(answer), "ns")
        };
        let access = Access::new(client, true, metrics.clone());
        Self {
            service: Service::new(Validator::new(config, access), queue, metrics),
            runtime,
        }
    }

    fn post(&self, webhook: Webhook, body: &[u8]) {
        let request = http::Request::post(webhook.as_str()).header("content-type", "application/json");
        let request = request.body(Full::from(body.to_owned())).unwrap();
        self.runtime.block_on(async {
            let answer = self.service.answer(request).await;
            let status = answer.status();
            assert!(matches!(status.as_u16(), 200 | 400 | 413), "{status}");
            let answer = answer.into_body().collect().await.unwrap().to_bytes();
            if status == 200 {
                let answer: Value = serde_json::from_slice(&answer).unwrap();
                assert!(answer.pointer("/response/allowed").is_some_and(Value::is_boolean));
            }
        });
    }
}

/// Serves Pods and Jobs, and allows everything.
fn api_server(request: &http::Request<Body>) -> http::Response<Body> {
    let resource = |name: &str, kind: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": []});
    let answer = if request.method() == http::Method::POST {
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {}, "status": {"allowed": true}})
    } else {
        json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource("pods", "Pod"), resource("jobs", "Job")]})
    };
    http::Response::new(Body::from(answer.to_string().into_bytes()))
}

/// An AdmissionReview, to both webhooks.
pub fn review(body: &[u8]) {
    GATE.with(|gate| Webhook::ALL.iter().for_each(|webhook| gate.post(*webhook, body)));
}

/// A template as it is, and as each kind that is known.
pub fn template(text: &[u8]) {
    let Ok(template) = serde_json::from_slice::<Value>(text) else {
        return;
    };
    judge(&template, &json!([]));
    let Value::Object(mut object) = template else { return };
    for row in KINDS {
        object.insert("apiVersion".into(), row.api_version.into());
        object.insert("kind".into(), row.kind.into());
        judge(&Value::Object(object.clone()), &json!([]));
    }
}

/// A path on the first line, and a template to follow it in.
pub fn path(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let (path, template) = text
        .split_once('\n')
        .unwrap_or((&text, "{\"spec\":{\"list\":[{\"tpl\":{\"spec\":{}}}]}}"));
    let Ok(template) = serde_json::from_str::<Value>(template) else {
        return;
    };
    if let Ok(parsed) = Path::parse(path) {
        assert_eq!(parsed.to_string(), path);
        let found = parsed.get(&template).cloned();
        assert_eq!(parsed.get_mut(&mut template.clone()).map(|value| value.clone()), found);
    }
    judge(&template, &json!([{"path": path}]));
}

/// Annotations, a line each, as SUFFIX=VALUE.
pub fn annotations(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    let pairs = text.lines().map(|line| line.split_once('=').unwrap_or((line, "")));
    let annotations: BTreeMap<_, _> = pairs
        .map(|(suffix, value)| (format!("{ANNOTATION_PREFIX}{suffix}"), value.to_owned()))
        .collect();
    let mut wrapper = AppWrapper::default();
    wrapper.metadata.annotations = Some(annotations);
    let warnings = warnings::of_new(&wrapper, &FaultToleranceConfig::default());
    assert!(warnings.iter().all(|warning| warning.len() < 2000));
}

fn judge(template: &Value, pod_sets: &Value) {
    let component = Map::from_iter([
        ("template".to_owned(), template.clone()),
        ("podSets".to_owned(), pod_sets.clone()),
    ]);
    let wrapper = json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": {"components": [component]}});
    let wrapper: AppWrapper = serde_json::from_value(wrapper).unwrap();
    let config = Config::from_yaml(CONFIG).unwrap().appwrapper;
    structural_faults(&wrapper, &config);
    warnings::of_new(&wrapper, &config.fault_tolerance);
}
