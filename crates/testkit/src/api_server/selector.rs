//! Label and field selectors, as lists and watches carry them.
//!
//! Labels: `k`, `!k`, `k=v`, `k==v`, `k!=v`, `k in (a, b)`, `k notin (a, b)`, joined by commas. Fields: `path=value` and
//! `path!=value` for any dotted path; the real server knows only a few paths per type.

use serde_json::Value;

use super::error::ApiError;
use super::object;

/// What a list or watch asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::Exists, value) => value.is_some(),
            (Self::Missing, value) => value.is_none(),
            (Self::In(values), value) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            (Self::NotIn(values), value) => value.is_none_or(|v| values.iter().all(|w| w != v)),
        }
    }
}

impl Selector {
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, ApiError> {
        Ok(Self {
            labels: requirements(labels)?,
            fields: requirements(fields)?,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object.get("metadata")?.get("labels")?.get(key)?.as_str();
        // A field that is not set compares as the empty string, as in the server's field sets.
        let field = |path: &str| Some(object::text(object, &format!("/{}", path.replace('.', "/"))));
        self.labels.iter().all(|r| r.test.holds(label(&r.key)))
            && self.fields.iter().all(|r| r.test.holds(field(&r.key)))
    }
}

fn requirements(text: &str) -> Result<Vec<Requirement>, ApiError> {
    split_outside_parentheses(text).into_iter().map(requirement).collect()
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_u32, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

fn requirement(text: &str) -> Result<Requirement, ApiError> {
    let make = |key: &str, test| {
        Ok(Requirement {
            key: key.trim().to_owned(),
            test,
        })
    };
    if let Some((key, set)) = text.split_once('(') {
        let Some(set) = set.strip_suffix(')') else {
            return Err(unparsable(text));
        };
        let values = set.split(',').map(|v| v.trim().to_owned()).collect();
        let mut words = key.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => make(key, Test::In(values)),
            (Some(key), Some("notin"), None) => make(key, Test::NotIn(values)),
            _ => Err(unparsable(text)),
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return make(key, Test::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return make(key, Test::In(vec![value.trim().to_owned()]));
    }
    if text.contains(char::is_whitespace) {
        return Err(unparsable(text));
    }
    match text.strip_prefix('!') {
        Some(key) => make(key, Test::Missing),
        None => make(text, Test::Exists),
    }
}

fn unparsable(text: &str) -> ApiError {
    ApiError::bad_request(&format!("unable to parse requirement: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(selector: &str, labels: &Value) -> bool {
        Selector::parse(selector, "")
            .unwrap()
            .matches(&json!({"metadata": {"labels": labels}}))
    }

    #[test]
    fn every_form_of_label_requirement_selects_what_it_says() {
        let labels = json!({"app": "a", "tier": "web"});
        for (selector, expected) in [
            ("", true),
            ("app", true),
            ("other", false),
            ("!other", true),
            ("!app", false),
            ("app=a", true),
            ("app==b", false),
            ("app!=b", true),
            ("other!=b", true),
            ("app in (a, b),tier", true),
            ("app in (b)", false),
            ("app notin (b,c)", true),
            ("other notin (b)", true),
            ("app=a,tier=db", false),
        ] {
            assert_eq!(matches(selector, &labels), expected, "{selector}");
        }
        assert!(Selector::parse("app in a", "").is_err());
        assert!(Selector::parse("app in (a", "").is_err());
    }

    #[test]
    fn a_field_selector_reads_dotted_paths() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {}});
        assert!(Selector::parse("", "metadata.name=p").unwrap().matches(&pod));
        assert!(!Selector::parse("", "metadata.name=q").unwrap().matches(&pod));
        assert!(Selector::parse("", "spec.nodeName=").unwrap().matches(&pod));
    }
}
