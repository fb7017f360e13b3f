//! No row of the table is dead: whatever the structs of this crate can count, one of the two programs does count.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, path::Path};

/// A file of this crate, and as what its struct is held by the programs.
const STRUCTS: &[(&str, &[&str])] = &[
    ("api_client", &["client", "metrics"]),
    ("cache", &["cache", "write"]),
    ("confirm", &["confirm"]),
    ("lease", &["lease"]),
    ("reconcile", &["reconcile", "waiting", "running"]),
    ("states", &["states"]),
    ("webhook", &["admission", "metrics", "counted"]),
];

/// All sources below a folder, without white space.
fn sources(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.extend(fs::read_to_string(&path).unwrap().split_whitespace());
        }
    }
}

/// Names of the public methods of a source.
fn methods(source: &str) -> Vec<String> {
    let own = source.split("#[cfg(test)]").next().unwrap();
    let lines = own.lines().filter_map(|line| line.trim().strip_prefix("pub fn "));
    let methods = lines.filter(|line| line.contains("self"));
    methods.map(|line| line.split('(').next().unwrap().to_owned()).collect()
}

#[test]
fn everything_that_can_be_counted_is_counted_somewhere() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut programs = String::new();
    for name in ["controller", "webhook"] {
        sources(&crates.join(name).join("src"), &mut programs);
    }
    // Called from there for a caller's convenience.
    programs.extend(
        fs::read_to_string(crates.join("metrics/src/lib.rs"))
            .unwrap()
            .split_whitespace(),
    );

    let mut unused = Vec::new();
    for (file, holders) in STRUCTS {
        let source = fs::read_to_string(crates.join(format!("metrics/src/{file}.rs"))).unwrap();
        let methods = methods(&source);
        assert!(!methods.is_empty(), "{file}.rs");
        let is_used = |method: &&String| {
            holders
                .iter()
                .any(|holder| programs.contains(&format!("{holder}.{method}(")))
        };
        unused.extend(
            methods
                .iter()
                .filter(|method| !is_used(method))
                .map(|method| format!("{file}.rs: {method}")),
        );
    }
    assert_eq!(
        unused,
        Vec::<String>::new(),
        "called by neither program; call it, or remove it with its row of the table"
    );
}
