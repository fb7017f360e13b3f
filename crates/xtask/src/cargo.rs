//! Runs Cargo on this workspace.
//!
//! Everything is selected from the whole workspace, also where one program is wanted: Cargo unites the features of what
//! is selected together, so any other selection would compile most libraries a second time.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// A program of this workspace, and how to build it.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its name, which is that of its package too.
    pub name: &'static str,
    /// As it is shipped: the release profile, and no feature that only another package asks for.
    pub release: bool,
    /// A feature to build it with.
    pub features: Option<&'static str>,
}

/// The controller as tests and the demo run it.
pub const CONTROLLER: Program = Program {
    name: "appwrapper-controller",
    release: false,
    features: None,
};
/// The webhook, in the same way.
pub const WEBHOOK: Program = Program {
    name: "appwrapper-webhook",
    ..CONTROLLER
};
/// The controller as it is shipped.
pub const RELEASED_CONTROLLER: Program = Program {
    name: "appwrapper-controller",
    release: true,
    features: None,
};

/// The webhook as it is shipped.
pub const RELEASED_WEBHOOK: Program = Program {
    name: "appwrapper-webhook",
    release: true,
    features: None,
};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Cargo, in the root of the workspace. It is killed when it is dropped.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root()).stdin(Stdio::null()).kill_on_drop(true);
    // The package that is run, as Cargo told us, is not the one that is built.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO_BIN_NAME" {
            command.env_remove(name);
        }
    }
    command
}

/// Builds a program, with Cargo's own progress on standard error; returns where it is.
pub async fn build(program: Program) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--locked", "--message-format=json-render-diagnostics"]);
    if program.release {
        command.args(["--release", "--package", program.name]);
    } else {
        command.args(["--workspace"]);
    }
    if let Some(features) = program.features {
        command.args(["--features", features]);
    }
    command.args(["--bin", program.name]).stdout(Stdio::piped());
    let mut child = command.spawn().context("running cargo build")?;
    let messages = child.stdout.take().context("cargo build has standard output")?;
    let mut lines = BufReader::new(messages).lines();
    let mut built = None;
    while let Some(line) = lines.next_line().await? {
        // Other messages have other fields.
        if let Ok(Artifact { target, executable }) = serde_json::from_str(&line)
            && target.name == program.name
        {
            built = executable.or(built);
        }
    }
    if !child.wait().await?.success() {
        bail!("building {} failed", program.name);
    }
    built.with_context(|| format!("cargo build tells of no program {}", program.name))
}

#[derive(Deserialize)]
struct Artifact {
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}
