//! Our CustomResourceDefinition accepts what the Go controller's accepts, and shows it in the same way: both have one
//! structure, beside which ours has rules (`crd_rules.rs`). The Go controller's comes from its own module at the pinned
//! version, by `go mod download`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use appwrapper_testkit::cluster::apply;
use serde_json::Value;

const MODULE: &str = "github.com/project-codeflare/appwrapper";
const DEFINITION: &str = "config/crd/bases/workload.codeflare.dev_appwrappers.yaml";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The definition in a file, without what is only for people and machines that make it.
fn definition(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let object = apply::parse(&text).unwrap().remove(0);
    let mut spec = object.data.get("spec").unwrap().clone();
    bare(&mut spec, false);
    spec
}

/// Drops descriptions and rules, and puts into order what has none. `of_fields`: the node maps names of fields, one of
/// which may be called `description`.
fn bare(node: &mut Value, of_fields: bool) {
    match node {
        Value::Object(fields) => {
            if !of_fields {
                fields.remove("description");
                fields.remove("x-kubernetes-validations");
            }
            for (name, field) in fields {
                if let (false, "required" | "enum", Value::Array(items)) = (of_fields, name.as_str(), &mut *field) {
                    items.sort_by_key(ToString::to_string);
                }
                bare(field, !of_fields && name == "properties");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| bare(item, false)),
        _ => {}
    }
}

/// Where two definitions differ, in lines.
fn differences(path: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(left), Value::Object(right)) => {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                let path = format!("{path}/{name}");
                match (left.get(name), right.get(name)) {
                    (Some(left), Some(right)) => differences(&path, left, right, found),
                    (left, right) => found.push(format!("{path}: {left:?} in Go, {right:?} here")),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differences(&format!("{path}/{index}"), left, right, found);
            }
        }
        (left, right) if left != right => found.push(format!("{path}: {left} in Go, {right} here")),
        _ => {}
    }
}

/// The folder of the Go controller's sources; none if there is no Go, which is an error in CI.
fn sources() -> Option<PathBuf> {
    let downloaded = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        .current_dir(repository().join("tests/controlplane/appwrapper"))
        .output();
    let output = match downloaded {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "running go: {error}");
            println!("SKIPPED: the Go controller's definition comes by `go mod download`, and there is no go: {error}");
            return None;
        }
    };
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let folder = answer.get("Dir").and_then(Value::as_str);
    Some(folder.unwrap_or_else(|| panic!("go mod download: {answer}")).into())
}

#[test]
fn the_definition_has_the_structure_of_the_go_controllers() {
    let Some(sources) = sources() else { return };
    let theirs = definition(&sources.join(DEFINITION));
    let ours = definition(&repository().join("deploy/crd/appwrappers.yaml"));
    let mut found = Vec::new();
    differences("", &theirs, &ours, &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_comparison_finds_what_it_is_for() {
    let ours = definition(&repository().join("deploy/crd/appwrappers.yaml"));
    let schema = "/versions/0/schema/openAPIV3Schema/properties";
    for (pointer, change) in [
        ("/names/shortNames/0".to_owned(), "appw".into()),
        (
            "/versions/0/additionalPrinterColumns/4/type".to_owned(),
            "string".into(),
        ),
        ("/versions/0/subresources".to_owned(), Value::Null),
        (format!("{schema}/spec/required"), Value::Array(Vec::new())),
        (
            format!("{schema}/status/properties/resettingCount/format"),
            "int64".into(),
        ),
        (
            format!("{schema}/status/properties/conditions/x-kubernetes-list-type"),
            "atomic".into(),
        ),
    ] {
        let mut other = ours.clone();
        *other
            .pointer_mut(&pointer)
            .unwrap_or_else(|| panic!("nothing at {pointer}")) = change;
        let mut found = Vec::new();
        differences("", &ours, &other, &mut found);
        assert_eq!(found.len(), 1, "{pointer}: {found:?}");
    }
}
