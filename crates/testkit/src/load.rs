//! A steady stream of small AppWrappers, and when each of them got on.
//!
//! Times are taken where a user takes them: from sending an AppWrapper until its watch shows the phase. An API server that
//! is away is waited for; then the stream is late, and the AppWrapper's time counts from when it was accepted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use appwrapper_api::{AppWrapper, Phase, Slot};
use kube::Client;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::wrappers::{self, Watch};

/// Pause before an AppWrapper that could not be submitted is submitted again.
const AGAIN: Duration = Duration::from_millis(50);
/// How often it is looked whether all have ended.
const LOOK: Duration = Duration::from_millis(50);

/// An AppWrapper of a name.
pub type Make = Arc<dyn Fn(&str) -> Value + Send + Sync>;

/// A stream under way.
pub struct Load {
    lives: Arc<Mutex<BTreeMap<String, Life>>>,
    stop: CancellationToken,
    submitting: JoinHandle<()>,
    watching: JoinHandle<()>,
}

/// What is known of one AppWrapper.
#[derive(Debug, Clone)]
pub struct Life {
    /// Its share of the work.
    pub slot: Slot,
    /// When it was sent for the last time.
    pub sent: Instant,
    /// The phases it was seen in, and when each was seen first.
    pub phases: Vec<(Phase, Instant)>,
}

impl Life {
    /// How it ended, if it has.
    pub fn end(&self) -> Option<Phase> {
        let last = self.phases.last().map(|(phase, _)| *phase);
        last.filter(|phase| matches!(phase, Phase::Succeeded | Phase::Failed))
    }

    /// From its submission to the first phase at or beyond Running, which is up to the controller alone.
    pub fn until_running(&self) -> Option<Duration> {
        let running = |phase: Phase| matches!(phase, Phase::Running | Phase::Succeeded | Phase::Failed);
        let (_, at) = self.phases.iter().find(|(phase, _)| running(*phase))?;
        Some(at.saturating_duration_since(self.sent))
    }
}

/// The longest time between these two moments in which no AppWrapper of these slots got on.
pub fn longest_gap(
    lives: &BTreeMap<String, Life>,
    slots: impl Fn(Slot) -> bool,
    from: Instant,
    to: Instant,
) -> Duration {
    let of_slots = lives.values().filter(|life| slots(life.slot));
    let mut times: Vec<Instant> = of_slots
        .flat_map(|life| life.phases.iter().map(|(_, at)| *at))
        .collect();
    times.retain(|at| (from..to).contains(at));
    times.extend([from, to]);
    times.sort_unstable();
    let gaps = times.windows(2).filter_map(|pair| match pair {
        [before, after] => Some(*after - *before),
        _ => None,
    });
    gaps.max().unwrap_or_default()
}

/// The longest that one of these slots waited to be Running, of those that were submitted before this moment.
pub fn longest_wait(lives: &BTreeMap<String, Life>, slots: impl Fn(Slot) -> bool, before: Instant) -> Duration {
    let concerned = lives.values().filter(|life| slots(life.slot) && life.sent < before);
    concerned.filter_map(Life::until_running).max().unwrap_or_default()
}

impl Load {
    /// Begins to submit one AppWrapper after the other, at these intervals, named by this prefix and a number.
    ///
    /// # Errors
    ///
    /// When AppWrappers cannot be watched.
    pub async fn start(
        client: &Client,
        namespace: &str,
        prefix: &str,
        every: Duration,
        make: impl Fn(&str) -> Value + Send + Sync + 'static,
    ) -> Result<Self> {
        let lives: Arc<Mutex<BTreeMap<String, Life>>> = Arc::default();
        let watch = Watch::start(client, namespace).await?;
        let stop = CancellationToken::new();
        let source = Source {
            client: client.clone(),
            namespace: namespace.to_owned(),
            lives: Arc::clone(&lives),
            make: Arc::new(make),
        };
        Ok(Self {
            watching: tokio::spawn(follow(watch, Arc::clone(&lives))),
            submitting: tokio::spawn(source.run(prefix.to_owned(), every, stop.clone())),
            lives,
            stop,
        })
    }

    /// What is known now.
    pub fn lives(&self) -> BTreeMap<String, Life> {
        lock(&self.lives).clone()
    }

    /// Submits no more, and waits until all that were submitted have ended.
    ///
    /// # Errors
    ///
    /// When they have not in time; it names them.
    pub async fn finish(self, limit: Duration) -> Result<BTreeMap<String, Life>> {
        self.stop.cancel();
        let until = Instant::now() + limit;
        loop {
            let lives = self.lives();
            let mut waiting = lives.iter().filter(|(_, life)| life.end().is_none()).peekable();
            if self.submitting.is_finished() && waiting.peek().is_none() {
                return Ok(lives);
            }
            if Instant::now() >= until {
                let waiting: Vec<String> = waiting
                    .map(|(name, life)| {
                        let last = life.phases.last();
                        last.map_or_else(
                            || format!("{name} (not seen)"),
                            |(phase, _)| format!("{name} ({phase:?})"),
                        )
                    })
                    .collect();
                bail!("not ended after {limit:?}: {}", waiting.join(", "));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.submitting.abort();
        self.watching.abort();
    }
}

struct Source {
    client: Client,
    namespace: String,
    lives: Arc<Mutex<BTreeMap<String, Life>>>,
    make: Make,
}

impl Source {
    async fn run(self, prefix: String, every: Duration, stop: CancellationToken) {
        let mut tick = tokio::time::interval(every);
        // One that takes long must not hold up the next.
        let mut under_way = tokio::task::JoinSet::new();
        let source = Arc::new(self);
        for number in 0.. {
            tokio::select! {
                _ = tick.tick() => {}
                () = stop.cancelled() => break,
            }
            let (source, name) = (Arc::clone(&source), format!("{prefix}{number}"));
            under_way.spawn(async move { source.submit(&name).await });
        }
        while under_way.join_next().await.is_some() {}
    }

    async fn submit(&self, name: &str) {
        let object = (self.make)(name);
        loop {
            let sent = Instant::now();
            let first = || Life {
                slot: Slot::of(&self.namespace, name),
                sent,
                phases: Vec::new(),
            };
            lock(&self.lives).entry(name.to_owned()).or_insert_with(first).sent = sent;
            match wrappers::create(&self.client, &self.namespace, &object).await {
                Ok(()) => return,
                // Stored, although the answer was an error.
                Err(error) if is_there(&error) => return,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

fn is_there(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<kube::Error>();
    matches!(status, Some(kube::Error::Api(status)) if status.code == 409)
}

async fn follow(mut watch: Watch, lives: Arc<Mutex<BTreeMap<String, Life>>>) {
    loop {
        // A broken watch mends itself, and shows then what it has missed.
        let Ok(wrapper) = watch.next().await else { continue };
        see(&mut lock(&lives), &wrapper);
    }
}

fn see(lives: &mut BTreeMap<String, Life>, wrapper: &AppWrapper) {
    let name = wrapper.metadata.name.as_deref().unwrap_or_default();
    if let (Some(life), Some(phase)) = (lives.get_mut(name), wrapper.status.phase())
        && life.phases.last().is_none_or(|(last, _)| *last != phase)
    {
        life.phases.push((phase, Instant::now()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
