//! The limits that hold for one AppWrapper: configuration, overlaid by its annotations, clamped as upstream does.

use std::sync::Arc;

use appwrapper_api::{
    AnnotationFault, Annotations, GoDuration,
    annotations::suffix,
    config::{AdmissionConfig, AppWrapperConfig, AutopilotConfig},
};

/// Resolved limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Time for pods to be created and scheduled.
    pub admission_grace: GoDuration,
    /// Time for created pods to become ready.
    pub warmup_grace: GoDuration,
    /// Time from the loss or failure of a pod to the retry.
    pub failure_grace: GoDuration,
    /// Pause between the end of deletion and the next attempt.
    pub retry_pause: GoDuration,
    /// Time after which deletion is forced.
    pub forceful_deletion_grace: GoDuration,
    /// Time for which components of a failed AppWrapper are kept.
    pub deletion_on_failure_grace: GoDuration,
    /// Time for which components of a succeeded AppWrapper are kept.
    pub success_ttl: GoDuration,
    /// Time after its end after which the AppWrapper itself is deleted; none keeps it.
    pub finished_ttl: Option<GoDuration>,
    /// Number of retries; negative means none.
    pub retry_limit: i32,
    /// Exit codes that are never retried.
    pub terminal_exit_codes: Vec<i32>,
    /// If not empty, every other exit code is terminal.
    pub retryable_exit_codes: Vec<i32>,
    /// Scheduler to inject; empty for none.
    pub scheduler_name: Arc<str>,
    /// Node health to inject, if it is switched on.
    pub anti_affinity: Option<Arc<AutopilotConfig>>,
    /// What may be created at all.
    pub admission: Arc<AdmissionConfig>,
}

/// What all AppWrappers share of the configuration, made once.
#[derive(Clone, Debug)]
pub struct Defaults {
    config: Arc<AppWrapperConfig>,
    scheduler_name: Arc<str>,
    anti_affinity: Option<Arc<AutopilotConfig>>,
    admission: Arc<AdmissionConfig>,
}

impl Defaults {
    /// The shared part of a configuration.
    pub fn new(config: &AppWrapperConfig) -> Self {
        let autopilot = config
            .autopilot
            .clone()
            .filter(|autopilot| autopilot.inject_anti_affinities);
        Self {
            scheduler_name: config.scheduler_name.as_str().into(),
            anti_affinity: autopilot.map(Arc::new),
            admission: Arc::new(config.admission.clone()),
            config: Arc::new(config.clone()),
        }
    }

    /// The limits of an AppWrapper with these annotations, and what was wrong with them.
    pub fn resolve(&self, annotations: &Annotations) -> (Policy, Vec<AnnotationFault>) {
        let tolerance = &self.config.fault_tolerance;
        let ceiling = tolerance.grace_period_maximum;
        let clamp =
            |own: Option<GoDuration>, default: GoDuration| own.unwrap_or(default).min(ceiling).max(GoDuration::ZERO);
        let mut faults = Vec::new();
        let success_ttl = match annotations.success_ttl {
            Some(ttl) if ttl > GoDuration::ZERO && ttl < tolerance.success_ttl => ttl,
            Some(ttl) if ttl != tolerance.success_ttl => {
                let fault = format!("not between 0s and {0}; {0} is used", tolerance.success_ttl);
                faults.push(AnnotationFault::new(suffix::SUCCESS_TTL, &ttl.to_string(), fault));
                tolerance.success_ttl
            }
            _ => tolerance.success_ttl,
        };
        let finished_ttl = match annotations.finished_ttl {
            Some(ttl) if ttl < GoDuration::ZERO => {
                let fault = "negative; the AppWrapper is kept";
                faults.push(AnnotationFault::new(suffix::FINISHED_TTL, &ttl.to_string(), fault));
                GoDuration::ZERO
            }
            own => own.unwrap_or(tolerance.finished_ttl),
        };
        let policy = Policy {
            admission_grace: clamp(annotations.admission_grace, tolerance.admission_grace_period),
            warmup_grace: clamp(annotations.warmup_grace, tolerance.warmup_grace_period),
            failure_grace: clamp(annotations.failure_grace, tolerance.failure_grace_period),
            retry_pause: clamp(annotations.retry_pause, tolerance.retry_pause),
            forceful_deletion_grace: clamp(
                annotations.forceful_deletion_grace,
                tolerance.forceful_deletion_grace_period,
            ),
            deletion_on_failure_grace: clamp(annotations.deletion_on_failure_grace, GoDuration::ZERO),
            success_ttl,
            finished_ttl: Some(finished_ttl).filter(|ttl| *ttl > GoDuration::ZERO),
            retry_limit: annotations.retry_limit.unwrap_or(tolerance.retry_limit),
            terminal_exit_codes: annotations.terminal_exit_codes.clone(),
            retryable_exit_codes: annotations.retryable_exit_codes.clone(),
            scheduler_name: Arc::clone(&self.scheduler_name),
            anti_affinity: self.anti_affinity.clone(),
            admission: Arc::clone(&self.admission),
        };
        (policy, faults)
    }
}

