//! To whom a pod belongs, and what it costs to know.

mod support;

use std::time::Duration;

use appwrapper_api::{Lineage, TypeRef};
use appwrapper_cache_management::{LookupOutcome, PodWire, Reason, Settings};
use appwrapper_testkit::api_server::{Effect, Match, Verb};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use support::{LIMIT, NAMESPACE, World, eventually, job, key, kind, pod, uid};

fn of(component: &Value, owner: &Value) -> Lineage {
    Lineage::Component {
        component: uid(component),
        owner: uid(owner),
    }
}

fn replica_set() -> TypeRef {
    kind("apps/v1", "ReplicaSet")
}

fn controller(kind: &TypeRef, name: &str, uid: &str) -> Value {
    json!({"apiVersion": &*kind.api_version, "kind": &*kind.kind, "name": name, "uid": uid, "controller": true})
}

async fn world() -> World {
    let world = World::new();
    assert!(world.ensure(&pod()).await);
    world
}

/// Waits until the pods' lineages are these.
async fn settles(world: &World, expected: &[Lineage]) {
    eventually(&format!("{expected:?}"), LIMIT, || world.lineages() == expected).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_job_cost_no_request() {
    let world = world().await;
    assert!(world.ensure(&job()).await);
    let owner = world.appwrapper("aw");
    let component = world.create(&job(), "j", "aw", Some(&owner));
    for i in 0..3 {
        world.create(&pod(), &format!("p{i}"), "aw", Some(&component));
    }
    settles(
        &world,
        &[of(&component, &owner), of(&component, &owner), of(&component, &owner)],
    )
    .await;
    assert_eq!(world.server.count(&Match::verb(Verb::Get)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_the_watch_shows_late_still_costs_no_request() {
    let world = world().await;
    assert!(world.ensure(&job()).await);
    let owner = world.appwrapper("aw");
    let gate = world.server.gate("jobs");
    gate.watched().await;
    gate.hold();
    let component = world.create(&job(), "j", "aw", Some(&owner));
    world.create(&pod(), "p", "aw", Some(&component));
    settles(&world, &[Lineage::Unresolved]).await;
    gate.release();
    settles(&world, &[of(&component, &owner)]).await;
    assert_eq!(world.server.count(&Match::verb(Verb::Get)), 0);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deployment_cost_one_request_in_all_and_wake_when_it_is_answered() {
    let mut world = world().await;
    let deployment = kind("apps/v1", "Deployment");
    assert!(world.ensure(&deployment).await);
    let owner = world.appwrapper("aw");
    let component = world.create(&deployment, "d", "aw", Some(&owner));
    let link = world.create(&replica_set(), "rs", "aw", Some(&component));
    for i in 0..3 {
        world.create(&pod(), &format!("p{i}"), "aw", Some(&link));
    }
    settles(&world, &vec![Lineage::Unresolved; 3]).await;
    world.drain();
    assert_eq!(world.trigger().await, key("aw"));
    assert_eq!(world.lineages(), vec![of(&component, &owner); 3]);
    assert_eq!(world.server.count(&Match::verb(Verb::Get)), 1);
    let get = world
        .server
        .requests()
        .into_iter()
        .find(|request| request.verb == Verb::Get)
        .unwrap();
    assert!(get.accept.contains("as=PartialObjectMetadata"));
    assert!(!get.query.contains_key("resourceVersion"));
}

#[tokio::test(start_paused = true)]
async fn a_chain_is_remembered_when_its_links_are_deleted_before_the_pod() {
    let world = world().await;
    let deployment = kind("apps/v1", "Deployment");
    assert!(world.ensure(&deployment).await);
    let owner = world.appwrapper("aw");
    let component = world.create(&deployment, "d", "aw", Some(&owner));
    let link = world.create(&replica_set(), "rs", "aw", Some(&component));
    let mut body = support::object(&pod(), "p", "aw", Some(&link));
    body["metadata"]["finalizers"] = json!(["example.com/slow"]);
    world.server.create(body);
    settles(&world, &[Lineage::Unresolved]).await;
    settles(&world, &[of(&component, &owner)]).await;
    world.server.delete("deployments", NAMESPACE, "d", "Background");
    eventually("the pod is terminating", LIMIT, || {
        world.view.pods(&key("aw")).unwrap()[0].terminating
    })
    .await;
    assert!(world.server.get("replicasets", NAMESPACE, "rs").is_none());
    assert_eq!(world.lineages(), [of(&component, &owner)]);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_before_anyone_asked_for_its_pods_is_remembered() {
    let mut world = world().await;
    assert!(world.ensure(&job()).await);
    world.server.set_auto_collect(false);
    let owner = world.appwrapper("aw");
    let component = world.create(&job(), "j", "aw", Some(&owner));
    world.trigger().await;
    world.create(&pod(), "p", "aw", Some(&component));
    world.trigger().await;
    world.server.delete_now("jobs", NAMESPACE, "j");
    world.trigger().await;
    assert_eq!(world.lineages(), [of(&component, &owner)]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_keeps_its_lineage_when_the_links_are_forgotten() {
    let world = World::with(
        Settings {
            links: 2,
            ..Settings::default()
        },
        64,
    );
    assert!(world.ensure(&pod()).await);
    let owner = world.appwrapper("aw");
    let component = world.create(&job(), "j", "aw", Some(&owner));
    world.create(&pod(), "p", "aw", Some(&component));
    settles(&world, &[Lineage::Unresolved]).await;
    settles(&world, &[of(&component, &owner)]).await;
    world.server.set_auto_collect(false);
    world.server.delete_now("jobs", NAMESPACE, "j");
    for i in 0..4 {
        let other = world.create(&job(), &format!("other{i}"), "aw", None);
        world.create(&pod(), &format!("q{i}"), "aw", Some(&other));
    }
    eventually("others are looked up", LIMIT, || {
        world.lineages();
        world.count(Verb::Get, "jobs") >= 5
    })
    .await;
    assert_eq!(world.lineages()[0], of(&component, &owner));
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_jobset_belong_to_it_through_its_jobs() {
    let world = world().await;
    let jobset = kind("jobset.x-k8s.io/v1alpha2", "JobSet");
    assert!(world.ensure(&jobset).await);
    let owner = world.appwrapper("aw");
    let component = world.create(&jobset, "js", "aw", Some(&owner));
    for i in 0..2 {
        let link = world.create(&job(), &format!("js-{i}"), "aw", Some(&component));
        world.create(&pod(), &format!("p{i}a"), "aw", Some(&link));
        world.create(&pod(), &format!("p{i}b"), "aw", Some(&link));
    }
    settles(&world, &vec![of(&component, &owner); 4]).await;
    assert_eq!(world.server.count(&Match::verb(Verb::Get)), 2);
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_which_nothing_is_watched_is_followed_link_by_link() {
    let mut world = world().await;
    let owner = world.appwrapper("aw");
    let (rayjob, raycluster) = (kind("ray.io/v1", "RayJob"), kind("ray.io/v1", "RayCluster"));
    let component = world.create(&rayjob, "rj", "aw", Some(&owner));
    let link = world.create(&raycluster, "rc", "aw", Some(&component));
    world.create(&pod(), "p", "aw", Some(&link));
    settles(&world, &[Lineage::Unresolved]).await;
    world.drain();
    world.trigger().await;
    assert_eq!(
        world.lineages(),
        [of(&component, &owner)],
        "triggered once, at the end of the chain"
    );
    assert_eq!(world.server.count(&Match::verb(Verb::Get)), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_a_component_belongs_through_itself() {
    let world = world().await;
    let owner = world.appwrapper("aw");
    let component = world.create(&pod(), "p", "aw", Some(&owner));
    settles(&world, &[of(&component, &owner)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_label_alone_makes_a_foreign_pod() {
    let world = world().await;
    world.create(&pod(), "p", "aw", None);
    let other = world.create(&job(), "unrelated", "aw", None);
    world.create(&pod(), "q", "aw", Some(&other));
    settles(&world, &[Lineage::Foreign, Lineage::Foreign]).await;
    // However often they are looked at, and whatever becomes of them.
    world
        .server
        .patch("pods", NAMESPACE, "p", &json!({"status": {"phase": "Failed"}}));
    settles(&world, &[Lineage::Foreign, Lineage::Foreign]).await;
    assert_eq!(world.told.strangers.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_forged_reference_is_a_broken_one() {
    let world = world().await;
    forge(&world).await;
}

#[tokio::test(start_paused = true)]
async fn a_forged_reference_to_a_watched_kind_is_a_broken_one() {
    let world = world().await;
    assert!(world.ensure(&job()).await);
    forge(&world).await;
}

async fn forge(world: &World) {
    world.server.set_auto_collect(false);
    let owner = world.appwrapper("aw");
    let real = world.create(&job(), "j", "aw", Some(&owner));
    world.create(&pod(), "a", "aw", Some(&controller(&job(), "never-was", "made-up")));
    world.create(&pod(), "b", "aw", Some(&controller(&job(), "j", "made-up")));
    settles(world, &[Lineage::Broken, Lineage::Broken]).await;
    // A real uid under a wrong name is broken as well, and spoils nothing for the pod that names it rightly.
    world.create(
        &pod(),
        "c",
        "aw",
        Some(&controller(&job(), "wrong-name", uid(&real).as_str())),
    );
    settles(world, &vec![Lineage::Broken; 3]).await;
    world.create(&pod(), "d", "aw", Some(&real));
    settles(
        world,
        &[Lineage::Broken, Lineage::Broken, Lineage::Broken, of(&real, &owner)],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn doubt_leaves_a_pod_unresolved_until_it_is_dispelled() {
    let effects = [
        (Effect::forbidden(), Reason::Forbidden),
        (Effect::unavailable(), Reason::Refused),
        (Effect::Hang, Reason::Timeout),
        (Effect::Undecodable, Reason::Malformed),
        (Effect::Text(404, "404 page not found"), Reason::NotServed),
        (Effect::Status(404, "NotFound", "no name in it"), Reason::NotServed),
    ];
    for (effect, reason) in effects {
        let mut world = world().await;
        let owner = world.appwrapper("aw");
        let component = world.create(&job(), "j", "aw", Some(&owner));
        let fault = world
            .server
            .faults()
            .add(Match::verb(Verb::Get).resource("jobs"), effect);
        world.create(&pod(), "p", "aw", Some(&component));
        settles(&world, &[Lineage::Unresolved]).await;
        eventually("tried", LIMIT, || fault.hits() >= 2).await;
        assert_eq!(world.lineages(), [Lineage::Unresolved], "{reason:?}");
        assert!(
            world
                .told
                .lookups
                .lock()
                .unwrap()
                .contains(&LookupOutcome::Doubt(reason)),
            "{reason:?}"
        );
        world.drain();
        fault.remove();
        assert_eq!(
            tokio::time::timeout(Duration::from_secs(60), world.triggers.recv())
                .await
                .unwrap(),
            Some(key("aw"))
        );
        assert_eq!(world.lineages(), [of(&component, &owner)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_never_succeeds_is_tried_ever_more_rarely() {
    let world = world().await;
    let owner = world.appwrapper("aw");
    let component = world.create(&job(), "j", "aw", Some(&owner));
    let fault = world
        .server
        .faults()
        .add(Match::verb(Verb::Get).resource("jobs"), Effect::forbidden());
    world.create(&pod(), "p", "aw", Some(&component));
    settles(&world, &[Lineage::Unresolved]).await;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.lineages(), [Lineage::Unresolved]);
    }
    assert!((6..=24).contains(&fault.hits()), "{}", fault.hits());
    fault.remove();
    eventually("resolved", Duration::from_secs(360), || {
        world.lineages() == [of(&component, &owner)]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_leaves_doubt() {
    let world = world().await;
    world.server.set_auto_collect(false);
    world.create(
        &pod(),
        "p",
        "aw",
        Some(&controller(&kind("gone.io/v1", "Gone"), "g", "u")),
    );
    settles(&world, &[Lineage::Unresolved]).await;
    let doubt = LookupOutcome::Doubt(Reason::NotServed);
    eventually("told", LIMIT, || world.told.lookups.lock().unwrap().contains(&doubt)).await;
    assert_eq!(world.lineages(), [Lineage::Unresolved]);
}

#[tokio::test(start_paused = true)]
async fn a_cycle_of_controllers_is_foreign() {
    let world = world().await;
    world.server.set_auto_collect(false);
    let first = world.create(&job(), "a", "aw", None);
    let second = world.create(&job(), "b", "aw", Some(&first));
    world.server.patch(
        "jobs",
        NAMESPACE,
        "a",
        &json!({"metadata": {"ownerReferences": [second]}}),
    );
    world.create(&pod(), "p", "aw", Some(&second));
    settles(&world, &[Lineage::Foreign]).await;
}

#[tokio::test(start_paused = true)]
async fn pods_listed_past_the_cache_get_the_same_facts() {
    let world = world().await;
    assert!(world.ensure(&job()).await);
    let owner = world.appwrapper("aw");
    let component = world.create(&job(), "j", "aw", Some(&owner));
    world.create(&pod(), "p", "aw", Some(&component));
    settles(&world, &[of(&component, &owner)]).await;
    let api: Api<PodWire> = Api::namespaced(world.server.client(), NAMESPACE);
    let listed = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(
        world.view.pod_facts(&key("aw"), listed),
        world.view.pods(&key("aw")).unwrap()
    );
}
