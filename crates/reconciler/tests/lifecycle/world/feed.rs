//! One watched resource type as a cache knows it: what was delivered, and what is still on its way.

use std::collections::{BTreeMap, VecDeque};

/// A change that a watch has not delivered yet.
#[derive(Clone, Debug)]
struct Change<T> {
    revision: u64,
    name: String,
    /// `None`: it is gone.
    object: Option<T>,
}

/// What was last known of a name that is gone.
#[derive(Clone, Debug)]
pub struct Past<T> {
    /// Number of the change that removed it.
    pub changed: u64,
    /// As it was before.
    pub last: T,
}

/// The cache of one resource type.
#[derive(Clone, Debug)]
pub struct Feed<T> {
    pending: VecDeque<Change<T>>,
    entries: BTreeMap<String, T>,
    earlier: BTreeMap<String, T>,
    past: BTreeMap<String, Past<T>>,
    sequence: u64,
    /// Version up to which the watch has delivered.
    pub high: u64,
    /// It has been listed and its watch works.
    pub synced: bool,
    /// Nothing is delivered by itself: a blind cache.
    pub held: bool,
    /// It cannot be listed.
    pub unwatchable: bool,
}

impl<T> Default for Feed<T> {
    fn default() -> Self {
        Self {
            pending: VecDeque::new(),
            entries: BTreeMap::new(),
            earlier: BTreeMap::new(),
            past: BTreeMap::new(),
            sequence: 0,
            high: 0,
            synced: false,
            held: false,
            unwatchable: false,
        }
    }
}

impl<T: Clone> Feed<T> {
    /// A change at the API server; a kind that is not watched learns of it by its list.
    pub fn push(&mut self, revision: u64, name: &str, object: Option<T>) {
        if self.synced {
            self.pending.push_back(Change {
                revision,
                name: name.to_owned(),
                object,
            });
        }
    }

    /// Delivers one change. Answers whether there was one.
    pub fn deliver(&mut self) -> bool {
        let Some(change) = self.pending.pop_front() else {
            return false;
        };
        self.high = change.revision;
        let before = match &change.object {
            Some(object) => self.entries.insert(change.name.clone(), object.clone()),
            None => self.entries.remove(&change.name),
        };
        if let Some(before) = before {
            self.earlier.insert(change.name.clone(), before.clone());
            if change.object.is_none() {
                self.sequence += 1;
                let changed = self.sequence;
                self.past.insert(change.name, Past { changed, last: before });
            }
        }
        true
    }

    /// Delivers everything, unless held back.
    pub fn flow(&mut self) -> bool {
        let mut moved = false;
        while !self.held && self.deliver() {
            moved = true;
        }
        moved
    }

    /// Lists anew: what the API server holds now, and nothing of the past.
    pub fn list(&mut self, revision: u64, objects: impl Iterator<Item = (String, T)>) {
        if self.unwatchable {
            return;
        }
        self.pending.clear();
        self.entries = objects.collect();
        self.past.clear();
        self.high = revision;
        self.synced = true;
    }

    /// Another process starts with what a lagging server lists: the entries stay, the past is forgotten.
    pub fn forget_past(&mut self) {
        self.past.clear();
        self.earlier.clear();
    }

    /// A stale event: the name is again as it was one change ago. The next change corrects it.
    pub fn regress(&mut self, name: &str) {
        if let (Some(now), Some(earlier)) = (self.entries.get(name).cloned(), self.earlier.get(name).cloned()) {
            self.entries.insert(name.to_owned(), earlier);
            self.pending.push_front(Change {
                revision: self.high,
                name: name.to_owned(),
                object: Some(now),
            });
        }
    }

    pub fn get(&self, name: &str) -> Option<&T> {
        self.entries.get(name)
    }

    pub fn past(&self, name: &str) -> Option<&Past<T>> {
        self.past.get(name)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }
}
