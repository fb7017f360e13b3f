//! The controller of AppWrappers. Everything of interest is in the library; see `run.rs` for the wiring.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    // Two providers are compiled in by dependencies of dependencies; rustls refuses to choose.
    let _ = rustls::crypto::ring::default_provider().install_default();
    appwrapper_controller::args::Args::parse().run()
}
