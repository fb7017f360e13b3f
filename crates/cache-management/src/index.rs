//! Facts by name, and what became of the names that are gone.
//!
//! Pure: no lock, no task, no client. Every change says which AppWrappers it concerns, and the caller wakes them. A
//! relist is compared with what was there, because kube's watcher reports no deletions for what vanished meanwhile.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use appwrapper_api::{AppWrapperKey, Rv, Uid};

/// Namespace and name of an object of some kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl ObjectName {
    pub(crate) fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// What an index keeps of an object.
pub(crate) trait Facts {
    /// Identity of the object.
    fn uid(&self) -> &Uid;
    /// Its version, if it can be compared.
    fn version(&self) -> Option<&Rv>;
    /// The AppWrappers that want to know of a change.
    fn owners(&self) -> impl Iterator<Item = &AppWrapperKey>;
    /// The AppWrapper under which the object is listed.
    fn group(&self) -> Option<&AppWrapperKey> {
        None
    }
    /// Whether both say the same but for the version.
    fn says_the_same(&self, other: &Self) -> bool;
    /// Takes over what was learnt about the object since it was last seen.
    fn inherit(&self, _before: &Self) {}
    /// Whether anyone will ask for the name when the object is gone.
    fn leaves_tombstone(&self) -> bool {
        true
    }
}

/// Numbers changes in the order in which this process saw them, across all kinds.
#[derive(Debug, Default)]
pub(crate) struct Sequence(AtomicU64);

impl Sequence {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// An object and when its facts last changed.
#[derive(Debug)]
pub(crate) struct Entry<F> {
    pub(crate) facts: F,
    changed: u64,
}

#[derive(Debug)]
struct Tombstone<F> {
    changed: u64,
    last: F,
}

/// What the index holds under a name.
#[derive(Debug)]
pub(crate) enum Found<'a, F> {
    /// An object.
    Entry(&'a F),
    /// None, the number of the change since which that is so, and what was last there.
    Gone { changed: u64, last: Option<&'a F> },
}

impl<F: Facts> Found<'_, F> {
    /// The uid last seen under the name.
    pub(crate) fn uid(&self) -> Option<&Uid> {
        match self {
            Self::Entry(facts) | Self::Gone { last: Some(facts), .. } => Some(facts.uid()),
            Self::Gone { last: None, .. } => None,
        }
    }
}

/// How far an index has followed the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress<'a> {
    /// Highest version that a list or a watch has delivered. Watches deliver in the order of versions, and a list
    /// shows one moment, so everything up to this version has been seen.
    pub(crate) high: Option<&'a Rv>,
    /// Number at which the list that the index rests on was begun; the list saw every write before it.
    pub(crate) listed_since: u64,
}

/// The AppWrappers that a change concerns.
pub(crate) type Wake = HashSet<AppWrapperKey>;

/// Facts of all objects of a kind.
#[derive(Debug)]
pub(crate) struct Index<F> {
    entries: HashMap<ObjectName, Entry<F>>,
    groups: HashMap<AppWrapperKey, BTreeSet<Arc<str>>>,
    tombstones: HashMap<ObjectName, Tombstone<F>>,
    burials: VecDeque<(ObjectName, u64)>,
    tombstone_limit: usize,
    /// Number of the newest change that may have been forgotten: an unknown name has not changed since.
    floor: u64,
    high: Option<Rv>,
    listed_since: u64,
    sequence: Arc<Sequence>,
}

