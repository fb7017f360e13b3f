//! Installing, installing again, uninstalling.

use std::time::Instant;

use serde_json::{Value, json};

use crate::installation::{Installation, NAMESPACE, OVERLAY, WORKLOADS, is_ready, versions};

pub async fn the_image_is_as_small_as_it_should_be(installation: &Installation) {
    let config = &installation.image["config"];
    assert_eq!(config["User"], "65532:65532", "{config:#}");
    assert_eq!(config["Entrypoint"], json!(["/appwrapper-controller"]), "{config:#}");
    assert!(config["Cmd"].is_null(), "{config:#}");
    assert_eq!(
        config["Labels"]["org.opencontainers.image.title"], "appwrapper",
        "{config:#}"
    );
    assert_eq!(
        config["Labels"]["org.opencontainers.image.licenses"], "Apache-2.0",
        "{config:#}"
    );
}

pub async fn one_command_installs_on_an_empty_cluster(installation: &Installation) {
    let started = Instant::now();
    installation.kubectl(&["apply", "--server-side", "-k", OVERLAY]).await;
    installation.settled().await;
    println!(
        "measured: installed and ready in {:.1} s",
        started.elapsed().as_secs_f32()
    );

    for (workload, _) in WORKLOADS {
        let pods = installation.pods(workload).await;
        assert_eq!(pods.len(), 3, "{workload}");
        for pod in &pods {
            assert!(is_ready(pod));
            assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{pod:#}");
        }
    }
    let events = installation.get(&["events", "-n", NAMESPACE]).await;
    // There is no DNS; and a probe may come before a program listens.
    let expected = ["MissingClusterDNS", "Unhealthy"].map(Value::from);
    let worrying = |event: &&Value| {
        event["type"] == "Warning" && event["involvedObject"]["kind"] == "Pod" && !expected.contains(&event["reason"])
    };
    let worrying: Vec<_> = events["items"].as_array().unwrap().iter().filter(worrying).collect();
    assert!(worrying.is_empty(), "{worrying:#?}");
}

pub async fn a_second_apply_changes_nothing(installation: &Installation) {
    let before = everything_applied(installation).await;
    installation.kubectl(&["apply", "--server-side", "-k", OVERLAY]).await;
    let after = everything_applied(installation).await;
    assert_eq!(versions(&before), versions(&after));
    assert!(before.len() > 20, "{}", before.len());
}

pub async fn uninstalling_leaves_nothing_behind(installation: &Installation) {
    installation
        .kubectl(&["delete", "appwrappers", "--all", "-A", "--timeout=120s"])
        .await;
    installation.kubectl(&["delete", "-k", OVERLAY, "--timeout=180s"]).await;
    let kinds = async |options: &[&str]| {
        let listed = installation
            .kubectl(&[&["api-resources", "--verbs=list", "-o", "name"], options].concat())
            .await;
        let kinds: Vec<&str> = listed.lines().filter(|kind| !kind.starts_with("events")).collect();
        kinds.join(",")
    };
    let everywhere = installation
        .kubectl(&["get", &kinds(&[]).await, "-A", "-o", "name"])
        .await;
    let ours = everywhere
        .lines()
        .filter(|name| name.contains("appwrapper") || name.contains("codeflare"));
    let namespaced = kinds(&["--namespaced=true"]).await;
    let inside = installation
        .kubectl(&["get", &namespaced, "-n", NAMESPACE, "-o", "name"])
        .await;
    let left: Vec<&str> = ours.chain(inside.lines()).collect();
    assert!(left.is_empty(), "{left:#?}");
}

/// The objects of the overlay as they are, without those whose purpose is to be written all the time.
async fn everything_applied(installation: &Installation) -> Vec<Value> {
    let objects = installation.get(&["-k", OVERLAY]).await;
    let objects = objects["items"].as_array().unwrap().iter();
    objects.filter(|object| object["kind"] != "Lease").cloned().collect()
}
