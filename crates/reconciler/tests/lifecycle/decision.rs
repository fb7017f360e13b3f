//! The decision itself: whatever a status says, and it may have been written by anybody, an answer comes and it is sane.

use std::sync::Arc;

use appwrapper_api::{
    Annotations, AppWrapperStatus, Completion, ComponentFacts, ConditionStatus, ConditionType, OwnCounts, Phase, Uid,
    conditions, config::AppWrapperConfig,
};
use appwrapper_reconciler::{
    Defaults,
    decide::decide,
    decision::{Action, Effect},
    evidence::{CachedRead, NotSynced, Survey},
    observed::{Evidence, NodeFaults, Observed, Outcomes, PodEvidence, RecentDeletes, expectations},
};
use jiff::Timestamp;
use proptest::prelude::*;

use crate::fixtures::*;

const TYPES: [ConditionType; 5] = [
    ConditionType::QuotaReserved,
    ConditionType::ResourcesDeployed,
    ConditionType::PodsReady,
    ConditionType::Unhealthy,
    ConditionType::DeletingResources,
];
const STATUSES: [ConditionStatus; 3] = [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
const REASONS: [&str; 6] = [
    "Resuming",
    "DeletionPaused",
    "FoundFailedPods",
    "InsufficientPodsReady",
    "ComponentSucceeded",
    "Whatever",
];

fn forged() -> impl Strategy<Value = AppWrapperStatus> {
    let condition = (0..5usize, 0..3usize, 0..6usize, any::<i32>());
    let phase = prop::sample::select(vec![
        "",
        "Suspended",
        "Resuming",
        "Running",
        "Resetting",
        "Suspending",
        "Succeeded",
        "Failed",
        "Terminating",
        "Bogus",
    ]);
    let component = (
        prop::sample::select(vec!["", "train", "other"]),
        prop::option::of((0..3usize, 0..6usize)),
    );
    (
        phase,
        any::<i32>(),
        prop::collection::vec(condition, 0..6),
        prop::collection::vec(component, 0..4),
    )
        .prop_map(|(phase, count, all, components)| {
            let mut status = AppWrapperStatus {
                phase: phase.to_owned(),
                resetting_count: count,
                ..AppWrapperStatus::default()
            };
            for (type_, value, reason, at) in all {
                let at = Timestamp::from_second(i64::from(at)).unwrap();
                conditions::set(
                    &mut status.conditions,
                    TYPES[type_],
                    STATUSES[value],
                    REASONS[reason],
                    "",
                    at,
                );
            }
            for (name, condition) in components {
                let mut component = appwrapper_api::ComponentStatus {
                    name: name.to_owned(),
                    ..Default::default()
                };
                if let Some((value, reason)) = condition {
                    let at = crate::world::start();
                    let type_ = ConditionType::ResourcesDeployed;
                    conditions::set(
                        &mut component.conditions,
                        type_,
                        STATUSES[value],
                        REASONS[reason],
                        "",
                        at,
                    );
                }
                status.component_status.push(component);
            }
            status
        })
}

fn read(kind: u8) -> CachedRead {
    let facts = |completion, terminating| {
        CachedRead::Present(Arc::new(ComponentFacts {
            uid: Uid::new("u"),
            controller: None,
            version: None,
            terminating,
            finalizers: Vec::new(),
            completion,
            counts: OwnCounts {
                succeeded_pods: Some(i32::MAX),
                desired_workers: Some(i32::MIN),
            },
        }))
    };
    match kind {
        0 => facts(Completion::Active, false),
        1 => facts(Completion::Failed, true),
        2 => facts(Completion::Complete, false),
        3 => CachedRead::Absent {
            changed: u64::MAX,
            last: None,
        },
        4 => CachedRead::NotSynced(NotSynced::BehindOwnWrite { since: Timestamp::MAX }),
        _ => CachedRead::NotSynced(NotSynced::Kind),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_forged_status_gets_a_sane_answer(
        status in forged(),
        reads in prop::collection::vec(0..6u8, 2),
        suspend in any::<bool>(),
        deleted in any::<bool>(),
        pods_known in any::<bool>(),
        now in any::<i32>(),
    ) {
        let now = Timestamp::from_second(i64::from(now)).unwrap();
        let mut wrapper = wrapper([job("train"), service("svc")]);
        wrapper.spec.suspend = suspend;
        if deleted {
            wrapper.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
            wrapper.metadata.finalizers = Some(vec![appwrapper_api::FINALIZER.to_owned()]);
        }
        let expected = expectations(&wrapper, &status, |_| None);
        let survey = Survey::from_cache(&Uid::new("uid-aw"), expected.into_iter().zip(reads.into_iter().map(read)));
        let policy = Defaults::new(&AppWrapperConfig::default()).resolve(&Annotations::default()).0;
        let observed = Observed {
            wrapper: &wrapper,
            status: &status,
            components: &Evidence::Cached(survey),
            pods: &PodEvidence::Cached(pods_known.then(Vec::new)),
            nodes: &NodeFaults::default(),
            outcomes: &Outcomes::default(),
            recent_deletes: &RecentDeletes::default(),
        };
        let step = decide(&observed, &policy, now);
        let (was, is) = (status.phase(), step.status.phase());
        let may_be_left = deleted && is == Some(Phase::Terminating);
        prop_assert!(!was.is_some_and(Phase::is_finished) || is == was || may_be_left, "{was:?} was left for {is:?}");
        prop_assert!(was == Some(Phase::Failed) || is != Some(Phase::Failed) || was == Some(Phase::Resuming) || was == Some(Phase::Running));
        let missing = |status: &AppWrapperStatus| {
            conditions::find(&status.conditions, ConditionType::Unhealthy).is_some_and(|found| found.reason == "MissingComponent")
        };
        prop_assert!(missing(&status) || !missing(&step.status), "no proof, no verdict");
        if deleted {
            prop_assert!(!matches!(step.action, Action::Do(Effect::Deploy(_) | Effect::AddFinalizer)));
        }
        if let Action::After(delay) = step.action {
            prop_assert!(delay.as_millis() >= 50);
        }
    }
}
