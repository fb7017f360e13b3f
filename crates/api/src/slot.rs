//! The slot of an object: which share of the work it belongs to (design/decisions.md 8).
//!
//! A slot is given once and never changes, because pod templates of Jobs are immutable. It selects which replica looks
//! after an object and grants nothing, so a wrong value can cost balance, never safety.

use std::fmt;

/// Number of slots, fixed for ever.
pub const SLOTS: u8 = 64;

/// One of the 64 slots, written as two lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u8);

impl Slot {
    /// The slot of an object of this namespace and name.
    pub fn of(namespace: &str, name: &str) -> Self {
        Self::of_bytes(namespace.bytes().chain([b'/']).chain(name.bytes()))
    }

    /// The slot of an object whose name is not known yet, by the uid of its admission request.
    pub fn of_request(uid: &str) -> Self {
        Self::of_bytes(uid.bytes())
    }

    /// The slot that a label value names, if it is one.
    pub fn parse(label: &str) -> Option<Self> {
        let is_lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (label.len() == 2 && label.bytes().all(is_lower_hex))
            .then(|| u8::from_str_radix(label, 16).ok())
            .flatten()
            .filter(|slot| *slot < SLOTS)
            .map(Self)
    }

    /// The number of the slot, 0 to 63.
    pub fn number(self) -> u8 {
        self.0
    }

    /// FNV-1a: published, stable over versions of Rust and of this crate.
    fn of_bytes(bytes: impl Iterator<Item = u8>) -> Self {
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // The low bits of FNV mix least; fold the high ones in.
        let folded = hash ^ (hash >> 32);
        Self((folded % u64::from(SLOTS)).to_le_bytes()[0])
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_read_back_and_nothing_else_is() {
        for number in 0..SLOTS {
            assert_eq!(Slot::parse(&Slot(number).to_string()), Some(Slot(number)));
        }
        for label in ["", "0", "40", "ff", "0A", "+1", "000", "zz"] {
            assert_eq!(Slot::parse(label), None, "{label:?}");
        }
    }

    #[test]
    fn slots_are_stable_and_even() {
        assert_eq!(Slot::of("default", "sample"), Slot::of("default", "sample"));
        let mut counts = [0usize; SLOTS as usize];
        for index in 0..6400 {
            counts[usize::from(Slot::of("team-a", &format!("job-{index}")).number())] += 1;
        }
        assert!(counts.iter().all(|count| (50..=150).contains(count)), "{counts:?}");
    }
}
