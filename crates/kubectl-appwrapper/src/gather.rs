//! Reads the API server and makes a [`Report`].

use appwrapper_api::{
    APPWRAPPER_LABEL, Annotations, AppWrapper, Completion, ComponentStatus, ConditionType, Declared, Phase,
    QUEUE_NAME_LABEL, TypeRef, conditions, config::Config, declared, kinds, podsets,
};
use appwrapper_reconciler::{
    Defaults, Policy, deadline,
    observed::component_ref,
    status::{Recorded, is_component_finished, recorded},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        core::v1::{ConfigMap, Pod},
        events::v1::Event,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api,
    api::{ListParams, PostParams},
    core::GroupVersionKind,
    discovery,
};
use serde_json::{Value, json};

use crate::{
    holder, kueue,
    owners::Owners,
    pods,
    report::{self, Component, Kueue, Next, Reason, Report, State},
    session::{Session, plain},
};

/// The ConfigMap of the controller and its key.
const CONFIG: (&str, &str) = ("appwrapper-operator-config", "config.yaml");
/// The controller's service account.
const ACCOUNT: &str = "appwrapper-controller-manager";

/// Everything about one AppWrapper.
pub async fn report(session: &Session, name: &str) -> anyhow::Result<Report> {
    let wrapper = session.wrapper(name).await?;
    let uid = wrapper.metadata.uid.clone().unwrap_or_default();
    let (config, place, workload, events, mut components, pods) = futures::join!(
        config(session),
        holder::place(session, &wrapper),
        kueue::find(session, &uid),
        events(session, &uid),
        components(session, &wrapper),
        labelled_pods(session, name),
    );
    let mut unknown = Vec::new();
    let mut known = |error: String| unknown.push(error);
    let defaults = config.unwrap_or_else(|error| {
        known(error);
        Config::default()
    });
    let place = place.map_err(&mut known).ok();
    let kueue = workload.map_err(&mut known).unwrap_or(Kueue::Unknown);
    let events = events.map_err(&mut known).unwrap_or_default();
    let pods = pods.map_err(&mut known).unwrap_or_default();

    let mut other_pods = Vec::new();
    let mut owners = Owners::new(session, &uid);
    for pod in &pods {
        let owner = owners.component_of(pod).await;
        let component = owner.and_then(|(kind, name)| {
            components
                .iter_mut()
                .find(|component| component.kind == kind && component.name == name)
        });
        component
            .map_or(&mut other_pods, |component| &mut component.pods)
            .push(pods::read(pod));
    }
    let annotations = wrapper.metadata.annotations.clone().unwrap_or_default();
    let (policy, _) = Defaults::new(&defaults.appwrapper).resolve(&Annotations::parse(&annotations).0);
    let mut report = summary(&wrapper, &policy, &components, session.now());
    report.forbidden_kinds = forbidden(session, &wrapper).await;
    Ok(Report {
        place,
        kueue,
        components,
        other_pods,
        events,
        unknown,
        ..report
    })
}

/// What the AppWrapper itself says.
pub fn summary(wrapper: &AppWrapper, policy: &Policy, components: &[Component], now: Timestamp) -> Report {
    let status = &wrapper.status;
    let existing = components
        .iter()
        .flat_map(|component| &component.pods)
        .filter(|pod| matches!(pod.phase.as_str(), "Pending" | "Running" | "Succeeded"))
        .count();
    let expected = podsets::expected_pods(&status.component_status);
    let all_pods = i64::try_from(existing).is_ok_and(|existing| existing >= expected);
    let next = deadline::next(wrapper, policy, all_pods, now).map(|deadline| Next {
        at: deadline.at,
        in_seconds: deadline.at.duration_since(now).as_secs(),
        what: deadline.due.as_str(),
    });
    let labels = wrapper.metadata.labels.as_ref();
    Report {
        namespace: wrapper.metadata.namespace.clone().unwrap_or_default(),
        name: wrapper.metadata.name.clone().unwrap_or_default(),
        phase: status.phase.clone(),
        created: wrapper.metadata.creation_timestamp.as_ref().map(|time| time.0),
        suspend: wrapper.spec.suspend,
        deleting: wrapper.metadata.deletion_timestamp.is_some(),
        managed_by: wrapper.spec.managed_by.clone().filter(|_| !wrapper.is_ours()),
        reason: reason(wrapper),
        last_failure: conditions::find(&status.conditions, ConditionType::LastFailure).map(short),
        retries: status.resetting_count,
        retry_limit: policy.retry_limit.max(0),
        next,
        pods_ready: conditions::is_true(&status.conditions, ConditionType::PodsReady),
        queue: labels.and_then(|labels| labels.get(QUEUE_NAME_LABEL)).cloned(),
        ..Report::default()
    }
}

