//! The configuration file, with the YAML keys of the Go controller (spec/config-metrics-deploy.md section 2).
//!
//! Absent keys keep their defaults, nested objects merge, lists are replaced. A key that is not known is an error that
//! names it. Durations are Go strings (`90s`) or, as the Go controller writes them, integers of nanoseconds.

mod admission;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

pub(crate) use self::admission::POD_SETS_CEILING;
pub use self::admission::{AdmissionConfig, KindPattern};
use crate::duration::GoDuration;

/// Everything that can be configured.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// Lifecycle and admission.
    pub appwrapper: AppWrapperConfig,
    /// Certificates of the webhook.
    pub cert_management: CertConfig,
    /// Addresses and leader election.
    pub controller_manager: ManagerConfig,
    /// Whether the webhook is part of the installation.
    #[serde(deserialize_with = "null_is_false")]
    pub webhooks_enabled: bool,
}

/// `appwrapper`: lifecycle and admission.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct AppWrapperConfig {
    /// Node health; null switches it off.
    pub autopilot: Option<AutopilotConfig>,
    /// Whether the webhook asks for the user's right to create each wrapped kind.
    #[serde(rename = "userRBACAdmissionCheck")]
    pub user_rbac_admission_check: bool,
    /// Scheduler for pods whose template names none; empty injects nothing.
    pub scheduler_name: String,
    /// Queue for AppWrappers that name none; empty sets nothing.
    pub default_queue_name: String,
    /// Grace periods and retries.
    pub fault_tolerance: FaultToleranceConfig,
    /// What the webhook lets in.
    pub admission: AdmissionConfig,
}

/// `appwrapper.autopilot`: how the marks of node health are understood.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct AutopilotConfig {
    /// Keep pods off nodes that are marked for a resource they use.
    pub inject_anti_affinities: bool,
    /// Reset AppWrappers whose pods use a resource marked `NoExecute` on their node.
    pub monitor_nodes: bool,
    /// Marks by resource name. What is given here is laid over the default, resource by resource.
    #[serde(deserialize_with = "resource_taints")]
    pub resource_taints: BTreeMap<String, Vec<ResourceTaint>>,
    /// Weight of the preferred node affinity; null means 1.
    pub prefer_no_schedule_weight: Option<i32>,
}

/// A node label that marks a resource of the node as unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceTaint {
    /// Label key.
    pub key: String,
    /// Label value.
    #[serde(default)]
    pub value: String,
    /// What the mark asks for.
    pub effect: TaintEffect,
}

/// What a mark asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TaintEffect {
    /// Evict what uses the resource.
    NoExecute,
    /// Schedule nothing that uses it.
    NoSchedule,
    /// Rather schedule nothing that uses it.
    PreferNoSchedule,
}

/// `appwrapper.faultTolerance`: grace periods and retries.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct FaultToleranceConfig {
    /// Time for pods to be created and scheduled.
    #[serde(deserialize_with = "duration")]
    pub admission_grace_period: GoDuration,
    /// Time for pods to become ready.
    #[serde(deserialize_with = "duration")]
    pub warmup_grace_period: GoDuration,
    /// Time between the failure of a pod and the retry.
    #[serde(deserialize_with = "duration")]
    pub failure_grace_period: GoDuration,
    /// Pause between two attempts.
    #[serde(rename = "resetPause", deserialize_with = "duration")]
    pub retry_pause: GoDuration,
    /// Number of retries.
    pub retry_limit: i32,
    /// Time after which deletion is forced.
    #[serde(rename = "deletionGracePeriod", deserialize_with = "duration")]
    pub forceful_deletion_grace_period: GoDuration,
    /// Upper bound of every grace period.
    #[serde(rename = "gracePeriodCeiling", deserialize_with = "duration")]
    pub grace_period_maximum: GoDuration,
    /// Time to live after success, and its upper bound.
    #[serde(rename = "successTTLCeiling", deserialize_with = "duration")]
    pub success_ttl: GoDuration,
    /// Time after its end, good or bad, after which an AppWrapper itself is deleted; zero keeps it. The Go controller has
    /// no such key.
    #[serde(rename = "finishedTTL", deserialize_with = "duration")]
    pub finished_ttl: GoDuration,
}

