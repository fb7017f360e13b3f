//! Watches: a position in the log of changes, and a stream that follows it.
//!
//! An object that leaves the selector is sent as DELETED, as it was before, under the version of the change; one that
//! enters is sent as ADDED. A watch from version 0, without a version, or with `sendInitialEvents` starts with the present
//! objects. A bookmark is sent when the watch ends at its time limit, and when a test asks for one. A start before
//! the compacted version is answered by a 410 in the stream, which is where the real server puts it.
//!
//! What a watch may deliver, and when, is up to the gates (`crate::gate`); they also inject what no change calls for.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::error::ApiError;
use super::kinds::ResourceKind;
use super::object;
use super::request::ApiRequest;
use super::selector::Selector;
use super::{ApiServer, ResponseBody};

use super::store::{Change, State};

/// How long a watch lasts when the client names no limit.
const DEFAULT_LIMIT: Duration = Duration::from_secs(30 * 60);

/// What is sent down a watch connection.
#[derive(Clone, Debug)]
pub(crate) enum Wire {
    /// Bytes as they are, a whole line or part of one.
    Bytes(Bytes),
    /// An orderly end.
    End,
    /// A broken connection.
    Cut,
}

/// One open watch.
pub(crate) struct Watch {
    /// `kind.id()`, compared with every change.
    pub(crate) resource: String,
    pub(crate) kind: Arc<ResourceKind>,
    pub(crate) author: String,
    namespace: Option<String>,
    selector: Selector,
    metadata_only: bool,
    bookmarks: bool,
    /// Index into `State::changes` of the next one to look at.
    pub(crate) position: usize,
    /// To be sent before anything from the log.
    pub(crate) pending: VecDeque<Wire>,
}

impl Watch {
    /// The line for a change, or none if the watch does not select the object before or after.
    pub(crate) fn line(&self, change: &Change) -> Option<Bytes> {
        if !self.concerns(change) {
            return None;
        }
        let selected = |object: &Option<Arc<Value>>| object.as_deref().filter(|o| self.selector.matches(o)).cloned();
        match (selected(&change.before), selected(&change.after)) {
            (None, None) => None,
            (None, Some(after)) => Some(self.event("ADDED", &after)),
            (Some(_), Some(after)) => Some(self.event("MODIFIED", &after)),
            (Some(before), None) => Some(self.event("DELETED", &object::at_version(&before, change.revision))),
        }
    }

    fn concerns(&self, change: &Change) -> bool {
        change.resource == self.resource && self.namespace.as_ref().is_none_or(|ns| *ns == change.namespace)
    }

    fn event(&self, event: &str, object: &Value) -> Bytes {
        if self.metadata_only {
            line(event, &object::partial(object))
        } else {
            line(event, object)
        }
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, api_version) = (&self.kind.kind, self.kind.api_version());
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        self.event("BOOKMARK", &object)
    }
}

/// A watch event as one line.
pub(crate) fn line(event: &str, object: &Value) -> Bytes {
    let mut line = json!({"type": event, "object": object}).to_string();
    line.push('\n');
    line.into()
}

/// The ERROR event that ends a watch whose version is too old.
pub(crate) fn expired_line() -> Bytes {
    match ApiError::expired("too old resource version") {
        ApiError::Status { body, .. } => line("ERROR", &body),
        ApiError::Unserved => Bytes::new(),
    }
}

impl State {
    /// Opens a watch and returns its id.
    pub(crate) fn watch(&mut self, request: &ApiRequest, kind: &Arc<ResourceKind>) -> Result<u64, ApiError> {
        let selector = Selector::parse(request.param("labelSelector"), request.param("fieldSelector"))?;
        let mut watch = Watch {
            resource: kind.id(),
            kind: Arc::clone(kind),
            author: request.author.clone(),
            namespace: request.namespace.clone(),
            selector,
            metadata_only: request.metadata_only(),
            bookmarks: request.param("allowWatchBookmarks") == "true",
            position: self.changes.len(),
            pending: VecDeque::new(),
        };
        let wanted: u64 = request.param("resourceVersion").parse().unwrap_or(0);
        let initial = request.param("sendInitialEvents") == "true";
        if initial || wanted == 0 {
            let revision = self.send_present(&mut watch);
            if initial {
                let bookmark = watch.bookmark(revision, true);
                watch.pending.push_back(Wire::Bytes(bookmark));
            }
        } else if wanted < self.compacted {
            watch.pending.extend([Wire::Bytes(expired_line()), Wire::End]);
        } else {
            watch.position = self.after(wanted);
        }
        self.last_watch += 1;
        self.watches.insert(self.last_watch, watch);
        Ok(self.last_watch)
    }

