//! What this process wrote itself, to tell an old cache from an answer (read-your-writes).
//!
//! A cache that has not yet seen our own create says "absent", and that is how healthy workloads were failed. The rule
//! is that of KEP-5647: remember the version of the write, and take the cache's word only once it has got that far. The
//! version is dropped when it has served; the uid stays until we delete the component or its AppWrapper is forgotten.
//!
//! This explains or delays a verdict. It never replaces the uncached read that confirms one.

use std::{collections::HashMap, sync::Arc};

use appwrapper_api::{AppWrapperKey, ComponentRef, Rv, TypeRef, Uid};
use jiff::Timestamp;

use crate::index::Progress;

/// The writes of all AppWrappers at hand.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    by_appwrapper: HashMap<AppWrapperKey, Written>,
}

#[derive(Debug, Default)]
struct Written {
    // A handful of components: a list is smaller and as fast as a map.
    components: Vec<(TypeRef, Arc<str>, Note)>,
    pods_gone: Option<Rv>,
}

/// The last thing that we did to a component.
#[derive(Debug)]
enum Note {
    /// It was created, or found to be there by an uncached read.
    Created {
        uid: Uid,
        /// Until the cache has seen it.
        pending: Option<Pending>,
    },
    /// It was deleted.
    Deleted,
}

/// A create that the cache may not have seen.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) version: Option<Rv>,
    pub(crate) since: Timestamp,
    /// Number of the note: a list begun later has seen the write.
    pub(crate) number: u64,
}

/// How far a cache can be believed about a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// In what it says of the present and of the past.
    Full,
    /// In what it says of the present. What it last saw is not what we last made.
    NotOfThePast,
    /// Not at all: it has not seen what we wrote at this time.
    Behind(Timestamp),
}

impl Notes {
    pub(crate) fn created(&mut self, key: &AppWrapperKey, component: &ComponentRef, uid: Uid, pending: Pending) {
        self.put(
            key,
            component,
            Note::Created {
                uid,
                pending: Some(pending),
            },
        );
    }

    pub(crate) fn deleted(&mut self, key: &AppWrapperKey, component: &ComponentRef) {
        self.put(key, component, Note::Deleted);
    }

    pub(crate) fn pods_gone(&mut self, key: &AppWrapperKey, version: Rv) {
        let written = self.by_appwrapper.entry(key.clone()).or_default();
        if written.pods_gone.as_ref().is_none_or(|known| *known < version) {
            written.pods_gone = Some(version);
        }
    }

    pub(crate) fn forget(&mut self, key: &AppWrapperKey) {
        self.by_appwrapper.remove(key);
    }

    pub(crate) fn forget_all(&mut self) {
        self.by_appwrapper.clear();
    }

    /// How far to believe a cache that last saw the uid `seen` under the component's name.
    pub(crate) fn trust(
        &mut self,
        key: &AppWrapperKey,
        component: &ComponentRef,
        seen: Option<&Uid>,
        progress: Progress<'_>,
    ) -> Trust {
        let (uid, pending) = match self.find_mut(key, component) {
            None => return Trust::Full,
            Some(Note::Deleted) => return Trust::NotOfThePast,
            Some(Note::Created { uid, pending }) => (uid, pending),
        };
        let seen_ours = seen == Some(uid);
        if let Some(Pending { version, since, number }) = pending {
            let reached = version
                .as_ref()
                .is_some_and(|version| progress.high.is_some_and(|high| high >= version));
            if !(seen_ours || reached || progress.listed_since > *number) {
                return Trust::Behind(*since);
            }
            *pending = None;
        }
        if seen_ours { Trust::Full } else { Trust::NotOfThePast }
    }

    /// The uid last written, if it was not deleted since.
    pub(crate) fn uid(&self, key: &AppWrapperKey, component: &ComponentRef) -> Option<&Uid> {
        let components = &self.by_appwrapper.get(key)?.components;
        match components.iter().find(|entry| is_about(entry, component)) {
            Some((_, _, Note::Created { uid, .. })) => Some(uid),
            _ => None,
        }
    }

    /// The version up to which cached pods of the AppWrapper are ghosts.
    pub(crate) fn ghosts_until(&mut self, key: &AppWrapperKey, progress: Progress<'_>) -> Option<Rv> {
        let written = self.by_appwrapper.get_mut(key)?;
        if progress.high >= written.pods_gone.as_ref() {
            // The watch has delivered the deletion of every pod that was gone by then.
            written.pods_gone = None;
        }
        written.pods_gone.clone()
    }

