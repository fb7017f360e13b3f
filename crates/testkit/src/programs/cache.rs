//! Where built programs are kept: a folder outside the checkout, one per state of a Go module.
//!
//! The folder's name is a fingerprint of the module's `go.mod` and `go.sum`, so a checkout with other pins never finds
//! a program of this one, and going back finds the earlier build again.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::{Module, Program, controlplane_dir};

/// The project's cache folder: `appwrapper` in `$XDG_CACHE_HOME`, or in `.cache` of the home folder.
///
/// # Errors
///
/// When neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache_dir() -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("appwrapper"))
        .context("no place for built programs: set HOME or XDG_CACHE_HOME")
}

/// Where the program is, once built.
pub fn program_path(program: Program) -> Result<PathBuf> {
    Ok(cache_dir()?
        .join("controlplane")
        .join(module_fingerprint(program.module)?)
        .join(program.name))
}

fn module_fingerprint(module: Module) -> Result<String> {
    let folder = controlplane_dir().join(module.folder);
    let mut hash = Fnv1a::default();
    for file in ["go.mod", "go.sum"] {
        let path = folder.join(file);
        hash.update(&std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?);
    }
    Ok(format!("{:016x}", hash.0))
}

/// The 64-bit FNV-1a hash. It tells states of a file apart, stays the same between compilers, and protects nothing.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fingerprint_is_fnv_1a_and_so_the_same_in_every_build() {
        let mut hash = Fnv1a::default();
        hash.update(b"foobar");
        assert_eq!(hash.0, 0x8594_4171_f739_67e8);
    }
}
