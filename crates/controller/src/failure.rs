//! What an error of the client means.
//!
//! Only one answer proves that an object does not exist: a Status with reason `NotFound` for that very name. A plain 404 may
//! come from a proxy, or from an API server that does not serve the resource (any more), and proves nothing.

use appwrapper_api::conditions::truncate;
use appwrapper_cache_management::KindError;
use appwrapper_coordination::{WriteTimeout, fenced};
use appwrapper_reconciler::{Error, evidence::Doubt};
use kube::core::Status;

/// Longest error text that is passed on.
const TEXT_LIMIT: usize = 1_000;

/// Whether the API server says that no object of this name exists.
pub fn is_absent(error: &kube::Error, name: &str) -> bool {
    matches!(error, kube::Error::Api(status) if is_absence(status, name))
}

fn is_absence(status: &Status, name: &str) -> bool {
    let named = status.details.as_ref().is_some_and(|details| details.name == name);
    status.code == 404 && status.reason == "NotFound" && named
}

/// What the API server or the client says, in short.
pub fn text(error: &kube::Error) -> String {
    let text = match error {
        kube::Error::Api(status) => {
            let mut message = status.message.clone();
            if message.is_empty() {
                message = format!("{} {}", status.code, status.reason);
            }
            message
        }
        kube::Error::Service(source) if source.is::<WriteTimeout>() => source.to_string(),
        error => {
            let mut message = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                message = format!("{message}: {cause}");
                source = cause.source();
            }
            message
        }
    };
    truncate(&text, TEXT_LIMIT)
}

/// An answer to a read that proves nothing.
pub fn doubt(error: &kube::Error) -> Doubt {
    let reason = match error {
        kube::Error::Api(status) => match status.code {
            401 | 403 => "forbidden",
            404 => "not_served",
            429 => "throttled",
            500.. => "server_error",
            _ => "refused",
        },
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => "malformed",
        _ => "transport",
    };
    Doubt {
        reason,
        message: text(error),
    }
}

/// No answer to a read in time.
pub fn timed_out() -> Doubt {
    Doubt {
        reason: "timeout",
        message: "no answer in time".to_owned(),
    }
}

/// How a kind is served cannot be told.
pub fn unavailable(error: &KindError) -> Doubt {
    let cause = std::error::Error::source(error)
        .map(ToString::to_string)
        .unwrap_or_default();
    Doubt {
        reason: "discovery",
        message: truncate(&format!("{error}: {cause}"), TEXT_LIMIT),
    }
}

/// An error of a write to the AppWrapper itself.
pub fn of_wrapper_write(operation: &'static str, error: &kube::Error) -> Error {
    if fenced(error).is_some() {
        return Error::Fenced;
    }
    match error {
        kube::Error::Api(status) if status.code == 409 => Error::Conflict,
        kube::Error::Api(status) if status.code == 404 && status.reason == "NotFound" => Error::Gone,
        error => Error::Api {
            operation,
            message: text(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: u16, reason: &str, name: Option<&str>) -> kube::Error {
        let details = name.map(|name| serde_json::json!({"name": name, "kind": "jobs"}));
        let status = serde_json::json!({"status": "Failure", "code": code, "reason": reason, "details": details});
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn only_not_found_for_that_very_name_is_absence() {
        assert!(is_absent(&error(404, "NotFound", Some("job")), "job"));
        assert!(!is_absent(&error(404, "NotFound", Some("other")), "job"));
        assert!(!is_absent(&error(404, "NotFound", None), "job"));
        assert!(!is_absent(&error(404, "", Some("job")), "job"));
        assert!(!is_absent(&error(410, "Gone", Some("job")), "job"));
    }

    #[test]
    fn whatever_else_is_a_doubt_with_a_closed_reason() {
        for (code, reason) in [
            (401, "forbidden"),
            (403, "forbidden"),
            (404, "not_served"),
            (429, "throttled"),
            (500, "server_error"),
            (503, "server_error"),
        ] {
            assert_eq!(doubt(&error(code, "", None)).reason, reason);
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = serde_json::json!({"code": 500, "message": "x".repeat(100_000)});
        assert!(text(&kube::Error::Api(serde_json::from_value(long).unwrap())).len() <= TEXT_LIMIT);
    }
}
