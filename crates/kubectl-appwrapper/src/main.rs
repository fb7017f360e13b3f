//! `kubectl appwrapper`: looks at AppWrappers. Everything of interest is in the library.

use std::process::ExitCode;

use clap::Parser;
use kubectl_appwrapper::{args::Args, run};

fn main() -> ExitCode {
    // Two providers may be compiled in by dependencies of dependencies; rustls refuses to choose.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match run::main(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
