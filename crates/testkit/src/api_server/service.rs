//! One request's way: parse, log, faults and hooks, apply, answer.
//!
//! Applying is one step under the state's lock, so requests are atomic and in one order. Waiting happens only where a
//! fault asks for it. An error from the service is what a client sees when a connection breaks.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, pending};
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, Service};

use super::error::ApiError;
use super::faults::{Moment, Verdict, WriteCall};
use super::kinds::ResourceKind;
use super::remove::DeleteOptions;
use super::request::{ApiRequest, Verb};
use super::selector::Selector;
use super::store::{Actor, ObjectKey, State};
use super::{ApiServer, ResponseBody, discovery, watch};
use crate::answer;

/// The server as a tower service for one client.
#[derive(Clone)]
pub struct ApiService {
    server: ApiServer,
    author: Option<Arc<str>>,
}

/// What applying a request yields.
enum Answer {
    Object(u16, Arc<Value>),
    Watch(u64),
    Refused(ApiError),
}

impl ApiService {
    pub(crate) fn new(server: ApiServer) -> Self {
        Self { server, author: None }
    }

    /// The same service, its requests logged under this name.
    #[must_use]
    pub fn named(mut self, author: &str) -> Self {
        self.author = Some(author.into());
        self
    }
}

impl Service<Request<Body>> for ApiService {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { server, author } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let request = ApiRequest::parse(&parts, &body, author.as_deref());
            server.serve(request).await
        })
    }
}

impl ApiServer {
    async fn serve(&self, mut request: ApiRequest) -> Result<Response<ResponseBody>, BoxError> {
        self.write(|state| state.log(&mut request));
        let fault = self.faults().take(&request);
        if fault.is_some() {
            // For whoever waits until the fault hits.
            self.write(|_| ());
        }
        if let Some(fault) = &fault
            && let Some(given) = answer::before(fault, &request).await?
        {
            self.write(|state| state.log_code(request.seq, given.status().as_u16()));
            return Ok(given);
        }

        let nth = if request.verb.is_write() {
            self.faults().count_write()
        } else {
            0
        };
        self.hook(Moment::Before, &request, nth).await?;
        let applied = self.write(|state| state.apply(&request));
        let response = match applied {
            Answer::Object(code, object) => answer::object(code, &object),
            Answer::Watch(id) => stream(watch::stream(self.clone(), id, &request)),
            Answer::Refused(ApiError::Status { code, body }) => answer::object(code, &body),
            Answer::Refused(ApiError::Unserved) => answer::text(404, "404 page not found\n"),
        };
        request.code = Some(response.status().as_u16());
        self.hook(Moment::After, &request, nth).await?;
        let response = match &fault {
            Some(fault) => answer::after(fault, response).await?,
            None => response,
        };
        self.write(|state| state.log_code(request.seq, response.status().as_u16()));
        Ok(response)
    }

    async fn hook(&self, moment: Moment, request: &ApiRequest, nth: u64) -> Result<(), BoxError> {
        if nth == 0 {
            return Ok(());
        }
        match self.faults().run_hooks(&WriteCall { moment, request, nth }) {
            Verdict::Continue => Ok(()),
            Verdict::Hang => pending().await,
            Verdict::Drop => Err(answer::broken()),
        }
    }
}

fn stream(body: ResponseBody) -> Response<ResponseBody> {
    answer::response(200, "application/json;stream=watch", body)
}

impl State {
    fn log(&mut self, request: &mut ApiRequest) {
        self.last_request += 1;
        request.seq = self.last_request;
        request.at = self.now();
        self.requests.push(request.clone());
    }

    fn log_code(&mut self, seq: u64, code: u16) {
        if let Some(logged) = self.requests.iter_mut().rfind(|r| r.seq == seq) {
            logged.code = Some(code);
        }
    }

    fn apply(&mut self, request: &ApiRequest) -> Answer {
        let ok = |object: Arc<Value>| Answer::Object(200, object);
        let result = if request.verb == Verb::Other && request.plural.is_empty() {
            discovery::answer(&self.kinds, &request.path).map(|body| ok(Arc::new(body)))
        } else {
            self.apply_to_resource(request)
        };
        result.unwrap_or_else(Answer::Refused)
    }

    fn apply_to_resource(&mut self, request: &ApiRequest) -> Result<Answer, ApiError> {
        let kind = self
            .kinds
            .by_path(&request.group, &request.version, &request.plural)
            .ok_or(ApiError::Unserved)?;
        match request.subresource.as_deref() {
            None => {}
            Some("status") if kind.status_subresource => {}
            Some(_) => return Err(ApiError::Unserved),
        }
        let key = ObjectKey {
            resource: kind.id(),
            namespace: request.namespace.clone().unwrap_or_default(),
            name: request.name.clone().unwrap_or_default(),
        };
        let ok = |object| Answer::Object(200, object);
        let body = || {
            request
                .body
                .as_deref()
                .cloned()
                .ok_or_else(|| ApiError::bad_request("the body is not JSON"))
        };
        let by = Actor::of(request);
        match request.verb {
            Verb::Get => self.get(request, &kind, &key).map(ok),
            Verb::List => self.list(request, &kind).map(|list| ok(Arc::new(list))),
            Verb::Watch => self.watch(request, &kind).map(Answer::Watch),
            Verb::Create => {
                let created = self.create(&by, &kind, request.namespace.as_deref(), body()?)?;
                Ok(Answer::Object(201, created))
            }
            Verb::Update => self.update(&by, &kind, &key, body()?).map(ok),
            Verb::Patch => self.patch(request, &kind, &key).map(ok),
            Verb::Delete => self.delete(&by, &kind, &key, &DeleteOptions::of(request)).map(ok),
            Verb::DeleteCollection => self.delete_collection(request, &kind).map(|list| ok(Arc::new(list))),
            Verb::Other => {
                let message = "the server does not allow this method on the requested resource";
                Err(ApiError::new(405, "MethodNotAllowed", message))
            }
        }
    }

    fn delete_collection(&mut self, request: &ApiRequest, kind: &ResourceKind) -> Result<Value, ApiError> {
        let selector = Selector::parse(request.param("labelSelector"), request.param("fieldSelector"))?;
        let resource = kind.id();
        let stored = self.stored(&resource, request.namespace.as_deref());
        let chosen: Vec<ObjectKey> = stored
            .filter(|(_, object)| selector.matches(object))
            .map(|(key, _)| key.clone())
            .collect();
        let mut items = Vec::new();
        for key in chosen {
            items.push(self.existing(kind, &key)?.as_ref().clone());
            self.delete(&Actor::of(request), kind, &key, &DeleteOptions::of(request))?;
        }
        Ok(json!({
            "kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(), "items": items,
            "metadata": {"resourceVersion": self.revision.to_string()},
        }))
    }
}
