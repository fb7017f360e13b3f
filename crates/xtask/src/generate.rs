//! Writes the files that are generated from the code, or checks that they are up to date.

use std::fs;

use anyhow::{Context, bail};
use appwrapper_api::crd;
use serde_json::{Value, json};

use crate::cargo::root;

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
    let rules = serde_saphyr::to_string(&prometheus_rule()?).context("cannot write the rules as YAML")?;
    Ok(vec![
        ("deploy/crd/appwrappers.yaml", crd),
        ("deploy/components/monitoring/prometheus-rules.yaml", rules),
    ])
}

/// The rules of `dashboards/rules` as the Prometheus operator takes them.
fn prometheus_rule() -> anyhow::Result<Value> {
    let mut groups = Vec::new();
    for file in ["recording", "alerts"] {
        let path = root().join("dashboards/rules").join(file).with_extension("yaml");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let rules: Value = serde_saphyr::from_str(&text).with_context(|| format!("{} is no YAML", path.display()))?;
        let of_file = rules.get("groups").and_then(Value::as_array);
        groups.extend(
            of_file
                .with_context(|| format!("{} has no groups", path.display()))?
                .clone(),
        );
    }
    Ok(json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "appwrapper-rules",
            "namespace": "appwrapper-system",
            // The last two are what the Prometheus of kube-prometheus selects.
            "labels": {"app.kubernetes.io/name": "appwrapper", "prometheus": "k8s", "role": "alert-rules"},
        },
        "spec": {"groups": groups},
    }))
}

/// Generates or checks.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let root = root();
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
