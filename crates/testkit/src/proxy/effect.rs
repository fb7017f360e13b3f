//! What a rule does to a request before it is forwarded, and to its answer after.

use std::future::pending;
use std::io;

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use serde_json::json;
use tower::BoxError;

use crate::api_server::{ApiRequest, Effect, Fault, ResponseBody};

/// The answer, where the rule gives one without asking the API server.
pub async fn before(fault: &Fault, request: &ApiRequest) -> Result<Option<Response<ResponseBody>>, BoxError> {
    match fault.effect() {
        Effect::Status(code, reason, message) => Ok(Some(status(*code, reason, message))),
        Effect::Text(code, body) => Ok(Some(text(*code, *body))),
        Effect::Reply(reply) => {
            let (code, body) = reply(request);
            Ok(Some(json_answer(code, body.to_string())))
        }
        Effect::Refuse => Err(broken()),
        Effect::Hang => pending().await,
        Effect::Delay(time) => {
            tokio::time::sleep(*time).await;
            Ok(None)
        }
        Effect::Hold => {
            fault.released().await;
            Ok(None)
        }
        Effect::Undecodable | Effect::DropAnswer | Effect::HangAnswer | Effect::HoldAnswer => Ok(None),
    }
}

/// What becomes of the API server's answer. Where it is not passed on it is read to its end first, so that the request
/// has taken full effect.
pub async fn after(fault: &Fault, answer: Response<ResponseBody>) -> Result<Response<ResponseBody>, BoxError> {
    match fault.effect() {
        Effect::Undecodable => {
            answer.into_body().collect().await?;
            Ok(json_answer(200, r#"{"kind":"#))
        }
        Effect::DropAnswer => {
            answer.into_body().collect().await?;
            Err(broken())
        }
        Effect::HangAnswer => {
            answer.into_body().collect().await?;
            pending().await
        }
        Effect::HoldAnswer => {
            fault.released().await;
            Ok(answer)
        }
        _ => Ok(answer),
    }
}

/// The error that makes the server break the connection.
pub fn broken() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection broken by the test").into()
}

/// An answer of plain text.
pub fn text(code: u16, body: impl Into<Bytes>) -> Response<ResponseBody> {
    answer(code, "text/plain; charset=utf-8", body)
}

/// A `Status` object as Kubernetes sends it.
pub fn status_object(code: u16, reason: &str, message: &str) -> serde_json::Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

fn status(code: u16, reason: &str, message: &str) -> Response<ResponseBody> {
    let mut answer = json_answer(code, status_object(code, reason, message).to_string());
    if code == 429 {
        // As from priority and fairness.
        answer
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

fn json_answer(code: u16, body: impl Into<Bytes>) -> Response<ResponseBody> {
    answer(code, "application/json", body)
}

fn answer(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(code).expect("tests use codes that exist");
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