/// The condition that says most: what is wrong, else how the pods stand, else how the quota does.
fn reason(wrapper: &AppWrapper) -> Option<Reason> {
    let all = &wrapper.status.conditions;
    let unhealthy = || conditions::find(all, ConditionType::Unhealthy).filter(|condition| condition.status == "True");
    let pick = |type_| conditions::find(all, type_);
    let found = match wrapper.status.phase()? {
        Phase::Succeeded | Phase::Suspended => pick(ConditionType::QuotaReserved),
        Phase::Running => unhealthy().or_else(|| pick(ConditionType::PodsReady)),
        _ => unhealthy(),
    };
    found.map(short)
}

fn short(condition: &Condition) -> Reason {
    Reason {
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time.0,
    }
}

async fn config(session: &Session) -> Result<Config, String> {
    let (name, key) = CONFIG;
    let what = |error: String| {
        format!(
            "the configured limits (ConfigMap {name} in namespace {}, see --system-namespace): {error}; defaults are shown",
            session.system
        )
    };
    let api: Api<ConfigMap> = Api::namespaced(session.client.clone(), &session.system);
    let map = api.get(name).await.map_err(|error| what(plain(&error)))?;
    let text = map.data.unwrap_or_default().remove(key).unwrap_or_default();
    Config::from_yaml(&text).map_err(|error| what(error.to_string()))
}

async fn labelled_pods(session: &Session, name: &str) -> Result<Vec<Pod>, String> {
    let api: Api<Pod> = Api::namespaced(session.client.clone(), &session.namespace);
    let params = ListParams::default().labels(&format!("{APPWRAPPER_LABEL}={name}"));
    let pods = api.list(&params).await;
    pods.map(|list| list.items)
        .map_err(|error| format!("its pods: {}", plain(&error)))
}

async fn events(session: &Session, uid: &str) -> Result<Vec<report::Event>, String> {
    let api: Api<Event> = Api::namespaced(session.client.clone(), &session.namespace);
    let params = ListParams::default().fields(&format!("regarding.uid={uid}"));
    let events = api.list(&params).await;
    let events = events.map_err(|error| format!("its events: {}", plain(&error)))?;
    let mut events: Vec<report::Event> = events
        .items
        .into_iter()
        .filter_map(|event| {
            let last = event.series.map(|series| series.last_observed_time.0);
            let first = event.event_time.map(|time| time.0);
            let old = event.deprecated_last_timestamp.map(|time| time.0);
            Some(report::Event {
                at: last.or(first).or(old)?,
                warning: event.type_.as_deref() == Some("Warning"),
                reason: event.reason.unwrap_or_default(),
                note: event.note.unwrap_or_default(),
            })
        })
        .collect();
    events.sort_by_key(|event| event.at);
    Ok(events)
}

