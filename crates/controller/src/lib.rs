//! What joins the crates into a process: the watch of AppWrappers, the queue, the implementation of the reconciler's verbs
//! on a Kubernetes API server, and the wiring.
//!
//! Begin with [`run`], [`replica`] and [`shard`]. One event goes through [`wrappers`] or the caches into [`queue`], from there through
//! [`appwrapper_reconciler`] and [`cluster`] to the API server, and [`teller`] says what happened.

pub mod args;
pub mod backfill;
pub mod client;
pub mod cluster;
pub mod failure;
pub mod keeper;
pub mod ledger;
pub mod limiter;
pub mod memories;
pub mod nodes;
pub mod observer;
pub mod page;
pub mod progress;
pub mod queue;
pub mod recorder;
pub mod replica;
pub mod rights;
pub mod run;
pub mod shard;
pub mod teller;
pub mod wrappers;
