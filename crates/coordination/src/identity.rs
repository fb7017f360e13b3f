//! Who this process is, as written into `holderIdentity`.
//!
//! `<pod>_<podUID>_<bootNonce>`, at most 128 bytes, since the API server bounds field managers at that and identities
//! end up in them. The nonce makes every start of the process another holder, so that no two of them share an epoch.
//! The kubelet starts a container's next instance only after the last one has ended, so a holder with our pod uid and
//! another nonce that was there before us is dead and its leases can be taken at once (ha-sharding.md, 3.6).

use std::fmt;

use crate::{error::Error, jitter::Jitter};

/// Longest identity.
const LONGEST: usize = 128;
/// Between the parts; allowed in neither pod names nor uids.
const SEPARATOR: char = '_';

/// The identity of one start of one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    text: String,
    /// Length of `<pod>_<podUID>_`; none if the pod uid is unknown, and then no earlier incarnation is ever recognised.
    same_pod: Option<usize>,
}

/// The parts of an identity that has our form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentityParts<'a> {
    /// Name of the pod, cut if it was very long.
    pub pod: &'a str,
    /// Its uid, empty if unknown.
    pub pod_uid: &'a str,
    /// The start of the process.
    pub nonce: &'a str,
}

// === impl Identity ===

impl Identity {
    /// The identity of this start of `pod`. Without the uid (downward API not set up, or a process outside a pod), a
    /// restart waits for its old lease to run out like everybody else.
    pub fn of_pod(pod: &str, pod_uid: Option<&str>) -> Result<Self, Error> {
        let nonce = format!("{:016x}", Jitter::from_entropy().next_u64());
        Self::with_nonce(pod, pod_uid, &nonce)
    }

    /// The same with a chosen nonce.
    pub fn with_nonce(pod: &str, pod_uid: Option<&str>, nonce: &str) -> Result<Self, Error> {
        let refuse = |field, value: &str, remedy: &str| {
            Err(Error::InvalidSetting {
                field,
                value: value.to_owned(),
                remedy: remedy.to_owned(),
            })
        };
        let uid = pod_uid.unwrap_or_default();
        let plain = |part: &str| {
            part.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        };
        if pod.is_empty() || !plain(pod) {
            return refuse("identity", pod, "use the pod's name: letters, digits, '-' and '.'");
        }
        if uid.len() > 36 || !plain(uid) {
            return refuse("pod uid", uid, "use metadata.uid of the pod, by the downward API");
        }
        if nonce.is_empty() || nonce.len() > 32 || !plain(nonce) {
            return refuse("boot nonce", nonce, "use up to 32 letters and digits");
        }
        // The end of a pod's name is what tells it from its siblings, so a long one loses its beginning.
        let room = LONGEST - uid.len() - nonce.len() - 2;
        let pod = pod
            .get(pod.len().saturating_sub(room)..)
            .unwrap_or(pod)
            .trim_start_matches(['-', '.']);
        let prefix = format!("{pod}{SEPARATOR}{uid}{SEPARATOR}");
        let same_pod = pod_uid.map(|_| prefix.len());
        Ok(Self {
            text: prefix + nonce,
            same_pod,
        })
    }

    /// As written into the Lease.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Name of the pod, as far as it is part of the identity. Members of a ring are known by it.
    pub fn pod(&self) -> &str {
        self.text.split(SEPARATOR).next().unwrap_or_default()
    }

    /// Whether `holder` is another start of the very pod this process runs in.
    pub fn is_other_start_of_this_pod(&self, holder: &str) -> bool {
        let prefix = self.same_pod.and_then(|length| self.text.get(..length));
        prefix.is_some_and(|prefix| holder.starts_with(prefix)) && holder != self.text
    }

    /// The parts, if `holder` has our form. The Go controller's `<host>_<uuid>` has not.
    pub fn parse(holder: &str) -> Option<IdentityParts<'_>> {
        let mut parts = holder.split(SEPARATOR);
        let (pod, pod_uid, nonce) = (parts.next()?, parts.next()?, parts.next()?);
        (parts.next().is_none() && !pod.is_empty() && !nonce.is_empty()).then_some(IdentityParts {
            pod,
            pod_uid,
            nonce,
        })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "6f9619ff-8b86-d011-b42d-00c04fc964ff";

    #[test]
    fn a_restart_recognises_its_own_pod_only() {
        let me = Identity::with_nonce("ctl-0", Some(UID), "b").unwrap();
        assert_eq!(me.as_str(), format!("ctl-0_{UID}_b"));
        assert!(me.is_other_start_of_this_pod(&format!("ctl-0_{UID}_a")));
        assert!(!me.is_other_start_of_this_pod(me.as_str()));
        assert!(!me.is_other_start_of_this_pod("ctl-0_00000000-8b86-d011-b42d-00c04fc964ff_a"));
        assert!(!me.is_other_start_of_this_pod("ctl-0_5d0d3cf5-9b8c-4a53-9a43-2f9fa3c1d6c1"));
    }

    #[test]
    fn without_a_pod_uid_no_restart_is_recognised() {
        let me = Identity::with_nonce("ctl-0", None, "b").unwrap();
        assert_eq!(me.as_str(), "ctl-0__b");
        assert!(!me.is_other_start_of_this_pod("ctl-0__a"));
    }

    #[test]
    fn an_identity_never_exceeds_128_bytes_and_differs_by_start() {
        let pod = "p".repeat(253);
        let (one, two) = (
            Identity::of_pod(&pod, Some(UID)).unwrap(),
            Identity::of_pod(&pod, Some(UID)).unwrap(),
        );
        assert_eq!(one.as_str().len(), 128);
        assert_ne!(one, two);
        assert!(one.is_other_start_of_this_pod(two.as_str()));
    }

    #[test]
    fn bad_parts_are_refused_with_a_remedy() {
        for (pod, uid, nonce) in [
            ("", None, "a"),
            ("a_b", None, "a"),
            ("a", Some("x_y"), "a"),
            ("a", None, ""),
        ] {
            assert!(
                Identity::with_nonce(pod, uid, nonce)
                    .unwrap_err()
                    .to_string()
                    .contains("use ")
            );
        }
    }

    #[test]
    fn only_our_form_is_parsed() {
        let me = Identity::with_nonce("ctl-0", Some(UID), "b").unwrap();
        let parts = Identity::parse(me.as_str()).unwrap();
        assert_eq!((parts.pod, parts.pod_uid, parts.nonce), ("ctl-0", UID, "b"));
        assert_eq!(Identity::parse("host_5d0d3cf5-9b8c-4a53-9a43-2f9fa3c1d6c1"), None);
        assert_eq!(Identity::parse("a_b_c_d"), None);
    }
}
