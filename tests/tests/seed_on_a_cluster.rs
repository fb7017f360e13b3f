//! The seed, on a real API server: a component missing in the cache is confirmed by an uncached read, and only then does the
//! AppWrapper fail.
//!
//! The proxy holds back the controller's watch of the component's kind, so its cache never sees what it created: the 98 ms
//! of the bug report, made as long as wanted. `crates/controller/tests/seed.rs` shows the same for more kinds and more kinds of
//! answers on the API server inside the process.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::time::Duration;

use appwrapper_testkit::api_server::{Effect, Match, Verb};
use appwrapper_tests::components::{HOLD, WIDGET_POD, WORKERS, deployment, job, pytorch_job, service, widget};
use appwrapper_tests::team::{condition, is_true, phase, retries};
use appwrapper_tests::world::SOON;
use appwrapper_tests::{Team, World};
use futures::future::join_all;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

/// A kind of component.
struct Wrapped {
    resource: &'static str,
    api_version: &'static str,
    kind: &'static str,
    component: fn(&str) -> Value,
    /// Where the template of its pods is, if the test has to make them.
    pods: Option<&'static str>,
}

/// A Job, a kind whose status is read, a kind of which only metadata is read, and a kind that nobody coded.
const KINDS: [Wrapped; 4] = [
    Wrapped {
        resource: "jobs",
        api_version: "batch/v1",
        kind: "Job",
        component: |name| job(name, &[HOLD]),
        pods: None,
    },
    Wrapped {
        resource: "pytorchjobs",
        api_version: "kubeflow.org/v1",
        kind: "PyTorchJob",
        component: |name| pytorch_job(name, 1),
        pods: Some(WORKERS),
    },
    Wrapped {
        resource: "deployments",
        api_version: "apps/v1",
        kind: "Deployment",
        component: |name| deployment(name, 1),
        pods: None,
    },
    Wrapped {
        resource: "widgets",
        api_version: "example.com/v1",
        kind: "Widget",
        component: widget,
        pods: Some(WIDGET_POD),
    },
];

/// The pods of some kinds never come, which is not what these tests are about.
const PATIENT: [(&str, &str); 1] = [("admissionGracePeriodDuration", "1h")];

const SURVIVED: &str = "appwrapper_component_confirmations_total";

fn late(kind: &Wrapped) -> String {
    format!("late-{}", kind.resource)
}

