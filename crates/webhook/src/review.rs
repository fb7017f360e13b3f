//! AdmissionReview, version `admission.k8s.io/v1`, in and out.
//!
//! The objects inside stay text until somebody needs them: a template is user input of any depth, and taking it apart is the
//! part that can fail. What cannot be read as a review is answered with 400; what can be, but holds an object that cannot
//! be read, gets a proper denial.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};

use appwrapper_metrics::labels::{AdmissionOperation, DecisionReason};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Longest message: a denial that lists many faults is cut, since the API server hands it on whole.
const MESSAGE_LIMIT: usize = 4096;

/// What the API server asks.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// Identity of the call, to be repeated in the answer. Each webhook gets one of its own for the same request.
    pub uid: String,
    /// Resource of the request.
    #[serde(default)]
    pub resource: Resource,
    /// Subresource; the webhooks are registered for none.
    #[serde(default)]
    pub sub_resource: String,
    /// Namespace of the request.
    #[serde(default)]
    pub namespace: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// Who asks.
    #[serde(default)]
    pub user_info: UserInfo,
    /// The object as it would be stored.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
    /// The object as it is.
    #[serde(borrow, default)]
    pub old_object: Option<&'a RawValue>,
    /// Nothing will be stored.
    #[serde(default)]
    pub dry_run: Option<bool>,
}

/// A resource by its path.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// Group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural.
    pub resource: String,
}

/// Who asks, as the API server has authenticated or impersonated them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// Name.
    pub username: String,
    /// Identity; certificate users have none.
    pub uid: String,
    /// Groups.
    #[serde(deserialize_with = "null_is_default")]
    pub groups: Vec<String>,
    /// Whatever else an authenticator or authorizer may want.
    #[serde(deserialize_with = "null_is_default")]
    pub extra: BTreeMap<String, Vec<String>>,
}

fn null_is_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

/// Reads a review. The error is for the caller, who has sent no review.
pub fn parse(body: &[u8]) -> Result<Request<'_>, String> {
    let envelope: Envelope<'_> =
        serde_json::from_slice(body).map_err(|error| format!("not an AdmissionReview: {error}"))?;
    if envelope.api_version != API_VERSION || envelope.kind != KIND {
        return Err(format!(
            "expected {API_VERSION} {KIND}, found {:.40} {:.40}",
            envelope.api_version, envelope.kind
        ));
    }
    let request = envelope.request.ok_or("the AdmissionReview has no request")?;
    let Resource {
        group,
        version,
        resource,
    } = &request.resource;
    if (group.as_str(), version.as_str(), resource.as_str())
        != (appwrapper_api::GROUP, appwrapper_api::VERSION, appwrapper_api::PLURAL)
    {
        return Err(format!(
            "this webhook is for appwrappers, not for {group:.60}/{version:.60} {resource:.60}"
        ));
    }
    Ok(request)
}

impl Request<'_> {
    /// The operation, if it is one to look at. Deletion and subresources pass.
    pub fn operation(&self) -> Option<AdmissionOperation> {
        match self.operation.as_str() {
            _ if !self.sub_resource.is_empty() => None,
            "CREATE" => Some(AdmissionOperation::Create),
            "UPDATE" => Some(AdmissionOperation::Update),
            _ => None,
        }
    }

    /// The object as it would be stored.
    pub fn decode_object<T: DeserializeOwned>(&self) -> Result<T, Denial> {
        decode(self.object, "object")
    }

    /// The object as it is.
    pub fn decode_old_object<T: DeserializeOwned>(&self) -> Result<T, Denial> {
        decode(self.old_object, "oldObject")
    }
}

fn decode<T: DeserializeOwned>(raw: Option<&RawValue>, field: &str) -> Result<T, Denial> {
    let raw = raw.ok_or_else(|| Denial::malformed(format!("the request has no {field}")))?;
    serde_json::from_str(raw.get()).map_err(|error| {
        let text = error.to_string();
        Denial::malformed(if text.contains("recursion limit") {
            "spec.components: Invalid value: the AppWrapper is nested deeper than 128 levels; flatten the template"
                .into()
        } else {
            format!("the AppWrapper cannot be read: {text}")
        })
    })
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// For the metric.
    pub reason: DecisionReason,
    /// For the user.
    pub message: String,
    /// It was not the object: the same request may well pass later.
    pub retryable: bool,
}

impl Denial {
    /// A refusal for good.
    pub fn forbidden(reason: DecisionReason, message: String) -> Self {
        Self {
            reason,
            message,
            retryable: false,
        }
    }

    /// A refusal for want of an answer from the API server.
    pub fn unanswered(reason: DecisionReason, message: String) -> Self {
        Self {
            reason,
            message,
            retryable: true,
        }
    }

    fn malformed(message: String) -> Self {
        Self::forbidden(DecisionReason::Malformed, message)
    }
}

/// What the webhook decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Why not, if not.
    pub denial: Option<Denial>,
    /// What the user should know although it is allowed.
    pub warnings: Vec<String>,
    /// JSON patch.
    pub patch: Vec<Value>,
}