async fn components(session: &Session, wrapper: &AppWrapper) -> Vec<Component> {
    let status = &wrapper.status.component_status;
    let none = &ComponentStatus::default();
    let all = wrapper
        .spec
        .components
        .iter()
        .enumerate()
        .map(|(position, component)| async move {
            let head = component.template.head().ok();
            let status = status.get(position).unwrap_or(none);
            let reference = component_ref(wrapper, &wrapper.status, position);
            let state = match &reference {
                Some(reference) => state(session, wrapper, status, &reference.type_ref, &reference.name).await,
                None => State::NotCreated,
            };
            Component {
                kind: head.map_or_else(String::new, |head| head.type_ref.kind.to_string()),
                name: reference.map_or_else(String::new, |reference| reference.name.to_string()),
                state,
                expected_pods: podsets::expected_pods(std::slice::from_ref(status)),
                pods: Vec::new(),
            }
        });
    futures::future::join_all(all).await
}

async fn state(
    session: &Session,
    wrapper: &AppWrapper,
    status: &ComponentStatus,
    type_ref: &TypeRef,
    name: &str,
) -> State {
    if is_component_finished(status) {
        return State::Complete;
    }
    // In every other phase it is meant to be gone.
    let is_wanted = matches!(wrapper.status.phase(), Some(Phase::Running));
    let absent = match recorded(status) {
        Recorded::Created if is_wanted => State::Missing,
        _ => State::NotCreated,
    };
    let Ok(api) = session.objects(type_ref).await else {
        return State::Unreadable;
    };
    let object = match api.get_opt(name).await {
        Ok(Some(object)) => object,
        Ok(None) => return absent,
        Err(_) => return State::Unreadable,
    };
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    if !owners
        .iter()
        .any(|owner| Some(&owner.uid) == wrapper.metadata.uid.as_ref())
    {
        return absent;
    }
    if object.metadata.deletion_timestamp.is_some() {
        return State::Deleting;
    }
    let status = object.data.get("status").cloned().unwrap_or_default();
    let completion = if declared::allows(type_ref) {
        let annotations = object.metadata.annotations.clone().unwrap_or_default();
        Declared::of(&json!({"metadata": {"annotations": annotations}})).judge(&status)
    } else {
        kinds::completion_rule(type_ref).judge(&serde_json::from_value(status).unwrap_or_default())
    };
    let is_suspended = ["/spec/suspend", "/spec/runPolicy/suspend"]
        .iter()
        .any(|field| object.data.pointer(field) == Some(&Value::Bool(true)));
    match completion {
        Completion::Active if is_suspended => State::Suspended,
        Completion::Active => State::Active,
        Completion::Complete => State::Complete,
        Completion::Failed => State::Failed,
    }
}

/// Kinds that the controller may not create, if we may ask that. No answer is no refusal.
async fn forbidden(session: &Session, wrapper: &AppWrapper) -> Vec<String> {
    let mut types: Vec<&TypeRef> = wrapper
        .spec
        .components
        .iter()
        .filter_map(|component| Some(&component.template.head().ok()?.type_ref))
        .collect();
    types.sort();
    types.dedup();
    let mut refused = Vec::new();
    for type_ref in types {
        if may_create(session, type_ref).await == Some(false) {
            refused.push(type_ref.to_string());
        }
    }
    refused
}

async fn may_create(session: &Session, type_ref: &TypeRef) -> Option<bool> {
    let gvk = GroupVersionKind::gvk(type_ref.group(), type_ref.version(), &type_ref.kind);
    let (resource, _) = discovery::pinned_kind(&session.client, &gvk).await.ok()?;
    let groups = ["system:authenticated", "system:serviceaccounts"].map(str::to_owned);
    let of_namespace = format!("system:serviceaccounts:{}", session.system);
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            groups: Some(groups.into_iter().chain([of_namespace]).collect()),
            user: Some(format!("system:serviceaccount:{}:{ACCOUNT}", session.system)),
            resource_attributes: Some(ResourceAttributes {
                group: Some(resource.group),
                resource: Some(resource.plural),
                namespace: Some(session.namespace.clone()),
                verb: Some("create".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(session.client.clone());
    Some(api.create(&PostParams::default(), &review).await.ok()?.status?.allowed)
}
