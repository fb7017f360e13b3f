//! A wrong time of day for one process, by a small library that is preloaded into it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use crate::controller::ControllerOptions;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clock/shifted.rs");

/// Compiles the library into a folder, once.
pub async fn library(folder: &Path) -> Result<PathBuf> {
    let library = folder.join("libshifted.so");
    if library.is_file() {
        return Ok(library);
    }
    // The compiler that has built us, if Cargo has told us of one.
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args(["--edition", "2024", "--crate-type", "cdylib", "-O", "-o"])
        .arg(&library)
        .arg(SOURCE);
    let output = rustc.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.context("running rustc")?;
    if !output.status.success() {
        bail!("compiling {SOURCE}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(library)
}

/// The options with the clock off by so many seconds.
pub fn shifted(options: ControllerOptions, library: &Path, seconds: i64) -> ControllerOptions {
    options
        .env("LD_PRELOAD", library.display().to_string())
        .env("SHIFTED_BY", seconds.to_string())
}
