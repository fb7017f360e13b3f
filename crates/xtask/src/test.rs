//! `cargo xtask test`: every test, tier by tier.
//!
//! 1. What needs nothing but this checkout: tables, properties, simulations, the API server inside the process. The seed's
//!    test runs a second time with a controller whose uncached reads are answered from the cache: it must notice.
//! 2. What needs a real control plane: the crate `tests`, and in any other crate the test targets named `real_…`. The
//!    programs are found or built first. Tests find our own programs in the folder that `APPWRAPPER_BIN_DIR` names.
//! 3. What needs a real node, and so root and some Debian packages: the manifests with the image. Without them it is skipped,
//!    but never where `CI` is `true`.
//!
//! All tiers run even if one fails, and the command fails if any has.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use appwrapper_testkit::controller::options::BIN_DIR;
use appwrapper_testkit::programs::{OF_A_CLUSTER, OF_A_REAL_NODE, Programs};
use appwrapper_testkit::real_node::requirements::{self, Missing};
use serde::Deserialize;
use tokio::process::Command;

use crate::cargo::{CONTROLLER, Program, WEBHOOK, build, cargo};

/// The package of the tests that need a real control plane.
const REAL: &str = "appwrapper-tests";
/// Its test target that needs a real node.
const NODE: &str = "node";
/// The feature with which the controller confirms from the cache.
const INVERTED: &str = "appwrapper-controller/invert-confirmation";

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// Only this tier
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    tier: Option<u8>,
    /// Install the Debian packages that tier 3 needs and that are missing
    #[arg(long)]
    install: bool,
}

/// Runs the tests.
pub async fn run(args: &Args) -> Result<()> {
    let wanted = |tier| args.tier.is_none_or(|only| only == tier);
    let mut report = Report::default();
    if wanted(1) {
        heading("tier 1 of 3: tables, properties, the API server inside the process");
        report.add("tier 1", in_process()).await;
    }
    if wanted(2) {
        heading("tier 2 of 3: a real control plane");
        report.add("tier 2", real()).await;
    }
    if wanted(3) {
        heading("tier 3 of 3: a real node");
        report.add("tier 3", on_a_node(args.install)).await;
    }
    heading("result");
    report.end()
}

async fn in_process() -> Result<()> {
    let targets = Targets::read().await?;
    let own = ["--exclude", REAL, "--no-fail-fast"];
    let tests = cargo_test(own.into_iter().chain(["--lib", "--bins"]), &targets.in_process).await;
    let documentation = cargo_test(own.into_iter().chain(["--doc"]), &[]).await;
    println!("\nthe seed inverted: with uncached reads answered from the cache");
    let inverted = cargo_test(["--exclude", REAL, "--features", INVERTED], &["seed".to_owned()]).await;
    tests.and(documentation).and(inverted)
}

async fn real() -> Result<()> {
    let targets = Targets::read().await?;
    Programs::find(&OF_A_CLUSTER).await?;
    let folder = our_programs().await?;
    let mut command = cargo();
    command
        .args(["test", "--locked", "--workspace", "--no-fail-fast"])
        .env(BIN_DIR, folder);
    succeed(with_targets(command, &targets.real)).await
}

async fn on_a_node(install: bool) -> Result<()> {
    if install {
        requirements::install().await?;
    }
    let missing = Missing::here();
    if !missing.is_none() {
        if std::env::var_os("CI").is_some_and(|set| set == "true") {
            bail!("{missing}");
        }
        println!("skipped: {missing}");
        return Ok(());
    }
    Programs::find(&OF_A_REAL_NODE).await?;
    build(WEBHOOK).await?;
    let controller = build(CONTROLLER).await?;
    let folder = controller.parent().context("a program is in a folder")?;
    let mut command = cargo();
    command
        .args(["test", "--locked", "--workspace", "--test", NODE])
        .env(BIN_DIR, folder);
    succeed(command).await
}

/// Builds our programs; returns the folder they are in. The inverted controller is in the folder `inverted` there.
async fn our_programs() -> Result<std::path::PathBuf> {
    let inverted = Program {
        features: Some(INVERTED),
        ..CONTROLLER
    };
    let program = build(inverted).await?;
    let folder = program.parent().context("a program is in a folder")?;
    let copies = folder.join("inverted");
    std::fs::create_dir_all(&copies)?;
    copy(&program, &copies.join(CONTROLLER.name))?;
    // Last, so that what lies at its usual place is what the tests mean.
    build(CONTROLLER).await?;
    Ok(folder.to_owned())
}

/// By way of another name: the old copy may be running.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let staged = to.with_extension("new");
    std::fs::copy(from, &staged).with_context(|| format!("copying {}", from.display()))?;
    std::fs::rename(&staged, to).with_context(|| format!("writing {}", to.display()))
}

async fn cargo_test(arguments: impl IntoIterator<Item = &str>, targets: &[String]) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--locked", "--workspace"]).args(arguments);
    succeed(with_targets(command, targets)).await
}

fn with_targets(mut command: Command, targets: &[String]) -> Command {
    command.args(targets.iter().flat_map(|name| ["--test", name]));
    command
}

async fn succeed(mut command: Command) -> Result<()> {
    let arguments: Vec<_> = command.as_std().get_args().map(|one| one.to_string_lossy()).collect();
    println!("$ cargo {}", arguments.join(" "));
    let status = command.status().await.context("running cargo")?;
    if !status.success() {
        bail!("cargo ended: {status}");
    }
    Ok(())
}

/// The names of the test targets. They are given one by one, and not by their packages, for the reason given in
/// [`crate::cargo`].
struct Targets {
    in_process: Vec<String>,
    real: Vec<String>,
}

impl Targets {
    async fn read() -> Result<Self> {
        let mut command = cargo();
        command.args(["metadata", "--locked", "--no-deps", "--format-version=1"]);
        let output = command.output().await.context("running cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let metadata: Metadata = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
        let is_real = |package: &Package, target: &Target| package.name == REAL || target.name.starts_with("real_");
        let (mut in_process, mut real) = (BTreeSet::new(), BTreeSet::new());
        for package in &metadata.packages {
            let tests = package.targets.iter().filter(|target| target.kind == ["test"]);
            for target in tests.filter(|target| target.name != NODE) {
                let names = if is_real(package, target) {
                    &mut real
                } else {
                    &mut in_process
                };
                names.insert(target.name.clone());
            }
        }
        if in_process.is_empty() || real.is_empty() {
            bail!("a tier has no tests: {} and {}", in_process.len(), real.len());
        }
        Ok(Self {
            in_process: in_process.into_iter().collect(),
            real: real.into_iter().collect(),
        })
    }
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// What became of each tier.
#[derive(Default)]
struct Report(Vec<(&'static str, Duration, Result<()>)>);

impl Report {
    async fn add(&mut self, tier: &'static str, tests: impl Future<Output = Result<()>>) {
        let started = Instant::now();
        let result = tests.await;
        self.0.push((tier, started.elapsed(), result));
    }

    fn end(self) -> Result<()> {
        let mut failed = Vec::new();
        for (tier, took, result) in self.0 {
            match result {
                Ok(()) => println!("{tier}: passed, {} s", took.as_secs()),
                Err(error) => {
                    println!("{tier}: failed, {} s: {error:#}", took.as_secs());
                    failed.push(tier);
                }
            }
        }
        if !failed.is_empty() {
            bail!("{} failed", failed.join(" and "));
        }
        Ok(())
    }
}

fn heading(text: &str) {
    println!("\n=== {text}");
}
