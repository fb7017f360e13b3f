//! What is legal but probably not meant. Shown by kubectl beside the success; refuses nothing.

use std::collections::BTreeMap;

use appwrapper_api::{
    ANNOTATION_PREFIX, Annotations, AppWrapper, CONTROLLER_NAME, GoDuration, TypeRef, annotations::suffix,
    config::FaultToleranceConfig, declared, kinds,
};

/// `managedBy` of AppWrappers that run on another cluster of a MultiKueue.
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// Most warnings of one answer.
const LIMIT: usize = 10;
/// The API server cuts longer ones when there are many.
const LENGTH: usize = 250;

const KNOWN_SUFFIXES: [&str; 13] = [
    declared::FAILURE,
    declared::SUCCESS,
    suffix::FINISHED_TTL,
    suffix::ADMISSION_GRACE,
    suffix::WARMUP_GRACE,
    suffix::FAILURE_GRACE,
    suffix::RETRY_PAUSE,
    suffix::FORCEFUL_DELETION_GRACE,
    suffix::DELETION_ON_FAILURE_GRACE,
    suffix::SUCCESS_TTL,
    suffix::RETRY_LIMIT,
    suffix::TERMINAL_EXIT_CODES,
    suffix::RETRYABLE_EXIT_CODES,
];

/// Warnings about a new AppWrapper.
pub fn of_new(wrapper: &AppWrapper, tolerance: &FaultToleranceConfig) -> Vec<String> {
    let mut warnings = of_annotations(wrapper, tolerance);
    for (position, component) in wrapper.spec.components.iter().enumerate() {
        if let Ok(head) = component.template.head()
            && component.pod_sets.is_empty()
            && may_make_pods(&head.type_ref)
        {
            warnings.push(format!(
                "spec.components[{position}]: the pods of kind {:.63} are not known; if it makes any, declare podSets or they are neither counted nor queued",
                head.type_ref.kind
            ));
        }
    }
    if let Some(manager) = wrapper.spec.managed_by.as_deref()
        && manager != CONTROLLER_NAME
        && manager != MULTIKUEUE
    {
        warnings.push(format!(
            "spec.managedBy is {manager:.80?}: this controller will leave the AppWrapper alone"
        ));
    }
    limited(warnings)
}

/// Warnings about an update: only about annotations, and only if they changed.
pub fn of_update(old: &AppWrapper, new: &AppWrapper, tolerance: &FaultToleranceConfig) -> Vec<String> {
    if old.metadata.annotations == new.metadata.annotations {
        return Vec::new();
    }
    limited(of_annotations(new, tolerance))
}

fn of_annotations(wrapper: &AppWrapper, tolerance: &FaultToleranceConfig) -> Vec<String> {
    let none = BTreeMap::new();
    let annotations = wrapper.metadata.annotations.as_ref().unwrap_or(&none);
    let (parsed, faults) = Annotations::parse(annotations);
    let mut warnings: Vec<_> = faults.iter().map(ToString::to_string).collect();
    let unknown = annotations
        .keys()
        .filter_map(|name| name.strip_prefix(ANNOTATION_PREFIX));
    for suffix in unknown.filter(|suffix| !KNOWN_SUFFIXES.contains(suffix)) {
        warnings.push(format!(
            "annotation {ANNOTATION_PREFIX}{suffix} is not known and has no effect"
        ));
    }
    let ceiling = tolerance.grace_period_maximum;
    for (suffix, value) in [
        (suffix::ADMISSION_GRACE, parsed.admission_grace),
        (suffix::WARMUP_GRACE, parsed.warmup_grace),
        (suffix::FAILURE_GRACE, parsed.failure_grace),
        (suffix::RETRY_PAUSE, parsed.retry_pause),
        (suffix::FORCEFUL_DELETION_GRACE, parsed.forceful_deletion_grace),
        (suffix::DELETION_ON_FAILURE_GRACE, parsed.deletion_on_failure_grace),
    ] {
        let used = match value {
            Some(value) if value > ceiling => ceiling,
            Some(value) if value < GoDuration::ZERO => GoDuration::ZERO,
            _ => continue,
        };
        warnings.push(format!(
            "annotation {ANNOTATION_PREFIX}{suffix} is outside 0 to {ceiling}, which the configuration allows; {used} is used"
        ));
    }
    let longest = tolerance.success_ttl;
    if parsed
        .success_ttl
        .is_some_and(|ttl| ttl <= GoDuration::ZERO || ttl > longest)
    {
        warnings.push(format!(
            "annotation {ANNOTATION_PREFIX}{} is not within the configured ceiling; {longest} is used",
            suffix::SUCCESS_TTL
        ));
    }
    if parsed.finished_ttl.is_some_and(|ttl| ttl < GoDuration::ZERO) {
        warnings.push(format!(
            "annotation {ANNOTATION_PREFIX}{} is negative; the AppWrapper is kept",
            suffix::FINISHED_TTL
        ));
    }
    warnings
}

