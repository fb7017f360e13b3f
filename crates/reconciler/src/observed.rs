//! Everything that the decision may look at.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use appwrapper_api::{AppWrapper, AppWrapperStatus, ComponentRef, ComponentStatus, PodFacts, Uid, podsets};
use jiff::{SignedDuration, Timestamp};

use crate::{
    cluster::Deleted,
    evidence::{Cached, Expectation, NoPodsLeft, Presence, Survey, Uncached},
};

/// Resources marked `NoExecute`, by node.
#[derive(Clone, Debug, Default)]
pub struct NodeFaults(HashMap<Arc<str>, Vec<Arc<str>>>);

impl NodeFaults {
    /// Whether a pod that uses these resources should leave this node.
    pub fn marks(&self, node: &str, resources: &[Arc<str>]) -> bool {
        self.0
            .get(node)
            .is_some_and(|marked| resources.iter().any(|resource| marked.contains(resource)))
    }
}

impl FromIterator<(Arc<str>, Vec<Arc<str>>)> for NodeFaults {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Vec<Arc<str>>)>>(nodes: I) -> Self {
        Self(nodes.into_iter().collect())
    }
}

/// What is known of the components.
#[derive(Debug)]
pub enum Evidence {
    /// By the caches.
    Cached(Survey<Cached>),
    /// By the API server.
    Uncached(Survey<Uncached>),
    /// By the caches, which miss a component that was confirmed recently; it is taken as present until this time.
    Deferred(Survey<Cached>, Timestamp),
    /// The API server was asked and its answer proves nothing; it is to be asked again after this time.
    Doubt(SignedDuration),
}

impl Evidence {
    /// The presence of each component; none if nothing is known.
    pub fn presences(&self) -> &[Presence] {
        match self {
            Self::Cached(survey) | Self::Deferred(survey, _) => survey.presences(),
            Self::Uncached(survey) => survey.presences(),
            Self::Doubt(_) => &[],
        }
    }

    /// Identity of the object that each component is now; none if nothing is known.
    pub fn uids(&self) -> &[Option<Uid>] {
        match self {
            Self::Cached(survey) | Self::Deferred(survey, _) => survey.uids(),
            Self::Uncached(survey) => survey.uids(),
            Self::Doubt(_) => &[],
        }
    }
}

/// What is known of the pods.
#[derive(Debug)]
pub enum PodEvidence {
    /// By the cache; `None` while it is not synced.
    Cached(Option<Vec<PodFacts>>),
    /// By the API server: none is left.
    NoneLeft(NoPodsLeft),
    /// By the API server: these are left.
    Left(Arc<[PodFacts]>),
    /// The API server's answer proves nothing.
    Doubt(SignedDuration),
}

/// What came of one create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateOutcome {
    /// The component exists and is ours.
    Created,
    /// It does not exist, and trying again cannot help.
    Fatal(String),
    /// Trying again may help. It may exist, also where the server refused to create it: an earlier try, whose answer was
    /// lost or which this process does not remember, may have made it.
    Uncertain(String),
}

/// What came of the effects of this pass, by position of the component.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// Creates.
    pub created: BTreeMap<usize, CreateOutcome>,
    /// Deletes.
    pub deleted: BTreeMap<usize, Deleted>,
    /// Pods were deleted by force.
    pub pods_forced: bool,
}

/// When deletes were last sent, by uid of the object, so that a cache that has not seen one yet does not cause another.
#[derive(Clone, Debug, Default)]
pub struct RecentDeletes(HashMap<Uid, Timestamp>);

impl RecentDeletes {
    /// At most one delete per object in this time (spec/lifecycle.md section 7: deletion in progress).
    pub const INTERVAL: SignedDuration = SignedDuration::from_secs(5);

    /// Remembers a delete.
    pub fn sent(&mut self, uid: &Uid, now: Timestamp) {
        self.0.retain(|_, at| now.duration_since(*at) < Self::INTERVAL);
        self.0.insert(uid.clone(), now);
    }

    /// Whether a delete was sent a moment ago.
    pub fn is_recent(&self, uid: &Uid, now: Timestamp) -> bool {
        self.0
            .get(uid)
            .is_some_and(|at| now.duration_since(*at) < Self::INTERVAL)
    }
}

/// Everything that the decision may look at.
#[derive(Debug)]
pub struct Observed<'a> {
    /// Metadata and spec.
    pub wrapper: &'a AppWrapper,
    /// The status as this pass has made it so far.
    pub status: &'a AppWrapperStatus,
    /// The components.
    pub components: &'a Evidence,
    /// The pods.
    pub pods: &'a PodEvidence,
    /// Nodes to be left.
    pub nodes: &'a NodeFaults,
    /// What came of the effects of this pass.
    pub outcomes: &'a Outcomes,
    /// Deletes of this and earlier passes.
    pub recent_deletes: &'a RecentDeletes,
}

impl Observed<'_> {
    /// Identity of the AppWrapper.
    pub fn uid(&self) -> Uid {
        Uid::new(self.wrapper.metadata.uid.as_deref().unwrap_or_default())
    }
}

/// The object of one component: type from the spec, name from the spec or, where it was generated, from the status.
/// `None` if it has no name yet or names no object at all.
pub fn component_ref(wrapper: &AppWrapper, status: &AppWrapperStatus, position: usize) -> Option<ComponentRef> {
    let head = wrapper.spec.components.get(position)?.template.head().ok()?;
    let recorded = status
        .component_status
        .get(position)
        .map(|component| component.name.as_str())
        .unwrap_or_default();
    let name = match &head.name {
        Some(name) => Arc::clone(name),
        None if recorded.is_empty() => return None,
        None => recorded.into(),
    };
    Some(ComponentRef {
        position,
        type_ref: head.type_ref.clone(),
        name,
    })
}

/// Pods that a component is expected to make. Saturates.
pub fn expected_pods(component: &ComponentStatus) -> i64 {
    podsets::expected_pods(std::slice::from_ref(component))
}

/// What is expected of each component. A component without a name cannot be looked up; it is expected under an empty
/// one, which no object has.
pub fn expectations(
    wrapper: &AppWrapper,
    status: &AppWrapperStatus,
    known_uid: impl Fn(&ComponentRef) -> Option<Uid>,
) -> Vec<Expectation> {
    (0..wrapper.spec.components.len())
        .map(|position| {
            let component = component_ref(wrapper, status, position).unwrap_or_else(|| {
                let head = wrapper
                    .spec
                    .components
                    .get(position)
                    .and_then(|component| component.template.head().ok());
                let type_ref = head.map_or_else(|| appwrapper_api::TypeRef::new("", ""), |head| head.type_ref.clone());
                ComponentRef {
                    position,
                    type_ref,
                    name: "".into(),
                }
            });
            let uid = known_uid(&component);
            let finished = status
                .component_status
                .get(position)
                .is_some_and(crate::status::is_component_finished);
            Expectation {
                component,
                uid,
                finished,
                unproven: false,
            }
        })
        .collect()
}
