//! What the webhook decided, and the AdmissionReview that says so.

use appwrapper_metrics::labels::DecisionReason;
use serde::Serialize;
use serde_json::{Value, json};

use crate::review::{API_VERSION, KIND};

/// Longest message: a denial that lists many faults is cut, since the API server hands it on whole.
const MESSAGE_LIMIT: usize = 4096;

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

    /// A refusal of what cannot be read.
    pub fn malformed(message: String) -> Self {
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
    use super::*;

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
