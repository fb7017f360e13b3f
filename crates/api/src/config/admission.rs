//! `appwrapper.admission`: what the webhook lets in. Keys of ours, beside those of the Go controller.

use serde::Deserialize;

use super::ConfigError;
use crate::facts::TypeRef;

/// Most pod sets that any Kueue accepts in one Workload.
pub(crate) const POD_SETS_CEILING: usize = 18;
/// Most components: more do not fit into an object of etcd's size anyway.
const COMPONENTS_CEILING: usize = 10_000;

/// `appwrapper.admission`: what the webhook lets in, and the controller creates.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct AdmissionConfig {
    /// Kinds that may be wrapped: `Kind` of the core group, `group/Kind`, `group/*`, or `*`. The controller needs the right
    /// to create and delete each of them.
    pub allowed_kinds: Vec<KindPattern>,
    /// Lets `allowedKinds` include kinds that hand out rights, such as a RoleBinding. The API server's own escalation check
    /// then runs against the controller's rights instead of the user's.
    pub unsafe_allow_privileged_kinds: bool,
    /// Most pod sets of one AppWrapper: 8 for Kueue up to 0.17, at most 18 for newer ones.
    pub max_pod_sets: usize,
    /// Most components of one AppWrapper.
    pub max_components: usize,
}

/// One or more kinds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct KindPattern {
    /// The group; `None` for every group.
    group: Option<String>,
    /// The kind; `None` for every kind.
    kind: Option<String>,
}

impl KindPattern {
    /// Whether the pattern covers a type, in whatever version.
    pub fn covers(&self, type_ref: &TypeRef) -> bool {
        self.group.as_deref().is_none_or(|group| group == type_ref.group())
            && self.kind.as_deref().is_none_or(|kind| kind == &*type_ref.kind)
    }
}

impl TryFrom<String> for KindPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_kind = |kind: &str| kind.starts_with(|c: char| c.is_ascii_uppercase());
        let some = |text: &str| Some(text.to_owned());
        match text.rsplit_once('/') {
            None if text == "*" => Ok(Self {
                group: None,
                kind: None,
            }),
            None if is_kind(&text) => Ok(Self {
                group: some(""),
                kind: Some(text),
            }),
            Some((group, "*")) if !group.is_empty() && !group.contains('/') => Ok(Self {
                group: some(group),
                kind: None,
            }),
            Some((group, kind)) if !group.contains('/') && is_kind(kind) => Ok(Self {
                group: some(group),
                kind: some(kind),
            }),
            _ => Err(format!(
                "{text:?} names no kind: write Pod, batch/Job, example.com/* or *"
            )),
        }
    }
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        // What the shipped role lets the controller create.
        let kinds = [
            ("", "ConfigMap"),
            ("", "Pod"),
            ("", "Service"),
            ("apps", "Deployment"),
            ("apps", "StatefulSet"),
            ("batch", "Job"),
            ("jobset.x-k8s.io", "JobSet"),
            ("kubeflow.org", "MPIJob"),
            ("kubeflow.org", "PyTorchJob"),
            ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
            ("ray.io", "RayCluster"),
            ("ray.io", "RayJob"),
            ("ray.io", "RayService"),
            ("scheduling.sigs.k8s.io", "PodGroup"),
            ("scheduling.x-k8s.io", "PodGroup"),
            ("trainer.kubeflow.org", "TrainJob"),
        ];
        Self {
            allowed_kinds: kinds
                .map(|(group, kind)| KindPattern {
                    group: Some(group.into()),
                    kind: Some(kind.into()),
                })
                .into(),
            unsafe_allow_privileged_kinds: false,
            max_pod_sets: 8,
            max_components: 500,
        }
    }
}

impl AdmissionConfig {
    /// Whether a type is on the list.
    pub fn allows(&self, type_ref: &TypeRef) -> bool {
        self.allowed_kinds.iter().any(|pattern| pattern.covers(type_ref))
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let within = |field, value: usize, ceiling: usize| {
            (1..=ceiling)
                .contains(&value)
                .then_some(())
                .ok_or_else(|| ConfigError::Value {
                    field,
                    value: value.to_string(),
                    rule: format!("must be between 1 and {ceiling}"),
                })
        };
        within("admission.maxPodSets", self.max_pod_sets, POD_SETS_CEILING)?;
        within("admission.maxComponents", self.max_components, COMPONENTS_CEILING)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::config::Config;

    #[rstest]
    #[case("Pod", "v1", "Pod", true)]
    #[case("Pod", "example.com/v1", "Pod", false)]
    #[case("batch/Job", "batch/v1", "Job", true)]
    #[case("batch/Job", "batch/v2", "Job", true)]
    #[case("batch/Job", "batch/v1", "CronJob", false)]
    #[case("example.com/*", "example.com/v1", "Anything", true)]
    #[case("example.com/*", "other.example.com/v1", "Anything", false)]
    #[case("*", "v1", "Secret", true)]
    fn a_pattern_covers_its_kinds(#[case] pattern: &str, #[case] api: &str, #[case] kind: &str, #[case] covers: bool) {
        let pattern = KindPattern::try_from(pattern.to_owned()).unwrap();
        assert_eq!(pattern.covers(&TypeRef::new(api, kind)), covers);
    }

    #[rstest]
    #[case("pods")]
    #[case("")]
    #[case("/*")]
    #[case("batch/v1/Job")]
    fn what_names_no_kind_is_refused(#[case] pattern: &str) {
        let yaml = format!("appwrapper:\n  admission:\n    allowedKinds: [\"{pattern}\"]\n");
        let error = Config::from_yaml(&yaml).unwrap_err().to_string();
        assert!(error.contains("names no kind"), "{error}");
    }

    #[rstest]
    #[case("maxPodSets: 18", true)]
    #[case("maxPodSets: 19", false)]
    #[case("maxPodSets: 0", false)]
    #[case("maxComponents: 10001", false)]
    fn limits_have_limits(#[case] line: &str, #[case] valid: bool) {
        let yaml = format!("appwrapper:\n  admission:\n    {line}\n");
        assert_eq!(Config::from_yaml(&yaml).is_ok(), valid);
    }

    #[test]
    fn every_kind_of_the_table_may_be_wrapped_and_the_shipped_role_allows_it() {
        let roles = include_str!("../../../../deploy/base/controller/roles.yaml");
        let admission = AdmissionConfig::default();
        for row in crate::kinds::KINDS {
            let type_ref = TypeRef::new(row.api_version, row.kind);
            assert!(
                admission.allowed_kinds.iter().any(|pattern| pattern.covers(&type_ref)),
                "{type_ref} is not allowed by default"
            );
            let plural = format!("{}s", row.kind.to_lowercase());
            let group = if type_ref.group().is_empty() {
                "\"\""
            } else {
                type_ref.group()
            };
            let is_granted = roles.split("- apiGroups: ").any(|rule| {
                let words = |line: &str| {
                    line.trim_matches(['[', ']'])
                        .split(", ")
                        .map(str::to_owned)
                        .collect::<Vec<_>>()
                };
                let list = |key: &str| {
                    rule.lines()
                        .find_map(|line| line.trim().strip_prefix(key))
                        .map(words)
                        .unwrap_or_default()
                };
                words(rule.lines().next().unwrap_or_default()).contains(&group.to_owned())
                    && list("resources: ").contains(&plural)
                    && list("verbs: ").contains(&"create".to_owned())
            });
            assert!(
                is_granted,
                "roles.yaml does not let the controller create {plural} of {group}"
            );
        }
    }
}
