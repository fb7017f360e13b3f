//! Kinds that are forbidden, not served, or served by a server in trouble.

mod support;

use std::time::Duration;

use appwrapper_api::TypeRef;
use appwrapper_cache_management::{CachedRead, KindError, Kinds, NotSynced, Reason, Settings};
use appwrapper_testkit::api_server::{ApiServer, Effect, Match, ResourceKind, Verb};
use support::{LIMIT, World, eventually, job, kind, widget};

fn widgets() -> ResourceKind {
    ResourceKind::new("example.com", "v1", "widgets", "Widget")
}

fn path(path: &'static str) -> Match {
    Match::any().when(move |request| request.path == path)
}

fn kinds(server: &ApiServer) -> Kinds {
    Kinds::new(server.client(), &Settings::default())
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_resolved_as_it_is_served_and_asked_for_once() {
    let server = ApiServer::new();
    let kinds = kinds(&server);
    let resolved = kinds.resolve(&kind("ray.io/v1", "RayCluster")).await.unwrap();
    assert_eq!(resolved.resource.plural, "rayclusters");
    assert!(resolved.namespaced);
    assert!(!kinds.resolve(&kind("v1", "Node")).await.unwrap().namespaced);
    let asked = server.requests().len();
    kinds.resolve(&kind("ray.io/v1", "RayCluster")).await.unwrap();
    assert_eq!(server.requests().len(), asked);
    tokio::time::advance(Settings::default().discovery_hit).await;
    kinds.resolve(&kind("ray.io/v1", "RayCluster")).await.unwrap();
    assert_eq!(server.requests().len(), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn not_served_is_said_of_groups_versions_and_kinds_and_soon_asked_again() {
    let server = ApiServer::new();
    let kinds = kinds(&server);
    for missing in [
        kind("nowhere.io/v1", "X"),
        kind("batch/v9", "Job"),
        kind("batch/v1", "Cron"),
        kind("v9", "Pod"),
    ] {
        let error = kinds.resolve(&missing).await.unwrap_err();
        assert!(matches!(error, KindError::NotServed(_)), "{missing}: {error}");
    }
    let nowhere = kind("nowhere.io/v1", "X");
    server.register(ResourceKind::new("nowhere.io", "v1", "xs", "X"));
    assert!(kinds.resolve(&nowhere).await.is_err(), "a miss is remembered, too");
    tokio::time::advance(Settings::default().discovery_miss).await;
    assert_eq!(kinds.resolve(&nowhere).await.unwrap().resource.plural, "xs");
}

#[tokio::test(start_paused = true)]
async fn doubt_is_not_taken_for_not_served_and_not_remembered() {
    let server = ApiServer::new();
    let kinds = kinds(&server);
    for effect in [
        Effect::Text(404, "404 page not found"),
        Effect::Status(404, "NotFound", "the server could not find the requested resource"),
        Effect::forbidden(),
        Effect::unavailable(),
        Effect::Hang,
        Effect::Refuse,
        Effect::Undecodable,
    ] {
        server.faults().add(path("/apis/example.com/v1"), effect).times(1);
        let error = kinds.resolve(&widget()).await.unwrap_err();
        assert!(matches!(error, KindError::Unavailable { .. }), "{error}");
    }
    assert!(kinds.resolve(&widget()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_404_from_something_in_front_of_the_server_proves_nothing() {
    let server = ApiServer::new();
    server
        .faults()
        .add(Match::verb(Verb::Other), Effect::Text(404, "404 page not found"));
    let error = kinds(&server).resolve(&kind("nowhere.io/v1", "X")).await.unwrap_err();
    assert!(matches!(error, KindError::Unavailable { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_stalls_no_other_and_recovers() {
    let mut world = World::new();
    let owner = world.appwrapper("aw");
    let fault = world
        .server
        .faults()
        .add(Match::any().resource("jobs"), Effect::forbidden());
    assert!(!world.ensure(&job()).await);
    assert!(world.ensure(&widget()).await);
    world.create(&widget(), "w", "aw", Some(&owner));
    world.create(&job(), "j", "aw", Some(&owner));
    assert_eq!(world.trigger().await, support::key("aw"));
    assert!(world.present(&widget(), "w").is_some());
    assert_eq!(world.read(&job(), "j"), CachedRead::NotSynced(NotSynced::Kind));
    tokio::time::sleep(Duration::from_secs(600)).await;
    let tries = world.count(Verb::List, "jobs");
    assert!(
        (20..80).contains(&tries),
        "backs off, and never beyond thirty seconds: {tries}"
    );
    assert!(world.told.errors.lock().unwrap().contains(&(job(), Reason::Forbidden)));
    let status = world
        .registry
        .status()
        .into_iter()
        .find(|status| status.type_ref == job())
        .unwrap();
    assert_eq!(status.last_error.unwrap().1, Reason::Forbidden);
    fault.remove();
    eventually("synced", Duration::from_secs(31), || {
        world.present(&job(), "j").is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_are_waited_for_even_while_their_watch_fails() {
    let world = World::new();
    let fault = world
        .server
        .faults()
        .add(Match::any().resource("pods"), Effect::forbidden());
    let before = tokio::time::Instant::now();
    assert!(!world.ensure(&support::pod()).await);
    assert!(before.elapsed() >= LIMIT);
    fault.remove();
    while !world.ensure(&support::pod()).await {}
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_is_lost_makes_the_kind_not_synced() {
    let world = World::watching(&job()).await;
    let gate = world.server.gate("jobs");
    gate.watched().await;
    let fault = world
        .server
        .faults()
        .add(Match::any().resource("jobs"), Effect::forbidden());
    gate.end_watches();
    eventually("not synced", LIMIT, || !world.is_synced(&job())).await;
    assert_eq!(world.told.synced.lock().unwrap().last(), Some(&(job(), false)));
    fault.remove();
    eventually("synced", Duration::from_secs(31), || world.is_synced(&job())).await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_yet_is_an_error_and_works_once_it_is() {
    let world = World::new();
    world.server.unregister("widgets");
    let error = world.registry.ensure(&widget(), LIMIT).await.unwrap_err();
    assert!(matches!(error, KindError::NotServed(_)));
    assert_eq!(world.read(&widget(), "w"), CachedRead::NotSynced(NotSynced::Kind));
    world.server.register(widgets());
    tokio::time::advance(Settings::default().discovery_miss).await;
    assert!(world.ensure(&widget()).await);
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_is_removed_and_comes_back_is_watched_again_by_itself() {
    let world = World::watching(&widget()).await;
    let owner = world.appwrapper("aw");
    world.server.gate("widgets").watched().await;
    world.server.unregister("widgets");
    eventually("not synced", LIMIT, || !world.is_synced(&widget())).await;
    assert_eq!(world.read(&widget(), "w"), CachedRead::NotSynced(NotSynced::Kind));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(
        world
            .told
            .errors
            .lock()
            .unwrap()
            .contains(&(widget(), Reason::NotServed))
    );
    // Under another plural, so that what was known of the kind must be forgotten.
    world
        .server
        .register(ResourceKind::new("example.com", "v1", "gadgets", "Widget"));
    world.create(&widget(), "w", "aw", Some(&owner));
    eventually("seen", Duration::from_secs(45), || {
        world.present(&widget(), "w").is_some()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_kind_is_not_watched() {
    let world = World::new();
    assert!(!world.ensure(&kind("v1", "Node")).await);
    assert_eq!(world.count(Verb::List, "nodes"), 0);
}

/// kube 4.2 alone takes an empty refusal for the end of a watch and starts the next one at once.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_without_a_word_does_not_spin() {
    let world = World::watching(&job()).await;
    let gate = world.server.gate("jobs");
    gate.watched().await;
    let watches = Match::verb(Verb::Watch).resource("jobs");
    let fault = world.server.faults().add(watches, Effect::Text(503, ""));
    gate.end_watches();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!((2..20).contains(&fault.hits()), "{}", fault.hits());
    assert!(world.is_synced(&job()), "a short trouble is no blindness");
    let lists = world
        .server
        .faults()
        .add(Match::verb(Verb::List).resource("jobs"), Effect::unavailable());
    eventually("a long one is", Duration::from_secs(90), || !world.is_synced(&job())).await;
    fault.remove();
    lists.remove();
    eventually("synced", Duration::from_secs(31), || world.is_synced(&job())).await;
}

#[tokio::test(start_paused = true)]
async fn facts_are_read_during_a_relist_but_not_when_it_fails_for_long() {
    let world = World::watching(&job()).await;
    let gate = world.server.gate("jobs");
    gate.watched().await;
    let lists = world
        .server
        .faults()
        .add(Match::verb(Verb::List).resource("jobs"), Effect::unavailable());
    gate.expire_watches();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(world.is_synced(&job()));
    eventually("not synced", Duration::from_secs(90), || !world.is_synced(&job())).await;
    lists.remove();
    eventually("synced", Duration::from_secs(31), || world.is_synced(&job())).await;
}

/// kube 4.2 alone waits for ever, since its client has no read timeout.
#[tokio::test(start_paused = true)]
async fn a_watch_that_never_starts_is_started_again() {
    let world = World::watching(&job()).await;
    let owner = world.appwrapper("aw");
    let gate = world.server.gate("jobs");
    gate.watched().await;
    world
        .server
        .faults()
        .add(Match::verb(Verb::Watch).resource("jobs"), Effect::Hang)
        .times(1);
    gate.end_watches();
    world.create(&job(), "j", "aw", Some(&owner));
    eventually("seen", Duration::from_secs(15), || world.present(&job(), "j").is_some()).await;
    assert!(world.told.errors.lock().unwrap().contains(&(job(), Reason::Timeout)));
}

/// kube 4.2 alone would ask for the same version for ever.
#[tokio::test(start_paused = true)]
async fn a_version_that_is_gone_by_http_status_leads_to_a_list() {
    let world = World::watching(&job()).await;
    let gate = world.server.gate("jobs");
    gate.watched().await;
    world
        .server
        .faults()
        .add(Match::verb(Verb::Watch).resource("jobs"), Effect::expired())
        .times(1);
    gate.end_watches();
    eventually("listed again", LIMIT, || world.count(Verb::List, "jobs") == 2).await;
    assert!(world.is_synced(&job()));
    assert!(!world.told.synced.lock().unwrap().contains(&(job(), false)));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gives_a_sign_of_life_every_minute() {
    let world = World::watching(&job()).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let watches = world.count(Verb::Watch, "jobs");
    assert!((9..=12).contains(&watches), "{watches}");
    assert_eq!(world.count(Verb::List, "jobs"), 1);
    let type_ref: TypeRef = job();
    let status = world
        .registry
        .status()
        .into_iter()
        .find(|status| status.type_ref == type_ref)
        .unwrap();
    assert!(status.last_event.is_some());
    assert_eq!(status.last_error, None);
}
