//! Checks a query against the table: metrics, labels, values, types, and whether both sides of an operator can match.
//!
//! The ideas are those of Cloudflare's pint; the grammar is the `promql-parser` crate's.

use std::collections::{BTreeMap, BTreeSet};

use appwrapper_metrics::descriptor::{Descriptor, Kind, Values};
use appwrapper_metrics::table;
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr, LabelModifier, VectorMatchCardinality, VectorSelector};

use super::external;

type LabelSet = BTreeSet<String>;

/// Labels that a scrape adds. `namespace` is a target's unless the metric has one of its own, which `honorLabels` keeps.
const TARGET: &[&str] = &["cluster", "job", "instance", "namespace", "pod"];
/// Functions of a range of a counter.
const OF_COUNTERS: &[&str] = &["rate", "irate", "increase", "resets"];

/// Whether two selectors differ by an offset alone.
fn is_same_before(now: &Expr, before: &Expr) -> bool {
    match (now, before) {
        (Expr::VectorSelector(now), Expr::VectorSelector(before)) => {
            before.offset.is_some() && now.name == before.name && now.matchers == before.matchers
        }
        _ => false,
    }
}

/// What queries may use, and what they have used.
#[derive(Default)]
pub struct Checker {
    /// Recording rules, with the labels of their results.
    recorded: BTreeMap<String, LabelSet>,
    /// Metrics named by any query, without the suffixes of histograms.
    pub used: BTreeSet<String>,
    /// Whether counters may be used as they are; for the one rule that must.
    pub raw_counters: bool,
}

impl Checker {
    /// Adds a recording rule, after checking its query.
    pub fn record(&mut self, name: &str, query: &str) -> Result<(), String> {
        let labels = self.check(query)?.unwrap_or_default();
        self.recorded.insert(name.to_owned(), labels);
        Ok(())
    }

    /// Checks a query; the labels of its result, `None` for a scalar.
    pub fn check(&mut self, query: &str) -> Result<Option<LabelSet>, String> {
        let expr = parser::parse(query).map_err(|error| format!("{error}: {query}"))?;
        self.labels(&expr).map_err(|error| format!("{error} in: {query}"))
    }

    fn labels(&mut self, expr: &Expr) -> Result<Option<LabelSet>, String> {
        match expr {
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(None),
            Expr::Paren(paren) => self.labels(&paren.expr),
            Expr::Unary(unary) => self.labels(&unary.expr),
            Expr::Subquery(subquery) => self.labels(&subquery.expr),
            Expr::VectorSelector(selector) => self.selector(selector, None).map(Some),
            Expr::MatrixSelector(matrix) => self.selector(&matrix.vs, Some("")).map(Some),
            Expr::Call(call) => {
                let mut result = None;
                for arg in &call.args.args {
                    let labels = match &**arg {
                        Expr::MatrixSelector(matrix) => Some(self.selector(&matrix.vs, Some(call.func.name))?),
                        // The time of a sample is no value of a counter.
                        Expr::VectorSelector(selector) if call.func.name == "timestamp" => {
                            Some(self.selector(selector, Some(""))?)
                        }
                        other => self.labels(other)?,
                    };
                    result = result.or(labels);
                }
                match call.func.name {
                    "histogram_quantile" => {
                        let mut labels = result.unwrap_or_default();
                        if !labels.remove("le") {
                            return Err("histogram_quantile without le".to_owned());
                        }
                        Ok(Some(labels))
                    }
                    // Only plain matchers give labels, and a filtered value has none.
                    "absent" | "vector" => Ok(Some(LabelSet::new())),
                    "time" => Ok(None),
                    _ => Ok(result),
                }
            }
            Expr::Aggregate(aggregate) => {
                let inner = self.labels(&aggregate.expr)?.ok_or("aggregation of a scalar")?;
                match &aggregate.modifier {
                    None => Ok(Some(LabelSet::new())),
                    Some(LabelModifier::Include(labels)) => {
                        let by: LabelSet = labels.labels.iter().cloned().collect();
                        match by.difference(&inner).next() {
                            Some(unknown) => Err(format!("aggregates by {unknown}, which nothing has")),
                            None => Ok(Some(by)),
                        }
                    }
                    Some(LabelModifier::Exclude(labels)) => Ok(Some(
                        inner
                            .into_iter()
                            .filter(|label| !labels.labels.contains(label))
                            .collect(),
                    )),
                }
            }
            // `x unless x offset …`: a series that is new, whose first count no increase sees.
            Expr::Binary(binary) if binary.op.to_string() == "unless" && is_same_before(&binary.lhs, &binary.rhs) => {
                match &*binary.lhs {
                    Expr::VectorSelector(selector) => self.selector(selector, Some("")).map(Some),
                    other => self.labels(other),
                }
            }
            Expr::Binary(binary) => {
                let (left, right) = (self.labels(&binary.lhs)?, self.labels(&binary.rhs)?);
                let (Some(left), Some(right)) = (left.clone(), right.clone()) else {
                    return Ok(left.or(right));
                };
                let operator = binary.op.to_string();
                let modifier = binary.modifier.as_ref();
                let matching = modifier.and_then(|modifier| modifier.matching.as_ref());
                match matching {
                    Some(LabelModifier::Include(on)) => {
                        let on: LabelSet = on.labels.iter().cloned().collect();
                        if let Some(unknown) = on
                            .iter()
                            .find(|label| !left.contains(*label) || !right.contains(*label))
                        {
                            return Err(format!("matches on {unknown}, which one side lacks"));
                        }
                        let one_to_one = modifier.is_none_or(|m| matches!(m.card, VectorMatchCardinality::OneToOne));
                        Ok(Some(if one_to_one { on } else { left }))
                    }
                    Some(LabelModifier::Exclude(_)) => Ok(Some(left)),
                    // `or vector(0)` gives an empty result a value.
                    None if operator == "or" && right.is_empty() => Ok(Some(left)),
                    None if left == right => Ok(Some(left)),
                    None => Err(format!(
                        "the sides of {operator} can never match: {left:?} and {right:?}"
                    )),
                }
            }
            Expr::Extension(_) => Err("not PromQL".to_owned()),
        }
    }

