//! The API server is away, watches break, the controller dies: clusters of their own.

use std::time::Duration;

use appwrapper_testkit::api_server::{Effect, Match};
use appwrapper_tests::World;
use appwrapper_tests::components::{HOLD, generated, job, service};
use appwrapper_tests::team::{condition, is_true, phase};
use futures::future::join_all;
use serde_json::Value;
use tokio::time::sleep;

const OUTAGE: Duration = Duration::from_secs(60);

fn healthy(wrapper: &Value) -> bool {
    phase(wrapper) == "Running" && is_true(wrapper, "PodsReady") && condition(wrapper, "Unhealthy")["status"] == "False"
}

/// R33: watches that end in every way there is, and then an API server that cannot be reached for a minute.
pub async fn an_api_server_that_is_away_for_a_minute(_: &World) {
    let world = World::start("outage").await;
    let team = world.team("team").await;
    for name in ["stays", "ends", "deleted"] {
        team.submit(name, &[job(name, &[HOLD]), service(name)]).await;
    }
    let ready = async |name: &'static str| team.until(name, "ready", healthy).await;
    join_all(["stays", "ends", "deleted"].map(ready)).await;

    let all = world.proxy.rules().gate("*");
    for (name, break_them) in [
        ("expired", Box::new(|| all.expire_watches()) as Box<dyn Fn()>),
        ("truncated", Box::new(|| all.truncate_watches())),
        ("cut", Box::new(|| all.cut_watches())),
        ("ended", Box::new(|| all.end_watches())),
    ] {
        break_them();
        team.submit(name, &[job(name, &[])]).await;
        team.reaches(name, "Succeeded").await;
    }
    assert!(healthy(&team.get("stays").await));

    let away = world.proxy.rules().add(Match::any(), Effect::Refuse);
    all.cut_watches();
    // Meanwhile life goes on.
    team.delete("batch/v1", "Job", "deleted", "background").await;
    team.play(&team.pods("ends").await[0], HOLD.0, None).await;
    team.submit("submitted", &[job("submitted", &[])]).await;
    sleep(OUTAGE).await;
    assert!(away.hits() > 10, "the controller gave up asking");
    assert!(away.hits() < 6_000, "{} requests in a minute of refusals", away.hits());
    away.remove();

    // It is the same process still, it gets its Lease back, and nothing was misread.
    team.reaches("submitted", "Succeeded").await;
    team.reaches("ends", "Succeeded").await;
    let failed = team.reaches("deleted", "Failed").await;
    assert_eq!(condition(&failed, "Unhealthy")["reason"], "MissingComponent");
    assert!(healthy(&team.get("stays").await));
    assert_eq!(world.count("appwrapper_missing_component_verdicts_total", &[]).await, 1);
    join_all(["stays", "ends", "deleted", "submitted"].map(async |name| team.remove(name).await)).await;
    world.end().await;
}

/// R04, R05: killed in the middle of a burst, with everything in some stage of its creation.
pub async fn a_controller_that_is_killed_in_a_burst(_: &World) {
    let mut world = World::start("killed").await;
    let names: Vec<String> = (0..20).map(|index| format!("a-{index}")).collect();
    {
        let team = world.team("team").await;
        let submit = names.iter().map(async |name| {
            let train = generated(job(&format!("{name}-train-"), &[HOLD]));
            team.submit(name, &[train, service(name), job(name, &[HOLD])]).await;
        });
        join_all(submit).await;
        // As soon as some are through.
        team.reaches("a-0", "Running").await;
    }
    world.replace_controller("successor").await;
    let team = world.existing_team("team");
    let mut jobs = Vec::new();
    for name in &names {
        let wrapper = team.until(name, "ready", healthy).await;
        assert_eq!(wrapper["status"]["resettingCount"], Value::Null);
        for component in wrapper["status"]["componentStatus"].as_array().unwrap() {
            let text = |field: &str| component[field].as_str().unwrap();
            let found = team.find(text("apiVersion"), text("kind"), text("name")).await.unwrap();
            assert_eq!(
                found["metadata"]["ownerReferences"][0]["uid"],
                wrapper["metadata"]["uid"]
            );
        }
        jobs.extend(
            team.list("batch/v1", "Job", &format!("workload.codeflare.dev/appwrapper={name}"))
                .await,
        );
    }
    assert_eq!(jobs.len(), 2 * names.len(), "a Job was made twice");
    join_all(names.iter().map(async |name| team.remove(name).await)).await;
    assert_eq!(team.list("batch/v1", "Job", "").await, Vec::<Value>::new());
    world.end().await;
}
