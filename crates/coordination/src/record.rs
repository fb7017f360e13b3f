//! What one process knows about one Lease: the last answer, since when it has been so, and what follows from that.
//!
//! Expiry is judged as client-go does it: by the time since *this* process saw the Lease's spec change last, on its own
//! boot clock. The `renewTime` in the Lease is another machine's wall clock and is only compared for equality.
//! Annotations do not count as a change, or the leader's notes would keep a dead holder alive.
//!
//! The claim policy says whether this process may take the Lease, and how long after it became free: ranks of backups
//! are built from that (ha-sharding.md, 3.3).

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::coordination::v1::Lease,
    apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference},
};

use crate::{
    clock::{BootInstant, SharedClock},
    error::Error,
    identity::Identity,
    tenure::Epoch,
};

/// Whether, and how soon, a free or expired Lease may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimPolicy {
    /// Watch only.
    Never,
    /// Take it once it has been free for this long. Zero for the first in line.
    After(Duration),
}

/// What a Lease gets when this process has to create it.
#[derive(Debug, Clone, Default)]
pub struct Creation {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Owner, so that the Lease goes when the owner goes.
    pub owner: Option<OwnerReference>,
    /// Create it as ours. Only for a Lease that nobody else ever takes: any other may have been deleted under a holder that has
    /// not noticed yet, so it is created as nobody's, and taken a lease duration later.
    pub at_once: bool,
}

/// How the Lease looks from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Held by the tenure under way.
    Mine,
    /// To be had.
    Free,
    /// Somebody's, or not ours to take.
    Taken,
}

/// The part of a Lease whose change proves that its holder lives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sign {
    pub(crate) uid: Option<String>,
    pub(crate) holder: String,
    renewed: Option<MicroTime>,
    pub(crate) acquired: Option<MicroTime>,
    transitions: Option<i32>,
    duration: Option<i32>,
}

#[derive(Debug)]
struct Latest {
    lease: Lease,
    sign: Sign,
    first_seen: BootInstant,
    /// Not yet used: may stand in for the next read.
    fresh: bool,
}

/// The memory of the layer and of [`GuardedLease`](crate::lease::GuardedLease) about their Lease.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) name: String,
    pub(crate) me: Identity,
    pub(crate) clock: SharedClock,
    pub(crate) claim: ClaimPolicy,
    /// None: the Lease is somebody else's to create.
    pub(crate) creation: Option<Creation>,
    /// The epoch of the tenure under way.
    pub(crate) holding: Option<Epoch>,
    /// Annotations for the release under way.
    pub(crate) note: BTreeMap<String, Option<String>>,
    /// Taken before the last write was sent.
    pub(crate) sent_at: Option<BootInstant>,
    /// What went wrong in the call under way.
    pub(crate) failure: Option<Error>,
    own_duration: Duration,
    latest: Option<Latest>,
    /// Uid under which the Lease was first known.
    first_uid: Option<String>,
    /// The holder this process saw first; only that one can be an earlier start of our pod.
    first_holder: Option<String>,
    /// Changes made by another start of our pod that came after us.
    alive_twin: u32,
}

// === impl Memory ===

impl Memory {
    pub(crate) fn new(
        name: String,
        me: Identity,
        own_duration: Duration,
        creation: Option<Creation>,
        clock: SharedClock,
    ) -> Self {
        Self {
            name,
            me,
            clock,
            claim: ClaimPolicy::After(Duration::ZERO),
            creation,
            holding: None,
            note: BTreeMap::new(),
            sent_at: None,
            failure: None,
            own_duration,
            latest: None,
            first_uid: None,
            first_holder: None,
            alive_twin: 0,
        }
    }

