//! What the tests of this workspace run against. Dev only: no image links it.
//!
//! * [`api_server`] is a Kubernetes API server inside the process: objects, versions, watches, faults.
//! * [`cluster`] is a real control plane of processes; [`programs`] finds or builds what it runs.
//! * [`real_node`] is a cluster of one node that really runs containers, from an [`image`] that is built here.
//! * [`controller`] is our controller as a process against it, [`fleet`] several replicas of it, [`webhook`]
//!   the admission webhook.
//! * [`audit`] reads what the API server was asked; [`judge`] finds in it whether anything was done twice or too late.
//! * [`chaos`] lets faults befall such a fleet.
//! * [`wrappers`] is what a user does with AppWrappers, [`load`] a steady stream of them.
//! * [`monitoring`] is Prometheus and what belongs to it, beside it.
//! * [`proxy`] stands in front of its API server: holds watches back, refuses, drops answers, counts requests.
//! * [`gate`] holds back what its watches deliver, which makes a cache blind.

// A fixture that breaks should stop the test at once, so the lints against panicking do not apply to this crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod answer;
pub mod api_server;
pub mod audit;
pub mod chaos;
pub mod cluster;
pub mod controller;
pub mod fleet;
pub mod gate;
pub mod image;
pub mod judge;
pub mod load;
pub mod monitoring;
pub mod programs;
pub mod progress;
pub mod proxy;
pub mod real_node;
pub mod webhook;
pub mod wrappers;

/// Makes rustls use ring. Needed once in a process before any TLS; more often does no harm.
pub fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
