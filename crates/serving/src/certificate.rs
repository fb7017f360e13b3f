//! Certificates and their keys, checked when they are read.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::pem;

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
    /// Reads a certificate and the key to it; a key that does not belong to it counts as absent.
    pub fn read(certificate: &[u8], key: Option<&[u8]>) -> Result<Self, String> {
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