    /// Queues an ADDED event for everything that is there, or was there when the gate froze the resource.
    fn send_present(&self, watch: &mut Watch) -> u64 {
        let snapshot = self.gates.snapshot(&watch.resource, &watch.author, true);
        let (revision, objects): (u64, Vec<Arc<Value>>) = match snapshot {
            Some(snapshot) => (snapshot.revision, snapshot.objects.values().cloned().collect()),
            None => (
                self.revision,
                self.stored(&watch.resource, None)
                    .map(|(_, object)| Arc::clone(object))
                    .collect(),
            ),
        };
        for object in objects {
            let here = watch
                .namespace
                .as_ref()
                .is_none_or(|ns| ns == object::namespace(&object));
            if here && watch.selector.matches(&object) {
                let line = watch.event("ADDED", &object);
                watch.pending.push_back(Wire::Bytes(line));
            }
        }
        watch.position = self.after(revision);
        revision
    }

    /// The position of the first change after a version.
    pub(crate) fn after(&self, revision: u64) -> usize {
        self.changes.partition_point(|change| change.revision <= revision)
    }

    /// The next thing to send on a watch, if there is one and its gate lets it pass.
    fn next_wire(&mut self, id: u64) -> Option<Wire> {
        let watch = self.watches.get_mut(&id)?;
        if let Some(wire) = watch.pending.pop_front() {
            return Some(wire);
        }
        while let Some(change) = self.changes.get(watch.position) {
            if watch.concerns(change) && !self.gates.passes(&change.resource, &watch.author, change.revision) {
                return None;
            }
            watch.position += 1;
            if let Some(line) = watch.line(change) {
                if self.gates.duplicates(&change.resource, &watch.author) {
                    watch.pending.push_back(Wire::Bytes(line.clone()));
                }
                return Some(Wire::Bytes(line));
            }
        }
        None
    }

    /// A bookmark for a watch that asked for them and has seen everything.
    pub(crate) fn bookmark(&self, id: u64) -> Option<Wire> {
        let watch = self.watches.get(&id)?;
        let behind = self.changes[watch.position..]
            .iter()
            .any(|change| watch.concerns(change));
        if !watch.bookmarks || behind {
            return None;
        }
        Some(Wire::Bytes(watch.bookmark(self.revision, false)))
    }
}

/// Closes the watch when the client drops the connection.
struct Open {
    server: ApiServer,
    id: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.server.write(|state| state.watches.remove(&self.id));
    }
}

/// The body that streams a watch until its time limit.
pub(crate) fn stream(server: ApiServer, id: u64, request: &ApiRequest) -> ResponseBody {
    let limit = request
        .param("timeoutSeconds")
        .parse()
        .map_or(DEFAULT_LIMIT, Duration::from_secs);
    let deadline = Instant::now() + limit;
    let open = Open { server, id };
    let changed = open.server.changed();
    let frames = stream::unfold(Some((open, changed)), move |following| async move {
        let (open, mut changed) = following?;
        loop {
            // Marked as seen before the state is read, so that no change falls in between.
            changed.borrow_and_update();
            let next = open.server.write_quietly(|state| state.next_wire(id));
            let next = match next {
                Some(wire) => wire,
                None if Instant::now() >= deadline => {
                    let bookmark = open.server.read(|state| state.bookmark(id));
                    return match bookmark {
                        Some(Wire::Bytes(bytes)) => Some((Ok(Frame::data(bytes)), None)),
                        _ => None,
                    };
                }
                None => {
                    tokio::select! {
                        _ = changed.changed() => {}
                        () = tokio::time::sleep_until(deadline) => {}
                    }
                    continue;
                }
            };
            return match next {
                Wire::Bytes(bytes) => Some((Ok(Frame::data(bytes)), Some((open, changed)))),
                Wire::End => None,
                Wire::Cut => {
                    let error = io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by the test");
                    Some((Err(error.into()), None))
                }
            };
        }
    });
    StreamBody::new(frames).boxed_unsync()
}
