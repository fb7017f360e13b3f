//! One replica's part in the ring.
//!
//! [`ShardSet::run`] is one loop: it takes in what the watch saw, what supervisors report and what the caller asks, and from
//! all of it works out anew what to do (`refresh`). It holds no lock while it waits and awaits no request itself.
//!
//! Guarantees to the caller:
//! - [`Role::Holder`] comes only after a quorum read of the shard map that follows the claim, so no tenure of a closed
//!   generation is ever handed out;
//! - once a shard is [`Role::HandingOver`] it does not go back: drain, then [`ShardSetHandle::release`];
//! - a tenure that ends otherwise simply leaves the roles; its token has fired by then.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::Client;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    error::Error,
    identity::Identity,
    record::{ClaimPolicy, Creation},
    supervisor::{LeaseHandle, State},
    tenure::{Epoch, Tenure},
    watch::{LeaseChange, LeaseWatch},
};

use super::{
    handle::{Command, Role, Roles, ShardSetHandle, ShardSetOptions},
    handover::{Takeover, release_note},
    leader::Leader,
    leases::RingLeases,
    member::{MemberNotes, Noter},
    roles::{Duty, Myself, duties},
    roster::Roster,
    slot::ShardId,
    tasks::{Starter, Tasks, check, keep_working, lead},
};

/// The task's side.
pub struct ShardSet {
    options: ShardSetOptions,
    lease_client: Client,
    ring: RingLeases,
    starter: Starter,
    roles: watch::Sender<Roles>,
    roster: watch::Sender<Roster>,
    placed: watch::Sender<bool>,
    notes: watch::Sender<MemberNotes>,
    commands: mpsc::UnboundedReceiver<Command>,
    news: mpsc::UnboundedReceiver<News>,
    newsroom: mpsc::UnboundedSender<News>,
    progress: Arc<AtomicU64>,
    tasks: Tasks,
    leader: LeaseHandle,
    member: LeaseHandle,
    shards: BTreeMap<ShardId, Shard>,
    /// Epoch of the leader's tenure that a task works for.
    leading: Option<Epoch>,
    /// The leader Lease has been seen to be one of ours.
    admitted: bool,
    draining: Option<Vec<oneshot::Sender<()>>>,
    left: Left,
}

/// One shard's Lease.
struct Shard {
    handle: LeaseHandle,
    policy: Option<ClaimPolicy>,
    /// The tenure whose map check was begun, by its epoch, and what came of it so far.
    checked: Option<(Epoch, Option<Takeover>)>,
    handing_over: bool,
}

/// How far a drain has come with the Leases that are not shards.
#[derive(Debug, Default)]
struct Left {
    leader: bool,
    member_begun: bool,
    member: bool,
}

/// What the loop hears of.
#[derive(Debug)]
pub(crate) enum News {
    Ring(LeaseChange),
    /// Some supervisor's state changed.
    State,
    /// The map was read after the claim that began this epoch, and the shard is in force.
    Checked(ShardId, Epoch, Takeover),
    /// A Lease other than a shard's was given up, or could not be.
    LeftLeader,
    LeftMember,
}

// === impl ShardSet ===

