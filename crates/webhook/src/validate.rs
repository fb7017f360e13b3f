//! The decision of the validating webhook.
//!
//! At creation: the structural rules of `appwrapper_api::rules`, the labels that the mutating webhook has set, and what only
//! the API server can tell (`access.rs`). At an update: what must not change (`immutable.rs`). Every fault is told at once.

use std::collections::HashSet;

use appwrapper_api::{
    AppWrapper, SLOT_LABEL,
    config::AppWrapperConfig,
    rules::{self, Rule},
};
use appwrapper_metrics::labels::{AdmissionOperation, DecisionReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{
    access::{Access, Finding},
    immutable, labels,
    review::{Request, UserInfo},
    verdict::{Denial, Verdict},
    warnings,
};

/// Faults told of one AppWrapper; the rest is counted.
const TOLD: usize = 20;

/// Decides about AppWrappers.
pub struct Validator {
    config: AppWrapperConfig,
    access: Access,
}

/// One fault, in the words of Kubernetes' field errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFault {
    /// For the metric.
    pub reason: DecisionReason,
    /// Path of the field.
    pub field: String,
    /// Sort of fault, value and remedy.
    pub text: String,
    /// The API server gave no answer; the object may be right.
    pub retryable: bool,
}

impl FieldFault {
    fn new(reason: DecisionReason, field: impl Into<String>, kind: &str, message: &str) -> Self {
        Self {
            reason,
            field: field.into(),
            text: format!("{kind}: {message}"),
            retryable: false,
        }
    }
}

impl Validator {
    /// Decides by this configuration.
    pub fn new(config: AppWrapperConfig, access: Access) -> Self {
        Self { config, access }
    }

    /// Answers the validating webhook before the deadline.
    pub async fn validate(&self, request: &Request<'_>, deadline: Instant) -> Verdict {
        let verdict = match request.operation() {
            Some(AdmissionOperation::Create) => self.validate_new(request, deadline).await,
            Some(AdmissionOperation::Update) => self.validate_update(request),
            None => return Verdict::default(),
        };
        verdict.unwrap_or_else(Verdict::denied)
    }

    async fn validate_new(&self, request: &Request<'_>, deadline: Instant) -> Result<Verdict, Denial> {
        let mut wrapper: AppWrapper = request.decode_object()?;
        wrapper.metadata.namespace = Some(request.namespace.clone());
        let mut faults = structural_faults(&wrapper, &self.config);
        faults.extend(label_faults(&wrapper, &request.user_info));
        let mut warnings = warnings::of_new(&wrapper, &self.config.fault_tolerance);
        if !faults
            .iter()
            .any(|fault| fault.reason == DecisionReason::ComponentCount)
        {
            self.ask(&wrapper, request, deadline, &mut faults, &mut warnings).await;
        }
        Ok(Verdict {
            denial: denial(&faults),
            warnings,
            ..Verdict::default()
        })
    }

    /// Asks about each kind that could be wrapped at all.
    async fn ask(
        &self,
        wrapper: &AppWrapper,
        request: &Request<'_>,
        deadline: Instant,
        faults: &mut Vec<FieldFault>,
        warnings: &mut Vec<String>,
    ) {
        let hopeless: HashSet<_> = faults
            .iter()
            .filter(|fault| {
                matches!(
                    fault.reason,
                    DecisionReason::KindNotAllowed | DecisionReason::Nested | DecisionReason::Malformed
                )
            })
            .map(|fault| fault.field.clone())
            .collect();
        let components = wrapper.spec.components.iter().enumerate();
        let asked: Vec<_> = components
            .filter_map(|(position, component)| {
                let field = format!("spec.components[{position}].template");
                let type_ref = component.template.head().ok()?.type_ref.clone();
                (!hopeless.contains(&field)).then_some((field, type_ref))
            })
            .collect();
        let types = asked.iter().map(|(_, type_ref)| type_ref.clone());
        let findings = self
            .access
            .check(types, &request.namespace, &request.user_info, deadline)
            .await;
        for (field, type_ref) in asked {
            let found = findings
                .get(&type_ref.api_version)
                .and_then(|kinds| kinds.get(&type_ref.kind));
            match found {
                Some(Finding::Refused(reason, text)) => faults.push(FieldFault::new(*reason, field, "Forbidden", text)),
                Some(Finding::Unanswered(reason, text)) => faults.push(FieldFault {
                    retryable: true,
                    ..FieldFault::new(*reason, field, "Internal error", text)
                }),
                Some(Finding::Allowed(Some(warning))) if !warnings.contains(warning) => warnings.push(warning.clone()),
                Some(Finding::Allowed(_)) | None => {}
            }
        }
    }

