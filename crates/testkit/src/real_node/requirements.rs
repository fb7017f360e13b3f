//! What a real node needs of the machine: root, and programs of Debian packages.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::process::geteuid;
use tokio::process::Command;

/// Folders of network plugins: Debian's, and where their project puts them.
const PLUGIN_FOLDERS: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];

/// Programs, and the Debian package of each.
const PROGRAMS: [(&str, &str); 8] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("buildah", "buildah"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
];
/// The package of the network plugins.
const PLUGINS: &str = "containernetworking-plugins";
/// The package of the shell in test images.
const SHELL: &str = "busybox-static";

/// Where the statically linked busybox is.
pub(super) const BUSYBOX: &str = "/bin/busybox";

/// What is missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// This process is not root.
    pub root: bool,
    /// Debian packages.
    pub packages: Vec<&'static str>,
}

impl Missing {
    /// Looks.
    pub fn here() -> Self {
        let programs = PROGRAMS.iter().filter(|(name, _)| find(name).is_none());
        let mut packages: Vec<&str> = programs.map(|(_, package)| *package).collect();
        packages.dedup();
        if plugin_folder().is_none() {
            packages.push(PLUGINS);
        }
        if !is_static(Path::new(BUSYBOX)) {
            packages.push(SHELL);
        }
        Self {
            root: !geteuid().is_root(),
            packages,
        }
    }

    /// Whether nothing is.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a real node needs ")?;
        if self.root {
            f.write_str("root: run this as root")?;
        }
        if self.root && !self.packages.is_empty() {
            f.write_str("; and ")?;
        }
        if !self.packages.is_empty() {
            let packages = self.packages.join(" ");
            write!(f, "Debian packages: apt-get install --no-install-recommends {packages}")?;
        }
        Ok(())
    }
}

/// Fails with what is missing.
///
/// # Errors
///
/// When something is.
pub fn check() -> Result<()> {
    let missing = Missing::here();
    if !missing.is_none() {
        bail!("{missing}");
    }
    Ok(())
}

/// Installs the packages that are missing.
///
/// # Errors
///
/// When this process is not root, or apt-get fails.
pub async fn install() -> Result<()> {
    let missing = Missing::here();
    if missing.root {
        bail!("{missing}");
    }
    if missing.packages.is_empty() {
        return Ok(());
    }
    apt_get(&["update", "-qq"]).await?;
    let arguments = ["install", "-y", "-qq", "--no-install-recommends"];
    apt_get(&[&arguments[..], &missing.packages[..]].concat()).await
}

async fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .kill_on_drop(true);
    let status = command.status().await.context("running apt-get")?;
    if !status.success() {
        bail!("apt-get {} ended: {status}", arguments.join(" "));
    }
    Ok(())
}

/// Where a program is on the path, to which the folders of root's programs belong.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Where the network plugins are.
pub(super) fn plugin_folder() -> Option<&'static str> {
    PLUGIN_FOLDERS
        .into_iter()
        .find(|folder| Path::new(folder).join("bridge").is_file())
}

/// Whether it is a program that needs no library, so that it runs in an image by itself: an ELF file of 64 bits in which no
/// program header names an interpreter.
fn is_static(program: &Path) -> bool {
    const INTERPRETER: [u8; 4] = 3_u32.to_le_bytes();
    let Ok(bytes) = std::fs::read(program) else {
        return false;
    };
    let number = |at: usize, size: usize| {
        let field = bytes.get(at..at + size)?;
        Some(
            field
                .iter()
                .rev()
                .fold(0, |number, byte| number << 8 | usize::from(*byte)),
        )
    };
    let headers = || Some((number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?));
    let Some((start, size, count)) = headers() else {
        return false;
    };
    bytes.starts_with(b"\x7fELF\x02")
        && (0..count).all(|index| {
            bytes
                .get(start + index * size..)
                .is_some_and(|header| !header.starts_with(&INTERPRETER))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_its_remedy() {
        let missing = Missing {
            root: true,
            packages: vec!["runc", "buildah"],
        };
        let text = missing.to_string();
        assert!(text.contains("as root") && text.ends_with("apt-get install --no-install-recommends runc buildah"));
        assert!(Missing::default().is_none() && !missing.is_none());
    }

    #[test]
    fn a_program_with_libraries_is_not_static() {
        assert!(!is_static(Path::new("/bin/sh")));
        assert!(!is_static(Path::new("/no/such/program")));
    }
}
