//! The ten annotations that tune one AppWrapper (spec/api.md section 6).
//!
//! They are user input: a malformed value is never fatal. It falls back to the default and is collected as a fault, so
//! that the user can be told once.

use std::{collections::BTreeMap, fmt};

use crate::{ANNOTATION_PREFIX, declared, duration::GoDuration};

/// What the annotations of an AppWrapper say; `None` where one is absent or malformed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Time for pods to be created and scheduled.
    pub admission_grace: Option<GoDuration>,
    /// Time for created pods to become ready.
    pub warmup_grace: Option<GoDuration>,
    /// Time between the failure of a pod and the retry.
    pub failure_grace: Option<GoDuration>,
    /// Pause between the end of deletion and the next attempt.
    pub retry_pause: Option<GoDuration>,
    /// Time after which deletion is forced.
    pub forceful_deletion_grace: Option<GoDuration>,
    /// Time for which the components of a failed AppWrapper are kept.
    pub deletion_on_failure_grace: Option<GoDuration>,
    /// Time for which the components of a succeeded AppWrapper are kept.
    pub success_ttl: Option<GoDuration>,
    /// Time after its end after which the AppWrapper itself is deleted; zero keeps it.
    pub finished_ttl: Option<GoDuration>,
    /// Number of retries; negative means none.
    pub retry_limit: Option<i32>,
    /// Exit codes that are never retried.
    pub terminal_exit_codes: Vec<i32>,
    /// If not empty, every other exit code is terminal.
    pub retryable_exit_codes: Vec<i32>,
}

/// One annotation whose value could not be used as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationFault {
    /// Full name of the annotation.
    pub annotation: String,
    /// The value, shortened.
    pub value: String,
    /// What is wrong and what is used instead.
    pub fault: String,
}

impl AnnotationFault {
    /// A fault of the annotation with this suffix.
    pub fn new(suffix: &str, value: &str, fault: impl Into<String>) -> Self {
        const SHOWN: usize = 60;
        let value = match value.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}...", value.get(..end).unwrap_or_default()),
            None => value.to_owned(),
        };
        Self {
            annotation: format!("{ANNOTATION_PREFIX}{suffix}"),
            value,
            fault: fault.into(),
        }
    }
}

impl fmt::Display for AnnotationFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "annotation {} has value {:?}: {}",
            self.annotation, self.value, self.fault
        )
    }
}

/// Suffixes of the annotations after [`ANNOTATION_PREFIX`].
pub mod suffix {
    /// Admission grace.
    pub const ADMISSION_GRACE: &str = "admissionGracePeriodDuration";
    /// Warm-up grace.
    pub const WARMUP_GRACE: &str = "warmupGracePeriodDuration";
    /// Failure grace.
    pub const FAILURE_GRACE: &str = "failureGracePeriodDuration";
    /// Retry pause.
    pub const RETRY_PAUSE: &str = "retryPausePeriodDuration";
    /// Forceful deletion grace.
    pub const FORCEFUL_DELETION_GRACE: &str = "forcefulDeletionGracePeriodDuration";
    /// Deletion delay after failure.
    pub const DELETION_ON_FAILURE_GRACE: &str = "deletionOnFailureGracePeriodDuration";
    /// Time to live after success.
    pub const SUCCESS_TTL: &str = "successTTLDuration";
    /// Time to live of the AppWrapper itself, after its end.
    pub const FINISHED_TTL: &str = "finishedTTLDuration";
    /// Retry limit.
    pub const RETRY_LIMIT: &str = "retryLimit";
    /// Terminal exit codes.
    pub const TERMINAL_EXIT_CODES: &str = "terminalExitCodes";
    /// Retryable exit codes.
    pub const RETRYABLE_EXIT_CODES: &str = "retryableExitCodes";
}

impl Annotations {
    /// Reads the annotations of an AppWrapper and what is wrong with them. Unknown ones are ignored.
    pub fn parse(annotations: &BTreeMap<String, String>) -> (Self, Vec<AnnotationFault>) {
        let mut faults = Vec::new();
        let mut parsed = Self::default();
        for (name, value) in annotations {
            if let Some(suffix) = name.strip_prefix(ANNOTATION_PREFIX) {
                parsed.read(suffix, value, &mut faults);
            }
        }
        (parsed, faults)
    }