impl Policy {
    /// Whether an exit code forbids a retry. The two annotations are independent.
    pub fn is_terminal(&self, exit_code: i32) -> bool {
        self.terminal_exit_codes.contains(&exit_code)
            || (!self.retryable_exit_codes.is_empty() && !self.retryable_exit_codes.contains(&exit_code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(annotations: &Annotations) -> (Policy, Vec<AnnotationFault>) {
        Defaults::new(&AppWrapperConfig::default()).resolve(annotations)
    }

    fn secs(seconds: i64) -> GoDuration {
        GoDuration::from_secs(seconds)
    }

    #[test]
    fn without_annotations_the_configuration_holds() {
        let (policy, faults) = resolve(&Annotations::default());
        assert_eq!(policy.admission_grace, secs(60));
        assert_eq!(policy.warmup_grace, secs(300));
        assert_eq!(policy.failure_grace, secs(60));
        assert_eq!(policy.retry_pause, secs(90));
        assert_eq!(policy.forceful_deletion_grace, secs(600));
        assert_eq!(policy.deletion_on_failure_grace, GoDuration::ZERO);
        assert_eq!(policy.success_ttl, secs(168 * 3600));
        assert_eq!(policy.retry_limit, 3);
        assert!(faults.is_empty());
    }

    #[test]
    fn valid_values_override_each_limit() {
        let ten = Some(secs(10));
        let (policy, _) = resolve(&Annotations {
            admission_grace: ten,
            warmup_grace: ten,
            failure_grace: ten,
            retry_pause: ten,
            forceful_deletion_grace: ten,
            deletion_on_failure_grace: ten,
            success_ttl: ten,
            retry_limit: Some(101),
            ..Annotations::default()
        });
        for limit in [
            policy.admission_grace,
            policy.warmup_grace,
            policy.failure_grace,
            policy.retry_pause,
            policy.forceful_deletion_grace,
            policy.deletion_on_failure_grace,
            policy.success_ttl,
        ] {
            assert_eq!(limit, secs(10));
        }
        assert_eq!(policy.retry_limit, 101);
    }

    #[test]
    fn negative_periods_are_zero_and_long_ones_are_cut() {
        let beyond = Some(secs(48 * 3600));
        let (policy, _) = resolve(&Annotations {
            admission_grace: Some(secs(-1)),
            retry_pause: Some(secs(-1)),
            warmup_grace: beyond,
            failure_grace: beyond,
            forceful_deletion_grace: beyond,
            deletion_on_failure_grace: beyond,
            ..Annotations::default()
        });
        assert_eq!(policy.admission_grace, GoDuration::ZERO);
        assert_eq!(policy.retry_pause, GoDuration::ZERO);
        for limit in [
            policy.warmup_grace,
            policy.failure_grace,
            policy.forceful_deletion_grace,
            policy.deletion_on_failure_grace,
        ] {
            assert_eq!(limit, secs(24 * 3600));
        }
    }

    #[test]
    fn a_time_to_live_out_of_range_is_replaced_and_told() {
        for ttl in [secs(0), secs(-5), secs(200 * 3600)] {
            let (policy, faults) = resolve(&Annotations {
                success_ttl: Some(ttl),
                ..Annotations::default()
            });
            assert_eq!(policy.success_ttl, secs(168 * 3600));
            assert_eq!(faults.len(), 1, "{ttl}");
        }
    }

    #[test]
    fn an_appwrapper_is_kept_unless_somebody_says_otherwise() {
        let config = |ttl| AppWrapperConfig {
            fault_tolerance: appwrapper_api::config::FaultToleranceConfig {
                finished_ttl: ttl,
                ..AppWrapperConfig::default().fault_tolerance
            },
            ..AppWrapperConfig::default()
        };
        for (configured, own, expected, faults) in [
            (secs(0), None, None, 0),
            (secs(60), None, Some(secs(60)), 0),
            (secs(0), Some(secs(5)), Some(secs(5)), 0),
            (secs(60), Some(secs(0)), None, 0),
            (secs(60), Some(secs(-1)), None, 1),
        ] {
            let annotations = Annotations {
                finished_ttl: own,
                ..Annotations::default()
            };
            let (policy, found) = Defaults::new(&config(configured)).resolve(&annotations);
            assert_eq!(
                (policy.finished_ttl, found.len()),
                (expected, faults),
                "{configured} {own:?}"
            );
        }
    }

    #[test]
    fn exit_codes_are_judged_by_both_lists() {
        let policy = |terminal: &[i32], retryable: &[i32]| Policy {
            terminal_exit_codes: terminal.to_vec(),
            retryable_exit_codes: retryable.to_vec(),
            ..resolve(&Annotations::default()).0
        };
        assert!(policy(&[3], &[]).is_terminal(3));
        assert!(!policy(&[3], &[]).is_terminal(137));
        assert!(policy(&[], &[137]).is_terminal(1));
        assert!(!policy(&[], &[137]).is_terminal(137));
        assert!(!policy(&[], &[]).is_terminal(1));
    }
}
