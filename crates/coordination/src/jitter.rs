//! Small seeded randomness for jitter, boot nonces and stable hashing.
//!
//! Not for secrets. The generator is splitmix64: fifteen lines, the same on every platform and in every version, which
//! the seeded simulation and the placement of slots (every replica must compute the same) both rely on.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

/// A splitmix64 generator.
#[derive(Debug, Clone)]
pub(crate) struct Jitter(u64);

// === impl Jitter ===

impl Jitter {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Seeded by the operating system, through the keys that std draws for its hash maps.
    pub(crate) fn from_entropy() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finish(self.0)
    }

    /// `base` lengthened or shortened by up to a tenth, so that replicas do not fall into step.
    pub(crate) fn around(&mut self, base: Duration) -> Duration {
        base.mul_f64(0.9) + self.up_to(base.mul_f64(0.2))
    }

    /// Anything from zero to `most`.
    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.next_u64() % nanos.saturating_add(1).max(1))
    }
}

/// Hash of the parts, each closed by a byte that no Kubernetes name contains, so that ("a", "bc") and ("ab", "c") differ.
/// FNV-1a with splitmix's finisher: stable for ever, since it decides where objects live.
pub(crate) fn stable_hash(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.bytes().chain(std::iter::once(0xff)) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    finish(hash)
}

fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_a_tenth() {
        let mut jitter = Jitter::seeded(7);
        let base = Duration::from_secs(2);
        for _ in 0..1_000 {
            let drawn = jitter.around(base);
            assert!(drawn >= base.mul_f64(0.9) && drawn <= base.mul_f64(1.1), "{drawn:?}");
        }
        assert_eq!(jitter.up_to(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_stable_hash_never_changes_and_separates_its_parts() {
        assert_eq!(stable_hash(&["default", "sample"]), 17_484_734_361_979_045_535);
        assert_ne!(stable_hash(&["a", "bc"]), stable_hash(&["ab", "c"]));
    }
}
