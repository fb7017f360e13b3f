//! Images of a real node: the two it has from the start, and how others come in.
//!
//! There is no registry to pull from, so both are made here around the machine's statically linked busybox.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::Instant;

use super::namespaces::Namespaces;
use super::requirements::BUSYBOX;
use super::run;
use super::settings::{CONTAINERD_SOCKET, PAUSE_IMAGE};
use crate::cluster::ready::wait;
use crate::image::Builder;

/// What samples and tests name as their image.
const SHELL_IMAGE: &str = "docker.io/library/busybox:1.37";

/// Makes and imports the node's own images, as soon as containerd answers.
pub async fn import_own(dir: &Path, namespaces: &Namespaces, until: Instant) -> Result<()> {
    let context = dir.join("busybox");
    let programs = context.join("root/bin");
    std::fs::create_dir_all(&programs)?;
    std::fs::create_dir_all(context.join("root/tmp"))?;
    std::fs::copy(BUSYBOX, programs.join("busybox")).with_context(|| format!("copying {BUSYBOX}"))?;
    let listed = std::process::Command::new(BUSYBOX).arg("--list").output()?;
    for applet in String::from_utf8(listed.stdout)?
        .lines()
        .filter(|applet| *applet != "busybox")
    {
        std::os::unix::fs::symlink("busybox", programs.join(applet))?;
    }
    // Sleeping is all that a pause has to do, since the kubelet's pods share no process namespace.
    let text = "FROM scratch\nCOPY root /\nCMD [\"/bin/sleep\", \"2147483647\"]\n";
    std::fs::write(context.join("Dockerfile"), text)?;
    let builder = Builder::in_folder(dir.join("images"));
    builder
        .build(&context.join("Dockerfile"), &context, PAUSE_IMAGE, &[])
        .await?;
    wait(until, "containerd answers", || async {
        containerd(namespaces, &["version"]).await.map(Some)
    })
    .await?;
    for name in [PAUSE_IMAGE, SHELL_IMAGE] {
        import(namespaces, &builder.save(PAUSE_IMAGE, name).await?).await?;
    }
    Ok(())
}

/// Imports an archive.
pub async fn import(namespaces: &Namespaces, archive: &Path) -> Result<()> {
    let import = ["images", "import", &archive.to_string_lossy()];
    tokio::time::timeout(Duration::from_secs(120), containerd(namespaces, &import))
        .await
        .context("importing an image takes too long")?
}

/// Has containerd do something to what the kubelet has there.
pub async fn containerd(namespaces: &Namespaces, arguments: &[&str]) -> Result<()> {
    let mut command = namespaces.enter("ctr");
    command
        .args(["--address", CONTAINERD_SOCKET, "--namespace", "k8s.io"])
        .args(arguments);
    run(command).await
}