/// `certManagement`: names of the webhook's certificate objects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct CertConfig {
    /// Namespace of the Secret; empty means the controller's own.
    pub namespace: String,
    /// Directory of the serving certificate.
    pub certificate_dir: String,
    /// Common name of the certificate authority.
    pub certificate_name: String,
    /// Organisation of the certificate authority.
    pub certificate_org: String,
    /// The mutating webhook configuration.
    pub mutating_webhook_config_name: String,
    /// The validating webhook configuration.
    pub validating_webhook_config_name: String,
    /// The Service of the webhook.
    pub webhook_service_name: String,
    /// The Secret of the webhook.
    pub webhook_secret_name: String,
}

/// `controllerManager`: addresses and leader election.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ManagerConfig {
    /// Where probes are answered.
    pub health: BindConfig,
    /// Where metrics are served; `0` switches them off.
    pub metrics: BindConfig,
    /// Accepted for compatibility; our controller always elects.
    pub leader_election: bool,
    /// Accepted for compatibility; we serve HTTP/1.1 only.
    #[serde(rename = "enableHTTP2")]
    pub enable_http2: bool,
}

/// An address to listen on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct BindConfig {
    /// `host:port`, `:port`, or `0` for none.
    pub bind_address: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            appwrapper: AppWrapperConfig::default(),
            cert_management: CertConfig::default(),
            controller_manager: ManagerConfig::default(),
            webhooks_enabled: true,
        }
    }
}

impl Default for AppWrapperConfig {
    fn default() -> Self {
        Self {
            autopilot: Some(AutopilotConfig::default()),
            user_rbac_admission_check: true,
            scheduler_name: String::new(),
            default_queue_name: String::new(),
            fault_tolerance: FaultToleranceConfig::default(),
            admission: AdmissionConfig::default(),
        }
    }
}

impl Default for AutopilotConfig {
    fn default() -> Self {
        Self {
            inject_anti_affinities: true,
            monitor_nodes: true,
            resource_taints: default_taints(),
            prefer_no_schedule_weight: Some(50),
        }
    }
}

impl Default for FaultToleranceConfig {
    fn default() -> Self {
        Self {
            admission_grace_period: GoDuration::from_secs(60),
            warmup_grace_period: GoDuration::from_secs(300),
            failure_grace_period: GoDuration::from_secs(60),
            retry_pause: GoDuration::from_secs(90),
            retry_limit: 3,
            forceful_deletion_grace_period: GoDuration::from_secs(600),
            grace_period_maximum: GoDuration::from_secs(24 * 3600),
            success_ttl: GoDuration::from_secs(168 * 3600),
            finished_ttl: GoDuration::ZERO,
        }
    }
}

impl Default for CertConfig {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            certificate_dir: "/tmp/k8s-webhook-server/serving-certs".into(),
            certificate_name: "appwrapper-ca".into(),
            certificate_org: "appwrapper".into(),
            mutating_webhook_config_name: "appwrapper-mutating-webhook-configuration".into(),
            validating_webhook_config_name: "appwrapper-validating-webhook-configuration".into(),
            webhook_service_name: "appwrapper-webhook-service".into(),
            webhook_secret_name: "appwrapper-webhook-server-cert".into(),
        }
    }
}

impl Default for ManagerConfig {
    fn default() -> Self {
        Self {
            health: BindConfig {
                bind_address: Some(":8081".into()),
            },
            metrics: BindConfig {
                bind_address: Some(":8443".into()),
            },
            leader_election: false,
            enable_http2: false,
        }
    }
}