impl<F: Facts> Index<F> {
    pub(crate) fn new(sequence: Arc<Sequence>, tombstone_limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            groups: HashMap::new(),
            tombstones: HashMap::new(),
            burials: VecDeque::new(),
            tombstone_limit,
            floor: sequence.next(),
            high: None,
            listed_since: 0,
            sequence,
        }
    }

    /// An object was created or changed.
    pub(crate) fn apply(&mut self, name: ObjectName, facts: F) -> Wake {
        let mut wake = Wake::new();
        self.raise(facts.version().cloned());
        self.put(name, facts, &mut wake);
        wake
    }

    /// An object was deleted, or left the selector.
    pub(crate) fn delete(&mut self, name: &ObjectName, last: F) -> Wake {
        let mut wake: Wake = last.owners().cloned().collect();
        self.raise(last.version().cloned());
        if let Some(entry) = self.entries.remove(name) {
            wake.extend(entry.facts.owners().cloned());
            Self::ungroup(&mut self.groups, name, &entry.facts);
        }
        self.bury(name.clone(), last);
        wake
    }

    /// A list that was begun at number `begun` found exactly `objects`.
    pub(crate) fn reset(&mut self, objects: Vec<(ObjectName, F)>, begun: u64) -> Wake {
        let mut wake = Wake::new();
        let listed: HashSet<&ObjectName> = objects.iter().map(|(name, _)| name).collect();
        let vanished: Vec<_> = self
            .entries
            .keys()
            .filter(|name| !listed.contains(name))
            .cloned()
            .collect();
        for name in vanished {
            if let Some(entry) = self.entries.remove(&name) {
                wake.extend(entry.facts.owners().cloned());
                Self::ungroup(&mut self.groups, &name, &entry.facts);
                self.bury(name, entry.facts);
            }
        }
        for (name, facts) in objects {
            self.raise(facts.version().cloned());
            self.put(name, facts, &mut wake);
        }
        self.listed_since = begun;
        wake
    }

    /// Forgets everything; nothing may be read from the index until it is listed again.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(Arc::clone(&self.sequence), self.tombstone_limit);
    }

    pub(crate) fn find(&self, name: &ObjectName) -> Found<'_, F> {
        if let Some(entry) = self.entries.get(name) {
            return Found::Entry(&entry.facts);
        }
        match self.tombstones.get(name) {
            Some(tombstone) => Found::Gone {
                changed: tombstone.changed,
                last: Some(&tombstone.last),
            },
            None => Found::Gone {
                changed: self.floor,
                last: None,
            },
        }
    }

    /// The objects listed under an AppWrapper, by name.
    pub(crate) fn group(&self, key: &AppWrapperKey) -> impl Iterator<Item = &F> {
        let name = |name: &Arc<str>| ObjectName {
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(name),
        };
        let names = self.groups.get(key).into_iter().flatten();
        names.filter_map(move |object| self.entries.get(&name(object)).map(|entry| &entry.facts))
    }

    pub(crate) fn progress(&self) -> Progress<'_> {
        Progress {
            high: self.high.as_ref(),
            listed_since: self.listed_since,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn raise(&mut self, version: Option<Rv>) {
        if version > self.high {
            self.high = version;
        }
    }

    fn put(&mut self, name: ObjectName, facts: F, wake: &mut Wake) {
        let mut changed = None;
        if let Some(before) = self.entries.get(&name) {
            facts.inherit(&before.facts);
            if before.facts.says_the_same(&facts) {
                changed = Some(before.changed);
            } else {
                wake.extend(before.facts.owners().cloned());
                Self::ungroup(&mut self.groups, &name, &before.facts);
            }
        }
        let changed = changed.unwrap_or_else(|| {
            wake.extend(facts.owners().cloned());
            if let Some(group) = facts.group() {
                self.groups
                    .entry(group.clone())
                    .or_default()
                    .insert(Arc::clone(&name.name));
            }
            self.tombstones.remove(&name);
            self.sequence.next()
        });
        self.entries.insert(name, Entry { facts, changed });
    }

    fn bury(&mut self, name: ObjectName, last: F) {
        let changed = self.sequence.next();
        if !last.leaves_tombstone() {
            return;
        }
        self.tombstones.insert(name.clone(), Tombstone { changed, last });
        self.burials.push_back((name, changed));
        while self.burials.len() > self.tombstone_limit {
            let Some((oldest, at)) = self.burials.pop_front() else {
                break;
            };
            if self
                .tombstones
                .get(&oldest)
                .is_some_and(|tombstone| tombstone.changed == at)
            {
                self.tombstones.remove(&oldest);
                self.floor = self.floor.max(at);
            }
        }
    }

    fn ungroup(groups: &mut HashMap<AppWrapperKey, BTreeSet<Arc<str>>>, name: &ObjectName, facts: &F) {
        if let Some(key) = facts.group()
            && let Some(names) = groups.get_mut(key)
        {
            names.remove(&name.name);
            if names.is_empty() {
                groups.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
