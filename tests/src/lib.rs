//! Tests that need a real control plane, in `tests/`. Run them with `cargo xtask test --tier 2`, which finds or builds the
//! programs first. `README.md` says which test shows what.
//!
//! * [`world`]: a cluster with our controller on it, as a process with the rights of its ServiceAccount, behind a proxy.
//! * [`team`]: a namespace of one test, and everything a user does and sees there.
//! * [`components`]: what AppWrappers of tests wrap.
//! * [`suite`]: many tests side by side on one cluster.

// A fixture that breaks should stop the test at once, so the lints against panicking do not apply to this crate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod components;
pub mod suite;
pub mod team;
pub mod world;

pub use team::Team;
pub use world::World;