fn default_taints() -> BTreeMap<String, Vec<ResourceTaint>> {
    let taint = |value: &str, effect| ResourceTaint {
        key: "autopilot.ibm.com/gpuhealth".into(),
        value: value.into(),
        effect,
    };
    BTreeMap::from([(
        "nvidia.com/gpu".into(),
        vec![
            taint("WARN", TaintEffect::PreferNoSchedule),
            taint("TESTING", TaintEffect::NoSchedule),
            taint("EVICT", TaintEffect::NoExecute),
        ],
    )])
}

fn resource_taints<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<ResourceTaint>>, D::Error> {
    let mut taints = default_taints();
    taints.extend(BTreeMap::deserialize(deserializer)?);
    Ok(taints)
}

fn null_is_false<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(false))
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GoDuration, D::Error> {
    struct Visitor;

    impl serde::de::Visitor<'_> for Visitor {
        type Value = GoDuration;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a Go duration such as 90s, or an integer of nanoseconds")
        }

        fn visit_i64<E: serde::de::Error>(self, nanoseconds: i64) -> Result<GoDuration, E> {
            Ok(GoDuration::from_nanos(nanoseconds))
        }

        fn visit_u64<E: serde::de::Error>(self, nanoseconds: u64) -> Result<GoDuration, E> {
            i64::try_from(nanoseconds)
                .map(GoDuration::from_nanos)
                .map_err(|_| E::custom(format!("duration of {nanoseconds} nanoseconds is too large")))
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<GoDuration, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_any(Visitor)
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text is no YAML of the expected shape.
    #[error("invalid configuration: {0}")]
    Syntax(String),
    /// A value breaks a rule.
    #[error("invalid configuration: {field} is {value}, but {rule}")]
    Value {
        /// The key, with its section.
        field: &'static str,
        /// The value.
        value: String,
        /// The rule and so the remedy.
        rule: String,
    },
}

impl Config {
    /// Reads and checks a configuration file. An empty file gives the defaults.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigError> {
        if text
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
        {
            return Ok(Self::default());
        }
        let config: Self = serde_saphyr::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        config.appwrapper.fault_tolerance.check()?;
        config.appwrapper.admission.check()?;
        Ok(config)
    }
}