    fn validate_update(&self, request: &Request<'_>) -> Result<Verdict, Denial> {
        let (old, new) = match same_spec(request) {
            Some(heads) => heads,
            None => (request.decode_old_object()?, request.decode_object()?),
        };
        let faults: Vec<_> = immutable::changes(&old, &new)
            .into_iter()
            .map(|change| FieldFault::new(DecisionReason::Immutable, change.field, "Forbidden", change.message))
            .collect();
        let warnings = warnings::of_update(&old, &new, &self.config.fault_tolerance);
        Ok(Verdict {
            denial: denial(&faults),
            warnings,
            ..Verdict::default()
        })
    }
}

/// An object whose spec is left as text.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
}

/// Both objects without their specs, if those are the same to the byte, as in most updates: of finalizers, of metadata. The
/// templates are not taken apart then, so the controller can finish with an AppWrapper whatever it holds.
fn same_spec(request: &Request<'_>) -> Option<(AppWrapper, AppWrapper)> {
    fn head(raw: Option<&RawValue>) -> Option<Head<'_>> {
        serde_json::from_str(raw?.get()).ok()
    }
    let (old, new) = (head(request.old_object)?, head(request.object)?);
    let bare = |metadata| AppWrapper {
        metadata,
        ..AppWrapper::default()
    };
    let same = old.spec.map(RawValue::get) == new.spec.map(RawValue::get);
    same.then(|| (bare(old.metadata), bare(new.metadata)))
}

/// Faults of the structure of a new AppWrapper: all that can be told without the API server.
pub fn structural_faults(wrapper: &AppWrapper, config: &AppWrapperConfig) -> Vec<FieldFault> {
    let violations = rules::violations(wrapper, &config.admission).into_iter();
    violations
        .map(|violation| {
            let reason = match violation.rule {
                Rule::Malformed => DecisionReason::Malformed,
                Rule::ComponentCount => DecisionReason::ComponentCount,
                Rule::PodSets => DecisionReason::PodSets,
                Rule::Namespace => DecisionReason::Namespace,
                Rule::Kind => DecisionReason::KindNotAllowed,
                Rule::Nested => DecisionReason::Nested,
                Rule::Metadata | Rule::Completion => DecisionReason::Metadata,
            };
            FieldFault::new(reason, violation.field, violation.fault.as_str(), &violation.message)
        })
        .collect()
}

/// The labels that the mutating webhook sets must have arrived as it set them.
fn label_faults(wrapper: &AppWrapper, user: &UserInfo) -> Vec<FieldFault> {
    let fault = |key: &str, value: &str, wanted: &str| {
        let message = format!(
            "{value:.63?} is not {wanted}; it is set at creation, so either another mutating webhook has changed it or \
             the AppWrapper's own is missing: an administrator should look at the mutating webhook configurations"
        );
        FieldFault::new(
            DecisionReason::Identity,
            format!("metadata.labels[{key}]"),
            "Forbidden",
            &message,
        )
    };
    let mut faults = Vec::new();
    for (key, wanted) in labels::identity(user) {
        let value = labels::label(wrapper, key);
        if value != wanted {
            faults.push(fault(key, value, &format!("the requester, {wanted:?}")));
        }
    }
    // The slot itself cannot be told again: a generated name was not known when it was chosen.
    if labels::slot_of(wrapper).is_none() {
        faults.push(fault(SLOT_LABEL, labels::label(wrapper, SLOT_LABEL), "a slot"));
    }
    faults
}

/// The refusal that tells the faults: one stands alone, several are listed, identical ones are told once.
fn denial(faults: &[FieldFault]) -> Option<Denial> {
    let first = faults.iter().find(|fault| !fault.retryable).or(faults.first())?;
    let mut seen = HashSet::new();
    let mut texts: Vec<_> = faults
        .iter()
        .map(|fault| format!("{}: {}", fault.field, fault.text))
        .filter(|text| seen.insert(text.clone()))
        .collect();
    let more = texts.len().saturating_sub(TOLD);
    texts.truncate(TOLD);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    let message = match texts.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Some(if first.retryable {
        Denial::unanswered(first.reason, message)
    } else {
        Denial::forbidden(first.reason, message)
    })
}
