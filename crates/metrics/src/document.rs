//! The page of metrics, written from the table.

use std::fmt::Write;

use crate::descriptor::{Descriptor, Kind, Scope, Start, Values};
use crate::table;

/// All metrics as a Markdown page.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Generated from `crates/metrics/src/table.rs`; a test keeps this page equal to it.\n\n\
         \"From the start\" says whether the series exist at 0 before anything happened, so that `increase()` sees the first\n\
         event. `shard` runs from 0 to the configured number of shards. `namespace` is capped; what is beyond the cap is\n\
         counted under `_overflow`.\n",
    );
    for (title, rows) in table::SECTIONS {
        // Writing into a String cannot fail.
        let _ = write!(
            page,
            "\n## {title}\n\n| name | type, unit | labels | of | from the start | meaning |\n\
             | --- | --- | --- | --- | --- | --- |\n"
        );
        for row in *rows {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} | {} | {} |",
                row.name,
                kind(row),
                labels(row),
                scope(row.scope),
                if row.start == Start::OnUse { "no" } else { "yes" },
                row.help.replace('|', "\\|"),
            );
        }
    }
    page
}

fn kind(row: &Descriptor) -> String {
    let mut text = row.kind.as_str().to_owned();
    if !row.unit().is_empty() {
        text.push_str(", ");
        text.push_str(row.unit());
    }
    if let Kind::Histogram(buckets) = row.kind {
        let bounds: Vec<String> = buckets.iter().map(ToString::to_string).collect();
        let _ = write!(text, "; buckets {}", bounds.join(", "));
    }
    text
}

fn labels(row: &Descriptor) -> String {
    let texts: Vec<String> = row
        .labels
        .iter()
        .map(|label| match label.values {
            Values::Closed(values) => format!("`{}` = {}", label.name, values.join(", ")),
            Values::Shard | Values::Namespace => format!("`{}`", label.name),
            Values::Open(bound) => format!("`{}` ({bound})", label.name),
        })
        .collect();
    texts.join("; ")
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Controller => "controller",
        Scope::Webhook => "webhook",
        Scope::Both => "both",
    }
}
