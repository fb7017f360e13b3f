//! The index against a plain map: whatever is told to it, in lists and in changes, it must say the same.

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use super::*;

/// Facts with one word in them.
#[derive(Clone, Debug, PartialEq)]
struct Word {
    uid: Uid,
    version: Option<Rv>,
    text: u8,
    owner: AppWrapperKey,
}

impl Facts for Word {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn version(&self) -> Option<&Rv> {
        self.version.as_ref()
    }

    fn owners(&self) -> impl Iterator<Item = &AppWrapperKey> {
        std::iter::once(&self.owner)
    }

    fn group(&self) -> Option<&AppWrapperKey> {
        Some(&self.owner)
    }

    fn says_the_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.text == other.text && self.owner == other.owner
    }
}

fn word(uid: u8, version: u64, text: u8, owner: u8) -> Word {
    Word {
        uid: Uid::new(uid.to_string()),
        version: Rv::parse(&version.to_string()),
        text,
        owner: key(owner),
    }
}

fn key(owner: u8) -> AppWrapperKey {
    AppWrapperKey::new("n", owner.to_string())
}

fn name(name: u8) -> ObjectName {
    ObjectName::new("n", name.to_string())
}

fn index(tombstones: usize) -> Index<Word> {
    Index::new(Arc::default(), tombstones)
}

/// The number of the last change under a name that has no object.
fn gone(index: &Index<Word>, at: u8) -> u64 {
    match index.find(&name(at)) {
        Found::Gone { changed, .. } => changed,
        Found::Entry(facts) => panic!("{facts:?}"),
    }
}

#[test]
fn a_name_that_is_forgotten_has_changed_at_the_latest_when_it_was() {
    let mut index = index(2);
    let never = gone(&index, 9);
    for at in 0..3 {
        index.apply(name(at), word(at, 1, 0, 0));
        index.delete(&name(at), word(at, 2, 0, 0));
    }
    let (forgotten, kept) = (gone(&index, 0), gone(&index, 1));
    assert!(never < forgotten && forgotten < kept && kept < gone(&index, 2));
    assert_eq!(gone(&index, 9), forgotten);
    assert_eq!(index.tombstones.len(), 2);
}

#[test]
fn a_name_that_comes_and_goes_takes_one_tombstone() {
    let mut index = index(2);
    for _ in 0..100 {
        index.apply(name(0), word(0, 1, 0, 0));
        index.delete(&name(0), word(0, 2, 0, 0));
    }
    assert_eq!(index.tombstones.len(), 1);
    assert!(index.burials.len() <= 2);
    assert!(matches!(index.find(&name(0)), Found::Gone { last: Some(_), .. }));
}

#[test]
fn a_change_of_owner_wakes_both() {
    let mut index = index(2);
    index.apply(name(0), word(0, 1, 0, 0));
    assert_eq!(index.apply(name(0), word(0, 2, 0, 1)), Wake::from([key(0), key(1)]));
    assert_eq!(index.delete(&name(0), word(0, 3, 0, 1)), Wake::from([key(1)]));
}

#[test]
fn the_highest_version_is_that_of_any_event() {
    let mut index = index(2);
    index.apply(name(0), word(0, 9, 0, 0));
    index.apply(name(1), word(1, 10, 0, 0));
    index.apply(name(0), word(0, 7, 0, 0));
    assert_eq!(index.progress().high, Rv::parse("10").as_ref());
    index.delete(&name(0), word(0, 11, 0, 0));
    assert_eq!(index.progress().high, Rv::parse("11").as_ref());
    index.clear();
    assert_eq!(index.progress().high, None);
    assert_eq!(index.len(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Apply(u8, u8, u8, u8),
    Delete(u8),
    Relist(Vec<(u8, u8, u8, u8)>),
}

fn step() -> impl Strategy<Value = Step> {
    let object = || (0..5u8, 0..2u8, 0..2u8, 0..3u8);
    prop_oneof![
        4 => object().prop_map(|(at, uid, word, owner)| Step::Apply(at, uid, word, owner)),
        2 => (0..5u8).prop_map(Step::Delete),
        1 => vec(object(), 0..5).prop_map(Step::Relist),
    ]
}

type Model = BTreeMap<u8, (u8, u8, u8)>;

fn apply(index: &mut Index<Word>, model: &Model, step: &Step, version: u64) -> (Wake, Model) {
    let mut next = model.clone();
    let wake = match step {
        Step::Apply(at, uid, text, owner) => {
            next.insert(*at, (*uid, *text, *owner));
            index.apply(name(*at), word(*uid, version, *text, *owner))
        }
        Step::Delete(at) => match next.remove(at) {
            Some((uid, text, owner)) => index.delete(&name(*at), word(uid, version, text, owner)),
            None => Wake::new(),
        },
        Step::Relist(objects) => {
            next = objects
                .iter()
                .map(|(at, uid, text, owner)| (*at, (*uid, *text, *owner)))
                .collect();
            let listed = next
                .iter()
                .map(|(at, (uid, text, owner))| (name(*at), word(*uid, version, *text, *owner)));
            index.reset(listed.collect(), version)
        }
    };
    (wake, next)
}

/// A number that changes when what is known of the name does: that of the entry, or of its end.
fn changed(index: &Index<Word>, at: u8) -> u64 {
    index
        .entries
        .get(&name(at))
        .map_or_else(|| gone(index, at), |entry| entry.changed)
}

proptest! {
    #[test]
    fn the_index_says_what_it_was_told(steps in vec(step(), 1..40)) {
        let mut index = index(100);
        let mut model = Model::new();
        for (version, step) in (1..).zip(&steps) {
            let before: Vec<u64> = (0..5).map(|at| changed(&index, at)).collect();
            let (wake, next) = apply(&mut index, &model, step, version);
            let mut expected = Wake::new();
            for at in 0..5 {
                let (old, new) = (model.get(&at), next.get(&at));
                let after = changed(&index, at);
                prop_assert_eq!(old != new, after > before[usize::from(at)], "{:?} of {}", step, at);
                if old != new {
                    expected.extend([old, new].into_iter().flatten().map(|(_, _, owner)| key(*owner)));
                }
                let found = index.find(&name(at));
                prop_assert_eq!(matches!(found, Found::Entry(_)), new.is_some());
                if let (Found::Entry(facts), Some((uid, text, owner))) = (found, new) {
                    prop_assert!(facts.says_the_same(&word(*uid, 0, *text, *owner)));
                }
            }
            prop_assert_eq!(wake, expected);
            for owner in 0..3 {
                let group = index.group(&key(owner)).count();
                prop_assert_eq!(group, next.values().filter(|(_, _, theirs)| *theirs == owner).count());
            }
            prop_assert_eq!(index.len(), next.len());
            model = next;
        }
    }
}