    /// Takes note of an answer or a watch event. Returns whether it told something new; older versions never do.
    pub(crate) fn observe(&mut self, lease: &Lease) -> bool {
        let sign = Sign::of(lease);
        if let Some(latest) = &self.latest
            && !is_newer(lease, &latest.lease)
        {
            return false;
        }
        let changed = self.latest.as_ref().is_none_or(|latest| latest.sign != sign);
        let first_seen = match &self.latest {
            Some(latest) if !changed => latest.first_seen,
            _ => self.clock.now(),
        };
        if changed {
            let twin = self.me.is_other_start_of_this_pod(&sign.holder)
                && self.first_holder.as_ref().is_some_and(|first| *first != sign.holder);
            self.alive_twin = if twin { self.alive_twin + 1 } else { 0 };
        }
        self.first_holder.get_or_insert_with(|| sign.holder.clone());
        if self.first_uid.is_none() {
            self.first_uid.clone_from(&sign.uid);
        }
        self.latest = Some(Latest {
            lease: lease.clone(),
            sign,
            first_seen,
            fresh: true,
        });
        true
    }

    /// The Lease is gone.
    pub(crate) fn forget(&mut self) {
        self.latest = None;
    }

    /// Whether a missing Lease may be created.
    pub(crate) fn may_create(&self) -> bool {
        self.holding.is_none() && self.creation.is_some() && self.claim != ClaimPolicy::Never
    }

    /// What is remembered may no longer stand in for a read.
    pub(crate) fn distrust(&mut self) {
        if let Some(latest) = &mut self.latest {
            latest.fresh = false;
        }
    }

    /// The remembered Lease instead of a read, once.
    pub(crate) fn take_fresh(&mut self) -> Option<Lease> {
        let latest = self.latest.as_mut().filter(|latest| latest.fresh)?;
        latest.fresh = false;
        Some(latest.lease.clone())
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.latest.as_ref().map(|latest| &latest.lease)
    }

    /// Version for the compare-and-swap.
    pub(crate) fn version(&self) -> Option<&str> {
        self.lease()?.metadata.resource_version.as_deref()
    }

    /// The holder that the Lease names, if any.
    pub(crate) fn holder(&self) -> Option<&str> {
        self.latest
            .as_ref()
            .map(|latest| latest.sign.holder.as_str())
            .filter(|holder| !holder.is_empty())
    }

    /// Epoch that the Lease stands at.
    pub(crate) fn epoch(&self) -> Option<Epoch> {
        let sign = &self.latest.as_ref()?.sign;
        Some(Epoch::new(sign.uid.clone()?, sign.transitions.unwrap_or(0)))
    }

    /// Whether the Lease names this very tenure.
    pub(crate) fn is_ours(&self) -> bool {
        self.holding.is_some() && self.epoch() == self.holding && self.holder() == Some(self.me.as_str())
    }

    pub(crate) fn view(&self) -> View {
        if self.is_ours() {
            View::Mine
        } else if self.holding.is_none() && self.free_at().is_some_and(|at| at <= self.clock.now()) {
            View::Free
        } else {
            View::Taken
        }
    }

    /// When this process may take the Lease if nothing changes.
    ///
    /// Whatever was not left in order is waited for by a whole duration of ours, even if the Lease promises less: it may
    /// have been taken, emptied or deleted over the head of a holder that still believes in its own promise.
    pub(crate) fn free_at(&self) -> Option<BootInstant> {
        let ClaimPolicy::After(grace) = self.claim else {
            return None;
        };
        let latest = self.latest.as_ref()?;
        let sign = &latest.sign;
        // Our own name without a tenure: fenced earlier, or a claim whose answer was lost. Taking it again raises the
        // epoch, so that no two tenures share one.
        let own_leftover = sign.holder == self.me.as_str() || self.is_earlier_start(&sign.holder);
        let untouched = sign.was_never_held() && sign.uid == self.first_uid;
        let wait = if own_leftover {
            Duration::ZERO
        } else if untouched || sign.was_released() {
            grace
        } else {
            sign.duration(self.own_duration)
                .max(self.own_duration)
                .saturating_add(grace)
        };
        Some(latest.first_seen.after(wait))
    }

    /// Whether `holder` is a start of our pod that was over before we began.
    fn is_earlier_start(&self, holder: &str) -> bool {
        self.me.is_other_start_of_this_pod(holder) && self.first_holder.as_deref() == Some(holder)
    }

    /// Two processes use our pod's identity: the other one was seen to take the Lease after us, and to renew it.
    pub(crate) fn duplicate(&self) -> Option<Error> {
        (self.alive_twin >= 2).then(|| Error::DuplicateIdentity {
            lease: self.name.clone(),
            other: self.holder().unwrap_or_default().to_owned(),
        })
    }

