//! A cache that is behind what we wrote ourselves is not believed.

mod support;

use appwrapper_api::Rv;
use appwrapper_cache_management::{CachedRead, NotSynced};
use jiff::Timestamp;
use serde_json::{Value, json};
use support::{NAMESPACE, World, component, eventually, job, key, kind, pod, uid, widget};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const BEHIND: CachedRead = CachedRead::NotSynced(NotSynced::BehindOwnWrite { since: NOW });

/// As the controller does after its create was answered.
fn create_and_note(world: &World, name: &str, owner: &Value) -> Value {
    let created = world.create(&job(), name, "aw", Some(owner));
    let version = world.version_of("jobs", name);
    world
        .view
        .note_created(&key("aw"), &component(&job(), name), uid(&created), version, NOW);
    created
}

#[tokio::test(start_paused = true)]
async fn a_component_just_created_is_behind_and_then_present() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    let gate = world.server.gate("jobs");
    gate.watched().await;
    gate.hold();
    let created = create_and_note(&world, "j", &owner);
    assert_eq!(world.read(&job(), "j"), BEHIND);
    assert_eq!(
        world.view.known_uid(&key("aw"), &component(&job(), "j")),
        Some(uid(&created))
    );
    gate.release();
    assert_eq!(world.trigger().await, key("aw"));
    assert_eq!(world.present(&job(), "j").unwrap().uid, uid(&created));
    world.server.delete_now("jobs", NAMESPACE, "j");
    world.trigger().await;
    let CachedRead::Absent { last: Some(last), .. } = world.read(&job(), "j") else {
        panic!("not absent")
    };
    assert_eq!(last.uid, uid(&created));
    assert_eq!(
        world.view.known_uid(&key("aw"), &component(&job(), "j")),
        Some(uid(&created))
    );
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_is_seen_before_the_create_that_followed_is_no_answer() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    let first = create_and_note(&world, "j", &owner);
    world.trigger().await;
    let gate = world.server.gate("jobs");
    gate.watched().await;
    gate.hold();
    world.view.note_deleted(&key("aw"), &component(&job(), "j"));
    assert_eq!(world.view.known_uid(&key("aw"), &component(&job(), "j")), None);
    world.server.delete_now("jobs", NAMESPACE, "j");
    let second = create_and_note(&world, "j", &owner);
    assert_eq!(world.read(&job(), "j"), BEHIND, "the cache still shows {first}");
    assert!(gate.release_one());
    world.trigger().await;
    assert_eq!(world.read(&job(), "j"), BEHIND, "the cache shows a hole");
    gate.release();
    world.trigger().await;
    assert_eq!(world.present(&job(), "j").unwrap().uid, uid(&second));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_passed_our_version_answers_even_with_absent() {
    let mut world = World::watching(&job()).await;
    let (owner, other) = (world.appwrapper("aw"), world.appwrapper("other"));
    let gate = world.server.gate("jobs");
    gate.watched().await;
    gate.hold();
    create_and_note(&world, "j", &owner);
    // Our object loses the label before the watch could ever show it.
    world
        .server
        .patch("jobs", NAMESPACE, "j", &json!({"metadata": {"labels": null}}));
    assert_eq!(world.read(&job(), "j"), BEHIND);
    world.create(&job(), "k", "other", Some(&other));
    gate.release_in_order(&[2]);
    assert_eq!(world.trigger().await, key("other"));
    assert!(world.absent(&job(), "j").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_list_begun_after_our_write_answers() {
    let world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    let gate = world.server.gate("jobs");
    gate.watched().await;
    gate.hold();
    create_and_note(&world, "j", &owner);
    world.server.delete_now("jobs", NAMESPACE, "j");
    assert_eq!(world.read(&job(), "j"), BEHIND);
    gate.expire_watches();
    eventually("listed", support::LIMIT, || world.absent(&job(), "j").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn what_we_deleted_ourselves_is_not_told_of_as_the_last_state() {
    let mut world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    create_and_note(&world, "j", &owner);
    world.trigger().await;
    world.view.note_deleted(&key("aw"), &component(&job(), "j"));
    world.server.delete_now("jobs", NAMESPACE, "j");
    world.trigger().await;
    assert!(matches!(world.read(&job(), "j"), CachedRead::Absent { last: None, .. }));
    world.view.forget(&key("aw"));
    assert!(matches!(
        world.read(&job(), "j"),
        CachedRead::Absent { last: Some(_), .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_note_about_one_kind_is_none_about_another() {
    let world = World::watching(&job()).await;
    assert!(world.ensure(&widget()).await);
    let owner = world.appwrapper("aw");
    let gate = world.server.gate("jobs");
    gate.watched().await;
    gate.hold();
    create_and_note(&world, "j", &owner);
    assert!(world.absent(&widget(), "j").is_some());
    world.view.forget_all();
    assert!(world.absent(&job(), "j").is_some());
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_earlier_attempt_are_ghosts() {
    let mut world = World::new();
    assert!(world.ensure(&pod()).await);
    let owner = world.appwrapper("aw");
    world.create(&pod(), "old", "aw", Some(&owner));
    world.trigger().await;
    let gate = world.server.gate("pods");
    gate.watched().await;
    gate.hold();
    world.server.delete_now("pods", NAMESPACE, "old");
    assert_eq!(world.view.pods(&key("aw")).unwrap().len(), 1);
    let listed = Rv::parse(&world.server.revision().to_string()).unwrap();
    world.view.note_pods_gone(&key("aw"), listed);
    assert!(world.view.pods(&key("aw")).unwrap().is_empty());
    world.create(&pod(), "new", "aw", Some(&owner));
    gate.release();
    eventually("the new pod", support::LIMIT, || {
        let pods = world.view.pods(&key("aw")).unwrap();
        pods.len() == 1 && &*pods[0].name == "new"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_watched_stays_unknown_whatever_we_wrote() {
    let world = World::new();
    let owner = world.appwrapper("aw");
    create_and_note(&world, "j", &owner);
    assert_eq!(world.read(&job(), "j"), CachedRead::NotSynced(NotSynced::Kind));
    assert_eq!(
        world.read(&kind("no/v1", "Such"), "j"),
        CachedRead::NotSynced(NotSynced::Kind)
    );
}
