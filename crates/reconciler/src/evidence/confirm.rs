//! Asking the API server itself: the sole maker of `Survey<Uncached>` and of [`NoPodsLeft`].
//!
//! A confirmation reads **all** components, concurrently, each read with a time limit of its own (the cluster's business),
//! and in Running the AppWrapper as well. It has three outcomes: a survey that shows what is there, a doubt that proves
//! nothing and must never fail a workload, or the news that our copy of the AppWrapper is old, so that what we expect
//! of its components may be old too (spec/lifecycle.md 8.5).

use std::sync::Arc;

use appwrapper_api::{AppWrapper, Lineage, PodFacts, Uid};
use futures::future::join_all;

use super::{Doubt, Expectation, NoPodsLeft, Presence, Survey, Uncached, UncachedRead};
use crate::cluster::Cluster;

/// What a confirmation in Running found.
#[derive(Debug)]
pub enum Confirmation {
    /// Every read was answered.
    Survey(Survey<Uncached>),
    /// At least one answer proves nothing.
    Doubt(Doubt),
    /// The AppWrapper has changed since the copy that the decision rests on.
    Outdated,
}

/// Reads all components and the AppWrapper itself, past every cache.
pub async fn running<C: Cluster>(cluster: &C, wrapper: &AppWrapper, expected: &[Expectation]) -> Confirmation {
    let key = wrapper.key();
    let (live, survey) = futures::join!(cluster.read_wrapper(&key), components(cluster, wrapper, expected));
    match live {
        Err(doubt) => return Confirmation::Doubt(doubt),
        Ok(None) => return Confirmation::Outdated,
        Ok(Some(live)) if !is_same(&live, wrapper) => return Confirmation::Outdated,
        Ok(Some(_)) => {}
    }
    match survey {
        // A kind that is not served now may be served again; a missing definition is no missing component.
        Ok(survey)
            if survey
                .presences
                .iter()
                .any(|presence| matches!(presence, Presence::NotServed)) =>
        {
            Confirmation::Doubt(Doubt {
                reason: "not_served",
                message: "the API server does not serve the kind of a component".into(),
            })
        }
        Ok(survey) => Confirmation::Survey(survey),
        Err(doubt) => Confirmation::Doubt(doubt),
    }
}

/// Whether two copies are of one version of one AppWrapper.
pub fn is_same(one: &AppWrapper, other: &AppWrapper) -> bool {
    one.metadata.uid == other.metadata.uid && one.metadata.resource_version == other.metadata.resource_version
}

/// Reads all components past every cache.
pub async fn components<C: Cluster>(
    cluster: &C,
    wrapper: &AppWrapper,
    expected: &[Expectation],
) -> Result<Survey<Uncached>, Doubt> {
    let key = wrapper.key();
    let owner = Uid::new(wrapper.metadata.uid.as_deref().unwrap_or_default());
    let reads = join_all(
        expected
            .iter()
            .map(|expected| cluster.read_uncached(&key, &expected.component)),
    )
    .await;
    let presences = expected
        .iter()
        .zip(reads)
        .map(|(expected, read)| match read {
            UncachedRead::Present(facts) => Ok(Presence::of_facts(facts, &owner, expected)),
            // A kind outside our roles: as far as anyone knows, none of it was made. If one exists all the same it goes
            // with the AppWrapper that owns it; to wait for rights would hold quota and finalizer for good.
            UncachedRead::Doubt(doubt) if expected.unproven && doubt.reason == "forbidden" => {
                Ok(Presence::Absent { changed: 0 })
            }
            UncachedRead::Doubt(doubt) => Err(doubt),
            _ if expected.finished => Ok(Presence::Finished(None)),
            UncachedRead::Absent => Ok(Presence::Absent { changed: 0 }),
            UncachedRead::NotServed => Ok(Presence::NotServed),
        })
        .collect::<Result<_, _>>()?;
    Ok(Survey::new(presences, expected))
}

/// What is left of the pods of an AppWrapper.
#[derive(Debug)]
pub enum PodsLeft {
    /// Nothing.
    None(NoPodsLeft),
    /// These.
    Some(Arc<[PodFacts]>),
}

/// Lists the pods of an AppWrapper past every cache.
///
/// A pod whose chain of owners is broken or not known yet counts as left: its component is gone, so the garbage
/// collector is about to delete it, and until then it may hold what the quota stands for.
pub async fn pods<C: Cluster>(cluster: &C, wrapper: &AppWrapper) -> Result<PodsLeft, Doubt> {
    let owner = Uid::new(wrapper.metadata.uid.as_deref().unwrap_or_default());
    let mut pods = cluster.list_pods_uncached(&wrapper.key()).await?;
    pods.retain(|pod| may_be_ours(pod, &owner));
    Ok(if pods.is_empty() {
        PodsLeft::None(NoPodsLeft { _sealed: () })
    } else {
        PodsLeft::Some(pods.into())
    })
}

/// Whether a labelled pod belongs, or may belong, to the AppWrapper of this uid.
pub fn may_be_ours(pod: &PodFacts, owner: &Uid) -> bool {
    match &pod.lineage {
        Lineage::Component { owner: found, .. } => found == owner,
        Lineage::Broken | Lineage::Unresolved => true,
        Lineage::Foreign => false,
    }
}
