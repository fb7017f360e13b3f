//! What happens to pods on a real cluster, under load: updates, evictions, kills, too little memory.

use std::time::Duration;

use appwrapper_testkit::real_node::NODE;
use serde_json::Value;

use crate::installation::{Installation, NAMESPACE, WORKLOADS, is_ready};
use crate::load::Load;

/// Shards that are handed over wait for no Lease to run out.
const HANDED_OVER: Duration = Duration::from_secs(10);
/// Those of a replica that ends without a word do, and are then listed anew; on a machine with other work too.
const TAKEN_OVER: Duration = Duration::from_secs(30);
/// How long the failure of one webhook container may refuse a new AppWrapper: until its endpoint is withdrawn.
const WITHDRAWAL: Duration = Duration::from_secs(5);

pub async fn a_rolling_update_refuses_and_fails_nothing(installation: &Installation) {
    let load = Load::start(installation, "rolling-update").await;
    installation
        .kubectl(&["rollout", "restart", "deployment", "-n", NAMESPACE])
        .await;
    installation.settled().await;
    let outcome = load.end("rolling update of both workloads").await;
    assert!(outcome.refused.is_empty());
    assert!(outcome.longest < HANDED_OVER, "{:?}", outcome.longest);
}

pub async fn a_drain_stops_where_the_budgets_say(installation: &Installation) {
    let load = Load::start(installation, "drain").await;
    // There is no other node, so that the pods which are evicted cannot come back and the drain cannot be completed.
    let selector = "--pod-selector=app.kubernetes.io/name=appwrapper";
    let drain = [
        "drain",
        NODE,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        selector,
        "--timeout=25s",
    ];
    let drained = installation.try_kubectl(&drain).await.unwrap_err();
    assert!(drained.contains("disruption budget"), "{drained}");
    for (workload, _) in WORKLOADS {
        let ready = installation
            .pods(workload)
            .await
            .iter()
            .filter(|pod| is_ready(pod))
            .count();
        assert_eq!(ready, 2, "{workload}");
    }
    installation.kubectl(&["uncordon", NODE]).await;
    installation.settled().await;
    let outcome = load.end("drain against the budgets").await;
    assert!(outcome.refused.is_empty());
    assert!(outcome.longest < HANDED_OVER, "{:?}", outcome.longest);
}

pub async fn every_container_can_be_killed(installation: &Installation) {
    for (workload, _) in WORKLOADS {
        let load = Load::start(installation, &format!("killing-{workload}")).await;
        for pod in installation.pods(workload).await {
            installation.node.kill_container(container(&pod)).await.unwrap();
            restarted(installation, workload, &pod).await;
            installation.settled().await;
        }
        let outcome = load.end(&format!("SIGKILL of each container of {workload}")).await;
        if workload == "webhook" {
            refused_briefly(&outcome.refused);
        } else {
            assert!(outcome.refused.is_empty());
        }
        assert!(outcome.longest < TAKEN_OVER, "{:?}", outcome.longest);
    }
}

pub async fn a_controller_that_runs_out_of_memory_comes_back(installation: &Installation) {
    let (workload, _) = WORKLOADS[0];
    let load = Load::start(installation, "out-of-memory").await;
    let pod = installation.pods(workload).await.remove(0);
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    installation.node.exhaust_memory(uid, container(&pod)).await.unwrap();
    let ended = restarted(installation, workload, &pod).await;
    assert_eq!(ended["reason"], "OOMKilled", "{ended:#}");
    installation.settled().await;
    let outcome = load.end("a controller killed for its memory").await;
    assert!(outcome.refused.is_empty());
    assert!(outcome.longest < TAKEN_OVER, "{:?}", outcome.longest);
}

/// Waits until the container of a pod has been started again; says how it ended.
async fn restarted(installation: &Installation, workload: &str, pod: &Value) -> Value {
    let before = &pod["status"]["containerStatuses"][0]["restartCount"];
    let find = async || {
        let pods = installation.pods(workload).await;
        let found = pods
            .into_iter()
            .find(|one| one["metadata"]["uid"] == pod["metadata"]["uid"]);
        found.map_or(Value::Null, |pod| pod["status"]["containerStatuses"][0].clone())
    };
    installation
        .until("a killed container is started again", async || {
            find().await["restartCount"].as_u64() > before.as_u64()
        })
        .await;
    find().await["lastState"]["terminated"].clone()
}

fn container(pod: &Value) -> &str {
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap();
    id.strip_prefix("containerd://").unwrap()
}

/// A webhook that dies without a word is called until its endpoint is withdrawn, and no manifest can change that.
fn refused_briefly(refused: &[(Duration, String)]) {
    for (at, why) in refused {
        assert!(why.contains("failed calling webhook"), "{why}");
        let burst = refused
            .iter()
            .filter(|(other, _)| other.abs_diff(*at) < Duration::from_secs(10));
        let times: Vec<Duration> = burst.map(|(at, _)| *at).collect();
        let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!(last.abs_diff(*first) < WITHDRAWAL, "{refused:?}");
    }
}
