//! Certificates and keys as they lie in the Secret.
//!
//! `ca.crt` `ca.key` `tls.crt` `tls.key` as the Go controller has them, so that an installation can be taken over; beside them
//! `next-ca.crt` `next-ca.key` while a new authority is being introduced, and `previous-ca.crt` until the last replica has
//! left the old one. Everything is checked when it is read: a part that is broken counts as absent and is told once.

use std::collections::BTreeMap;

pub use appwrapper_serving::certificate::{Authority, Certificate, Pair};
use k8s_openapi::{ByteString, api::core::v1::Secret};

/// Keys of the Secret.
const CA: &str = "ca";
const NEXT: &str = "next-ca";
const PREVIOUS: &str = "previous-ca";
const SERVING: &str = "tls";

/// All parts of the Secret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Material {
    /// The authority that issues.
    pub ca: Option<Authority>,
    /// The one that will.
    pub next: Option<Authority>,
    /// The one that did.
    pub previous: Option<Certificate>,
    /// What is served.
    pub serving: Option<Pair>,
}

impl Material {
    /// Reads the Secret, and what is wrong with it.
    pub fn of(secret: &Secret) -> (Self, Vec<String>) {
        secret.data.as_ref().map(Self::read).unwrap_or_default()
    }

    /// Reads the data of the Secret, and what is wrong with it.
    pub fn read(data: &BTreeMap<String, ByteString>) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let part = |name: &str, end: &str| {
            data.get(&format!("{name}.{end}"))
                .map(|value| value.0.as_slice())
                .filter(|v| !v.is_empty())
        };
        let mut authority = |name: &str| {
            let certificate = part(name, "crt")?;
            let read = Authority::read(certificate, part(name, "key"));
            read.map_err(|fault| faults.push(format!("{name}: {fault}"))).ok()
        };
        let (ca, next) = (authority(CA), authority(NEXT));
        let previous = part(PREVIOUS, "crt").and_then(|text| {
            Certificate::from_pem(text)
                .map_err(|fault| faults.push(format!("{PREVIOUS}: {fault}")))
                .ok()
        });
        let serving = match (part(SERVING, "crt"), part(SERVING, "key")) {
            (Some(chain), Some(key)) => Pair::read(chain, key)
                .map_err(|fault| faults.push(format!("{SERVING}: {fault}")))
                .ok(),
            _ => None,
        };
        (
            Self {
                ca,
                next,
                previous,
                serving,
            },
            faults,
        )
    }

    /// The data of the Secret. Parts that are absent are written empty, so that a merge takes them away.
    pub fn write(&self) -> BTreeMap<String, ByteString> {
        let mut data = BTreeMap::new();
        let mut put = |name: &str, end: &str, text: Option<String>| {
            data.insert(
                format!("{name}.{end}"),
                ByteString(text.unwrap_or_default().into_bytes()),
            );
        };
        for (name, authority) in [(CA, &self.ca), (NEXT, &self.next)] {
            put(
                name,
                "crt",
                authority.as_ref().map(|authority| authority.certificate.pem()),
            );
            put(
                name,
                "key",
                authority.as_ref().and_then(|authority| authority.key.clone()),
            );
        }
        put(PREVIOUS, "crt", self.previous.as_ref().map(Certificate::pem));
        put(SERVING, "crt", self.serving.as_ref().map(|pair| pair.chain_pem.clone()));
        put(SERVING, "key", self.serving.as_ref().map(|pair| pair.key_pem.clone()));
        data
    }

    /// The certificates that the API server should trust: the issuing authority, the coming and the leaving one.
    pub fn anchors(&self) -> Vec<&Certificate> {
        let authorities = self.ca.iter().chain(&self.next).map(|authority| &authority.certificate);
        let mut anchors: Vec<_> = authorities.collect();
        anchors.extend(self.previous.as_ref().filter(|previous| !anchors.contains(previous)));
        anchors
    }

    /// The same as a bundle in PEM.
    pub fn bundle(&self) -> String {
        self.anchors().into_iter().map(Certificate::pem).collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::certs::tests::issuing;

    fn material() -> Material {
        let now = Timestamp::now();
        let ca = issuing().authority(now).unwrap();
        let serving = issuing().pair(&ca, now).unwrap();
        Material {
            serving: Some(serving),
            next: Some(issuing().authority(now).unwrap()),
            previous: Some(ca.certificate.clone()),
            ca: Some(ca),
        }
    }

    #[test]
    fn material_is_read_back() {
        let material = material();
        let (read, faults) = Material::read(&material.write());
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(read, material);
        assert_eq!(read.anchors().len(), 2);
        assert_eq!(Certificate::all_from_pem(material.bundle().as_bytes()).len(), 2);
        assert_eq!(Material::read(&BTreeMap::new()), (Material::default(), Vec::new()));
        assert_eq!(
            Material::read(&Material::default().write()),
            (Material::default(), Vec::new())
        );
    }

    #[test]
    fn a_broken_part_counts_as_absent_and_is_told() {
        let mut data = material().write();
        let other = material().write();
        data.insert("ca.key".into(), other["ca.key"].clone());
        data.insert("tls.key".into(), other["tls.key"].clone());
        data.insert(
            "next-ca.crt".into(),
            ByteString(b"-----BEGIN CERTIFICATE-----\ngarbage".to_vec()),
        );
        let (read, faults) = Material::read(&data);
        assert_eq!(read.ca.unwrap().key, None, "a key of another certificate cannot issue");
        assert!(read.serving.is_none() && read.next.is_none());
        assert_eq!(faults.len(), 2, "{faults:?}");
    }

    #[test]
    fn keys_are_never_printed() {
        let text = format!("{:?}", material());
        assert!(!text.contains("PRIVATE") && !text.contains("BEGIN"), "{text}");
    }
}
