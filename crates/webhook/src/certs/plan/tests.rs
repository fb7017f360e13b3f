//! The plan carried out on a small world of a Secret, two bundles and some replicas, with a clock that is moved by hand.
//! After every move it is checked that the bundles trust whatever any replica serves.

use super::*;
use crate::certs::tests::issuing;

const SETTLE: SignedDuration = SignedDuration::from_secs(30);
const DAY: SignedDuration = SignedDuration::from_hours(24);

struct World {
    now: Timestamp,
    secret: Material,
    bundle: Vec<Certificate>,
    /// What each replica serves; the first is the one that holds the Lease.
    replicas: Vec<Option<Material>>,
    published: Option<(String, Timestamp)>,
    served: Option<(String, Timestamp)>,
    writes: Vec<&'static str>,
    /// Whether the bundles can be written.
    can_publish: bool,
}

impl World {
    fn new(replicas: usize) -> Self {
        Self {
            now: "2026-12-01T00:00:00Z".parse().unwrap(),
            secret: Material::default(),
            bundle: Vec::new(),
            replicas: vec![None; replicas],
            published: None,
            served: None,
            writes: Vec::new(),
            can_publish: true,
        }
    }

    /// A world that has come to rest.
    fn settled(replicas: usize) -> Self {
        let mut world = Self::new(replicas);
        world.rest();
        world.writes.clear();
        world
    }

    fn step(&mut self) -> Step {
        let key =
            |since: &Option<(String, Timestamp)>| since.as_ref().map(|(_, begun)| self.now.duration_since(*begun));
        next_step(
            Seen {
                now: self.now,
                secret: &self.secret,
                memory: self.replicas[0].as_ref(),
                published: &self.bundle,
                published_for: key(&self.published),
                served_for: key(&self.served),
            },
            &issuing(),
            SETTLE,
        )
        .unwrap()
    }

    /// One round of the rotator, then one look of every replica that is not asleep. Returns whether anything was written.
    fn round(&mut self, asleep: &[usize]) -> bool {
        self.note();
        let step = self.step();
        let written = matches!(step, Step::Write(..));
        if let Step::Write(material, why) = step {
            self.secret = *material;
            self.writes.push(why);
            self.check();
        }
        if self.can_publish && !self.secret.anchors().is_empty() {
            self.bundle = self.secret.anchors().into_iter().cloned().collect();
        }
        self.check();
        for index in (0..self.replicas.len()).filter(|index| !asleep.contains(index)) {
            if self.secret.serving.is_some() {
                self.replicas[index] = Some(self.secret.clone());
            }
        }
        self.check();
        written
    }

    fn note(&mut self) {
        let next = self.secret.next.as_ref().map(|next| next.certificate.clone());
        let next = next.filter(|next| self.bundle.contains(next)).map(|next| next.serial);
        let serial = self.secret.serving.as_ref().map(|pair| pair.leaf.serial.clone());
        let serial = serial.filter(|serial| self.serials().all(|served| served.as_ref() == Some(serial)));
        for (since, holds) in [(&mut self.published, next), (&mut self.served, serial)] {
            if since.as_ref().map(|(serial, _)| serial) != holds.as_ref() {
                *since = holds.map(|serial| (serial, self.now));
            }
        }
    }

    fn serials(&self) -> impl Iterator<Item = Option<String>> {
        let pairs = self
            .replicas
            .iter()
            .map(|replica| replica.as_ref().and_then(|material| material.serving.as_ref()));
        pairs.map(|pair| pair.map(|pair| pair.leaf.serial.clone()))
    }

    /// Every replica that serves anything is trusted, unless time alone has run out on it.
    fn check(&self) {
        for material in self.replicas.iter().flatten() {
            let pair = material.serving.as_ref().unwrap();
            let anchors: Vec<_> = self.bundle.iter().collect();
            if pair.leaf.is_valid(self.now) {
                assert!(
                    serves_all_names(pair, &anchors, &issuing(), self.now),
                    "not trusted after {:?}",
                    self.writes
                );
            }
        }
    }

    /// Rounds, ten seconds apart, until nothing more is written for a while.
    fn rest(&mut self) {
        let mut quiet = 0;
        while quiet < 12 {
            quiet = if self.round(&[]) { 0 } else { quiet + 1 };
            self.now += SignedDuration::from_secs(10);
        }
    }

    fn pass(&mut self, time: SignedDuration) {
        self.now += time;
    }
}

#[test]
fn a_first_start_serves_at_once() {
    let mut world = World::new(3);
    assert!(world.round(&[]) && world.round(&[]));
    assert!(world.serials().all(|serial| serial.is_some()));
    assert!(!world.round(&[]), "{:?}", world.writes);
    assert_eq!(
        world.writes,
        [
            "a new authority is introduced",
            "the new authority issues the serving certificate"
        ]
    );
    assert_eq!(world.bundle.len(), 1);
}

#[test]
fn a_serving_certificate_is_renewed_after_two_thirds_of_its_life() {
    let mut world = World::settled(3);
    world.pass(DAY * 59);
    world.rest();
    assert_eq!(world.writes, Vec::<&str>::new());
    world.pass(DAY);
    world.rest();
    assert_eq!(world.writes, ["the serving certificate is renewed"]);
    assert_eq!(world.bundle.len(), 1);
}