    fn find_mut(&mut self, key: &AppWrapperKey, component: &ComponentRef) -> Option<&mut Note> {
        let components = &mut self.by_appwrapper.get_mut(key)?.components;
        components
            .iter_mut()
            .find(|entry| is_about(entry, component))
            .map(|(_, _, note)| note)
    }

    fn put(&mut self, key: &AppWrapperKey, component: &ComponentRef, note: Note) {
        if let Some(old) = self.find_mut(key, component) {
            *old = note;
            return;
        }
        let components = &mut self.by_appwrapper.entry(key.clone()).or_default().components;
        components.push((component.type_ref.clone(), Arc::clone(&component.name), note));
    }
}

/// Position is left out on purpose: it says where a component stands in the spec, not which object it is.
fn is_about((type_ref, name, _): &(TypeRef, Arc<str>, Note), component: &ComponentRef) -> bool {
    *name == component.name && *type_ref == component.type_ref
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> AppWrapperKey {
        AppWrapperKey::new("n", "aw")
    }

    fn component() -> ComponentRef {
        ComponentRef {
            position: 0,
            type_ref: TypeRef::new("batch/v1", "Job"),
            name: "j".into(),
        }
    }

    fn rv(text: &str) -> Rv {
        Rv::parse(text).unwrap()
    }

    const BEHIND: Trust = Trust::Behind(Timestamp::UNIX_EPOCH);

    fn created(version: Option<Rv>) -> Notes {
        let mut notes = Notes::default();
        let pending = Pending {
            version,
            since: Timestamp::UNIX_EPOCH,
            number: 10,
        };
        notes.created(&key(), &component(), Uid::new("ours"), pending);
        notes
    }

    fn trust(notes: &mut Notes, seen: Option<&str>, high: Option<&str>, listed_since: u64) -> Trust {
        let (seen, high) = (seen.map(Uid::new), high.map(rv));
        let progress = Progress {
            high: high.as_ref(),
            listed_since,
        };
        notes.trust(&key(), &component(), seen.as_ref(), progress)
    }

    #[test]
    fn a_cache_is_behind_until_it_has_reached_our_version() {
        let mut notes = created(Some(rv("100")));
        assert_eq!(trust(&mut notes, None, None, 0), BEHIND);
        assert_eq!(trust(&mut notes, None, Some("99"), 0), BEHIND);
        assert_eq!(trust(&mut notes, Some("before ours"), Some("99"), 9), BEHIND);
        assert_eq!(trust(&mut notes, None, Some("100"), 0), Trust::NotOfThePast);
        assert_eq!(
            trust(&mut notes, None, None, 0),
            Trust::NotOfThePast,
            "what has served is dropped"
        );
        assert_eq!(trust(&mut notes, Some("ours"), None, 0), Trust::Full);
    }

    #[test]
    fn our_own_uid_or_a_later_list_is_proof_without_versions() {
        assert_eq!(trust(&mut created(None), Some("other"), Some("999"), 10), BEHIND);
        assert_eq!(trust(&mut created(None), Some("ours"), None, 0), Trust::Full);
        assert_eq!(trust(&mut created(None), None, None, 11), Trust::NotOfThePast);
    }

    #[test]
    fn a_uid_is_known_until_we_delete_it() {
        let mut notes = created(None);
        assert_eq!(notes.uid(&key(), &component()), Some(&Uid::new("ours")));
        notes.deleted(&key(), &component());
        assert_eq!(notes.uid(&key(), &component()), None);
        assert_eq!(trust(&mut notes, Some("ours"), None, 0), Trust::NotOfThePast);
        notes.forget(&key());
        assert_eq!(trust(&mut notes, Some("ours"), None, 0), Trust::Full);
        assert!(notes.by_appwrapper.is_empty());
    }

    #[test]
    fn ghosts_end_where_the_watch_has_caught_up() {
        let mut notes = Notes::default();
        notes.pods_gone(&key(), rv("50"));
        notes.pods_gone(&key(), rv("40"));
        let until = |notes: &mut Notes, high: Option<&str>| {
            let high = high.map(rv);
            notes.ghosts_until(
                &key(),
                Progress {
                    high: high.as_ref(),
                    listed_since: 0,
                },
            )
        };
        assert_eq!(until(&mut notes, None), Some(rv("50")));
        assert_eq!(until(&mut notes, Some("49")), Some(rv("50")));
        assert_eq!(until(&mut notes, Some("50")), None);
        assert_eq!(until(&mut notes, None), None);
    }
}
