//! Makes authorities and issues serving certificates: ECDSA on P-256, short lives.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::certificate::{Authority, Certificate, Pair};

/// Validity begins this long before the present, or a tenth of a short life: for the clocks of others.
const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// What certificates say, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuing {
    /// Common name of the authority.
    pub authority_name: String,
    /// Organisation of the authority.
    pub organisation: String,
    /// Names and addresses of the server; the first is the one the API server calls by.
    pub names: Vec<String>,
    /// Life of an authority.
    pub authority_life: SignedDuration,
    /// Life of a serving certificate.
    pub serving_life: SignedDuration,
}

impl Issuing {
    /// A new authority.
    pub fn authority(&self, now: Timestamp) -> Result<Authority, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = self.subject(&self.authority_name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let end = now.saturating_add(self.authority_life).unwrap_or(Timestamp::MAX);
        (params.not_before, params.not_after) = validity(now, end);
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Authority {
            certificate: parsed(certificate.der())?,
            key: Some(key.serialize_pem()),
        })
    }

    /// A serving certificate of `authority`, which must have a key. It does not outlive the authority.
    pub fn pair(&self, authority: &Authority, now: Timestamp) -> Result<Pair, rcgen::Error> {
        let issuer_key = KeyPair::from_pem(authority.key.as_deref().unwrap_or_default())?;
        let issuer = Issuer::from_ca_cert_der(&authority.certificate.der, issuer_key)?;
        let mut params = CertificateParams::new(self.names.clone())?;
        params.distinguished_name = self.subject(self.names.first().map_or("", String::as_str));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let end = now.saturating_add(self.serving_life).unwrap_or(Timestamp::MAX);
        (params.not_before, params.not_after) = validity(now, end.min(authority.certificate.not_after));
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Pair::read(certificate.pem().as_bytes(), key.serialize_pem().as_bytes())
            .map_err(|_| rcgen::Error::CouldNotParseCertificate)
    }

    fn subject(&self, common_name: &str) -> DistinguishedName {
        let mut subject = DistinguishedName::new();
        // A common name has at most 64 characters; the names that count are the alternative ones.
        let common_name: String = common_name.chars().take(64).collect();
        subject.push(DnType::CommonName, common_name);
        subject.push(DnType::OrganizationName, self.organisation.clone());
        subject
    }
}

fn validity(now: Timestamp, end: Timestamp) -> (OffsetDateTime, OffsetDateTime) {
    let backdated = BACKDATED.min(end.duration_since(now).abs() / 10);
    let start = now.saturating_sub(backdated).unwrap_or(Timestamp::MIN);
    let date =
        |time: Timestamp| OffsetDateTime::from_unix_timestamp(time.as_second()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    (date(start), date(end))
}

fn parsed(der: &CertificateDer<'_>) -> Result<Certificate, rcgen::Error> {
    Certificate::read(der.clone().into_owned()).map_err(|_| rcgen::Error::CouldNotParseCertificate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust;

    fn issuing() -> Issuing {
        Issuing {
            authority_name: "ca".into(),
            organisation: "appwrapper".into(),
            names: vec!["name.svc".into(), "127.0.0.1".into()],
            authority_life: SignedDuration::from_hours(180 * 24),
            serving_life: SignedDuration::from_hours(90 * 24),
        }
    }

    #[test]
    fn what_is_issued_is_trusted_for_its_names_and_its_time() {
        let now = Timestamp::now();
        let authority = issuing().authority(now).unwrap();
        let pair = issuing().pair(&authority, now).unwrap();
        let anchors = [authority.certificate.clone()];
        for name in issuing().names {
            trust::check(&pair, anchors.iter(), &name, now).unwrap();
        }
        assert!(trust::check(&pair, anchors.iter(), "other.svc", now).is_err());
        let name = &issuing().names[0];
        let late = now + SignedDuration::from_hours(91 * 24);
        assert!(trust::check(&pair, anchors.iter(), name, late).is_err());
        let stranger = issuing().authority(now).unwrap();
        assert!(trust::check(&pair, [&stranger.certificate].into_iter(), name, now).is_err());
        assert!(trust::check(&pair, [&stranger.certificate, &anchors[0]].into_iter(), name, now).is_ok());
    }

    #[test]
    fn a_serving_certificate_does_not_outlive_its_authority() {
        let now = Timestamp::now();
        let authority = Issuing {
            authority_life: SignedDuration::from_hours(24),
            ..issuing()
        }
        .authority(now)
        .unwrap();
        let pair = issuing().pair(&authority, now).unwrap();
        assert_eq!(pair.leaf.not_after, authority.certificate.not_after);
    }
}