    /// The Lease as the crate is to see it: complete, and with a wall-clock `renewTime` that makes its own comparison come
    /// to our verdict however wrong this machine's wall clock is.
    pub(crate) fn as_seen_by_the_crate(&self, mut lease: Lease) -> Lease {
        const DAY: jiff::SignedDuration = jiff::SignedDuration::from_hours(24);
        let view = self.view();
        let spec = lease.spec.get_or_insert_default();
        let now = jiff::Timestamp::now();
        let (holder, renewed) = match view {
            View::Mine => (self.me.as_str().to_owned(), now),
            View::Free => (String::new(), jiff::Timestamp::UNIX_EPOCH),
            // Never our own name: the crate would take that for leading.
            View::Taken => {
                let holder = spec.holder_identity.take().filter(|holder| holder != self.me.as_str());
                (holder.unwrap_or_default(), now.checked_add(DAY).unwrap_or(now))
            }
        };
        spec.holder_identity = Some(holder);
        spec.renew_time = Some(MicroTime(renewed));
        spec.lease_transitions.get_or_insert(0);
        spec.lease_duration_seconds.get_or_insert(1);
        lease
    }
}

// === impl Sign ===

impl Sign {
    pub(crate) fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            uid: lease.metadata.uid.clone(),
            holder: spec.holder_identity.unwrap_or_default(),
            renewed: spec.renew_time,
            acquired: spec.acquire_time,
            transitions: spec.lease_transitions,
            duration: spec.lease_duration_seconds,
        }
    }

    /// As the manifests ship it.
    fn was_never_held(&self) -> bool {
        self.holder.is_empty() && self.acquired.is_none() && self.renewed.is_none() && self.transitions.is_none()
    }

    /// Whether the last holder gave it up in order. Its marks are those of client-go and of kube-leader-election: nobody,
    /// for one second, acquired when renewed. Emptying a Lease by hand does not leave them.
    fn was_released(&self) -> bool {
        self.holder.is_empty() && self.duration == Some(1) && self.renewed.is_some() && self.renewed == self.acquired
    }

    /// What the holder promised; our own duration if it promised nothing.
    pub(crate) fn duration(&self, own: Duration) -> Duration {
        let promised = self
            .duration
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|seconds| *seconds > 0);
        promised.map_or(own, Duration::from_secs)
    }
}

