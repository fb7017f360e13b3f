//! Gates for watches: which lines may pass, and how open watches end.
//!
//! A gate concerns every watch of its resource through the proxy, those opened later too. Lines that come from the API
//! server while a gate is held are kept in memory and delivered in order when it is released; the API server notices
//! nothing. The gate of `*` and the gate of a resource both have to let a line pass.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::answer::status_object;
use crate::api_server::ApiRequest;

/// What is put into an open watch beside the API server's lines.
#[derive(Debug, Clone)]
pub(super) enum Inject {
    /// A line, or a part of one.
    Bytes(Bytes),
    /// An orderly end.
    End,
    /// A broken connection.
    Cut,
}

/// Whether the next line of a watch may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passage {
    Held,
    NotBefore(Instant),
}

/// The state of all gates and the open watches.
pub(super) struct Gates {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    gates: BTreeMap<String, Gate>,
    open: BTreeMap<u64, Open>,
    next_id: u64,
}

#[derive(Default, Clone, Copy)]
struct Gate {
    held: bool,
    /// How many lines may pass although it is held.
    allowance: u64,
    delay: Duration,
}

/// An open watch, as the gates know it.
struct Open {
    request: ApiRequest,
    inject: mpsc::UnboundedSender<Inject>,
    waiting: Arc<AtomicUsize>,
}

/// An open watch's side of the gates. It is open until this is dropped.
pub(super) struct Ticket {
    gates: Arc<Gates>,
    id: u64,
    request: ApiRequest,
    /// How many lines wait.
    pub waiting: Arc<AtomicUsize>,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }
}

impl Gates {
    pub fn clear(&self) {
        self.change(|state| state.gates.clear());
    }

    /// Notes a watch as open; what is to be put into it comes by the receiver.
    pub fn open(self: &Arc<Self>, request: ApiRequest) -> (Ticket, mpsc::UnboundedReceiver<Inject>) {
        let (inject, injected) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut state = self.lock();
        state.next_id += 1;
        let id = state.next_id;
        state.open.insert(
            id,
            Open {
                request: request.clone(),
                inject,
                waiting: waiting.clone(),
            },
        );
        (
            Ticket {
                gates: self.clone(),
                id,
                request,
                waiting,
            },
            injected,
        )
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.send_replace(());
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Waits until a line that arrived at the given time may pass.
    pub async fn passable(&self, arrived: Instant) {
        let mut changed = self.gates.changed.subscribe();
        loop {
            changed.borrow_and_update();
            match self.passage(arrived) {
                Passage::NotBefore(time) if time <= Instant::now() => return,
                Passage::NotBefore(time) => tokio::select! {
                    () = tokio::time::sleep_until(time) => {}
                    _ = changed.changed() => {}
                },
                Passage::Held => drop(changed.changed().await),
            }
        }
    }

    /// Takes a line through, if it may still pass.
    pub fn pass(&self, arrived: Instant) -> bool {
        let may = matches!(self.passage(arrived), Passage::NotBefore(time) if time <= Instant::now());
        if may {
            let mut state = self.gates.lock();
            for gate in concerned(&mut state.gates, &self.request).filter(|gate| gate.held) {
                gate.allowance = gate.allowance.saturating_sub(1);
            }
        }
        may
    }

    fn passage(&self, arrived: Instant) -> Passage {
        let mut state = self.gates.lock();
        let mut delay = Duration::ZERO;
        for gate in concerned(&mut state.gates, &self.request) {
            if gate.held && gate.allowance == 0 {
                return Passage::Held;
            }
            delay = delay.max(gate.delay);
        }
        Passage::NotBefore(arrived + delay)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.gates.lock().open.remove(&self.id);
    }
}

fn concerned<'a>(gates: &'a mut BTreeMap<String, Gate>, request: &ApiRequest) -> impl Iterator<Item = &'a mut Gate> {
    gates
        .iter_mut()
        .filter(|(name, _)| is_about(name, request))
        .map(|(_, gate)| gate)
}

fn is_about(name: &str, request: &ApiRequest) -> bool {
    name == "*" || request.is_for(name)
}

/// A handle to the gate of one resource.
#[derive(Clone)]
pub struct WatchGate {
    gates: Arc<Gates>,
    resource: String,
}

impl WatchGate {
    pub(super) fn new(gates: Arc<Gates>, resource: &str) -> Self {
        Self {
            gates,
            resource: resource.to_owned(),
        }
    }

    /// Holds back every line from now on.
    pub fn hold(&self) {
        self.set(|gate| {
            gate.held = true;
            gate.allowance = 0;
        });
    }

    /// Delivers what is held, in order, and lets the rest pass.
    pub fn release(&self) {
        self.set(|gate| gate.held = false);
    }

    /// Lets one line pass, now or when it comes, and holds the rest.
    pub fn release_one(&self) {
        self.set(|gate| gate.allowance += 1);
    }

    /// Delivers every line this much later than it came; zero ends that.
    pub fn delay(&self, delay: Duration) {
        self.set(|gate| gate.delay = delay);
    }

    /// How many lines wait, in all open watches of the resource.
    pub fn held(&self) -> usize {
        self.each_open(|open| open.waiting.load(Ordering::SeqCst))
            .into_iter()
            .sum()
    }

    /// How many watches of the resource are open.
    pub fn open_watches(&self) -> usize {
        self.each_open(|_| ()).len()
    }

    /// Ends the open watches with a 410 as an ERROR event. What was held in them is lost, as it would be.
    pub fn expire_watches(&self) {
        let expired = status_object(410, "Expired", "too old resource version: 1 (2)");
        self.inject_all(&[Inject::Bytes(event_line("ERROR", &expired)), Inject::End]);
    }

    /// Ends the open watches in the middle of a line.
    pub fn truncate_watches(&self) {
        self.inject_all(&[Inject::Bytes(Bytes::from_static(br#"{"type":"MODIF"#)), Inject::End]);
    }

    /// Breaks the connections of the open watches.
    pub fn cut_watches(&self) {
        self.inject_all(&[Inject::Cut]);
    }

    /// Ends the open watches as a server does that is asked to stop.
    pub fn end_watches(&self) {
        self.inject_all(&[Inject::End]);
    }

    /// Sends a made-up event (`ADDED`, `MODIFIED`, `DELETED`, `ERROR`) on the open watches, past the gate.
    pub fn inject(&self, event: &str, object: &Value) {
        self.inject_all(&[Inject::Bytes(event_line(event, object))]);
    }

    fn set(&self, change: impl FnOnce(&mut Gate)) {
        self.gates
            .change(|state| change(state.gates.entry(self.resource.clone()).or_default()));
    }

    fn inject_all(&self, what: &[Inject]) {
        self.each_open(|open| what.iter().for_each(|one| drop(open.inject.send(one.clone()))));
    }

    fn each_open<T>(&self, mut each: impl FnMut(&Open) -> T) -> Vec<T> {
        let state = self.gates.lock();
        state
            .open
            .values()
            .filter(|open| is_about(&self.resource, &open.request))
            .map(&mut each)
            .collect()
    }
}

fn event_line(event: &str, object: &Value) -> Bytes {
    let mut line = json!({ "type": event, "object": object }).to_string();
    line.push('\n');
    line.into()
}
