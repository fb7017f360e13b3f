//! Names for components that ask for a generated one.
//!
//! The name is a function of stored facts, not of chance: a pass that is repeated after a crash computes the same name, and
//! so finds what it created (spec/lifecycle.md 9, row 17). The form is the API server's: a prefix of at most 58 bytes and
//! five characters that spell no word.

use std::hash::{DefaultHasher, Hash, Hasher};

const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const PREFIX_LIMIT: usize = 58;
const SUFFIX_LENGTH: usize = 5;

/// The name under `prefix` that belongs to `seed`.
pub(crate) fn generate_name(prefix: &str, seed: &impl Hash) -> String {
    let mut end = prefix.len().min(PREFIX_LIMIT);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    let mut rest = hasher.finish();
    let mut name = prefix.get(..end).unwrap_or_default().to_owned();
    for _ in 0..SUFFIX_LENGTH {
        let size = ALPHABET.len() as u64;
        let index = usize::try_from(rest % size).unwrap_or(0);
        rest /= size;
        name.push(char::from(ALPHABET.get(index).copied().unwrap_or(b'b')));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_for_the_same_seed_and_another_for_the_next() {
        let first = generate_name("train-", &("uid", 0, 0));
        assert_eq!(first, generate_name("train-", &("uid", 0, 0)));
        assert_ne!(first, generate_name("train-", &("uid", 0, 1)));
        assert_eq!(first.len(), "train-".len() + 5);
    }

    #[test]
    fn a_long_prefix_is_cut_as_the_api_server_cuts_it() {
        assert_eq!(generate_name(&"a".repeat(100), &1).len(), 63);
        assert!(generate_name(&"\u{e4}".repeat(40), &1).is_char_boundary(58));
    }
}