/// Versions are comparable numbers (KEP-5504, GA in 1.35). If one is not a number, any other version counts as newer:
/// the compare-and-swap catches what is wrong.
pub(crate) fn is_newer(lease: &Lease, than: &Lease) -> bool {
    let version = |lease: &Lease| lease.metadata.resource_version.as_deref().map(str::to_owned);
    let (new, old) = (version(lease), version(than));
    let number = |version: &Option<String>| version.as_deref().and_then(|text| text.parse::<u128>().ok());
    match (number(&new), number(&old)) {
        (Some(new), Some(old)) => new > old,
        _ => new != old,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::coordination::v1::LeaseSpec;
    use kube::api::ObjectMeta;

    use super::*;
    use crate::clock::{Clock, testing::TokioClock};

    const SECOND: Duration = Duration::from_secs(1);

    fn lease(version: u32, holder: Option<&str>, transitions: i32) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some("l".to_owned()),
                uid: Some("u1".to_owned()),
                resource_version: Some(version.to_string()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: Some(10),
                lease_transitions: Some(transitions),
                renew_time: Some(MicroTime(jiff::Timestamp::from_second(i64::from(version)).unwrap())),
                ..LeaseSpec::default()
            }),
        }
    }

    fn memory(clock: &TokioClock) -> Memory {
        let me = Identity::with_nonce("ctl-0", Some("uid"), "b").unwrap();
        Memory::new("ns/l".to_owned(), me, 10 * SECOND, None, Arc::new(clock.clone()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_expires_by_the_time_since_its_spec_was_seen_to_change() {
        let clock = TokioClock::default();
        let mut memory = memory(&clock);
        memory.observe(&lease(1, Some("other"), 3));
        clock.jump(9 * SECOND);
        assert_eq!(memory.view(), View::Taken);
        // A note by the leader: another version, the same spec.
        let mut noted = lease(1, Some("other"), 3);
        noted.metadata.resource_version = Some("2".to_owned());
        assert!(memory.observe(&noted));
        clock.jump(SECOND);
        assert_eq!(memory.view(), View::Free);
        assert!(memory.observe(&lease(3, Some("other"), 3)));
        assert_eq!(memory.view(), View::Taken);
    }

    #[tokio::test(start_paused = true)]
    async fn ranks_wait_in_line_and_never_means_never() {
        let clock = TokioClock::default();
        let mut memory = memory(&clock);
        let mut released = lease(1, None, 3);
        let spec = released.spec.as_mut().unwrap();
        spec.lease_duration_seconds = Some(1);
        spec.acquire_time.clone_from(&spec.renew_time);
        memory.observe(&released);
        assert_eq!(memory.view(), View::Free);
        memory.claim = ClaimPolicy::After(SECOND);
        assert_eq!(memory.view(), View::Taken);
        clock.jump(SECOND);
        assert_eq!(memory.view(), View::Free);
        memory.claim = ClaimPolicy::Never;
        assert_eq!((memory.view(), memory.free_at()), (View::Taken, None));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_left_in_order_is_waited_for() {
        let emptied = lease(1, None, 3);
        let mut stolen = lease(1, Some("kubectl"), 3);
        stolen.spec.as_mut().unwrap().lease_duration_seconds = Some(1);
        let mut shipped = lease(2, None, 0);
        shipped.spec = None;
        shipped.metadata.uid = Some("u2".to_owned());
        for odd in [emptied, stolen, shipped] {
            let clock = TokioClock::default();
            let mut memory = memory(&clock);
            memory.observe(&lease(1, Some("other"), 2));
            let mut odd = odd.clone();
            odd.metadata.resource_version = Some("2".to_owned());
            assert!(memory.observe(&odd));
            clock.jump(9 * SECOND);
            assert!(memory.free_at().unwrap() > clock.now(), "{odd:?}");
            clock.jump(SECOND);
            assert!(memory.free_at().unwrap() <= clock.now(), "{odd:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_start_that_was_there_first_is_an_earlier_one() {
        let clock = TokioClock::default();
        let mut before = memory(&clock);
        before.observe(&lease(1, Some("ctl-0_uid_a"), 3));
        assert_eq!(before.view(), View::Free);

        let mut twin = memory(&clock);
        twin.observe(&lease(1, Some("other"), 3));
        twin.observe(&lease(2, Some("ctl-0_uid_c"), 4));
        assert_eq!(twin.view(), View::Taken);
        assert!(
            twin.duplicate().is_none(),
            "one write may be a late one of a dead process"
        );
        twin.observe(&lease(3, Some("ctl-0_uid_c"), 4));
        assert!(twin.duplicate().unwrap().is_fatal());
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_version_never_replaces_a_newer_one() {
        let clock = TokioClock::default();
        let mut memory = memory(&clock);
        assert!(memory.observe(&lease(10, Some("other"), 3)));
        assert!(!memory.observe(&lease(9, None, 2)));
        assert_eq!(memory.holder(), Some("other"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_with_our_name_but_another_epoch_is_not_ours() {
        let clock = TokioClock::default();
        let mut memory = memory(&clock);
        memory.observe(&lease(1, Some("ctl-0_uid_b"), 3));
        memory.holding = Some(Epoch::new("u1".to_owned(), 3));
        assert_eq!(memory.view(), View::Mine);
        memory.holding = Some(Epoch::new("u1".to_owned(), 2));
        assert_eq!(memory.view(), View::Taken);
        let seen = memory.as_seen_by_the_crate(lease(1, Some("ctl-0_uid_b"), 3));
        assert_eq!(seen.spec.unwrap().holder_identity.as_deref(), Some(""));
        // After the fence the same name is a leftover, and taking it raises the epoch.
        memory.holding = None;
        assert_eq!(memory.view(), View::Free);
    }
}