impl FaultToleranceConfig {
    fn check(&self) -> Result<(), ConfigError> {
        let at_most = |field, value: GoDuration, bound_name: &str, bound: GoDuration| {
            (value <= bound).then_some(()).ok_or_else(|| ConfigError::Value {
                field,
                value: value.to_string(),
                rule: format!("must not exceed {bound_name}, which is {bound}"),
            })
        };
        let ceiling = |field, value| {
            at_most(
                field,
                value,
                "faultTolerance.gracePeriodCeiling",
                self.grace_period_maximum,
            )
        };
        ceiling(
            "faultTolerance.deletionGracePeriod",
            self.forceful_deletion_grace_period,
        )?;
        ceiling("faultTolerance.resetPause", self.retry_pause)?;
        ceiling("faultTolerance.failureGracePeriod", self.failure_grace_period)?;
        ceiling("faultTolerance.admissionGracePeriod", self.admission_grace_period)?;
        ceiling("faultTolerance.warmupGracePeriod", self.warmup_grace_period)?;
        at_most(
            "faultTolerance.admissionGracePeriod",
            self.admission_grace_period,
            "faultTolerance.warmupGracePeriod",
            self.warmup_grace_period,
        )?;
        if self.success_ttl <= GoDuration::ZERO {
            return Err(ConfigError::Value {
                field: "faultTolerance.successTTLCeiling",
                value: self.success_ttl.to_string(),
                rule: "must be positive".into(),
            });
        }
        if self.finished_ttl < GoDuration::ZERO {
            return Err(ConfigError::Value {
                field: "faultTolerance.finishedTTL",
                value: self.finished_ttl.to_string(),
                rule: "must not be negative; 0s keeps finished AppWrappers".into(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn the_default_configuration_is_valid() {
        Config::default().appwrapper.fault_tolerance.check().unwrap();
        assert_eq!(Config::from_yaml("# nothing\n").unwrap(), Config::default());
    }

    #[test]
    fn absent_keys_keep_defaults_and_both_forms_of_durations_are_read() {
        let config = Config::from_yaml(
            "appwrapper:\n  faultTolerance:\n    admissionGracePeriod: 30000000000\n    resetPause: 5s\n  schedulerName: sakkara\nwebhooksEnabled: null\n",
        )
        .unwrap();
        let tolerance = &config.appwrapper.fault_tolerance;
        assert_eq!(tolerance.admission_grace_period, GoDuration::from_secs(30));
        assert_eq!(tolerance.retry_pause, GoDuration::from_secs(5));
        assert_eq!(tolerance.retry_limit, 3);
        assert_eq!(config.appwrapper.scheduler_name, "sakkara");
        assert!(!config.webhooks_enabled);
    }

    #[test]
    fn resource_taints_merge_by_resource_and_null_switches_autopilot_off() {
        let config = Config::from_yaml(
            "appwrapper:\n  autopilot:\n    resourceTaints:\n      example.com/fpga:\n      - {key: health, value: bad, effect: NoExecute}\n",
        )
        .unwrap();
        let taints = config.appwrapper.autopilot.unwrap().resource_taints;
        assert_eq!(
            taints.keys().collect::<Vec<_>>(),
            ["example.com/fpga", "nvidia.com/gpu"]
        );
        let off = Config::from_yaml("appwrapper:\n  autopilot: null\n").unwrap();
        assert_eq!(off.appwrapper.autopilot, None);
    }

    #[test]
    fn the_shipped_configuration_holds_the_defaults() {
        let shipped = Config::from_yaml(include_str!("../../../deploy/base/config.yaml")).unwrap();
        let mut default = Config::default();
        default.controller_manager.leader_election = true;
        let sort = |config: &mut Config| {
            config
                .appwrapper
                .admission
                .allowed_kinds
                .sort_by_key(|kind| format!("{kind:?}"));
        };
        let (mut shipped, mut expected) = (shipped, default);
        sort(&mut shipped);
        sort(&mut expected);
        assert_eq!(shipped, expected);
    }

    #[test]
    fn a_null_section_is_an_absent_one() {
        assert_eq!(
            Config::from_yaml("appwrapper:\n  faultTolerance: null\n").unwrap(),
            Config::default()
        );
    }

    #[rstest]
    #[case("appwrapper:\n  slackQueueName: x\n", "slackQueueName")]
    #[case("appwrapper:\n  faultTolerance:\n    resetPause: 1d\n", "1d")]
    #[case("appwrapper:\n  faultTolerance:\n    resetPause: 25h\n", "resetPause")]
    #[case(
        "appwrapper:\n  faultTolerance:\n    deletionGracePeriod: 25h\n",
        "deletionGracePeriod"
    )]
    #[case(
        "appwrapper:\n  faultTolerance:\n    failureGracePeriod: 25h\n",
        "failureGracePeriod"
    )]
    #[case("appwrapper:\n  faultTolerance:\n    warmupGracePeriod: 25h\n", "warmupGracePeriod")]
    #[case(
        "appwrapper:\n  faultTolerance:\n    admissionGracePeriod: 10m\n",
        "warmupGracePeriod"
    )]
    #[case("appwrapper:\n  faultTolerance:\n    successTTLCeiling: 0\n", "successTTLCeiling")]
    #[case("appwrapper:\n  faultTolerance:\n    finishedTTL: -1s\n", "finishedTTL")]
    fn a_bad_configuration_is_refused_by_name(#[case] yaml: &str, #[case] named: &str) {
        let error = Config::from_yaml(yaml).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}