#[test]
fn an_authority_is_rolled_in_three_steps() {
    let mut world = World::settled(3);
    world.pass(DAY * 59);
    world.rest();
    world.pass(DAY * 60 + DAY);
    world.writes.clear();
    assert!(world.round(&[]));
    assert_eq!(world.bundle.len(), 2, "both are trusted before anything is issued");
    assert!(!world.round(&[]), "the bundle needs time to arrive");
    world.pass(SETTLE);
    assert!(world.round(&[2]));
    world.pass(DAY);
    assert!(!world.round(&[2]), "one replica still serves under the old authority");
    assert_eq!(world.bundle.len(), 2);
    world.rest();
    assert_eq!(
        world.writes,
        [
            "a new authority is introduced",
            "the new authority issues the serving certificate",
            "the old authority is dropped"
        ]
    );
    assert_eq!(world.bundle.len(), 1);
}

#[test]
fn nothing_is_issued_by_an_authority_that_could_not_be_published() {
    let mut world = World::settled(3);
    world.pass(DAY * 50);
    world.secret.ca.as_mut().unwrap().key = None;
    world.can_publish = false;
    world.rest();
    assert_eq!(world.writes, ["a new authority is introduced"]);
    world.can_publish = true;
    world.rest();
    assert_eq!(world.writes.len(), 3, "{:?}", world.writes);

    let mut first = World::new(1);
    first.can_publish = false;
    first.rest();
    assert!(first.secret.serving.is_none(), "a first start waits for it as well");
}

#[test]
fn a_year_passes_and_everybody_stays_trusted() {
    let mut world = World::settled(3);
    for day in 0..400 {
        world.pass(DAY);
        // A round in three meets a replica that sleeps through it.
        for round in 0..8 {
            world.round(if (day + round) % 3 == 0 { &[1] } else { &[] });
            world.pass(SignedDuration::from_secs(10));
        }
        let pair = world.secret.serving.as_ref().unwrap();
        assert!(
            pair.leaf.is_valid(world.now) && world.now < pair.leaf.renewal() + DAY,
            "day {day}"
        );
    }
    let rolls = world
        .writes
        .iter()
        .filter(|why| **why == "the old authority is dropped")
        .count();
    assert!((2..=4).contains(&rolls), "{rolls} rolls");
}

#[test]
fn an_emptied_secret_gets_back_what_is_in_use() {
    let mut world = World::settled(2);
    let before = world.secret.clone();
    world.secret = Material::default();
    world.rest();
    assert_eq!(world.secret, before);
    assert_eq!(
        world.writes,
        ["the Secret was emptied or damaged; what is in use is written back"]
    );
}

#[test]
fn an_emptied_secret_without_memory_is_rolled_anew_while_the_others_serve_on() {
    let mut world = World::settled(3);
    world.secret = Material::default();
    world.replicas[0] = None;
    let old = world.bundle.clone();
    world.round(&[0]);
    assert_eq!(world.bundle.len(), 2);
    assert!(world.bundle.contains(&old[0]), "the others still serve under it");
    world.rest();
    assert_eq!(world.bundle.len(), 1);
    assert_ne!(world.bundle, old);
}

#[test]
fn a_damaged_serving_pair_is_issued_again_and_a_lost_authority_is_rolled() {
    let mut world = World::settled(2);
    world.secret.serving = None;
    world.rest();
    assert_eq!(world.writes, ["the serving certificate is renewed"]);
    world.writes.clear();
    world.secret.ca = None;
    world.rest();
    assert_eq!(world.writes[0], "a new authority is introduced");
    assert!(
        world.writes.contains(&"the old authority is dropped"),
        "{:?}",
        world.writes
    );
    world.writes.clear();
    // The key of the authority alone: as after a take-over of the Go controller's RSA key, which we do not sign with.
    world.secret.ca.as_mut().unwrap().key = None;
    world.rest();
    assert_eq!(world.writes.len(), 3, "{:?}", world.writes);
}

#[test]
fn an_edited_bundle_is_written_again_and_nothing_else() {
    let mut world = World::settled(2);
    let before = world.bundle.clone();
    // Until the repair nobody is trusted, and that cannot be helped: so the check is left out for this round.
    let replicas = std::mem::take(&mut world.replicas);
    world.replicas = vec![None];
    world.bundle = vec![issuing().authority(world.now).unwrap().certificate];
    world.round(&[0]);
    world.replicas = replicas;
    world.check();
    assert_eq!(world.bundle, before);
    assert_eq!(world.writes, Vec::<&str>::new());
}

#[test]
fn everything_has_expired_while_nobody_was_there() {
    let mut world = World::settled(2);
    world.replicas = vec![None, None];
    world.pass(DAY * 400);
    world.rest();
    let pair = world.secret.serving.as_ref().unwrap();
    assert!(pair.leaf.is_valid(world.now));
    assert_eq!(world.bundle.len(), 1);
}

#[test]
fn a_holder_whose_clock_is_ahead_starts_a_roll_that_the_next_one_finishes() {
    let mut world = World::settled(2);
    let now = world.now;
    world.pass(DAY * 130);
    world.replicas = vec![None, None];
    assert!(world.round(&[0, 1]));
    world.now = now;
    assert!(world.secret.next.is_some());
    world.replicas = vec![None, None];
    world.rest();
    assert!(world.secret.serving.as_ref().unwrap().leaf.is_valid(now));
    // The clock is that of the API server, so this should not happen. If it does, it ends.
    assert!(world.writes.len() <= 5, "{:?}", world.writes);
}

#[test]
fn a_new_holder_between_the_steps_carries_on() {
    for stop in 1..4 {
        let mut world = World::settled(3);
        world.pass(DAY * 130);
        for _ in 0..stop {
            world.round(&[]);
            world.pass(SETTLE);
        }
        // The next holder knows nothing of how long something has been so.
        world.published = None;
        world.served = None;
        world.replicas.swap(0, 1);
        world.rest();
        assert_eq!(world.bundle.len(), 1, "stopped after {stop}: {:?}", world.writes);
        assert!(world.secret.previous.is_none() && world.secret.next.is_none());
    }
}
