//! Writes the files that are generated from the code, or checks that they are up to date.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use appwrapper_api::crd;

/// Arguments of `cargo xtask generate`.
#[derive(clap::Args)]
pub struct Args {
    /// Write nothing; fail if a file is not what the code generates
    #[arg(long)]
    check: bool,
}

/// Files by path from the root of the repository.
fn files() -> anyhow::Result<Vec<(&'static str, String)>> {
    let crd = serde_saphyr::to_string(&crd::manifest()).context("cannot write the CRD as YAML")?;
    Ok(vec![("deploy/crd/appwrappers.yaml", crd)])
}

/// Generates or checks.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, text) in files()? {
        let path = root.join(name);
        if args.check {
            if fs::read_to_string(&path).unwrap_or_default() != text {
                bail!("{name} is not what the code generates; run cargo xtask generate");
            }
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {name}"))?;
        println!("{name}");
    }
    Ok(())
}
