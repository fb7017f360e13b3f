//! A watch's way through the proxy: from the API server into a queue, from the queue past the gates to the client.
//!
//! The API server's side is read at once, whatever the gates say, so that it neither blocks nor gives up the watch. JSON
//! comes one event a line; another encoding is passed on in the pieces in which it came, which keeps its order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::stream;
use http::{HeaderMap, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower::BoxError;

use super::gate::{Gates, Inject, Ticket};
use crate::answer::broken;
use crate::api_server::{ApiRequest, ResponseBody};

/// How many lines may be on their way to a client that does not read.
const IN_FLIGHT: usize = 16;

type Injected = mpsc::UnboundedReceiver<Inject>;
type Sender = mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

/// The body a client gets for a watch.
pub fn pass(body: Incoming, request: ApiRequest, headers: &HeaderMap, gates: &Arc<Gates>) -> ResponseBody {
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let lines = Lines {
        partial: Vec::new(),
        by_line: content_type.starts_with("application/json"),
    };
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let (ticket, injected) = gates.open(request);
    tokio::spawn(run(body, lines, ticket, injected, sender));
    let frames = stream::unfold(receiver, |mut receiver| async {
        Some((receiver.recv().await?, receiver))
    });
    StreamBody::new(frames).boxed_unsync()
}

async fn run(mut body: Incoming, mut lines: Lines, ticket: Ticket, mut injected: Injected, client: Sender) {
    let mut queue: VecDeque<(Instant, Bytes)> = VecDeque::new();
    // How the API server ended the watch, once it has: in order, or with an error.
    let mut ended: Option<Result<(), BoxError>> = None;
    loop {
        ticket.waiting.store(queue.len(), Ordering::SeqCst);
        if queue.is_empty()
            && let Some(end) = ended
        {
            if let Err(error) = end {
                let _ = client.send(Err(error)).await;
            }
            return;
        }
        let next = queue.front().map(|(arrived, _)| *arrived);
        tokio::select! {
            biased;
            () = client.closed() => return,
            Some(inject) = injected.recv() => {
                let goes_on = match inject {
                    Inject::Bytes(bytes) => client.send(Ok(Frame::data(bytes))).await.is_ok(),
                    Inject::End => false,
                    Inject::Cut => {
                        let _ = client.send(Err(broken())).await;
                        false
                    }
                };
                if !goes_on {
                    return;
                }
            }
            frame = body.frame(), if ended.is_none() => match frame {
                Some(Ok(frame)) => {
                    let arrived = Instant::now();
                    queue.extend(lines.split(frame).into_iter().map(|line| (arrived, line)));
                }
                Some(Err(error)) => ended = Some(Err(error.into())),
                None => ended = Some(Ok(())),
            },
            // Both are waited for; only then the line is taken through the gate, in one step.
            Ok(permit) = ready(&ticket, &client, next), if next.is_some() => {
                if let Some((arrived, line)) = queue.pop_front() {
                    if ticket.pass(arrived) {
                        permit.send(Ok(Frame::data(line)));
                    } else {
                        queue.push_front((arrived, line));
                    }
                }
            }
        }
    }
}

async fn ready<'a>(
    ticket: &Ticket,
    client: &'a Sender,
    arrived: Option<Instant>,
) -> Result<mpsc::Permit<'a, Result<Frame<Bytes>, BoxError>>, mpsc::error::SendError<()>> {
    if let Some(arrived) = arrived {
        ticket.passable(arrived).await;
    }
    client.reserve().await
}

/// Puts lines together from the pieces in which they come.
struct Lines {
    partial: Vec<u8>,
    by_line: bool,
}

impl Lines {
    fn split(&mut self, frame: Frame<Bytes>) -> Vec<Bytes> {
        let Ok(data) = frame.into_data() else { return Vec::new() };
        if !self.by_line {
            return vec![data];
        }
        let mut lines = Vec::new();
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                lines.push(std::mem::take(&mut self.partial).into());
            }
        }
        lines
    }
}
