//! The task that looks after one Lease.
//!
//! It acquires, renews with jitter, and publishes a [`State`]. What it guarantees:
//! - `Held` carries a tenure whose deadline counts from before the last good renewal was sent;
//! - an error never prolongs anything: the deadline runs, and when it passes the tenure ends;
//! - an answer that names another holder, another epoch or no Lease ends the tenure at once. A 409 alone does not: the
//!   leader's notes cause them as well, so the Lease is read again at once and *that* decides;
//! - a tenure once ended is not revived. Taking the same Lease again waits for the old tenure's writes and gives a new epoch;
//! - the Lease is released only against [`Drained`], by compare-and-swap, never in a `Drop`: if the handle goes away the
//!   tenure ends and the Lease runs out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    clock::{BootInstant, SharedClock, sleep_until},
    error::Error,
    identity::Identity,
    jitter::Jitter,
    lease::{Claimed, LeaseBackend, ReleaseNote},
    record::ClaimPolicy,
    tenure::{Drained, Epoch, Fenced, Tenure},
    timings::LeaseTimings,
};

/// How the Lease stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Not ours.
    Standby {
        /// Whose it is, as far as known.
        holder: Option<String>,
    },
    /// Ours, while the tenure lasts.
    Held(Tenure),
    /// It was ours a moment ago. Who holds it now is not known yet.
    Lost,
}

/// What happened, for metrics and logs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LeaseEvent {
    /// A tenure began.
    Acquired {
        /// Its epoch.
        epoch: Epoch,
    },
    /// A renewal came through.
    Renewed {
        /// From before it was sent until now.
        took: Duration,
        /// What had been left of the deadline.
        slack: Duration,
    },
    /// A call failed.
    Failed {
        /// Closed name of the reason.
        reason: &'static str,
        /// The whole story.
        message: String,
    },
    /// A tenure ended against our will.
    Lost {
        /// Why.
        cause: Fenced,
    },
    /// A tenure was given up.
    Released,
}

/// Receives what happened. Called from the supervisor's task; must not block.
pub type EventSink = Arc<dyn Fn(&LeaseEvent) + Send + Sync>;

/// What a supervisor needs to know.
#[derive(Clone)]
pub struct SupervisorOptions {
    /// Name of the Lease, for messages.
    pub lease: String,
    /// Who we are.
    pub identity: Identity,
    /// Times.
    pub timings: LeaseTimings,
    /// The clock.
    pub clock: SharedClock,
    /// Whether, and how soon, to take the Lease at first.
    pub policy: ClaimPolicy,
    /// How often to look while not holding. The renew period, unless a watch and a list feed [`LeaseHandle::observe`];
    /// expiry is acted on in time either way.
    pub standby_poll: Duration,
    /// Seed of the jitter; none for one from the operating system.
    pub seed: Option<u64>,
    /// Who hears of events.
    pub events: Option<EventSink>,
}

/// The caller's side of a supervisor. When the last clone is dropped the tenure ends, without a release.
#[derive(Debug, Clone)]
pub struct LeaseHandle {
    lease: String,
    state: watch::Receiver<State>,
    latest: watch::Receiver<Option<Box<Lease>>>,
    commands: mpsc::UnboundedSender<Command>,
    progress: Arc<AtomicU64>,
}

/// The task's side. Run it to the end with [`Supervisor::run`].
pub struct Supervisor<B> {
    backend: B,
    options: SupervisorOptions,
    state: watch::Sender<State>,
    latest: watch::Sender<Option<Box<Lease>>>,
    commands: mpsc::UnboundedReceiver<Command>,
    progress: Arc<AtomicU64>,
    jitter: Jitter,
    tenure: Option<Tenure>,
    /// The tenure before, while its writes may still be under way.
    former: Option<Tenure>,
}

#[derive(Debug)]
enum Command {
    Policy(ClaimPolicy),
    Observe(Box<Lease>),
    Look,
    Release(Drained, ReleaseNote, oneshot::Sender<Result<(), Error>>),
    Stop(oneshot::Sender<()>),
}

// === impl State ===

impl State {
    /// The tenure, if the Lease is ours.
    pub fn tenure(&self) -> Option<&Tenure> {
        match self {
            Self::Held(tenure) => Some(tenure),
            Self::Standby { .. } | Self::Lost => None,
        }
    }
}

// === impl LeaseHandle ===

impl LeaseHandle {
    /// The state, and a way to await its changes. `Lost` may be skipped; a tenure's own token never is.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// The Lease as last seen, with everybody's annotations.
    pub fn latest(&self) -> watch::Receiver<Option<Box<Lease>>> {
        self.latest.clone()
    }

    /// Waits for a tenure that is live.
    pub async fn held(&self) -> Result<Tenure, Error> {
        let mut state = self.state();
        let held = state
            .wait_for(|state| state.tenure().is_some_and(Tenure::is_live))
            .await;
        match held.as_deref() {
            Ok(State::Held(tenure)) => Ok(tenure.clone()),
            _ => Err(self.ended()),
        }
    }