impl ShardSet {
    /// A replica's part, and the handle to it. `lease_client` should be one of [`lease_client`](crate::lease_client);
    /// `watch_client` one without a read timeout. Must be called inside the runtime that is to drive them.
    pub fn new(
        lease_client: Client,
        watch_client: Client,
        options: ShardSetOptions,
    ) -> Result<(ShardSetHandle, Self), Error> {
        options.timings.validate()?;
        let ShardSetOptions {
            namespace,
            names,
            identity,
            timings,
            clock,
            ..
        } = &options;
        let (newsroom, news) = mpsc::unbounded_channel();
        let mut tasks = Tasks::new();
        let watch = LeaseWatch::labelled(
            watch_client,
            namespace,
            names.selector(),
            timings.renew_period,
            timings.rpc_timeout,
        );
        let ring_news = newsroom.clone();
        tasks.spawn(async move {
            watch.run(move |change| drop(ring_news.send(News::Ring(change)))).await;
            Ok(())
        });
        let starter = Starter {
            options: options.clone(),
            client: lease_client.clone(),
            newsroom: newsroom.clone(),
        };
        let mut start = |name: &str, policy, creation, poll| starter.start(&mut tasks, name, policy, creation, poll);
        let first = ClaimPolicy::After(Duration::ZERO);
        let leader = start(
            &options.leader_lease,
            first,
            Some(Creation::default()),
            timings.renew_period,
        )?;
        let member_lease = names.member_lease(identity.pod());
        let owned = Creation {
            labels: names.labels(),
            owner: options.owner.clone(),
            at_once: true,
            ..Creation::default()
        };
        let member = start(&member_lease, first, Some(owned), timings.renew_period)?;
        let notes = MemberNotes {
            template: options.template.clone(),
            ..MemberNotes::default()
        };
        let (notes, notes_receiver) = watch::channel(notes);
        let keeper = Noter {
            client: lease_client.clone(),
            namespace: namespace.clone(),
            names: names.clone(),
            limit: timings.rpc_timeout,
        };
        let member_handle = member.clone();
        tasks.spawn(async move {
            keeper.run(member_lease, member_handle, notes_receiver).await;
            Ok(())
        });
        let (roles, roles_receiver) = watch::channel(Roles::new());
        let (roster, roster_receiver) = watch::channel(Roster::new(names.clone(), Arc::clone(clock), timings.duration));
        let (placed, placed_receiver) = watch::channel(false);
        let (sender, commands) = mpsc::unbounded_channel();
        let progress = Arc::new(AtomicU64::new(clock.now().nanos()));
        let handle = ShardSetHandle {
            roles: roles_receiver,
            roster: roster_receiver,
            placed: placed_receiver,
            leader: leader.state(),
            commands: sender,
            progress: Arc::clone(&progress),
        };
        let ring = RingLeases::new(lease_client.clone(), namespace, names.clone(), timings.rpc_timeout);
        let set = Self {
            options,
            lease_client,
            ring,
            starter,
            roles,
            roster,
            placed,
            notes,
            commands,
            news,
            newsroom,
            progress,
            tasks,
            leader,
            member,
            shards: BTreeMap::new(),
            leading: None,
            admitted: false,
            draining: None,
            left: Left::default(),
        };
        Ok((handle, set))
    }

