//! One request to the server: parsed from HTTP, logged, and shown to faults and hooks.
//!
//! `ApiRequest` is what tests count and audit: verb, resource, name, query, the options of a delete, who asked and when.
//! The author is the name given to `ApiServer::client_as`, or else the User-Agent header.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, request::Parts};
use jiff::Timestamp;
use serde_json::Value;

/// What a request does, in the words of Kubernetes RBAC. `Other` is discovery and health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the words of RBAC")]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    Other,
}

impl Verb {
    /// Whether the request changes objects.
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch | Self::Other)
    }
}

/// One request, as logged.
#[derive(Clone, Debug)]
pub struct ApiRequest {
    /// Position in the log, counted from 1 and never reset.
    pub seq: u64,
    /// Server time at arrival.
    pub at: Timestamp,
    /// Who asked.
    pub author: String,
    /// HTTP method.
    pub method: Method,
    /// Path without the query.
    pub path: String,
    /// What it does.
    pub verb: Verb,
    /// API group in the path.
    pub group: String,
    /// API version in the path.
    pub version: String,
    /// Plural in the path, empty for discovery.
    pub plural: String,
    /// Namespace in the path.
    pub namespace: Option<String>,
    /// Name in the path; for a create, the name in the body.
    pub name: Option<String>,
    /// Subresource in the path.
    pub subresource: Option<String>,
    /// Query parameters.
    pub query: BTreeMap<String, String>,
    /// Accept header.
    pub accept: String,
    /// Content type of the body.
    pub content_type: String,
    /// The body, if it is JSON.
    pub body: Option<Arc<Value>>,
    /// HTTP code of the answer; none while unanswered, or when the answer was withheld.
    pub code: Option<u16>,
}

impl ApiRequest {
    pub(crate) fn parse(parts: &Parts, body: &[u8], author: Option<&str>) -> Self {
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|v| v.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let segments: Vec<&str> = parts.uri.path().split('/').filter(|s| !s.is_empty()).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => ("", "", [].as_slice()),
        };
        let (namespace, rest) = match rest {
            // `namespaces/x/status` is a subresource of the namespace itself.
            ["namespaces", namespace, plural, ..] if !matches!(*plural, "status" | "finalize") => {
                (Some((*namespace).to_owned()), &rest[2..])
            }
            _ => (None, rest),
        };
        let query: BTreeMap<String, String> = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
        let body: Option<Arc<Value>> = serde_json::from_slice(body).ok().map(Arc::new);
        let mut name = rest.get(1).map(|s| (*s).to_owned());
        let watching = matches!(query.get("watch").map(String::as_str), Some("true" | "1"));
        let verb = match (&parts.method, name.is_some()) {
            _ if rest.is_empty() => Verb::Other,
            (&Method::GET, true) => Verb::Get,
            (&Method::GET, false) if watching => Verb::Watch,
            (&Method::GET, false) => Verb::List,
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, _) => Verb::Update,
            (&Method::PATCH, _) => Verb::Patch,
            (&Method::DELETE, true) => Verb::Delete,
            (&Method::DELETE, false) => Verb::DeleteCollection,
            _ => Verb::Other,
        };
        if verb == Verb::Create && name.is_none() {
            name = body
                .as_deref()
                .and_then(|b| b.pointer("/metadata/name")?.as_str())
                .map(str::to_owned);
        }
        Self {
            seq: 0,
            at: Timestamp::UNIX_EPOCH,
            author: author.map_or_else(|| header("user-agent"), str::to_owned),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            verb,
            group: group.to_owned(),
            version: version.to_owned(),
            plural: rest.first().map(|s| (*s).to_owned()).unwrap_or_default(),
            namespace,
            name,
            subresource: rest.get(2).map(|s| (*s).to_owned()),
            query,
            accept: header("accept"),
            content_type: header("content-type"),
            body,
            code: None,
        }
    }

    /// `plural.group`, the same name as `ResourceKind::id`.
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether `name` means this request's resource: by its id or by its plural alone.
    pub fn is_for(&self, name: &str) -> bool {
        self.plural == name || self.resource() == name
    }

    /// The query parameter, empty if absent.
    pub fn param(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Whether nothing is to be stored.
    pub fn dry_run(&self) -> bool {
        self.param("dryRun") == "All" || (self.is_delete() && self.body_at("/dryRun/0") == Some("All"))
    }

    /// The propagation policy of a delete, from body or query.
    pub fn propagation(&self) -> Option<&str> {
        self.delete_option("/propagationPolicy", "propagationPolicy")
    }

    /// The uid that a delete insists on.
    pub fn uid_precondition(&self) -> Option<&str> {
        self.delete_option("/preconditions/uid", "")
    }

    /// The version that a delete insists on.
    pub fn version_precondition(&self) -> Option<&str> {
        self.delete_option("/preconditions/resourceVersion", "")
    }

    /// The grace period of a delete, in seconds.
    pub fn grace_period(&self) -> Option<i64> {
        let in_body = self
            .body
            .as_ref()
            .filter(|_| self.is_delete())
            .and_then(|b| b.get("gracePeriodSeconds")?.as_i64());
        in_body.or_else(|| self.param("gracePeriodSeconds").parse().ok())
    }

    /// Whether metadata only is asked for.
    pub fn metadata_only(&self) -> bool {
        self.accept.contains("as=PartialObjectMetadata")
    }

    fn is_delete(&self) -> bool {
        matches!(self.verb, Verb::Delete | Verb::DeleteCollection)
    }

    fn delete_option(&self, pointer: &str, param: &str) -> Option<&str> {
        let in_body = if self.is_delete() { self.body_at(pointer) } else { None };
        in_body.or_else(|| self.query.get(param).map(String::as_str))
    }

    fn body_at(&self, pointer: &str) -> Option<&str> {
        self.body.as_deref()?.pointer(pointer)?.as_str()
    }
}
