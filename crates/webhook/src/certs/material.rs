//! Certificates and keys as they lie in the Secret.
//!
//! `ca.crt` `ca.key` `tls.crt` `tls.key` as the Go controller has them, so that an installation can be taken over; beside them
//! `next-ca.crt` `next-ca.key` while a new authority is being introduced, and `previous-ca.crt` until the last replica has
//! left the old one. Everything is checked when it is read: a part that is broken counts as absent and is told once.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use rcgen::KeyPair;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use super::pem;

/// Keys of the Secret.
const CA: &str = "ca";
const NEXT: &str = "next-ca";
const PREVIOUS: &str = "previous-ca";
const SERVING: &str = "tls";

/// A certificate and what is read from it.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate itself.
    pub der: CertificateDer<'static>,
    /// Start of its validity.
    pub not_before: Timestamp,
    /// End of its validity.
    pub not_after: Timestamp,
    /// Its serial number, by which replicas tell what they serve.
    pub serial: String,
}

/// An authority. Without a key that we can use it is still trusted, but can issue nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// Its certificate.
    pub certificate: Certificate,
    /// Its key in PEM, if it is one that belongs to the certificate and that we can sign with.
    pub key: Option<String>,
}

/// What is served.
#[derive(Clone)]
pub struct Pair {
    /// The certificate of the server.
    pub leaf: Certificate,
    /// As rustls wants it; key and certificate belong together.
    pub certified: Arc<CertifiedKey>,
    /// The chain in PEM.
    pub chain_pem: String,
    /// The key in PEM.
    pub key_pem: String,
}

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

impl Certificate {
    /// Reads a certificate.
    pub fn read(der: CertificateDer<'static>) -> Result<Self, String> {
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&der).map_err(|error| format!("no certificate: {error}"))?;
        let time =
            |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).map_err(|e| e.to_string());
        let validity = parsed.validity();
        let (not_before, not_after) = (time(validity.not_before)?, time(validity.not_after)?);
        let serial = parsed.raw_serial_as_string();
        Ok(Self {
            der,
            not_before,
            not_after,
            serial,
        })
    }

    /// The first certificate of a PEM text.
    pub fn from_pem(text: &[u8]) -> Result<Self, String> {
        let der = CertificateDer::from_pem_slice(text).map_err(|error| format!("no certificate in PEM: {error}"))?;
        Self::read(der.into_owned())
    }

    /// Every certificate of a PEM text that can be read.
    pub fn all_from_pem(text: &[u8]) -> Vec<Self> {
        CertificateDer::pem_slice_iter(text)
            .filter_map(Result::ok)
            .filter_map(|der| Self::read(der.into_owned()).ok())
            .collect()
    }

    /// Whether it is valid at `now`.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    /// When two thirds of its life are over: the time to renew it.
    pub fn renewal(&self) -> Timestamp {
        let life = self.not_after.duration_since(self.not_before);
        self.not_after.checked_sub(life / 3).unwrap_or(self.not_after)
    }

    /// In PEM.
    pub fn pem(&self) -> String {
        pem::certificate(&self.der)
    }
}

impl Authority {
    fn read(certificate: &[u8], key: Option<&[u8]>) -> Result<Self, String> {
        let certificate = Certificate::from_pem(certificate)?;
        let key = key.and_then(|key| String::from_utf8(key.to_vec()).ok()).filter(|key| {
            let parsed = x509_parser::parse_x509_certificate(&certificate.der).ok();
            let public = parsed
                .as_ref()
                .map(|(_, parsed)| &*parsed.public_key().subject_public_key.data);
            KeyPair::from_pem(key).is_ok_and(|key| Some(key.public_key_raw()) == public)
        });
        Ok(Self { certificate, key })
    }
}

impl Pair {
    /// Reads a chain and its key; the two must belong together.
    pub fn read(chain: &[u8], key: &[u8]) -> Result<Self, String> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|error| format!("no certificate in PEM: {error}"))?;
        let first = certificates.first().ok_or("no certificate in PEM")?;
        let leaf = Certificate::read(first.clone().into_owned())?;
        let private = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("no private key in PEM: {error}"))?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(certificates, private, &provider).map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string());
        Ok(Self {
            leaf,
            certified: Arc::new(certified),
            chain_pem: text(chain)?,
            key_pem: text(key)?,
        })
    }
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

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.chain_pem == other.chain_pem && self.key_pem == other.key_pem
    }
}

// Keys must not get into logs.

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}, {})", self.serial, self.not_before, self.not_after)
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}{}",
            self.certificate,
            if self.key.is_some() { "" } else { " without key" }
        )
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leaf.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs::issue::tests::issuing;

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
