//! How an object of a kind that nobody coded says that it has ended: a rule that its user declares on the object itself.
//!
//! Two annotations of the wrapped object, `.../successCondition` and `.../failureCondition`, each `PATH=VALUE,VALUE`: it has
//! ended when the path within its status has one of the values. They are part of the template, which Kueue copies as a
//! whole where it writes `spec.components` anew; and since they are on the object, a watch of it needs nothing else.

use serde_json::Value;

use crate::{
    facts::{Completion, TypeRef},
    kinds::{self, CompletionRule},
    path::{Path, PathError},
};

/// Annotation with the rule for success, after [`crate::ANNOTATION_PREFIX`].
pub const SUCCESS: &str = "successCondition";
/// Annotation with the rule for failure.
pub const FAILURE: &str = "failureCondition";
/// Longest rule: far more than any real one needs.
const LIMIT: usize = 1_024;

/// What an object's annotations declare, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Value of the annotation for success.
    pub success: Option<Box<str>>,
    /// Value of the annotation for failure.
    pub failure: Option<Box<str>>,
}

/// A rule that can be applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredRule {
    success: Option<Test>,
    failure: Option<Test>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    path: Path,
    values: Vec<String>,
}

/// Why a rule cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It is no comparison.
    #[error("{text:?} compares nothing; write PATH=VALUE or PATH=VALUE,VALUE, for example status.phase=Succeeded")]
    Form {
        /// The rule, shortened.
        text: String,
    },
    /// It is too long.
    #[error("has {length} bytes; at most {LIMIT} are allowed")]
    Length {
        /// Its length.
        length: usize,
    },
    /// Its path cannot be read.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Declared {
    /// What the annotations of an object declare.
    pub fn of(object: &Value) -> Self {
        let annotation = |suffix: &str| {
            let name = format!("{}{suffix}", crate::ANNOTATION_PREFIX);
            let value = object.get("metadata")?.get("annotations")?.get(name)?;
            value.as_str().map(Into::into)
        };
        Self {
            success: annotation(SUCCESS),
            failure: annotation(FAILURE),
        }
    }

    /// Whether nothing is declared.
    pub fn is_empty(&self) -> bool {
        self.success.is_none() && self.failure.is_none()
    }

    /// The rule, or the suffix of the annotation that is no rule and why.
    pub fn rule(&self) -> Result<DeclaredRule, (&'static str, RuleError)> {
        let test = |text: &Option<Box<str>>, suffix| {
            let test = text.as_deref().map(Test::parse).transpose();
            test.map_err(|error| (suffix, error))
        };
        Ok(DeclaredRule {
            success: test(&self.success, SUCCESS)?,
            failure: test(&self.failure, FAILURE)?,
        })
    }

    /// Whether an object of this type that declares this tells its own end, so that its pods prove no success.
    pub fn tells_end(&self, type_ref: &TypeRef) -> bool {
        kinds::completion_rule(type_ref).is_own() || (allows(type_ref) && self.success.is_some())
    }

    /// What the status of an object that declares this says. A rule that cannot be read says nothing.
    pub fn judge(&self, status: &Value) -> Completion {
        self.rule().map_or(Completion::Active, |rule| rule.judge(status))
    }
}

/// Whether a type may declare how it ends: kinds that tell their end themselves are believed, and a pod has its phase.
pub fn allows(type_ref: &TypeRef) -> bool {
    kinds::completion_rule(type_ref) == CompletionRule::Pods && !kinds::is_pod(type_ref)
}

impl DeclaredRule {
    /// What a status says. Failure goes before success, as in the table of kinds.
    pub fn judge(&self, status: &Value) -> Completion {
        let holds = |test: &Option<Test>| test.as_ref().is_some_and(|test| test.holds(status));
        if holds(&self.failure) {
            Completion::Failed
        } else if holds(&self.success) {
            Completion::Complete
        } else {
            Completion::Active
        }
    }
}

impl Test {
    fn parse(text: &str) -> Result<Self, RuleError> {
        if text.len() > LIMIT {
            return Err(RuleError::Length { length: text.len() });
        }
        let form = || RuleError::Form {
            text: text.chars().take(60).collect(),
        };
        let (path, values) = split(text).ok_or_else(form)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) {
            return Err(form());
        }
        Ok(Self {
            path: Path::parse_status(path.trim())?,
            values,
        })
    }

    fn holds(&self, status: &Value) -> bool {
        let found = match self.path.get(status) {
            Ok(Value::String(text)) => text.clone(),
            Ok(Value::Bool(value)) => value.to_string(),
            Ok(Value::Number(number)) => number.to_string(),
            _ => return false,
        };
        self.values.contains(&found)
    }
}

