//! The index of one kind, with whether it may be read.
//!
//! An [`informer`](crate::informer) writes it, a [`view`](crate::view) reads it. Contents and state change together under
//! one lock, so a reader sees contents only while they are to be believed.

use std::sync::{Arc, Mutex, RwLock};

use appwrapper_api::TypeRef;
use tokio::sync::watch;

use crate::{
    index::{Facts, Index, Sequence, Wake},
    lock::{lock, read, write},
    observer::{KindStatus, Reason},
};

/// Whether the index of a kind may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The first list is under way.
    Starting,
    /// It may.
    Synced,
    /// The watch is refused or has long been failing.
    Failing,
    /// The informer is stopped, for good.
    Retired,
}

/// The index of one kind with its state.
#[derive(Debug)]
pub(crate) struct Feed<F> {
    type_ref: TypeRef,
    index: RwLock<Index<F>>,
    state: watch::Sender<State>,
    diagnostics: Mutex<Diagnostics>,
}

#[derive(Debug, Default)]
struct Diagnostics {
    last_event: Option<jiff::Timestamp>,
    last_error: Option<(jiff::Timestamp, Reason, String)>,
}

impl<F: Facts> Feed<F> {
    pub(crate) fn new(type_ref: TypeRef, sequence: Arc<Sequence>, tombstones: usize) -> Self {
        Self {
            type_ref,
            index: RwLock::new(Index::new(sequence, tombstones)),
            state: watch::Sender::new(State::Starting),
            diagnostics: Mutex::default(),
        }
    }

    pub(crate) fn type_ref(&self) -> &TypeRef {
        &self.type_ref
    }

    /// Reads the index, if it may be read.
    pub(crate) fn read<R>(&self, reader: impl FnOnce(&Index<F>) -> R) -> Option<R> {
        // State is changed under the write lock only, so it belongs to the contents that are read.
        let index = read(&self.index);
        let synced = *self.state.borrow() == State::Synced;
        synced.then(|| reader(&index))
    }

    /// Waits until it is known whether the first list succeeds; says whether it did.
    pub(crate) async fn settled(&self) -> bool {
        let mut state = self.state.subscribe();
        state
            .wait_for(|state| *state != State::Starting)
            .await
            .is_ok_and(|state| *state == State::Synced)
    }

    /// Waits until the index may be read, or is retired.
    pub(crate) async fn synced(&self) -> bool {
        let mut state = self.state.subscribe();
        let end = state
            .wait_for(|state| matches!(state, State::Synced | State::Retired))
            .await;
        end.is_ok_and(|state| *state == State::Synced)
    }

    /// Empties the index for good. What an informer still delivers is ignored.
    pub(crate) fn retire(&self) {
        let mut index = write(&self.index);
        self.state.send_replace(State::Retired);
        index.clear();
    }

    pub(crate) fn status(&self) -> KindStatus {
        let index = read(&self.index);
        let diagnostics = lock(&self.diagnostics);
        KindStatus {
            type_ref: self.type_ref.clone(),
            synced: *self.state.borrow() == State::Synced,
            objects: index.len(),
            last_event: diagnostics.last_event,
            last_error: diagnostics.last_error.clone(),
        }
    }

    /// The watch has given a sign of life.
    pub(crate) fn alive(&self) {
        lock(&self.diagnostics).last_event = Some(jiff::Timestamp::now());
    }

    /// The watch has failed.
    pub(crate) fn failed(&self, reason: Reason, message: String) {
        lock(&self.diagnostics).last_error = Some((jiff::Timestamp::now(), reason, message));
    }

    pub(crate) fn state(&self) -> State {
        *self.state.borrow()
    }

    /// Changes the index unless it is retired.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Index<F>) -> Wake) -> Wake {
        self.alive();
        let mut index = write(&self.index);
        if *self.state.borrow() == State::Retired {
            Wake::new()
        } else {
            change(&mut index)
        }
    }

    /// Moves to `next` unless retired; says whether reads are now answered differently.
    pub(crate) fn turn(&self, next: State) -> bool {
        let _index = write(&self.index);
        self.turn_locked(next)
    }

    /// The same within [`change`](Self::change), which holds the lock already.
    pub(crate) fn turn_locked(&self, next: State) -> bool {
        let before = *self.state.borrow();
        if before == State::Retired {
            return false;
        }
        self.state.send_replace(next);
        (before == State::Synced) != (next == State::Synced)
    }
}