    fn selector(&mut self, selector: &VectorSelector, function: Option<&str>) -> Result<LabelSet, String> {
        let name = selector.name.as_deref().ok_or("a selector without a metric")?;
        let (mut labels, row) = if let Some(labels) = self.recorded.get(name) {
            (labels.clone(), None)
        } else {
            let (row, bucket) = find(name).ok_or_else(|| format!("{name} is in no table"))?;
            self.used.insert(row.name.to_owned());
            let mut labels: LabelSet = row.label_names().into_iter().map(str::to_owned).collect();
            labels.extend(TARGET.iter().map(|label| (*label).to_owned()));
            if bucket {
                labels.insert("le".to_owned());
            }
            let counts = row.kind != Kind::Gauge;
            match function {
                None if counts && !self.raw_counters => return Err(format!("{name} is a counter: rate or increase")),
                Some(function) if OF_COUNTERS.contains(&function) && !counts => {
                    return Err(format!("{function} of {name}, which is no counter"));
                }
                _ => {}
            }
            (labels, Some(row))
        };
        for matcher in selector
            .matchers
            .matchers
            .iter()
            .filter(|matcher| matcher.name != "__name__")
        {
            if !labels.contains(&matcher.name) {
                return Err(format!("{name} has no label {}", matcher.name));
            }
            if let Some(row) = row {
                possible(row, matcher)?;
            }
        }
        labels.remove("__name__");
        Ok(labels)
    }
}

/// The row of a metric, and whether the name is that of the buckets of a histogram.
fn find(name: &str) -> Option<(&'static Descriptor, bool)> {
    let rows = || table::all().chain(external::ALL);
    if let Some(row) = rows().find(|row| row.name == name) {
        // A histogram has no series of its own name.
        return (!matches!(row.kind, Kind::Histogram(_))).then_some((row, false));
    }
    ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
        let base = name.strip_suffix(suffix)?;
        let row = rows().find(|row| row.name == base && matches!(row.kind, Kind::Histogram(_)))?;
        Some((row, *suffix == "_bucket"))
    })
}

/// A matcher must leave and exclude something that can exist; one that does not is a misspelt value.
fn possible(row: &Descriptor, matcher: &Matcher) -> Result<(), String> {
    let Some(label) = row.labels.iter().find(|label| label.name == matcher.name) else {
        return Ok(());
    };
    let Values::Closed(values) = label.values else {
        return Ok(());
    };
    // A dashboard's variable: its values come from the metric itself.
    if matcher.value.contains('$') {
        return Ok(());
    }
    let named = |value: &&str| match &matcher.op {
        MatchOp::Equal | MatchOp::NotEqual => *value == matcher.value,
        MatchOp::Re(regex) | MatchOp::NotRe(regex) => regex.is_match(value),
    };
    if !values.iter().any(named) {
        return Err(format!(
            "{}: no value of {} is {}",
            row.name, matcher.name, matcher.value
        ));
    }
    // Alternatives one by one, or a misspelt one hides behind the others.
    for alternative in matcher
        .value
        .split('|')
        .filter(|text| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
    {
        if !values.contains(&alternative) {
            return Err(format!("{}: no value of {} is {alternative}", row.name, matcher.name));
        }
    }
    Ok(())
}

#[test]
fn the_check_finds_what_it_is_for() {
    let mut checker = Checker::default();
    for good in [
        "sum by (outcome) (rate(appwrapper_component_confirmations_total{outcome=~\"live|missing\"}[5m]))",
        "max by (shard) (appwrapper_shard_owned) == 0",
        "time() - appwrapper_cache_last_event_timestamp_seconds > 900",
    ] {
        checker.check(good).unwrap();
    }
    for (bad, why) in [
        ("appwrapper_shard_owner", "no table"),
        ("appwrapper_shard_owned{shards=\"1\"}", "no label"),
        (
            "rate(appwrapper_component_confirmations_total{outcome=\"alive\"}[5m])",
            "no value",
        ),
        (
            "rate(appwrapper_component_confirmations_total{outcome=~\"live|gone\"}[5m])",
            "no value",
        ),
        ("appwrapper_component_confirmations_total > 1", "is a counter"),
        ("rate(appwrapper_shard_owned[5m])", "no counter"),
        ("sum by (phase) (appwrapper_shard_owned)", "nothing has"),
        (
            "sum by (shard) (appwrapper_shard_owned) / sum by (cluster) (appwrapper_shard_owned)",
            "never match",
        ),
        (
            "histogram_quantile(0.9, rate(appwrapper_write_to_watch_seconds_count[5m]))",
            "without le",
        ),
        ("rate(appwrapper_write_to_watch_seconds[5m])", "no table"),
        ("sum by (", ""),
    ] {
        let error = checker.check(bad).unwrap_err();
        assert!(error.contains(why), "{bad}: {error}");
    }
}