/// Splits at the first `=` outside of brackets.
fn split(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_u32;
    for (at, character) in text.char_indices() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '=' if depth == 0 => return Some((text.get(..at)?, text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn judge(success: &str, failure: &str, status: &Value) -> Completion {
        let given = |text: &str| Some(text.into()).filter(|_| !text.is_empty());
        let declared = Declared {
            success: given(success),
            failure: given(failure),
        };
        declared.rule().unwrap().judge(status)
    }

    const READY: &str = "status.conditions[type=Done].status=True";

    #[rstest]
    #[case::phase("status.phase=Succeeded,Completed", "", json!({"phase": "Completed"}), Completion::Complete)]
    #[case::other_phase("status.phase=Succeeded", "", json!({"phase": "Succeeded2"}), Completion::Active)]
    #[case::failure("", "status.phase=Error", json!({"phase": "Error"}), Completion::Failed)]
    #[case::failure_goes_first("status.a=1", "status.b=1", json!({"a": 1, "b": 1}), Completion::Failed)]
    #[case::condition(READY, "", json!({"conditions": [{"type": "Other", "status": "True"}, {"type": "Done", "status": "True"}]}), Completion::Complete)]
    #[case::condition_not_yet(READY, "", json!({"conditions": [{"type": "Done", "status": "False"}]}), Completion::Active)]
    #[case::no_condition(READY, "", json!({"conditions": []}), Completion::Active)]
    #[case::number("status.ready=3", "", json!({"ready": 3}), Completion::Complete)]
    #[case::boolean("status.done = true", "", json!({"done": true}), Completion::Complete)]
    #[case::index("status.jobs[1].state=ok", "", json!({"jobs": [{"state": "no"}, {"state": "ok"}]}), Completion::Complete)]
    #[case::value_with_equals("status.tag=a=b", "", json!({"tag": "a=b"}), Completion::Complete)]
    #[case::odd_types(READY, "", json!({"conditions": {"type": 1}}), Completion::Active)]
    #[case::null("status.phase=null", "", json!({"phase": null}), Completion::Active)]
    #[case::no_status("status.phase=x", "", json!(null), Completion::Active)]
    fn a_status_is_compared(
        #[case] success: &str,
        #[case] failure: &str,
        #[case] status: Value,
        #[case] expected: Completion,
    ) {
        assert_eq!(judge(success, failure, &status), expected);
    }

    #[rstest]
    #[case::no_comparison("status.phase")]
    #[case::no_value("status.phase=")]
    #[case::empty_value("status.phase=a,,b")]
    #[case::not_of_the_status("spec.phase=a")]
    #[case::template("template.status.phase=a")]
    #[case::open_bracket("status.conditions[type=a")]
    #[case::selector_without_value("status.conditions[type].status=True")]
    #[case::empty("")]
    fn what_is_no_rule_is_refused(#[case] text: &str) {
        assert!(Test::parse(text).is_err());
    }

    #[test]
    fn a_rule_is_not_endless() {
        let text = format!("status.phase={}", "x".repeat(LIMIT));
        assert!(matches!(Test::parse(&text), Err(RuleError::Length { .. })));
    }

    #[test]
    fn only_kinds_that_do_not_tell_their_end_may_declare_it() {
        let declared = Declared {
            success: Some("status.phase=a".into()),
            failure: None,
        };
        let tells = |api_version: &str, kind: &str| {
            let type_ref = TypeRef::new(api_version, kind);
            (allows(&type_ref), declared.tells_end(&type_ref))
        };
        assert_eq!(tells("example.com/v1", "Widget"), (true, true));
        assert_eq!(tells("ray.io/v1", "RayCluster"), (true, true));
        assert_eq!(tells("batch/v1", "Job"), (false, true));
        assert_eq!(tells("v1", "Pod"), (false, false));
        let nothing = Declared::default();
        assert!(!nothing.tells_end(&TypeRef::new("example.com/v1", "Widget")));
    }
}
