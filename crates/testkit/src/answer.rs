//! Answers that a fault gives, or makes of the API server's own. The fake server and the proxy share them, so that a rule
//! means the same in front of either.

use std::future::pending;
use std::io;

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use serde_json::{Value, json};
use tower::BoxError;

use crate::api_server::{ApiRequest, Effect, Fault, ResponseBody};

/// The part of a fault that comes before the request is applied; an answer, if it ends there.
pub(crate) async fn before(fault: &Fault, request: &ApiRequest) -> Result<Option<Response<ResponseBody>>, BoxError> {
    match fault.effect() {
        Effect::Status(code, reason, message) => Ok(Some(status(*code, reason, message))),
        Effect::Text(code, body) => Ok(Some(text(*code, *body))),
        Effect::Reply(reply) => {
            let (code, body) = reply(request);
            Ok(Some(object(code, &body)))
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

/// The part of a fault that comes after the request was applied.
pub(crate) async fn after(fault: &Fault, answer: Response<ResponseBody>) -> Result<Response<ResponseBody>, BoxError> {
    match fault.effect() {
        Effect::Undecodable => Ok(json_text(200, r#"{"kind":"#)),
        Effect::DropAnswer => Err(broken()),
        Effect::HangAnswer => pending().await,
        Effect::HoldAnswer => {
            fault.released().await;
            Ok(answer)
        }
        _ => Ok(answer),
    }
}

/// The error that makes a client see a broken connection.
pub(crate) fn broken() -> BoxError {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by the test").into()
}

/// A `Status` object as Kubernetes sends it.
pub(crate) fn status_object(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    })
}

/// An object as JSON; plain `ok` for null.
pub(crate) fn object(code: u16, body: &Value) -> Response<ResponseBody> {
    if body.is_null() {
        text(code, "ok")
    } else {
        json_text(code, body.to_string())
    }
}

/// An answer of plain text.
pub(crate) fn text(code: u16, body: impl Into<Bytes>) -> Response<ResponseBody> {
    response(code, "text/plain; charset=utf-8", full(body))
}

/// An answer with this body.
pub(crate) fn response(code: u16, content_type: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("tests use codes that exist");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn status(code: u16, reason: &str, message: &str) -> Response<ResponseBody> {
    let mut answer = object(code, &status_object(code, reason, message));
    if code == 429 {
        // As from priority and fairness.
        let headers = answer.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

fn json_text(code: u16, body: impl Into<Bytes>) -> Response<ResponseBody> {
    response(code, "application/json", full(body))
}

fn full(body: impl Into<Bytes>) -> ResponseBody {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}
