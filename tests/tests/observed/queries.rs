//! The queries of dashboards and rules, with their variables put in.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A query and where it is.
#[derive(Debug, Clone)]
pub struct Query {
    place: String,
    text: String,
}

impl Query {
    /// What to ask for, over a story of so many seconds.
    pub fn expression(&self, seconds: u64) -> String {
        let text = self
            .text
            .replace("$__rate_interval", "30s")
            .replace("$__range", &format!("{seconds}s"));
        // Every other variable stands for all its values.
        let mut expression = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            expression.push_str(before);
            expression.push_str(".*");
            rest = after.trim_start_matches(|character: char| character.is_ascii_alphanumeric() || character == '_');
        }
        expression + rest
    }

    /// Whether the text is in it.
    pub fn contains(&self, text: &str) -> bool {
        self.text.contains(text)
    }

    /// The same with another text.
    pub fn replace(&self, from: &str, to: &str) -> Self {
        Self {
            place: self.place.clone(),
            text: self.text.replace(from, to),
        }
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}",
            self.place,
            self.text.split_whitespace().collect::<Vec<_>>().join(" ")
        )
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Every target of every panel.
pub fn panels() -> Vec<Query> {
    let mut queries = Vec::new();
    for file in files("grafana") {
        let dashboard: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                queries.push(Query {
                    place: format!(
                        "{} / {}",
                        dashboard["title"].as_str().unwrap(),
                        panel["title"].as_str().unwrap()
                    ),
                    text: target["expr"].as_str().unwrap().to_owned(),
                });
            }
        }
    }
    queries
}

/// What every rule looks at. An alert that is silent has no answer, so each of its selectors is asked for by itself.
pub fn rules() -> Vec<Query> {
    let mut queries = Vec::new();
    for file in files("rules") {
        let rules: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let groups = rules["groups"].as_array().unwrap();
        for rule in groups.iter().flat_map(|group| group["rules"].as_array().unwrap()) {
            let name = rule["alert"].as_str().or_else(|| rule["record"].as_str()).unwrap();
            let expression = promql_parser::parser::parse(rule["expr"].as_str().unwrap()).unwrap();
            for selector in selectors(&expression) {
                queries.push(Query {
                    place: format!("rule {name}"),
                    text: selector,
                });
            }
        }
    }
    queries
}

fn selectors(expression: &promql_parser::parser::Expr) -> Vec<String> {
    use promql_parser::parser::Expr;
    match expression {
        Expr::VectorSelector(selector) => vec![selector.to_string()],
        Expr::MatrixSelector(selector) => vec![selector.vs.to_string()],
        Expr::Aggregate(inner) => selectors(&inner.expr),
        Expr::Unary(inner) => selectors(&inner.expr),
        Expr::Paren(inner) => selectors(&inner.expr),
        Expr::Subquery(inner) => selectors(&inner.expr),
        Expr::Binary(inner) => [selectors(&inner.lhs), selectors(&inner.rhs)].concat(),
        Expr::Call(call) => call.args.args.iter().flat_map(|argument| selectors(argument)).collect(),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => Vec::new(),
    }
}
