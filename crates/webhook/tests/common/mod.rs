//! A webhook in the test's process, in front of the fake API server, and reviews to send to it.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

pub mod live;
pub mod replicas;
pub mod tls;

use std::{sync::Arc, time::Duration};

use appwrapper_api::config::Config;
use appwrapper_metrics::{Build, WebhookMetrics};
use appwrapper_testkit::api_server::{ApiServer, Effect, Fault, Match, ResourceKind, Verb};
use appwrapper_webhook::{access::Access, service::Service, validate::Validator};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes};
use serde_json::{Value, json};

pub const MUTATE: &str = "/mutate-workload-codeflare-dev-v1beta2-appwrapper";
pub const VALIDATE: &str = "/validate-workload-codeflare-dev-v1beta2-appwrapper";
pub const SARS: &str = "subjectaccessreviews.authorization.k8s.io";
/// The longest timeout that a webhook configuration may ask for: a review that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(30);

/// The webhook's service and its API server.
pub struct Webhook {
    pub server: ApiServer,
    pub service: Arc<Service>,
    pub metrics: Arc<WebhookMetrics>,
    /// The rule that answers access reviews.
    pub policy: Fault,
}

/// What came back.
#[derive(Debug)]
pub struct Outcome {
    pub code: u16,
    pub response: Value,
    pub text: String,
    pub close: bool,
}

impl Webhook {
    /// With this configuration, and users who may do everything.
    pub fn new(yaml: &str) -> Self {
        Self::with_policy(yaml, |_| true)
    }

    /// With users who may do what `allows` says of the review's spec.
    pub fn with_policy(yaml: &str, allows: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        let server = api_server();
        let policy = server.faults().add(
            Match::verb(Verb::Create).resource(SARS),
            Effect::reply(move |request| {
                let mut review = request.body.as_deref().cloned().unwrap_or_default();
                let allowed = allows(&review["spec"]);
                review["status"] = json!({"allowed": allowed});
                (201, review)
            }),
        );
        let config = Config::from_yaml(yaml).unwrap().appwrapper;
        let metrics = WebhookMetrics::new(&Build::default());
        let access = Access::new(
            server.client(),
            config.user_rbac_admission_check,
            metrics.admission.clone(),
        );
        let queue = config.default_queue_name.clone();
        let validator = Validator::new(config, access);
        let service = Arc::new(Service::new(validator, queue, metrics.admission.clone()));
        Self {
            server,
            service,
            metrics,
            policy,
        }
    }

    /// Posts a body as it is.
    pub async fn post(&self, path_and_query: &str, body: impl Into<Bytes>) -> Outcome {
        let request = Request::post(path_and_query)
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .unwrap();
        self.send(request).await
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Outcome {
        let answer = tokio::time::timeout(DEADLINE, self.service.answer(request)).await;
        let Ok(answer) = answer else {
            panic!("no answer within {DEADLINE:?}");
        };
        let code = answer.status().as_u16();
        let close = answer.headers().get("connection").is_some_and(|value| value == "close");
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        let review: Value = serde_json::from_slice(&body).unwrap_or_default();
        Outcome {
            code,
            response: review["response"].clone(),
            text,
            close,
        }
    }

    /// Creates through both webhooks, as the API server would: first the patch, then the validation.
    pub async fn create(&self, object: Value) -> Outcome {
        self.create_as(&user(), object).await
    }

    pub async fn create_as(&self, user: &Value, mut object: Value) -> Outcome {
        let mutated = self.post(MUTATE, review("CREATE", user, &object, &Value::Null)).await;
        assert_eq!(mutated.code, 200, "{}", mutated.text);
        apply(&mut object, &mutated.response);
        self.post(VALIDATE, review("CREATE", user, &object, &Value::Null)).await
    }

    pub async fn update(&self, old: &Value, new: &Value) -> Outcome {
        self.post(VALIDATE, review("UPDATE", &user(), new, old)).await
    }

    /// Access reviews that were asked for.
    pub fn reviews(&self) -> Vec<Value> {
        let requests = self.server.requests().into_iter();
        let creates = requests.filter(|request| request.verb == Verb::Create && request.is_for(SARS));
        creates.map(|request| request.body.unwrap()["spec"].clone()).collect()
    }
}

impl Outcome {
    pub fn allowed(&self) -> bool {
        self.response["allowed"] == true
    }

    pub fn message(&self) -> &str {
        self.response["status"]["message"].as_str().unwrap_or_default()
    }

    /// The fields that the refusal names.
    pub fn fields(&self) -> Vec<String> {
        let message = self.message();
        let kinds = [
            ": Forbidden: ",
            ": Invalid value: ",
            ": Required value: ",
            ": Internal error: ",
        ];
        let mut fields: Vec<(usize, String)> = Vec::new();
        for kind in kinds {
            for (at, _) in message.match_indices(kind) {
                let before = &message[..at];
                let start = before
                    .rfind(", ")
                    .map_or(usize::from(before.starts_with('[')), |comma| comma + 2);
                fields.push((at, before[start..].to_owned()));
            }
        }
        fields.sort();
        fields.into_iter().map(|(_, field)| field).collect()
    }

    pub fn warnings(&self) -> Vec<String> {
        serde_json::from_value(self.response["warnings"].clone()).unwrap_or_default()
    }
}

/// The fake API server with what this project needs of authorization and admission registration.
pub fn api_server() -> ApiServer {
    let server = ApiServer::new();
    let cluster = |group, plural, kind| {
        ResourceKind::new(group, "v1", plural, kind)
            .cluster_scoped()
            .without_status()
    };
    server.register(cluster(
        "authorization.k8s.io",
        "subjectaccessreviews",
        "SubjectAccessReview",
    ));
    server.register(cluster("rbac.authorization.k8s.io", "clusterroles", "ClusterRole"));
    server.register(cluster(
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
        "MutatingWebhookConfiguration",
    ));
    server.register(cluster(
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
    ));
    server
}

pub fn user() -> Value {
    json!({"username": "ann", "uid": "u-1", "groups": ["team", "system:authenticated"], "extra": {"scopes": ["all"]}})
}

pub fn review(operation: &str, user: &Value, object: &Value, old: &Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "workload.codeflare.dev", "version": "v1beta2", "kind": "AppWrapper"},
        "resource": {"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"},
        "namespace": "ns", "name": object["metadata"]["name"], "operation": operation, "userInfo": user,
        "object": object, "oldObject": old, "dryRun": false, "options": null,
    }})
    .to_string()
}

pub fn apply(object: &mut Value, response: &Value) {
    if response["patch"].is_null() {
        return;
    }
    assert_eq!(response["patchType"], "JSONPatch");
    let patch: k8s_openapi::ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch.0).unwrap();
    json_patch::patch(object, &patch).unwrap();
}

pub fn wrapper(components: Vec<Value>) -> Value {
    json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": "a", "namespace": "ns"}, "spec": {"components": components},
    })
}

/// A component around an object.
pub fn component(template: Value) -> Value {
    json!({"template": template})
}

pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

pub fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }}})
}

pub fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})
}
