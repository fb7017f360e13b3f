//! What a watch brings into the cache, whom it wakes, and what the cache says when the watch is blind.

mod support;

use std::{collections::HashSet, time::Duration};

use appwrapper_api::{APPWRAPPER_LABEL, Completion};
use appwrapper_cache_management::{CachedRead, NotSynced, Settings};
use appwrapper_testkit::{
    api_server::{Effect, Match, Verb},
    gate::Gate,
};
use serde_json::json;
use support::{LIMIT, NAMESPACE, World, eventually, job, key, pod, uid, widget};

#[tokio::test(start_paused = true)]
async fn a_kind_that_nobody_asked_for_is_not_absent() {
    let world = World::new();
    assert_eq!(world.read(&job(), "j"), CachedRead::NotSynced(NotSynced::Kind));
    assert_eq!(world.read(&pod(), "p"), CachedRead::NotSynced(NotSynced::Kind));
    assert!(world.view.pods(&key("aw")).is_none());
    assert!(world.ensure(&job()).await);
    assert!(matches!(world.read(&job(), "j"), CachedRead::Absent { last: None, .. }));
}

#[tokio::test(start_paused = true)]
async fn a_blind_watch_says_absent_and_the_same_number_until_it_sees() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    let gate = world.server.gate("jobs");
    gate.watched().await;
    gate.hold();
    let created = world.create(&job(), "j", "aw", Some(&owner));
    let before = world.absent(&job(), "j").unwrap();
    assert_eq!(world.absent(&job(), "j"), Some(before));
    gate.release();
    assert_eq!(world.trigger().await, key("aw"));
    let facts = world.present(&job(), "j").unwrap();
    assert_eq!(facts.uid, uid(&created));
    assert!(facts.is_controlled_by(&uid(&owner)));
}

#[tokio::test(start_paused = true)]
async fn the_controller_is_woken_and_not_whom_the_label_names() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    world.create(&job(), "foreign", "victim", None);
    world.create(&job(), "j", "victim", Some(&owner));
    assert_eq!(world.trigger().await, key("aw"));
    assert!(world.drain().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_wakes_nobody_but_a_failure_does() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    let other = world.appwrapper("other");
    world.create(&job(), "j", "aw", Some(&owner));
    assert_eq!(world.trigger().await, key("aw"));
    let before = world.present(&job(), "j").unwrap();
    let beat = world.server.patch_status("jobs", NAMESPACE, "j", &json!({"active": 1}));
    // The watch delivers in order, so the next trigger is for what came next.
    world.create(&job(), "k", "other", Some(&other));
    assert_eq!(world.trigger().await, key("other"));
    let after = world.present(&job(), "j").unwrap();
    assert_eq!(after.version, support::version(&beat));
    assert_ne!(after.version, before.version);
    let failed = json!({"conditions": [{"type": "Failed", "status": "True"}]});
    world.server.patch_status("jobs", NAMESPACE, "j", &failed);
    assert_eq!(world.trigger().await, key("aw"));
    assert_eq!(world.present(&job(), "j").unwrap().completion, Completion::Failed);
}

