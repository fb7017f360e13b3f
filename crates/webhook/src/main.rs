//! The admission webhook's binary.

use std::process::ExitCode;

use appwrapper_webhook::{
    args::{Cli, Command},
    run,
};
use clap::Parser;

fn main() -> anyhow::Result<ExitCode> {
    // Before any TLS: with more than one provider in the tree rustls would not choose by itself.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Cli { command, serve } = Cli::parse();
    match command {
        Some(Command::Check(check)) => {
            let report = run::check(&check)?;
            print!("{}", report.text);
            Ok(report.exit_code().into())
        }
        None => {
            tokio::runtime::Runtime::new()?.block_on(run::serve(serve))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