    /// Changes whether and how soon the Lease may be taken. Does not give up what is held.
    pub fn set_policy(&self, policy: ClaimPolicy) {
        // An ended supervisor takes nothing, which is what the caller could have wanted at most.
        let _ = self.commands.send(Command::Policy(policy));
    }

    /// Passes on a watch event of this Lease. Saves the wait for the next poll, nothing more: reads decide.
    pub fn observe(&self, lease: Lease) {
        let _ = self.commands.send(Command::Observe(Box::new(lease)));
    }

    /// Has the Lease read now: a watch said that it is gone.
    pub fn look(&self) {
        let _ = self.commands.send(Command::Look);
    }

    /// Gives up the Lease, with `note` in its annotations, and does not take it again until the policy is set anew.
    pub async fn release(&self, drained: Drained, note: ReleaseNote) -> Result<(), Error> {
        let (done, answer) = oneshot::channel();
        self.commands
            .send(Command::Release(drained, note, done))
            .map_err(|_| self.ended())?;
        answer.await.map_err(|_| self.ended())?
    }

    /// Ends the supervisor, and the tenure without a release if there is one.
    pub async fn stop(&self) {
        let (done, answer) = oneshot::channel();
        if self.commands.send(Command::Stop(done)).is_ok() {
            let _ = answer.await;
        }
    }

    /// When the task last came round its loop: at least once per renew period, unless it is wedged or starved. A call
    /// that hangs shows as well, since it is bounded by less than that.
    pub fn last_progress(&self) -> BootInstant {
        BootInstant::from_nanos(self.progress.load(Ordering::SeqCst))
    }

    fn ended(&self) -> Error {
        Error::Ended {
            lease: self.lease.clone(),
        }
    }
}

// === impl Supervisor ===

impl<B: LeaseBackend> Supervisor<B> {
    /// A supervisor for the Lease behind `backend`, and its handle.
    pub fn new(backend: B, options: SupervisorOptions) -> Result<(LeaseHandle, Self), Error> {
        options.timings.validate()?;
        let (state, state_receiver) = watch::channel(State::Standby { holder: None });
        let (latest, latest_receiver) = watch::channel(None);
        let (sender, commands) = mpsc::unbounded_channel();
        let progress = Arc::new(AtomicU64::new(options.clock.now().nanos()));
        let handle = LeaseHandle {
            lease: options.lease.clone(),
            state: state_receiver,
            latest: latest_receiver,
            commands: sender,
            progress: Arc::clone(&progress),
        };
        let jitter = options.seed.map_or_else(Jitter::from_entropy, Jitter::seeded);
        let mut supervisor = Self {
            backend,
            options,
            state,
            latest,
            commands,
            progress,
            jitter,
            tenure: None,
            former: None,
        };
        supervisor.backend.set_policy(supervisor.options.policy);
        Ok((handle, supervisor))
    }

    /// Looks after the Lease until it is stopped, its handle is dropped, or going on makes no sense: an error here is for
    /// the user, and the process should end with it.
    pub async fn run(mut self) -> Result<(), Error> {
        let result = self.work().await;
        self.end_tenure();
        result
    }

    async fn work(&mut self) -> Result<(), Error> {
        let clock = Arc::clone(&self.options.clock);
        let mut wake = clock.now();
        loop {
            self.progress.store(clock.now().nanos(), Ordering::SeqCst);
            tokio::select! {
                biased;
                () = expired(self.tenure.as_ref()) => {
                    self.lose(Fenced::DeadlinePassed { late: Duration::ZERO });
                    wake = clock.now();
                }
                command = self.commands.recv() => match command {
                    None => return Ok(()),
                    Some(Command::Stop(done)) => {
                        self.end_tenure();
                        let _ = done.send(());
                        return Ok(());
                    }
                    Some(Command::Policy(policy)) => {
                        self.backend.set_policy(policy);
                        wake = clock.now();
                    }
                    Some(Command::Observe(lease)) => {
                        if self.backend.observe(&lease) {
                            self.latest.send_replace(Some(lease));
                            wake = clock.now();
                        }
                    }
                    Some(Command::Look) => {
                        self.backend.distrust();
                        wake = clock.now();
                    }
                    Some(Command::Release(drained, note, done)) => {
                        let result = self.release(&drained, &note).await;
                        let _ = done.send(result);
                        wake = clock.now();
                    }
                },
                () = sleep_until(&clock, wake) => wake = self.step().await?,
            }
        }
    }