    fn read(&mut self, suffix: &str, value: &str, faults: &mut Vec<AnnotationFault>) {
        let duration = match suffix {
            suffix::ADMISSION_GRACE => &mut self.admission_grace,
            suffix::WARMUP_GRACE => &mut self.warmup_grace,
            suffix::FAILURE_GRACE => &mut self.failure_grace,
            suffix::RETRY_PAUSE => &mut self.retry_pause,
            suffix::FORCEFUL_DELETION_GRACE => &mut self.forceful_deletion_grace,
            suffix::DELETION_ON_FAILURE_GRACE => &mut self.deletion_on_failure_grace,
            suffix::SUCCESS_TTL => &mut self.success_ttl,
            suffix::FINISHED_TTL => &mut self.finished_ttl,
            suffix::RETRY_LIMIT => {
                self.retry_limit = saturating_integer(value);
                if self.retry_limit.is_none() {
                    faults.push(AnnotationFault::new(
                        suffix,
                        value,
                        "not an integer; the configured limit is used",
                    ));
                }
                return;
            }
            declared::SUCCESS | declared::FAILURE => {
                let fault =
                    "has no effect here; put it on the wrapped object, spec.components[].template.metadata.annotations";
                faults.push(AnnotationFault::new(suffix, value, fault));
                return;
            }
            suffix::TERMINAL_EXIT_CODES => return read_codes(suffix, value, &mut self.terminal_exit_codes, faults),
            suffix::RETRYABLE_EXIT_CODES => return read_codes(suffix, value, &mut self.retryable_exit_codes, faults),
            _ => return,
        };
        match value.parse() {
            Ok(parsed) => *duration = Some(parsed),
            Err(_) => faults.push(AnnotationFault::new(
                suffix,
                value,
                "not a Go duration such as 90s, 5m or 1h30m; the default is used",
            )),
        }
    }
}

fn read_codes(suffix: &str, value: &str, codes: &mut Vec<i32>, faults: &mut Vec<AnnotationFault>) {
    for entry in value.split(',') {
        match entry.trim().parse() {
            Ok(code) => codes.push(code),
            Err(_) => faults.push(AnnotationFault::new(
                suffix,
                value,
                format!("{entry:?} is not an exit code and is ignored"),
            )),
        }
    }
}

/// A decimal integer, held to 32 bits instead of wrapping.
fn saturating_integer(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let limit = if text.starts_with('-') { i32::MIN } else { i32::MAX };
    Some(text.parse().unwrap_or(limit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn parse(suffix: &str, value: &str) -> (Annotations, Vec<AnnotationFault>) {
        Annotations::parse(&BTreeMap::from([(
            format!("{ANNOTATION_PREFIX}{suffix}"),
            value.to_owned(),
        )]))
    }

    #[rstest]
    #[case("101", Some(101), 0)]
    #[case("-1", Some(-1), 0)]
    #[case("+2", Some(2), 0)]
    #[case("4294967296", Some(i32::MAX), 0)]
    #[case("-99999999999", Some(i32::MIN), 0)]
    #[case("abc", None, 1)]
    #[case("", None, 1)]
    #[case("1_000", None, 1)]
    #[case(" 1", None, 1)]
    fn a_retry_limit_saturates(#[case] value: &str, #[case] limit: Option<i32>, #[case] faults: usize) {
        let (annotations, found) = parse("retryLimit", value);
        assert_eq!(annotations.retry_limit, limit);
        assert_eq!(found.len(), faults);
    }

    #[rstest]
    #[case("3,10,abc,42", &[3, 10, 42], 1)]
    #[case("3, 42", &[3, 42], 0)]
    #[case("x,10,20", &[10, 20], 1)]
    #[case("", &[], 1)]
    fn exit_codes_may_have_spaces_and_bad_ones_are_told(
        #[case] value: &str,
        #[case] codes: &[i32],
        #[case] faults: usize,
    ) {
        let (annotations, found) = parse("terminalExitCodes", value);
        assert_eq!(annotations.terminal_exit_codes, codes);
        assert_eq!(found.len(), faults);
    }

    #[test]
    fn a_malformed_duration_is_a_fault_that_names_it() {
        let (annotations, faults) = parse("warmupGracePeriodDuration", "222badTime");
        assert_eq!(annotations.warmup_grace, None);
        assert!(faults[0].to_string().contains("warmupGracePeriodDuration"));
        assert!(faults[0].to_string().contains("222badTime"));
    }

    #[test]
    fn how_an_object_ends_is_declared_on_the_object() {
        let (_, faults) = parse("successCondition", "status.phase=Done");
        assert!(faults[0].to_string().contains("template.metadata.annotations"));
    }

    #[test]
    fn the_misspelled_annotation_of_a_sample_has_no_effect() {
        assert_eq!(
            parse("delectionOnFailureGracePeriodDuration", "1h"),
            (Annotations::default(), Vec::new())
        );
    }

    proptest! {
        #[test]
        fn no_value_panics(suffix in prop::sample::select(vec!["retryLimit", "terminalExitCodes", "successTTLDuration"]), value in ".{0,30}") {
            let _ = parse(suffix, &value);
        }
    }
}
