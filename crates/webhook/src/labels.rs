//! The labels that an AppWrapper gets at creation whatever the user sent: who made it, and its slot.
//!
//! Both webhooks need them: one sets them, the other checks that they arrived, since another mutating webhook may run later
//! or ours may be missing. The names are cut and cleaned, so two users can share a value: nothing may be authorised by it.

use appwrapper_api::{AppWrapper, SLOT_LABEL, Slot, USER_ID_LABEL, USER_LABEL};

use crate::review::UserInfo;

/// Longest value of a label, in bytes.
const LIMIT: usize = 63;

/// The two identity labels of a user, by key.
pub fn identity(user: &UserInfo) -> [(&'static str, String); 2] {
    [
        (USER_LABEL, sanitise(&user.username)),
        (USER_ID_LABEL, sanitise(&user.uid)),
    ]
}

/// The slot of a new AppWrapper. A name that is still to be generated is not known to the mutating webhook, so the slot
/// then comes from the identity of its call.
pub fn slot(namespace: &str, name: &str, request_uid: &str) -> Slot {
    if name.is_empty() {
        Slot::of_request(request_uid)
    } else {
        Slot::of(namespace, name)
    }
}

/// The value of a label; a missing one reads as empty.
pub fn label<'a>(wrapper: &'a AppWrapper, key: &str) -> &'a str {
    let labels = wrapper.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// The slot that an AppWrapper carries, if its label names one.
pub fn slot_of(wrapper: &AppWrapper) -> Option<Slot> {
    Slot::parse(label(wrapper, SLOT_LABEL))
}

/// A label value as the Go controller makes it of a name: cut to 63 bytes, what is not legal replaced by `_`, then stripped
/// of `-`, `_` and `.` at both ends. A byte left over from a cut character becomes one `_`.
pub fn sanitise(text: &str) -> String {
    let cut = text.as_bytes().get(..LIMIT).unwrap_or(text.as_bytes());
    let mut value = String::with_capacity(cut.len());
    for chunk in cut.utf8_chunks() {
        let legal = |c: char| {
            if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') {
                c
            } else {
                '_'
            }
        };
        value.extend(chunk.valid().chars().map(legal));
        value.extend(chunk.invalid().iter().map(|_| '_'));
    }
    value.trim_matches(['-', '_', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("ann", "ann")]
    #[case("system:serviceaccount:ns:bot", "system_serviceaccount_ns_bot")]
    #[case("ann@example.com", "ann_example.com")]
    #[case("---", "")]
    #[case("", "")]
    #[case("_ann._", "ann")]
    #[case("änn", "nn")]
    #[case("aän", "a_n")]
    fn a_name_becomes_a_label_value(#[case] name: &str, #[case] value: &str) {
        assert_eq!(sanitise(name), value);
    }

    #[test]
    fn a_long_name_is_cut_in_bytes_even_within_a_character() {
        assert_eq!(sanitise(&"x".repeat(100)), "x".repeat(63));
        // 62 bytes of text, then the first byte of a two-byte letter, which is replaced and stripped.
        assert_eq!(sanitise(&format!("{}ä", "x".repeat(62))), "x".repeat(62));
        assert_eq!(sanitise(&format!("{}ab", "ä".repeat(31))), "a");
    }

    proptest! {
        #[test]
        fn every_name_becomes_a_legal_value(name in ".{0,90}") {
            let value = sanitise(&name);
            prop_assert!(value.len() <= LIMIT);
            let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
            prop_assert!(edge(value.chars().next()) && edge(value.chars().last()));
            prop_assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)));
        }
    }
}
