//! Whether the user may create what the AppWrapper wraps.
//!
//! The controller creates components with its own rights, so this is the only place where the user's count. One
//! SubjectAccessReview is asked per distinct kind, with everything the API server knows of the user. Whatever cannot be
//! answered in time is a refusal that says so; nothing is ever guessed.

use std::{collections::BTreeMap, sync::Arc};

use appwrapper_api::TypeRef;
use appwrapper_metrics::{
    Admission,
    labels::{AccessReview, DecisionReason},
};
use futures::StreamExt;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use tokio::time::{Instant, timeout_at};

use crate::{discovery::Discovery, review::UserInfo};

/// Questions under way at once for one AppWrapper.
const PARALLEL: usize = 16;

/// What was found out about one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The user may create it. With a warning, perhaps.
    Allowed(Option<String>),
    /// It must not be created, or not by this user.
    Refused(DecisionReason, String),
    /// It could not be found out.
    Unanswered(DecisionReason, String),
}

/// Asks the API server.
pub struct Access {
    client: Client,
    discovery: Discovery,
    /// Whether rights are asked for; the scope of a kind always is.
    reviews: bool,
    metrics: Admission,
}

impl Access {
    /// Asks through `client`, which must not retry by itself: a refused retry is worth more than a late answer.
    pub fn new(client: Client, reviews: bool, metrics: Admission) -> Self {
        metrics.set_access_review_enabled(reviews);
        let discovery = Discovery::new(client.clone(), metrics.clone());
        Self {
            client,
            discovery,
            reviews,
            metrics,
        }
    }

    /// What is to be said of each distinct type, before the deadline.
    pub async fn check(
        &self,
        types: impl IntoIterator<Item = TypeRef>,
        namespace: &str,
        user: &UserInfo,
        deadline: Instant,
    ) -> BTreeMap<Arc<str>, BTreeMap<Arc<str>, Finding>> {
        let mut distinct: Vec<_> = types.into_iter().collect();
        distinct.sort_by(|a, b| (&a.api_version, &a.kind).cmp(&(&b.api_version, &b.kind)));
        distinct.dedup();
        let judged = distinct.into_iter().map(|type_ref| async move {
            let finding = self.judge(&type_ref, namespace, user, deadline).await;
            (type_ref, finding)
        });
        let mut findings = BTreeMap::<_, BTreeMap<_, _>>::new();
        let mut judged = futures::stream::iter(judged).buffer_unordered(PARALLEL);
        while let Some((type_ref, finding)) = judged.next().await {
            findings
                .entry(type_ref.api_version)
                .or_default()
                .insert(type_ref.kind, finding);
        }
        findings
    }

    async fn judge(&self, type_ref: &TypeRef, namespace: &str, user: &UserInfo, deadline: Instant) -> Finding {
        let TypeRef { api_version, kind } = type_ref;
        let Ok(found) = timeout_at(deadline, self.discovery.lookup(type_ref)).await else {
            return late(kind);
        };
        let resource = match found {
            Ok(Some(resource)) => resource,
            Ok(None) => {
                let text = format!(
                    "the cluster serves no kind {kind:.63} in {api_version:.253}; correct apiVersion and kind, or install it"
                );
                return Finding::Refused(DecisionReason::KindNotAllowed, text);
            }
            Err(error) => {
                let text = format!(
                    "could not check what {kind} is: discovery failed ({}); try again",
                    short(&error)
                );
                return Finding::Unanswered(DecisionReason::DiscoveryFailed, text);
            }
        };
        if !resource.namespaced {
            let text = format!(
                "{kind} is cluster-scoped and cannot be wrapped, since it would outlive the AppWrapper; create it directly"
            );
            return Finding::Refused(DecisionReason::ClusterScoped, text);
        }
        let warning = (!resource.served).then(|| {
            format!("the cluster does not serve kind {kind} of {api_version} yet; install it before this runs")
        });
        if !self.reviews {
            return Finding::Allowed(warning);
        }
        let attributes = ResourceAttributes {
            namespace: Some(namespace.to_owned()),
            verb: Some("create".into()),
            group: Some(type_ref.group().to_owned()),
            version: Some(type_ref.version().to_owned()),
            resource: Some(resource.plural.clone()),
            ..ResourceAttributes::default()
        };
        let full_name = match type_ref.group() {
            "" => resource.plural,
            group => format!("{}.{group}", resource.plural),
        };
        let asked_at = Instant::now();
        let (reviews, parameters) = (Api::all(self.client.clone()), PostParams::default());
        let question = review(user, attributes);
        let answer = timeout_at(deadline, reviews.create(&parameters, &question)).await;
        let took = Some(asked_at.elapsed());
        let Ok(answer) = answer else {
            self.metrics.access_review(AccessReview::Error, took);
            return late(kind);
        };
        match answer.map(|review: SubjectAccessReview| review.status.unwrap_or_default()) {
            Ok(status) if status.allowed => {
                self.metrics.access_review(AccessReview::Allowed, took);
                Finding::Allowed(warning)
            }
            Ok(status) => {
                self.metrics.access_review(AccessReview::Denied, took);
                let because = status
                    .evaluation_error
                    .map(|error| format!(" ({error:.200})"))
                    .unwrap_or_default();
                let text = format!(
                    "User {:.253} is not authorized to create {full_name} in {namespace}{because}; ask for a role that allows it",
                    user.username
                );
                Finding::Refused(DecisionReason::AccessDenied, text)
            }
            Err(error) => {
                self.metrics.access_review(AccessReview::Error, took);
                let text = format!(
                    "could not check whether {full_name} may be created: the access review failed ({}); try again",
                    short(&error)
                );
                Finding::Unanswered(DecisionReason::AccessReviewFailed, text)
            }
        }
    }
}

fn late(kind: &str) -> Finding {
    let text =
        format!("could not check in time whether {kind} may be created: the API server is slow to answer; try again");
    Finding::Unanswered(DecisionReason::Timeout, text)
}

fn review(user: &UserInfo, attributes: ResourceAttributes) -> SubjectAccessReview {
    let UserInfo {
        username,
        uid,
        groups,
        extra,
    } = user.clone();
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            user: Some(username),
            uid: (!uid.is_empty()).then_some(uid),
            groups: (!groups.is_empty()).then_some(groups),
            extra: (!extra.is_empty()).then_some(extra),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

fn short(error: &kube::Error) -> String {
    error.to_string().chars().take(200).collect()
}
