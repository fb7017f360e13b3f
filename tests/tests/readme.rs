//! The tables in `README.md` name tests that exist.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;

/// Every name that stands after `fn` in the Rust files of a folder.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text
                .split("fn ")
                .skip(1)
                .filter_map(|rest| rest.split(['(', '<']).next());
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_test_that_the_tables_name_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = BTreeSet::new();
    functions(&here.join("tests"), &mut known);
    functions(&here.join("../crates"), &mut known);
    let text = std::fs::read_to_string(here.join("README.md")).unwrap();
    let in_code = text.split('`').skip(1).step_by(2);
    // A test is a sentence; what else is set as code is shorter.
    let named: BTreeSet<&str> = in_code
        .filter(|code| code.matches('_').count() >= 3 && !code.contains('.'))
        .collect();
    assert!(named.len() > 50, "{named:?}");
    let missing: Vec<_> = named.into_iter().filter(|name| !known.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
