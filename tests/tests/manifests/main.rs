//! The manifests of `deploy/`: what each overlay renders to, judged by itself and by a real API server.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod access;
mod overlay;
mod references;
mod server;
mod settings;

/// Every overlay, and one of every component that no overlay uses.
const OVERLAYS: [&str; 5] = [
    "deploy/overlays/default",
    "deploy/overlays/ha",
    "deploy/overlays/dev",
    "deploy/kube-state-metrics",
    "tests/tests/manifests/overlays/everything",
];