    /// One call, and when the next is due.
    async fn step(&mut self) -> Result<BootInstant, Error> {
        let clock = Arc::clone(&self.options.clock);
        let retry_period = self.options.timings.retry_period;
        if let Some(former) = &self.former {
            let quiet_at = former.quiet_at();
            if quiet_at > clock.now() {
                return Ok(quiet_at);
            }
            self.former = None;
        }
        let result = tokio::select! {
            biased;
            () = expired(self.tenure.as_ref()) => None,
            result = self.backend.acquire_or_renew() => Some(result),
        };
        Ok(match result {
            None => {
                self.lose(Fenced::DeadlinePassed { late: Duration::ZERO });
                clock.now()
            }
            Some(Ok(Claimed::Held { epoch, sent_at, lease })) => {
                self.latest.send_replace(Some(lease));
                self.hold(epoch, sent_at)
            }
            Some(Ok(Claimed::NotHeld { holder, free_at, lease })) => {
                self.latest.send_replace(lease);
                if self.tenure.is_some() {
                    self.lose(Fenced::Lost);
                }
                self.publish(State::Standby { holder });
                let poll = clock.now().after(self.jitter.around(self.options.standby_poll));
                // A little late on purpose: contenders of one rank should not all try in the same instant.
                let free = free_at.map(|at| at.after(self.jitter.up_to(Duration::from_millis(50))));
                free.map_or(poll, |free| free.min(poll))
                    .max(clock.now().after(Duration::from_millis(5)))
            }
            Some(Err(error)) => {
                self.tell(&LeaseEvent::Failed {
                    reason: error.reason(),
                    message: error.to_string(),
                });
                if error.is_fatal() {
                    return Err(error);
                }
                tracing::debug!(lease = %self.options.lease, %error, "lease call failed");
                clock.now().after(self.jitter.around(retry_period))
            }
        })
    }

    /// Begins or prolongs the tenure, and says when to renew next.
    fn hold(&mut self, epoch: Epoch, sent_at: BootInstant) -> BootInstant {
        let clock = Arc::clone(&self.options.clock);
        let LeaseTimings {
            renew_deadline,
            renew_period,
            write_bound,
            ..
        } = self.options.timings;
        let deadline = sent_at.after(renew_deadline);
        if let Some(tenure) = &self.tenure {
            let slack = tenure.left();
            if *tenure.epoch() == epoch && tenure.extend(deadline) {
                self.tell(&LeaseEvent::Renewed {
                    took: clock.now().since(sent_at),
                    slack,
                });
                return sent_at.after(self.jitter.around(renew_period));
            }
            self.lose(Fenced::Lost);
            return clock.now();
        }
        if clock.now() >= deadline {
            // The answer was that late. Ours by name, but not to act on.
            self.backend.abandon();
            return clock.now();
        }
        let holder = self.options.identity.as_str();
        let tenure = Tenure::begin(&self.options.lease, holder, epoch.clone(), deadline, write_bound, clock);
        tracing::info!(lease = %self.options.lease, %epoch, "lease acquired");
        self.tenure = Some(tenure.clone());
        self.publish(State::Held(tenure));
        self.tell(&LeaseEvent::Acquired { epoch });
        sent_at.after(self.jitter.around(renew_period))
    }

    async fn release(&mut self, drained: &Drained, note: &ReleaseNote) -> Result<(), Error> {
        let not_held = || Error::NotHeld {
            lease: self.options.lease.clone(),
        };
        if self.tenure.as_ref() != Some(drained.tenure()) {
            return Err(not_held());
        }
        // Not again by ourselves: the successor is to have it.
        self.backend.set_policy(ClaimPolicy::Never);
        let mut result = Ok(());
        for _ in 0..3 {
            result = self.backend.release(note).await;
            match &result {
                Ok(()) | Err(Error::NotHeld { .. } | Error::Missing { .. }) => break,
                Err(error) => tracing::warn!(lease = %self.options.lease, %error, "could not release the lease yet"),
            }
        }
        // Drained: whatever the Lease says now, this tenure writes nothing any more.
        self.end_tenure();
        self.publish(State::Standby { holder: None });
        if result.is_ok() {
            tracing::info!(lease = %self.options.lease, "lease released");
            self.tell(&LeaseEvent::Released);
        }
        result
    }

    fn lose(&mut self, cause: Fenced) {
        tracing::warn!(lease = %self.options.lease, %cause, "lease lost");
        self.end_tenure();
        self.publish(State::Lost);
        self.tell(&LeaseEvent::Lost { cause });
    }

    fn end_tenure(&mut self) {
        if let Some(tenure) = self.tenure.take() {
            tenure.end();
            self.former = Some(tenure);
        }
        self.backend.abandon();
    }

    fn publish(&self, state: State) {
        self.state.send_if_modified(|current| {
            let modified = *current != state;
            *current = state;
            modified
        });
    }

    fn tell(&self, event: &LeaseEvent) {
        if let Some(events) = &self.options.events {
            events(event);
        }
    }
}

async fn expired(tenure: Option<&Tenure>) {
    match tenure {
        Some(tenure) => tenure.expired().await,
        None => std::future::pending().await,
    }
}