/// Whether a kind of which the table knows no pods could make some. Of the core and network groups it is known that they do not.
fn may_make_pods(type_ref: &TypeRef) -> bool {
    let podless = matches!(
        type_ref.group(),
        "" | "networking.k8s.io" | "policy" | "scheduling.x-k8s.io" | "scheduling.sigs.k8s.io" | "storage.k8s.io"
    ) && &*type_ref.kind != "ReplicationController";
    kinds::lookup(type_ref).is_none_or(|row| row.pod_sets.is_empty()) && !podless
}

fn limited(warnings: Vec<String>) -> Vec<String> {
    warnings
        .into_iter()
        .take(LIMIT)
        .map(|warning| warning.chars().take(LENGTH).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "reads better in a table")]
    fn warned(annotations: Value, template: Value, managed_by: Value) -> Vec<String> {
        let wrapper = serde_json::from_value(json!({
            "metadata": {"name": "a", "annotations": annotations},
            "spec": {"components": [{"template": template}], "managedBy": managed_by},
        }))
        .unwrap();
        of_new(&wrapper, &FaultToleranceConfig::default())
    }

    fn annotated(suffix: &str, value: &str) -> Vec<String> {
        warned(
            json!({format!("{ANNOTATION_PREFIX}{suffix}"): value}),
            json!({"apiVersion": "v1", "kind": "Pod"}),
            json!(null),
        )
    }

    #[rstest]
    #[case("successTTLDuration", "1m")]
    #[case("successTTLDuration", "168h")]
    #[case("retryLimit", "1")]
    #[case("warmupGracePeriodDuration", "24h")]
    #[case("terminalExitCodes", "1,2")]
    fn sensible_annotations_are_not_warned_of(#[case] suffix: &str, #[case] value: &str) {
        assert_eq!(annotated(suffix, value), Vec::<String>::new());
    }

    #[rstest]
    #[case("successTTLDuration", "0s", "168h0m0s is used")]
    #[case("successTTLDuration", "169h", "168h0m0s is used")]
    #[case("successTTLDuration", "222badTime", "not a Go duration")]
    #[case("retryLimit", "many", "not an integer")]
    #[case("warmupGracePeriodDuration", "25h", "24h0m0s is used")]
    #[case("warmupGracePeriodDuration", "-1s", "0s is used")]
    #[case("finishedTTLDuration", "-1s", "is negative")]
    #[case("successCondition", "status.phase=Done", "template.metadata.annotations")]
    #[case("delectionOnFailureGracePeriodDuration", "1m", "is not known")]
    fn doubtful_annotations_are(#[case] suffix: &str, #[case] value: &str, #[case] text: &str) {
        let warnings = annotated(suffix, value);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(
            warnings[0].contains(text) && warnings[0].contains(suffix),
            "{warnings:?}"
        );
    }

    #[rstest]
    #[case("example.com/v1", "Widget", 1)]
    #[case("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", 0)]
    #[case("trainer.kubeflow.org/v1alpha1", "TrainJob", 1)]
    #[case("v1", "Service", 0)]
    #[case("scheduling.x-k8s.io/v1alpha1", "PodGroup", 0)]
    #[case("batch/v1", "Job", 0)]
    fn a_kind_whose_pods_are_not_known_is(#[case] api_version: &str, #[case] kind: &str, #[case] count: usize) {
        assert_eq!(
            warned(json!({}), json!({"apiVersion": api_version, "kind": kind}), json!(null)).len(),
            count
        );
    }

    #[test]
    fn a_strange_manager_is() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        for (manager, count) in [
            (json!("x"), 1),
            (json!(""), 1),
            (json!(MULTIKUEUE), 0),
            (json!(CONTROLLER_NAME), 0),
        ] {
            assert_eq!(warned(json!({}), pod.clone(), manager).len(), count);
        }
    }
}
