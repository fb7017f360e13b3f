//! Whether this process may use Leases, asked before anything else: without, it would run, look alive and never act.

use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    coordination::v1::Lease,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};

/// What is done to Leases.
const VERBS: [&str; 6] = ["create", "delete", "get", "list", "patch", "watch"];
/// How long an answer may take. An API server that is away is no reason to give up.
const LIMIT: Duration = Duration::from_secs(5);

/// An error that names what is missing, if the API server says so. No answer is no refusal.
pub async fn on_leases(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let asked = VERBS.map(|verb| refused(client, namespace, verb));
    let mut missing = Vec::new();
    for (verb, refused) in VERBS.into_iter().zip(futures::future::join_all(asked).await) {
        match refused {
            Some(true) => missing.push(verb),
            // Some API servers answer no such question. Then one read has to do.
            None if verb == "list" && is_list_forbidden(client, namespace).await => missing.push(verb),
            Some(false) | None => {}
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "no permission to {} leases.coordination.k8s.io in namespace {namespace}; grant {} there, as the Role \
         appwrapper-leader-election-role does",
        missing.join(", "),
        VERBS.join(", ")
    )
}

async fn refused(client: &Client, namespace: &str, verb: &str) -> Option<bool> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some("coordination.k8s.io".to_owned()),
                resource: Some("leases".to_owned()),
                namespace: Some(namespace.to_owned()),
                verb: Some(verb.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = tokio::time::timeout(LIMIT, api.create(&PostParams::default(), &review)).await;
    Some(!answer.ok()?.ok()?.status?.allowed)
}

async fn is_list_forbidden(client: &Client, namespace: &str) -> bool {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let answer = tokio::time::timeout(LIMIT, api.list(&ListParams::default().limit(1))).await;
    matches!(answer, Ok(Err(kube::Error::Api(status))) if status.code == 403)
}