#[tokio::test(start_paused = true)]
async fn what_vanishes_in_a_relist_is_a_deletion() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    world.create(&job(), "j", "aw", Some(&owner));
    assert_eq!(world.trigger().await, key("aw"));
    let seen = world.present(&job(), "j").unwrap();
    let gate = world.server.gate("jobs");
    gate.watched().await;
    gate.hold();
    world.server.delete_now("jobs", NAMESPACE, "j");
    assert!(world.present(&job(), "j").is_some());
    world.server.compact();
    gate.expire_watches();
    assert_eq!(world.trigger().await, key("aw"));
    let CachedRead::Absent { last, .. } = world.read(&job(), "j") else {
        panic!("not absent")
    };
    assert_eq!(last.unwrap().uid, seen.uid);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_lost_its_label_reads_as_absent_with_a_new_number() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    let before = world.absent(&job(), "j").unwrap();
    world.create(&job(), "j", "aw", Some(&owner));
    world.trigger().await;
    world.server.patch(
        "jobs",
        NAMESPACE,
        "j",
        &json!({"metadata": {"labels": {APPWRAPPER_LABEL: null}}}),
    );
    assert_eq!(world.trigger().await, key("aw"));
    let after = world.absent(&job(), "j").unwrap();
    assert!(after > before);
    assert_eq!(
        world.absent(&job(), "other"),
        Some(before),
        "other names have not changed"
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_is_all_that_is_asked_for_unless_the_status_counts() {
    let world = World::watching(&job()).await;
    assert!(world.ensure(&widget()).await);
    world.server.gate("jobs").watched().await;
    world.server.gate("widgets").watched().await;
    let requests = world.server.requests();
    for verb in [Verb::List, Verb::Watch] {
        let of = |plural: &str| requests.iter().find(|r| r.verb == verb && r.plural == plural).unwrap();
        assert!(of("widgets").accept.contains("as=PartialObjectMetadata"), "{verb:?}");
        assert!(!of("jobs").accept.contains("PartialObjectMetadata"), "{verb:?}");
        assert_eq!(of("jobs").query["labelSelector"], APPWRAPPER_LABEL);
    }
    let watch = requests
        .iter()
        .find(|r| r.verb == Verb::Watch && r.plural == "jobs")
        .unwrap();
    assert_eq!(watch.query["timeoutSeconds"], "60");
    let list = requests
        .iter()
        .find(|r| r.verb == Verb::List && r.plural == "jobs")
        .unwrap();
    assert_eq!(list.query["limit"], "100");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_many_pages_is_complete() {
    let world = World::with(Settings::default(), 512);
    let owner = world.appwrapper("aw");
    for i in 0..250 {
        world.create(&job(), &format!("j{i}"), "aw", Some(&owner));
    }
    assert!(world.ensure(&job()).await);
    assert!((0..250).all(|i| world.present(&job(), &format!("j{i}")).is_some()));
    assert_eq!(world.count(Verb::List, "jobs"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_full_channel_slows_the_watch_and_loses_nothing() {
    let mut world = World::with(Settings::default(), 1);
    let mut expected = HashSet::new();
    for i in 0..30 {
        let name = format!("aw{i}");
        let owner = world.appwrapper(&name);
        world.create(&job(), &format!("j{i}"), &name, Some(&owner));
        expected.insert(key(&name));
    }
    // Nobody drains yet, and still the kind is synced.
    assert!(world.ensure(&job()).await);
    let mut woken = HashSet::new();
    while woken.len() < expected.len() {
        woken.insert(world.trigger().await);
    }
    assert_eq!(woken, expected);
}

#[tokio::test(start_paused = true)]
async fn triggers_follow_to_the_next_channel() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    world.triggers.close();
    world.create(&job(), "before", "aw", Some(&owner));
    eventually("seen without a receiver", LIMIT, || {
        world.present(&job(), "before").is_some()
    })
    .await;
    let (sender, receiver) = tokio::sync::mpsc::channel(8);
    world.triggers = receiver;
    world.registry.route(sender);
    world.create(&job(), "after", "aw", Some(&owner));
    assert_eq!(world.trigger().await, key("aw"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_can_be_a_component() {
    let mut world = World::new();
    assert!(world.ensure(&pod()).await);
    let owner = world.appwrapper("aw");
    let created = world.create(&pod(), "p", "aw", Some(&owner));
    assert_eq!(world.trigger().await, key("aw"));
    assert_eq!(world.present(&pod(), "p").unwrap().uid, uid(&created));
    world.server.delete_now("pods", NAMESPACE, "p");
    assert_eq!(world.trigger().await, key("aw"));
    let CachedRead::Absent { last, .. } = world.read(&pod(), "p") else {
        panic!("not absent")
    };
    assert_eq!(last.unwrap().uid, uid(&created));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_changes_hands_leaves_the_first() {
    let mut world = World::new();
    assert!(world.ensure(&pod()).await);
    world.create(&pod(), "p", "aw", None);
    assert_eq!(world.trigger().await, key("aw"));
    assert_eq!(world.view.pods(&key("aw")).unwrap().len(), 1);
    world.server.patch(
        "pods",
        NAMESPACE,
        "p",
        &json!({"metadata": {"labels": {APPWRAPPER_LABEL: "other"}}}),
    );
    let woken = HashSet::from([world.trigger().await, world.trigger().await]);
    assert_eq!(woken, HashSet::from([key("aw"), key("other")]));
    assert!(world.view.pods(&key("aw")).unwrap().is_empty());
    assert_eq!(world.view.pods(&key("other")).unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_kind_is_retired_and_comes_back() {
    let world = World::watching(&job()).await;
    let gate = world.server.gate("jobs");
    gate.watched().await;
    let (none, some) = (HashSet::new(), HashSet::from([job()]));
    let idle = Settings::default().idle;
    world.registry.retain(&none);
    tokio::time::advance(idle / 2).await;
    world.registry.retain(&some);
    tokio::time::advance(idle).await;
    world.registry.retain(&none);
    assert!(world.is_synced(&job()), "the idle time starts with the last use");
    tokio::time::advance(idle).await;
    world.registry.retain(&none);
    assert_eq!(world.read(&job(), "j"), CachedRead::NotSynced(NotSynced::Kind));
    eventually("the watch is closed", LIMIT, || gate.open_watches() == 0).await;
    let owner = world.appwrapper("aw");
    world.create(&job(), "j", "aw", Some(&owner));
    assert!(world.ensure(&job()).await);
    assert!(world.present(&job(), "j").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_view_outlives_its_registry_and_then_knows_nothing() {
    let world = World::watching(&job()).await;
    let World {
        registry, view, server, ..
    } = world;
    drop(registry);
    let read = view.component(&key("aw"), &support::component(&job(), "j"));
    assert_eq!(read, CachedRead::NotSynced(NotSynced::Kind));
    let gate = server.gate("jobs");
    eventually("the watch is closed", LIMIT, || gate.open_watches() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_is_seen_after_every_way_in_which_a_connection_ends() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    let gate = world.server.gate("jobs");
    let ends = [
        Gate::cut_watches,
        Gate::end_watches,
        Gate::truncate_watches,
        Gate::expire_watches,
    ];
    for (name, end) in ["cut", "ended", "truncated", "expired"].into_iter().zip(ends) {
        gate.watched().await;
        end(&gate);
        world.create(&job(), name, "aw", Some(&owner));
        eventually(name, Duration::from_secs(60), || world.present(&job(), name).is_some()).await;
        world.drain();
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_told_twice_wakes_once() {
    let mut world = World::watching(&job()).await;
    let (owner, other) = (world.appwrapper("aw"), world.appwrapper("other"));
    world.server.gate("jobs").duplicate(true);
    world.create(&job(), "j", "aw", Some(&owner));
    world.create(&job(), "k", "other", Some(&other));
    assert_eq!(world.trigger().await, key("aw"));
    assert_eq!(world.trigger().await, key("other"));
}

#[tokio::test(start_paused = true)]
async fn a_fault_of_the_first_list_is_overcome() {
    let world = World::new();
    let lists = Match::verb(Verb::List).resource("jobs");
    world.server.faults().add(lists.clone(), Effect::Hang).times(1);
    world.server.faults().add(lists.clone(), Effect::Undecodable).times(1);
    world.server.faults().add(lists, Effect::internal_error()).times(1);
    assert!(!world.ensure(&job()).await);
    assert_eq!(world.read(&job(), "j"), CachedRead::NotSynced(NotSynced::Kind));
    eventually("synced", Duration::from_secs(180), || world.is_synced(&job())).await;
}
