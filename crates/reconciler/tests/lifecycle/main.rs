//! The lifecycle, tried against a world of plain maps: no server, no runtime, no waiting.
//!
//! [`world`] is the second implementation of `Cluster`: what the API server holds, what the caches have been told of it,
//! and what goes wrong. [`sim`] is a controller in that world. Every pass in every test is watched over by the rules in
//! `world/rules.rs`, which hold whatever happens. One file per phase; `interleavings` is the property test.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on has failed"
)]

mod autoscaling;
mod completion;
mod course;
mod decision;
mod deletion;
mod deletion_forced;
mod driver;
mod empty;
mod expiry;
mod failed;
mod fixtures;
mod interleavings;
mod inversion;
mod last_failure;
mod names;
mod pods;
mod render_components;
mod render_pod_sets;
mod resetting;
mod restart;
mod resuming;
mod resuming_conflicts;
mod resuming_refused;
mod running;
mod running_components;
mod seed;
mod seed_doubts;
mod sim;
mod succeeded;
mod suspended;
mod suspending;
mod terminating;
mod world;
mod writes;
