//! Serving over TLS, and who may ask: certificates read, issued and followed; callers reviewed by the API server.
//!
//! The webhook serves admission with it, and both binaries their metrics: [`holder`] hands out the certificate in use,
//! [`files`] reads mounted ones, [`issue`] makes them, [`endpoint`] puts them before `/metrics` together with the
//! [`reviewer`].

pub mod certificate;
pub mod endpoint;
pub mod files;
pub mod holder;
pub mod issue;
mod pem;
pub mod reviewer;
pub mod trust;
