//! Builds one program from its Go module into the cache.
//!
//! A lock on a file beside it keeps two processes from building the same twice; the second waits and then finds it
//! built. The program appears under its name only when it is complete. What is going on is told on standard error.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::{Module, Program, controlplane_dir, go};
use crate::progress::Progress;

/// How many lines of Go's output an error carries.
const OUTPUT_KEPT: usize = 30;

/// Builds the program to the given path, unless another process has built it meanwhile.
pub async fn build(program: Program, path: &Path, number: usize, of: usize) -> Result<()> {
    let folder = path.parent().context("a program's path has a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let _lock = lock(&folder.join(".lock"), program).await?;
    if path.is_file() {
        return Ok(());
    }
    let module = controlplane_dir().join(program.module.folder);
    let go = go::toolchain(&module).await?;

    let staged = folder.join(format!(".{}.{}", program.name, std::process::id()));
    let mut progress = Progress::start(format!("building {} ({number} of {of})", program.name));
    let mut child = Command::new(go)
        .args([
            "build",
            "-mod=readonly",
            "-trimpath",
            "-ldflags",
            &linker_flags(program.module, &module)?,
            "-o",
        ])
        .arg(&staged)
        .arg(program.package)
        .current_dir(&module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("running go build")?;

    let mut output = Vec::new();
    let mut lines = BufReader::new(child.stderr.take().context("go build has standard error")?).lines();
    while let Some(line) = lines.next_line().await? {
        progress.note(line.clone());
        output.push(line);
    }
    if !child.wait().await?.success() {
        let _ = std::fs::remove_file(&staged);
        let kept = output.len().saturating_sub(OUTPUT_KEPT);
        bail!(
            "building {} failed:\n{}",
            program.name,
            output.split_off(kept).join("\n")
        );
    }
    std::fs::rename(&staged, path).with_context(|| format!("moving the program to {}", path.display()))?;
    progress.done();
    Ok(())
}

/// Takes the lock, and tells when it has to wait for another process.
async fn lock(path: &Path, program: Program) -> Result<File> {
    let file = File::options().create(true).append(true).open(path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    let mut waiting: Option<Progress> = None;
    loop {
        match file.try_lock() {
            Ok(()) => {
                if let Some(waiting) = waiting {
                    waiting.done();
                }
                return Ok(file);
            }
            Err(TryLockError::Error(error)) => return Err(error).context("locking the program cache"),
            Err(TryLockError::WouldBlock) => {
                let what = format!("waiting for another build of {}", program.name);
                waiting.get_or_insert_with(|| Progress::start(what));
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

fn linker_flags(module: Module, folder: &Path) -> Result<String> {
    let strip = "-s -w";
    let Some(required) = module.kubernetes_version_of else {
        return Ok(strip.to_owned());
    };
    let go_mod = std::fs::read_to_string(folder.join("go.mod"))?;
    let version = pinned_version(&go_mod, required).with_context(|| {
        format!(
            "{required} is not required by tests/controlplane/{}/go.mod",
            module.folder
        )
    })?;
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    Ok([
        strip.to_owned(),
        set("gitVersion", version),
        set("gitMajor", major),
        set("gitMinor", minor),
    ]
    .join(" "))
}

/// The version at which a `go.mod` requires a module.
fn pinned_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim_start().trim_start_matches("require ");
        line.strip_prefix(module)?.strip_prefix(' ')?.split_whitespace().next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::KUBECTL;

    #[test]
    fn the_pinned_kubernetes_version_is_written_into_the_programs() {
        let flags = linker_flags(KUBECTL.module, &controlplane_dir().join("kubernetes")).unwrap();
        assert!(flags.contains("version.gitVersion=v1."), "{flags}");
        assert!(flags.contains("version.gitMajor=1 "), "{flags}");
    }

    #[test]
    fn a_pin_is_found_in_a_block_and_on_a_line_of_its_own() {
        let block = "require (\n\tk8s.io/kubernetes v1.2.3 // indirect\n)";
        assert_eq!(pinned_version(block, "k8s.io/kubernetes"), Some("v1.2.3"));
        assert_eq!(pinned_version("require a.b/c v4.5.6", "a.b/c"), Some("v4.5.6"));
        assert_eq!(pinned_version(block, "k8s.io/kube"), None);
    }
}
