//! Paths to pod templates: `template.spec.template`, `template.spec.list[1].tpl` (spec/components.md section 2); and to what a
//! status says: `status.phase`, `status.conditions[type=Ready].status`.

use std::fmt;

use serde_json::Value;

/// A path that begins at a component's template, or at its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    text: String,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
    /// The first element of an array whose field has this value.
    Select(String, String),
}

/// Why a path leads nowhere. Each text names the path and the place in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path does not begin where it should.
    #[error("path {path:?} must begin with {:?}, for example {}", .root.0, .root.1)]
    Root {
        /// The path as written.
        path: String,
        /// How it should begin, and an example.
        root: (&'static str, &'static str),
    },
    /// A step is neither `.field` nor `[index]`.
    #[error("path {path:?}: {step:?} is neither .field nor [index]")]
    Syntax {
        /// The path as written.
        path: String,
        /// What could not be read.
        step: String,
    },
    /// A field does not exist.
    #[error("path {path:?}: no field {field:?}")]
    Missing {
        /// The path as written.
        path: String,
        /// The field that was looked up.
        field: String,
    },
    /// A step does not fit the value it is applied to.
    #[error("path {path:?}: {step} needs {wanted}, found {found}")]
    Mismatch {
        /// The path as written.
        path: String,
        /// The step.
        step: String,
        /// The type it needs.
        wanted: &'static str,
        /// The type that is there.
        found: &'static str,
    },
    /// An index is beyond the end of its array.
    #[error("path {path:?}: index {index} is out of range, the array has {length} elements")]
    Range {
        /// The path as written.
        path: String,
        /// The index.
        index: usize,
        /// Length of the array.
        length: usize,
    },
}

const TEMPLATE: (&str, &str) = ("template", "template.spec.template");
const STATUS: (&str, &str) = ("status", "status.phase");

impl Path {
    /// Reads a path that begins at a template.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        Self::parse_from(text, TEMPLATE)
    }

    /// Reads a path that begins at a status. Such a path may choose an element of a list by a field of it.
    pub fn parse_status(text: &str) -> Result<Self, PathError> {
        Self::parse_from(text, STATUS)
    }

    fn parse_from(text: &str, root: (&'static str, &'static str)) -> Result<Self, PathError> {
        let mut rest = text.strip_prefix(root.0).ok_or_else(|| PathError::Root {
            path: text.to_owned(),
            root,
        })?;
        let syntax = |step: &str| PathError::Syntax {
            path: text.to_owned(),
            step: step.to_owned(),
        };
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                // A field that itself begins with a separator is taken literally, as upstream does; it is never found.
                let end = if after.starts_with(['.', '[']) {
                    after.len()
                } else {
                    after.find(['.', '[']).unwrap_or(after.len())
                };
                let (field, tail) = after.split_at(end);
                steps.push(Step::Field(field.to_owned()));
                rest = tail;
            } else if let Some(after) = rest.strip_prefix('[') {
                let (index, tail) = after.split_once(']').ok_or_else(|| syntax(rest))?;
                if root == STATUS
                    && let Some((field, value)) = index.split_once('=')
                {
                    steps.push(Step::Select(field.to_owned(), value.to_owned()));
                    rest = tail;
                    continue;
                }
                let digits = index.strip_prefix('+').unwrap_or(index);
                let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                let index = is_number
                    .then(|| digits.parse().ok())
                    .flatten()
                    .ok_or_else(|| syntax(rest))?;
                steps.push(Step::Index(index));
                rest = tail;
            } else {
                return Err(syntax(rest));
            }
        }
        Ok(Self {
            text: text.to_owned(),
            steps,
        })
    }

    /// The value at the path within `template`. A null at the end is found, as null.
    pub fn get<'a>(&self, template: &'a Value) -> Result<&'a Value, PathError> {
        self.steps.iter().try_fold(template, |value, step| match step {
            Step::Field(field) => value
                .as_object()
                .ok_or_else(|| self.mismatch(step, value))?
                .get(field)
                .ok_or_else(|| self.missing(field)),
            Step::Index(index) => {
                let array = value.as_array().ok_or_else(|| self.mismatch(step, value))?;
                array.get(*index).ok_or_else(|| self.range(*index, array.len()))
            }
            Step::Select(field, wanted) => {
                let array = value.as_array().ok_or_else(|| self.mismatch(step, value))?;
                let is_wanted = |element: &&Value| element.get(field).and_then(Value::as_str) == Some(wanted);
                array.iter().find(is_wanted).ok_or_else(|| self.missing(wanted))
            }
        })
    }

    /// The value at the path within `template`, to be changed.
    pub fn get_mut<'a>(&self, template: &'a mut Value) -> Result<&'a mut Value, PathError> {
        self.get(template)?;
        self.steps
            .iter()
            .try_fold(template, |value, step| match step {
                Step::Field(field) => value.get_mut(field),
                Step::Index(index) => value.get_mut(*index),
                // Only in paths of a status, which is never changed here.
                Step::Select(..) => None,
            })
            .ok_or_else(|| self.missing(&self.text))
    }

    fn missing(&self, field: &str) -> PathError {
        PathError::Missing {
            path: self.text.clone(),
            field: field.to_owned(),
        }
    }

    fn range(&self, index: usize, length: usize) -> PathError {
        PathError::Range {
            path: self.text.clone(),
            index,
            length,
        }
    }

    fn mismatch(&self, step: &Step, value: &Value) -> PathError {
        let (step, wanted) = match step {
            Step::Field(field) => (format!(".{field}"), "an object"),
            Step::Index(index) => (format!("[{index}]"), "an array"),
            Step::Select(field, value) => (format!("[{field}={value}]"), "an array"),
        };
        PathError::Mismatch {
            path: self.text.clone(),
            step,
            wanted,
            found: type_name(value),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The JSON type of a value, for messages.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn template() -> Value {
        json!({"spec": {"list": [{"tpl": 1}, {"tpl": 2}], "none": null, "": 3}})
    }

    #[rstest]
    #[case("template", template())]
    #[case("template.spec.list[1].tpl", json!(2))]
    #[case("template.spec.list[+0].tpl", json!(1))]
    #[case("template.spec.none", json!(null))]
    #[case("template.spec.", json!(3))]
    fn a_path_leads_to_its_value(#[case] path: &str, #[case] expected: Value) {
        let path = Path::parse(path).unwrap();
        assert_eq!(path.get(&template()), Ok(&expected));
        assert_eq!(path.get_mut(&mut template()), Ok(&mut expected.clone()));
    }

    #[rstest]
    #[case("")]
    #[case("spec.template")]
    #[case("templateX")]
    #[case("template.spec.list.tpl")]
    #[case("template.spec[0]")]
    #[case("template.spec.list[2]")]
    #[case("template.spec.list[-1]")]
    #[case("template.spec.list[x]")]
    #[case("template.spec.list[]")]
    #[case("template.spec.list[0")]
    #[case("template.spec.list[0]].tpl")]
    #[case("template..spec")]
    #[case("template.[0]")]
    #[case("template.missing")]
    #[case("template.spec.list[99999999999999999999]")]
    fn a_wrong_path_is_an_error(#[case] text: &str) {
        assert!(
            Path::parse(text)
                .and_then(|path| path.get(&template()).cloned())
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn no_path_panics(text in "template[.\\[\\]a-z0-9+-]{0,20}") {
            if let Ok(path) = Path::parse(&text) {
                let _ = path.get_mut(&mut template());
            }
        }
    }
}
