//! Certificates of the webhook: mounted files, or managed by the replicas themselves.
//!
//! Every replica runs [`files`] or [`replica`], which feed the [`resolver`]; the one that holds the certificate Lease also
//! runs the [`rotator`], which carries out the [`plan`].

pub use appwrapper_serving::{issue, trust};

pub mod bundle;
pub mod clock;
pub mod files;
pub mod gate;
pub mod lease;
pub mod material;
pub mod plan;
pub mod replica;
pub mod reports;
pub mod resolver;
pub mod rotator;

#[cfg(test)]
mod tests {
    use appwrapper_serving::issue::Issuing;
    use jiff::SignedDuration;

    /// Names for the tests of this module's parts.
    pub(in crate::certs) fn issuing() -> Issuing {
        Issuing {
            authority_name: "appwrapper-ca".into(),
            organisation: "appwrapper".into(),
            names: vec![
                "appwrapper-webhook-service.appwrapper-system.svc".into(),
                "127.0.0.1".into(),
            ],
            authority_life: SignedDuration::from_hours(180 * 24),
            serving_life: SignedDuration::from_hours(90 * 24),
        }
    }
}
