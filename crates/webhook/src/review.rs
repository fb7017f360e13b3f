//! AdmissionReview, version `admission.k8s.io/v1`, on its way in. The way out is in `verdict.rs`.
//!
//! The objects inside stay text until somebody needs them: a template is user input of any depth, and taking it apart is the
//! part that can fail. What cannot be read as a review is answered with 400; what can be, but holds an object that cannot
//! be read, gets a proper denial.

use std::collections::BTreeMap;

use appwrapper_metrics::labels::AdmissionOperation;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::verdict::Denial;

/// Most JSON values of an object that is taken apart: far more than fit into etcd in any sensible manifest, and few enough
/// that what they take in memory, some hundred times their text at worst, stays far below what the process may have.
const VALUES: usize = 200_000;

pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
pub(crate) const KIND: &str = "AdmissionReview";
const OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];

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
    if !OPERATIONS.contains(&request.operation.as_str()) {
        return Err(format!("{:.40?} is no operation", request.operation));
    }
    // Without it a component could not be told to be in another one.
    if request.namespace.is_empty() && request.operation().is_some() {
        return Err("the request names no namespace".into());
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
    if has_more_values(raw.get(), VALUES) {
        return Err(Denial::malformed(format!(
            "spec.components: Invalid value: the AppWrapper holds more than {VALUES} JSON values; split it, or move data \
             into a ConfigMap of its own"
        )));
    }
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

/// Whether a JSON text holds more values than so many. They are counted by what separates and opens them.
fn has_more_values(json: &str, most: usize) -> bool {
    let (mut values, mut in_text, mut escaped) = (0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            b'[' | b'{' | b',' if !in_text => values += 1,
            _ => {}
        }
        if values > most {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

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
    #[case(review(&json!({"uid": "u", "operation": "CREATE", "resource": resource()})))]
    #[case(review(&json!({"uid": "u", "operation": "create", "namespace": "ns", "resource": resource()})))]
    #[case(review(&json!({"uid": "u", "operation": "CREATE", "namespace": "ns", "resource": {"group": "Workload.codeflare.dev", "version": "v1beta2", "resource": "appwrappers"}})))]
    #[case(br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","uid":"v","operation":"DELETE","resource":{"group":"workload.codeflare.dev","version":"v1beta2","resource":"appwrappers"}}}"#.to_vec())]
    #[case(review(&json!({"uid": 1, "operation": "CREATE", "resource": resource()})))]
    fn what_is_no_review_is_refused(#[case] body: Vec<u8>) {
        assert!(parse(&body).is_err());
    }

    #[test]
    fn absent_and_null_parts_of_the_user_are_empty() {
        let body = review(
            &json!({"uid": "u", "operation": "CREATE", "namespace": "ns", "resource": resource(),
            "userInfo": {"username": "ann", "groups": null, "extra": null}}),
        );
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
        let body = review(
            &json!({"uid": "u", "operation": operation, "subResource": sub_resource, "namespace": "ns", "resource": resource()}),
        );
        assert_eq!(parse(&body).unwrap().operation(), None);
    }

    #[test]
    fn a_bottomless_object_is_denied_with_a_remedy_instead_of_400() {
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let body = format!(
            "{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"{KIND}\",\"request\":{{\"uid\":\"u\",\"operation\":\"CREATE\",\"namespace\":\"ns\",\
             \"resource\":{},\"object\":{{\"spec\":{deep}}}}}}}",
            resource()
        );
        let denial = parse(body.as_bytes()).unwrap().decode_object::<Value>().unwrap_err();
        assert!(denial.message.contains("deeper than 128 levels"), "{}", denial.message);
    }

    #[rstest]
    #[case("[0,0,0]", 3)]
    #[case("[[0],[0]]", 4)]
    #[case(r#"{"a,[{":"\",","b":{}}"#, 3)]
    fn values_are_counted_outside_of_text(#[case] json: &str, #[case] count: usize) {
        assert!(!has_more_values(json, count) && has_more_values(json, count - 1));
    }
}