/// Submits an AppWrapper of each kind while the controller does not see what becomes of that kind.
async fn blind(team: &Team<'_>) {
    // An informer that is started by the first use lists what it is asked about; warm them first.
    for kind in &KINDS {
        let warm = format!("warm-{}", kind.resource);
        team.submit_with(&warm, &[(kind.component)(&warm)], &PATIENT).await;
        team.reaches(&warm, "Running").await;
        let gate = team.world.proxy.rules().gate(kind.resource);
        timeout(SOON, async {
            while gate.open_watches() == 0 {
                sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap();
        gate.hold();
    }
    for kind in &KINDS {
        team.submit_with(&late(kind), &[(kind.component)(&late(kind))], &PATIENT)
            .await;
    }
}

async fn survived(world: &World) -> u64 {
    world.count(SURVIVED, &[("outcome", "live")]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_that_only_the_cache_misses_keeps_its_appwrapper_running() {
    let world = World::start("blind").await;
    let team = world.team("team").await;
    blind(&team).await;
    for kind in &KINDS {
        team.reaches(&late(kind), "Running").await;
    }
    timeout(SOON, async {
        while survived(&world).await < KINDS.len() as u64 {
            sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("each race is survived and counted");
    let healthy = |wrapper: &Value| phase(wrapper) == "Running" && condition(wrapper, "Unhealthy")["status"] == "False";
    let five = Duration::from_secs(5);
    join_all(
        KINDS
            .iter()
            .map(async |kind| team.stays(&late(kind), "healthy", five, healthy).await),
    )
    .await;
    for kind in &KINDS {
        // Ten seconds lie between two reads for one doubt; a slow machine may have come to the second.
        let (reads, resource) = (team.gets(kind.resource), kind.resource);
        assert!((1..=2).contains(&reads), "{reads} reads of {resource} for one doubt");
    }

    // An answer that proves nothing fails nothing.
    let answers = [
        ("forbidden", Effect::forbidden()),
        ("throttled", Effect::too_many_requests()),
        ("unavailable", Effect::unavailable()),
        ("not-an-api", Effect::Text(404, "404 page not found\n")),
        ("garbage", Effect::Undecodable),
        ("broken", Effect::Refuse),
    ];
    let doubts = answers.map(|(name, answer)| {
        let get = Match::verb(Verb::Get).resource("jobs").namespace("team").name(name);
        (name, world.proxy.rules().add(get, answer).times(1))
    });
    for (name, _) in &doubts {
        team.submit_with(name, &[job(name, &[HOLD])], &PATIENT).await;
    }
    for (name, fault) in &doubts {
        team.reaches(name, "Running").await;
        let asked_again = async {
            while team.gets_of("jobs", name) < 2 {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(SOON, asked_again)
            .await
            .expect("the doubt is asked about again");
        assert_eq!(fault.hits(), 1);
        assert!(healthy(&team.get(name).await), "{name}");
    }

    // Once the cache has caught up, nothing is asked any more.
    for kind in &KINDS {
        world.proxy.rules().gate(kind.resource).release();
    }
    // The last of what was asked for before may still be under way.
    sleep(Duration::from_secs(2)).await;
    let before: usize = KINDS.iter().map(|kind| team.gets(kind.resource)).sum();
    join_all(KINDS.iter().map(async |kind| {
        team.stays(&late(kind), "healthy", Duration::from_secs(11), healthy)
            .await;
    }))
    .await;
    let after: usize = KINDS.iter().map(|kind| team.gets(kind.resource)).sum();
    assert_eq!(after - before, 0, "reads although every cache agrees");
    world.end().await;
}

/// The inversion: a confirmation that reads the cache makes the test above red.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_uncached_read_the_blind_cache_fails_healthy_workloads() {
    let world = World::start_inverted("inverted").await;
    let team = world.team("team").await;
    blind(&team).await;
    for kind in &KINDS {
        let failed = team.reaches(&late(kind), "Failed").await;
        assert_eq!(condition(&failed, "Unhealthy")["reason"], "MissingComponent");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_component_that_is_really_deleted_fails_its_appwrapper_at_once() {
    let world = World::start("deleted").await;
    let team = world.team("team").await;
    let cases: Vec<(&Wrapped, &str, String)> = KINDS
        .iter()
        .flat_map(|kind| {
            ["background", "foreground", "orphan"].map(|policy| (kind, policy, format!("{}-{policy}", kind.resource)))
        })
        .collect();
    // Orphaned pods are nobody's to take away in time.
    let annotations = [("forcefulDeletionGracePeriodDuration", "5s"), PATIENT[0]];
    for (kind, _, name) in &cases {
        let components = [(kind.component)(name), service(name)];
        team.submit_with(name, &components, &annotations).await;
        if let Some(template) = kind.pods {
            team.operate(kind.api_version, kind.kind, name, template, 1).await;
        }
    }
    for (.., name) in &cases {
        team.until(name, "ready", |wrapper| is_true(wrapper, "PodsReady")).await;
    }

    let mut times = Vec::new();
    for (kind, policy, name) in &cases {
        let mut deleted = None;
        let failed = |wrapper: &Value| phase(wrapper) == "Failed";
        let delete = async {
            deleted = Some(Instant::now());
            team.delete(kind.api_version, kind.kind, name, policy).await;
        };
        let (wrapper, ()) = tokio::join!(team.until(name, "Failed", failed), delete);
        times.push(deleted.unwrap().elapsed());
        let unhealthy = condition(&wrapper, "Unhealthy");
        assert_eq!(unhealthy["status"], "True");
        assert_eq!(unhealthy["reason"], "MissingComponent");
        assert_eq!(
            unhealthy["message"],
            "Only found 1 deployed components, but was expecting 2"
        );
        assert_eq!(retries(&wrapper), 0);
    }
    times.sort();
    println!("from the deletion to Failed: {times:?}");
    assert!(times[times.len() / 2] < Duration::from_secs(1), "{times:?}");

    for (.., name) in &cases {
        team.until(name, "the quota is given back", |wrapper| {
            condition(wrapper, "QuotaReserved")["status"] == "False"
                && condition(wrapper, "ResourcesDeployed")["status"] == "False"
        })
        .await;
        team.until_gone("v1", "Service", name).await;
        team.until_event(name, "Unhealthy", "MissingComponent").await;
    }
    let verdicts = world.count("appwrapper_missing_component_verdicts_total", &[]).await;
    assert_eq!(verdicts, cases.len() as u64);
    world.end().await;
}