impl Verdict {
    /// A refusal.
    pub fn denied(denial: Denial) -> Self {
        Self {
            denial: Some(denial),
            ..Self::default()
        }
    }

    /// For the metric.
    pub fn reason(&self) -> DecisionReason {
        self.denial
            .as_ref()
            .map_or(DecisionReason::Accepted, |denial| denial.reason)
    }

    /// The answer to the request of this uid, as JSON.
    pub fn answer(&self, uid: &str) -> Vec<u8> {
        let status = match &self.denial {
            None => json!({"code": 200}),
            Some(denial) if denial.retryable => json!({
                "status": "Failure", "code": 503, "reason": "ServiceUnavailable",
                "message": cut(&denial.message), "details": {"retryAfterSeconds": 1},
            }),
            Some(denial) => json!({
                "status": "Failure", "code": 403, "reason": "Forbidden", "message": cut(&denial.message),
            }),
        };
        let response = Response {
            uid,
            allowed: self.denial.is_none(),
            status,
            patch_type: (!self.patch.is_empty()).then_some("JSONPatch"),
            patch: (!self.patch.is_empty())
                .then(|| k8s_openapi::ByteString(Value::from(self.patch.clone()).to_string().into_bytes())),
            warnings: &self.warnings,
        };
        serde_json::to_vec(&json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})).unwrap_or_default()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    status: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<k8s_openapi::ByteString>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

fn cut(message: &str) -> String {
    if message.len() <= MESSAGE_LIMIT {
        return message.to_owned();
    }
    let kept = message.floor_char_boundary_at(MESSAGE_LIMIT);
    format!("{kept}... ({} bytes more)", message.len() - kept.len())
}

/// `str::floor_char_boundary` came with a later Rust than the workspace asks for.
trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, limit: usize) -> &str;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, limit: usize) -> &str {
        (0..=limit).rev().find_map(|end| self.get(..end)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn review(request: &Value) -> Vec<u8> {
        json!({"apiVersion": API_VERSION, "kind": KIND, "request": request})
            .to_string()
            .into_bytes()
    }

    fn resource() -> Value {
        json!({"group": "workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"})
    }

    #[rstest]
    #[case(b"".to_vec())]
    #[case(b"{".to_vec())]
    #[case(b"[]".to_vec())]
    #[case(b"\xff\xfe".to_vec())]
    #[case(b"{}".to_vec())]
    #[case(json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": KIND, "request": {}}).to_string().into_bytes())]
    #[case(json!({"apiVersion": API_VERSION, "kind": KIND}).to_string().into_bytes())]
    #[case(review(&json!({"uid": "u", "operation": "CREATE"})))]
    #[case(review(&json!({"uid": "u", "operation": "CREATE", "resource": {"group": "", "version": "v1", "resource": "pods"}})))]
    #[case(review(&json!({"uid": 1, "operation": "CREATE", "resource": resource()})))]
    fn what_is_no_review_is_refused(#[case] body: Vec<u8>) {
        assert!(parse(&body).is_err());
    }

    #[test]
    fn absent_and_null_parts_of_the_user_are_empty() {
        let body = review(&json!({"uid": "u", "operation": "CREATE", "resource": resource(),
            "userInfo": {"username": "ann", "groups": null, "extra": null}}));
        let request = parse(&body).unwrap();
        assert_eq!(
            request.user_info,
            UserInfo {
                username: "ann".into(),
                ..UserInfo::default()
            }
        );
        assert_eq!(request.operation(), Some(AdmissionOperation::Create));
    }

    #[rstest]
    #[case("DELETE", "")]
    #[case("CONNECT", "")]
    #[case("UPDATE", "status")]
    fn what_the_webhook_is_not_for_passes(#[case] operation: &str, #[case] sub_resource: &str) {
        let body =
            review(&json!({"uid": "u", "operation": operation, "subResource": sub_resource, "resource": resource()}));
        assert_eq!(parse(&body).unwrap().operation(), None);
    }

    #[test]
    fn a_bottomless_object_is_denied_with_a_remedy_instead_of_400() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let body = format!(
            "{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"{KIND}\",\"request\":{{\"uid\":\"u\",\"operation\":\"CREATE\",\
             \"resource\":{},\"object\":{{\"spec\":{deep}}}}}}}",
            resource()
        );
        let denial = parse(body.as_bytes()).unwrap().decode_object::<Value>().unwrap_err();
        assert!(denial.message.contains("deeper than 128 levels"), "{}", denial.message);
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let denial = Denial::forbidden(DecisionReason::Malformed, "ä".repeat(5000));
        let answer: Value = serde_json::from_slice(&Verdict::denied(denial).answer("u")).unwrap();
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(message.ends_with("... (5904 bytes more)"), "{}", &message[4000..]);
        assert_eq!(answer["response"]["uid"], "u");
        assert_eq!(answer["response"]["allowed"], false);
    }
}