    /// Plays the part until the handle is dropped or something ends that must not: an error is for the user, and the process
    /// should end with it.
    pub async fn run(mut self) -> Result<(), Error> {
        let tick = self.options.timings.renew_period;
        loop {
            self.refresh()?;
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    None => return Ok(()),
                    Some(command) => self.obey(command),
                },
                news = self.news.recv() => if let Some(news) = news { self.hear(news) },
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok(result) => result?,
                    Err(panic) => {
                        let lease = self.options.names.selector();
                        return Err(Error::Request { lease, source: panic.into() });
                    }
                },
                // Expiry is nobody's event.
                () = tokio::time::sleep(tick) => {}
            }
            // Everything that is there already, before the next look at the whole.
            while let Ok(news) = self.news.try_recv() {
                self.hear(news);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Warm(shard, warm) => {
                self.notes.send_if_modified(|notes| {
                    if warm {
                        notes.warm.insert(shard)
                    } else {
                        notes.warm.remove(&shard)
                    }
                });
            }
            Command::Release(drained, handover, done) => {
                let tenure = drained.tenure();
                let names = &self.options.names;
                let leaving = self.draining.is_some();
                let note = release_note(handover.as_ref(), names, tenure.epoch(), tenure.holder(), leaving);
                let handle = self.shard_of(tenure.lease()).map(|shard| shard.handle.clone());
                let lease = tenure.lease().to_owned();
                self.tasks.spawn(async move {
                    let result = match handle {
                        Some(handle) => handle.release(drained, note).await,
                        None => Err(Error::NotHeld { lease }),
                    };
                    let _ = done.send(result);
                    Ok(())
                });
            }
            Command::Drain(done) => {
                self.draining.get_or_insert_default().push(done);
                self.notes.send_modify(|notes| notes.draining = true);
                self.member.set_policy(ClaimPolicy::Never);
                self.leader.set_policy(ClaimPolicy::Never);
                let handle = self.leader.clone();
                self.leave(handle, News::LeftLeader);
            }
        }
    }

    /// Gives up a Lease that is not a shard's.
    fn leave(&mut self, handle: LeaseHandle, then: News) {
        let newsroom = self.newsroom.clone();
        self.tasks.spawn(async move {
            let tenure = handle.state().borrow().tenure().cloned();
            if let Some(tenure) = tenure {
                let drained = tenure.drain().await;
                // If it cannot be released it runs out: the drain went well, so nothing is at stake.
                let _ = handle.release(drained, BTreeMap::new()).await;
            }
            let _ = newsroom.send(then);
            Ok(())
        });
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Ring(change) => {
                let (mut seen, mut gone) = (Vec::new(), Vec::new());
                self.roster.send_modify(|roster| (seen, gone) = roster.apply(change));
                for lease in seen {
                    let name = lease.metadata.name.as_deref().unwrap_or_default();
                    if let Some(shard) = self.shard_of(name) {
                        shard.handle.observe(lease);
                    }
                }
                for name in gone {
                    if let Some(shard) = self.shard_of(&name) {
                        shard.handle.look();
                    }
                }
            }
            News::State => {}
            News::Checked(shard, epoch, takeover) => {
                if let Some(shard) = self.shards.get_mut(&shard) {
                    shard.checked = Some((epoch, Some(takeover)));
                }
            }
            News::LeftLeader => self.left.leader = true,
            News::LeftMember => self.left.member = true,
        }
    }

    fn shard_of(&self, lease: &str) -> Option<&Shard> {
        self.shards.get(&self.options.names.shard_of(lease)?)
    }

    /// Works out from everything known what to do, and does it.
    fn refresh(&mut self) -> Result<(), Error> {
        let usurped = match &*self.leader.state().borrow() {
            State::Standby { holder: Some(holder) } => Identity::parse(holder).is_none(),
            State::Standby { holder: None } | State::Held(_) | State::Lost => false,
        };
        let ours = matches!(
            &*self.leader.state().borrow(),
            State::Held(_) | State::Standby { holder: Some(_) }
        );
        self.admitted = !usurped && (self.admitted || ours);
        let held: BTreeMap<ShardId, Tenure> = self
            .shards
            .iter()
            .filter_map(|(id, shard)| Some((*id, shard.tenure()?)))
            .collect();
        let me = Myself {
            name: self.options.identity.pod(),
            draining: self.draining.is_some(),
            barred: !self.admitted || !self.roster.borrow().is_complete(),
            usurped,
            backups: self.options.leader.backups,
        };
        let duties = duties(me, &self.roster.borrow(), held.keys().copied());
        self.staff(&duties, &held)?;
        let mut roles = Roles::new();
        for (id, duty) in &duties {
            if let Some(role) = self.role(*id, *duty, held.get(id)) {
                roles.insert(*id, role);
            }
        }
        self.roles.send_if_modified(|current| {
            let modified = *current != roles;
            *current = roles;
            modified
        });
        let placed = self.roster.borrow().is_placed(&self.options.identity);
        // After the roles, which follow from the same roster.
        self.placed
            .send_if_modified(|before| std::mem::replace(before, placed) != placed);
        self.lead();
        self.finish_drain(held.is_empty());
        let handles = self
            .shards
            .values()
            .map(|shard| &shard.handle)
            .chain([&self.leader, &self.member]);
        let oldest = handles.map(LeaseHandle::last_progress).min().unwrap_or_default();
        self.progress.store(oldest.nanos(), Ordering::SeqCst);
        Ok(())
    }

    /// A supervisor for each shard in force or held, and for no other.
    fn staff(&mut self, duties: &BTreeMap<ShardId, Duty>, held: &BTreeMap<ShardId, Tenure>) -> Result<(), Error> {
        let known = self.roster.borrow().map().is_some();
        self.shards
            .retain(|id, _| duties.contains_key(id) || held.contains_key(id) || !known);
        for (id, duty) in duties {
            if !self.shards.contains_key(id) {
                let name = self.options.names.shard_lease(*id);
                let poll = self.options.timings.duration;
                let handle = self.starter.start(&mut self.tasks, &name, duty.policy, None, poll)?;
                let seen = self.roster.borrow().lease(&name).cloned();
                if let Some(lease) = seen {
                    handle.observe(lease);
                }
                self.shards.insert(
                    *id,
                    Shard {
                        handle,
                        policy: Some(duty.policy),
                        checked: None,
                        handing_over: false,
                    },
                );
            }
        }
        for (id, shard) in &mut self.shards {
            // A release has set the policy by itself; a tenure needs none.
            if held.contains_key(id) {
                shard.policy = None;
                continue;
            }
            shard.handing_over = false;
            let policy = duties.get(id).map_or(ClaimPolicy::Never, |duty| duty.policy);
            if shard.policy != Some(policy) {
                shard.policy = Some(policy);
                shard.handle.set_policy(policy);
            }
        }
        Ok(())
    }

    fn role(&mut self, id: ShardId, duty: Duty, tenure: Option<&Tenure>) -> Option<Role> {
        let shard = self.shards.get_mut(&id)?;
        let Some(tenure) = tenure else {
            return Some(match duty {
                Duty { next: true, .. } => Role::Next,
                Duty { warm: true, .. } => Role::Warm,
                _ => Role::Idle,
            });
        };
        if shard.checked.as_ref().is_none_or(|(epoch, _)| epoch != tenure.epoch()) {
            let epoch = tenure.epoch().clone();
            shard.checked = Some((epoch.clone(), None));
            let (ring, names) = (self.ring.clone(), self.options.names.clone());
            let check = check(ring, names, id, tenure.clone(), shard.handle.clone());
            let newsroom = self.newsroom.clone();
            self.tasks.spawn(async move {
                if let Some(takeover) = check.await {
                    let _ = newsroom.send(News::Checked(id, epoch, takeover));
                }
                Ok(())
            });
        }
        let Some((_, Some(takeover))) = &shard.checked else {
            return Some(Role::Next);
        };
        let (tenure, takeover) = (tenure.clone(), takeover.clone());
        shard.handing_over |= duty.hand_over;
        Some(if shard.handing_over {
            Role::HandingOver { tenure }
        } else {
            Role::Holder { tenure, takeover }
        })
    }

    /// Leads, while the leader's Lease is ours.
    fn lead(&mut self) {
        let tenure = self.leader.state().borrow().tenure().cloned();
        let Some(tenure) = tenure else {
            self.leading = None;
            return;
        };
        if self.leading.as_ref() == Some(tenure.epoch()) || self.draining.is_some() {
            return;
        }
        self.leading = Some(tenure.epoch().clone());
        let ShardSetOptions {
            namespace,
            names,
            leader: options,
            timings,
            clock,
            ..
        } = &self.options;
        let leader = Leader::new(
            &self.lease_client,
            namespace,
            names.clone(),
            options.clone(),
            *timings,
            Arc::clone(clock),
            &tenure,
        );
        let roster = self.roster.subscribe();
        self.tasks.spawn(async move {
            let ended = tenure.ended();
            let work = leader.options.work.clone();
            let guard = tenure.write_guard();
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = lead(leader, roster) => {}
                () = keep_working(work, guard) => {}
            }
            Ok(())
        });
    }

    /// When a drain has let go of all shards, the member's Lease goes last.
    fn finish_drain(&mut self, nothing_held: bool) {
        if self.draining.is_none() || !nothing_held || !self.left.leader {
            return;
        }
        if self.left.member {
            for done in self.draining.iter_mut().flat_map(std::mem::take) {
                let _ = done.send(());
            }
        } else if !std::mem::replace(&mut self.left.member_begun, true) {
            let handle = self.member.clone();
            self.leave(handle, News::LeftMember);
        }
    }
}

// === impl Shard ===

impl Shard {
    fn tenure(&self) -> Option<Tenure> {
        self.handle
            .state()
            .borrow()
            .tenure()
            .filter(|tenure| !tenure.ended().is_cancelled())
            .cloned()
    }
}
