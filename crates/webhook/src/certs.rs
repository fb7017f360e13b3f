//! Certificates of the webhook: mounted files, or managed by the replicas themselves.
//!
//! Every replica runs [`files`] or [`replica`], which feed the [`resolver`]; the one that holds the certificate Lease also
//! runs the [`rotator`], which carries out the [`plan`].

pub mod bundle;
pub mod clock;
pub mod files;
pub mod gate;
pub mod issue;
pub mod lease;
pub mod material;
mod pem;
pub mod plan;
pub mod replica;
pub mod reports;
pub mod resolver;
pub mod rotator;
pub mod trust;
