//! What a rule does to the API server's answer, beyond what it does to any.

use http::Response;
use http_body_util::BodyExt as _;
use tower::BoxError;

use crate::answer;
use crate::api_server::{Effect, Fault, ResponseBody};

/// What becomes of the API server's answer. Where it is not passed on it is read to its end first, so that the request
/// has taken full effect.
pub async fn after(fault: &Fault, mut answer: Response<ResponseBody>) -> Result<Response<ResponseBody>, BoxError> {
    if let Effect::Undecodable | Effect::DropAnswer | Effect::HangAnswer = fault.effect() {
        answer.body_mut().collect().await?;
    }
    answer::after(fault, answer).await
}
