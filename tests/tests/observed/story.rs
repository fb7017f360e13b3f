//! Each thing happens once: success, retries, failure, force, strangers, the race, doubt, a real deletion, a crash.

use std::time::Duration;

use appwrapper_testkit::api_server::{Effect, Match, Verb};
use appwrapper_testkit::monitoring::Monitoring;
use appwrapper_tests::components::{FAIL, HOLD, STUCK, job, pod};
use appwrapper_tests::world::SOON;
use appwrapper_tests::{Team, World};
use serde_json::json;
use tokio::time::{sleep, timeout};

/// What the first controller counts last.
const COUNTED: [&str; 3] = [
    "appwrapper_missing_component_verdicts_total",
    "appwrapper_cache_catchup_seconds_count",
    "appwrapper_foreign_objects_total",
];
/// A rate needs two scrapes.
const RATED: Duration = Duration::from_secs(3);

/// Tells it. The controller is another one afterwards.
pub async fn tell(world: &mut World, monitoring: &Monitoring) {
    {
        let team = &world.team("story").await;
        futures::join!(
            succeeds(team),
            is_retried_and_fails(team),
            is_forced(team),
            strangers(team)
        );
        races(world, team).await;
        is_deleted(team).await;
        team.submit("survivor", &[job("survivor", &[HOLD])]).await;
        team.reaches("survivor", "Running").await;
        // What a process has counted and nobody has scraped dies with it.
        for counted in COUNTED {
            let seen = monitoring.until(&format!("sum({counted}) > 0"), SOON).await;
            seen.unwrap();
        }
        sleep(RATED).await;
    }
    // Its Leases run out, and the next one takes them over.
    world.replace_controller("successor").await;
    let team = &world.existing_team("story");
    team.submit("later", &[job("later", &[])]).await;
    team.reaches("later", "Succeeded").await;
}

async fn succeeds(team: &Team<'_>) {
    team.submit("succeeds", &[job("succeeds", &[])]).await;
    team.reaches("succeeds", "Succeeded").await;
    team.remove("succeeds").await;
}

async fn is_retried_and_fails(team: &Team<'_>) {
    let annotations = [
        ("failureGracePeriodDuration", "0s"),
        ("retryLimit", "1"),
        ("retryPausePeriodDuration", "2s"),
    ];
    team.submit_with("fails", &[job("fails", &[FAIL])], &annotations).await;
    team.reaches("fails", "Failed").await;
}

async fn is_forced(team: &Team<'_>) {
    let grace = [("forcefulDeletionGracePeriodDuration", "3s")];
    team.submit_with("forced", &[job("forced", &[HOLD, STUCK])], &grace)
        .await;
    team.reaches("forced", "Running").await;
    team.until_pods("forced", "a pod", |pods| !pods.is_empty()).await;
    team.suspend("forced", true).await;
    team.reaches("forced", "Suspended").await;
}

async fn strangers(team: &Team<'_>) {
    let mut stranger = pod("stranger", &[HOLD])["template"].take();
    stranger["metadata"]["labels"] = json!({"workload.codeflare.dev/appwrapper": "host"});
    team.create(&stranger).await;
    team.submit("host", &[job("host", &[HOLD])]).await;
    team.reaches("host", "Running").await;
    team.create(&job("taken", &[HOLD])["template"]).await;
    team.submit("taken", &[job("taken", &[])]).await;
    team.reaches("taken", "Failed").await;
}

/// The cache misses what exists; the first answer for some of them proves nothing.
async fn races(world: &World, team: &Team<'_>) {
    let gate = world.proxy.rules().gate("jobs");
    gate.hold();
    for (name, answer) in [
        ("doubt", Effect::forbidden()),
        ("throttled", Effect::too_many_requests()),
    ] {
        let get = Match::verb(Verb::Get).resource("jobs").name(name);
        world.proxy.rules().add(get, answer).times(1);
    }
    for name in ["late", "doubt", "throttled"] {
        team.submit(name, &[job(name, &[HOLD])]).await;
    }
    let survived = async || {
        let count = "appwrapper_component_confirmations_total";
        world.count(count, &[("outcome", "live")]).await >= 3 && world.count(count, &[("outcome", "error")]).await >= 2
    };
    timeout(SOON, async {
        while !survived().await {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("the race is survived");
    gate.release();
}

async fn is_deleted(team: &Team<'_>) {
    team.submit("deleted", &[job("deleted", &[HOLD])]).await;
    team.reaches("deleted", "Running").await;
    team.delete("batch/v1", "Job", "deleted", "background").await;
    team.reaches("deleted", "Failed").await;
}
