//! The admission webhook: defaulting and validation of AppWrappers, in a deployment of its own.
//!
//! It needs no leader to serve and keeps no cache of workload objects, so any number of replicas answer alike, and an
//! AppWrapper can be created while every controller is away. Follow a request through [`serve`], [`service`], [`review`] to
//! [`mutate`] or [`validate`]; [`run`] wires a process, [`certs`] keeps it trusted, [`check`] validates without a cluster.

pub mod access;
pub mod args;
pub mod certs;
pub mod check;
pub mod client;
pub mod discovery;
pub mod error;
pub mod immutable;
pub mod labels;
pub mod mutate;
pub mod review;
pub mod run;
pub mod serve;
pub mod service;
pub mod validate;
pub mod verdict;
pub mod warnings;
