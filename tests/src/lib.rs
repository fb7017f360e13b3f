//! Tests that need a real control plane: one file per claim, in `tests/`. Run them with `cargo xtask test --tier 2`, which
//! finds or builds the programs first.
