//! Moving from the Go controller to ours, and back, with AppWrappers in each phase as it would have left them.
//!
//! Its installation is described by `go-controller.yaml`; its program does not run. What it would have written is written here:
//! statuses, Jobs, the certificate in the webhook configurations, and the renewals of its Lease.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod go;
mod left;

use std::path::{Path, PathBuf};
use std::time::Duration;

use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use appwrapper_testkit::controller::{Controller, ControllerOptions};
use appwrapper_tests::world::SOON;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use go::GoController;
use left::{LEFT, Left};

const OVERLAY: &str = "deploy/overlays/default";
const ITS_INSTALLATION: &str = "tests/tests/moving/go-controller.yaml";
const NAMESPACE: &str = "appwrapper-system";
const TEAM: &str = "team";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_appwrapper_is_taken_over_where_it_was_left_and_the_way_back_is_open() {
    let move_ = Move::begin().await;
    let its = GoController::start(&move_).await;

    // In the order of the manual, but for its first step, which is forgotten: its controller still runs.
    move_.kubectl(&["apply", "--server-side", "-k", OVERLAY]).await.unwrap();
    move_.nothing_of_it_is_left_in_what_was_replaced().await;
    // On a cluster where no container runs, no webhook answers, and missing slots could not be filled in.
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        move_.kubectl(&["delete", kind, "--all"]).await.unwrap();
    }
    let before = move_.wrappers().await;
    let controller = {
        let mut starting = std::pin::pin!(Controller::start(&move_.cluster, ControllerOptions::default()));
        tokio::select! {
            started = &mut starting => panic!("works beside the other: {:?}", started.map(|one| one.log_tail())),
            () = sleep(Duration::from_secs(8)) => {}
        }
        assert_eq!(
            before,
            move_.wrappers().await,
            "something was done beside the other controller"
        );
        its.stop();
        starting.await.unwrap()
    };
    for left in &LEFT {
        left.is_taken_over(&move_).await;
    }
    controller.stop().await.unwrap();

    // And back: ours scaled to 0, its manifests applied again.
    for deployment in ["appwrapper-controller-manager", "appwrapper-webhook"] {
        let scale = ["scale", "deployment", deployment, "-n", NAMESPACE, "--replicas=0"];
        move_.kubectl(&scale).await.unwrap();
    }
    move_
        .kubectl(&["apply", "--server-side", "--force-conflicts", "-f", ITS_INSTALLATION])
        .await
        .unwrap();
    move_.its_installation_is_as_it_was().await;
    move_.cluster.stop().await.unwrap();
}

/// The cluster on which it happens.
pub struct Move {
    /// With all rights.
    pub cluster: Cluster,
}

impl Move {
    /// A cluster with its installation and what it has left.
    async fn begin() -> Self {
        let move_ = Self {
            cluster: Cluster::start(ClusterOptions::unique("moving")).await.unwrap(),
        };
        move_
            .kubectl(&["apply", "--server-side", "-f", "deploy/crd/appwrappers.yaml"])
            .await
            .unwrap();
        let crd = "crd/appwrappers.workload.codeflare.dev";
        move_
            .kubectl(&["wait", crd, "--for=condition=Established", "--timeout=60s"])
            .await
            .unwrap();
        move_.kubectl(&["create", "namespace", TEAM]).await.unwrap();
        // No pod can be created without it.
        let account = ["get", "serviceaccount", "default", "-n", TEAM];
        move_
            .until("the account of the team is there", async || {
                move_.kubectl(&account).await.is_ok()
            })
            .await;
        for left in &LEFT {
            left.leave(&move_).await;
        }
        // Last: its webhook does not run, and would refuse everything.
        move_
            .kubectl(&["apply", "--server-side", "-f", ITS_INSTALLATION])
            .await
            .unwrap();
        move_
    }

    /// Runs kubectl in the root of the repository.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.cluster.kubectl().unwrap();
        let output = command
            .args(arguments)
            .current_dir(repository())
            .output()
            .await
            .unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// An object as JSON; null if it is not there.
    pub async fn get(&self, kind: &str, name: &str, namespace: &str) -> Value {
        let found = self.kubectl(&["get", kind, name, "-n", namespace, "-o", "json"]).await;
        found.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let until = Instant::now() + SOON;
        while !holds().await {
            let late = Instant::now() >= until;
            assert!(!late, "not in time: {what}\n{}", self.state().await);
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn state(&self) -> String {
        let all = ["get", "appwrappers,jobs,pods", "-n", TEAM, "-o", "yaml"];
        self.kubectl(&all).await.unwrap_or_else(|error| error)
    }

    /// All AppWrappers, Jobs and pods, with their versions.
    async fn wrappers(&self) -> String {
        let columns = "-o=custom-columns=K:.kind,N:.metadata.name,V:.metadata.resourceVersion";
        self.kubectl(&["get", "appwrappers,jobs,pods", "-n", TEAM, columns])
            .await
            .unwrap()
    }

    /// An applied manifest takes away what the last one of the same applier had and it has not, unless somebody else has
    /// written there too, as the Go controller does.
    async fn nothing_of_it_is_left_in_what_was_replaced(&self) {
        let webhooks = [
            (
                "mutatingwebhookconfiguration",
                "appwrapper-mutating-webhook-configuration",
            ),
            (
                "validatingwebhookconfiguration",
                "appwrapper-validating-webhook-configuration",
            ),
        ];
        for (kind, name) in webhooks {
            let configuration = self.get(kind, name, "").await;
            let hooks = configuration["webhooks"].as_array().unwrap();
            let names: Vec<&Value> = hooks.iter().map(|hook| &hook["name"]).collect();
            assert_eq!(names.len(), 1, "{names:?}");
            assert!(
                names[0]
                    .as_str()
                    .unwrap()
                    .ends_with("appwrapper.workload.codeflare.dev"),
                "{names:?}"
            );
        }
        let deployment = self.get("deployment", "appwrapper-controller-manager", NAMESPACE).await;
        assert_eq!(deployment["spec"]["replicas"], 3);
        let spec = &deployment["spec"]["template"]["spec"];
        let containers = spec["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1, "{spec:#}");
        assert_eq!(containers[0]["command"], json!(["/appwrapper-controller"]), "{spec:#}");
        assert!(containers[0]["resources"]["limits"]["cpu"].is_null(), "{spec:#}");
        let ports: Vec<&Value> = containers[0]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|port| &port["name"])
            .collect();
        assert_eq!(ports, ["health", "metrics"], "{spec:#}");
        assert!(
            !spec["volumes"].to_string().contains("appwrapper-webhook-server-cert"),
            "{spec:#}"
        );
        let service = self.get("service", "appwrapper-webhook-service", NAMESPACE).await;
        assert_eq!(service["spec"]["selector"], json!({"control-plane": "webhook"}));
        assert_eq!(service["spec"]["ports"].as_array().unwrap().len(), 1, "{service:#}");
        let role = self.get("clusterrole", "appwrapper-manager-role", "").await;
        assert!(!role["rules"].to_string().contains("secrets"), "{role:#}");
    }

    async fn its_installation_is_as_it_was(&self) {
        let deployment = self.get("deployment", "appwrapper-controller-manager", NAMESPACE).await;
        assert_eq!(deployment["spec"]["replicas"], 1);
        let containers = &deployment["spec"]["template"]["spec"]["containers"];
        assert_eq!(containers.as_array().unwrap().len(), 1, "{containers:#}");
        assert_eq!(containers[0]["command"], json!(["/manager"]), "{containers:#}");
        let service = self.get("service", "appwrapper-webhook-service", NAMESPACE).await;
        assert_eq!(
            service["spec"]["selector"],
            json!({"control-plane": "controller-manager"})
        );
        let configuration = self.get("configmap", "appwrapper-operator-config", NAMESPACE).await;
        assert!(
            configuration["data"]["config.yaml"]
                .as_str()
                .unwrap()
                .contains("90000000000")
        );
        let hooks = self
            .get(
                "validatingwebhookconfiguration",
                "appwrapper-validating-webhook-configuration",
                "",
            )
            .await;
        let names: Vec<&Value> = hooks["webhooks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hook| &hook["name"])
            .collect();
        assert_eq!(names, ["vappwrapper.kb.io"]);
        // Free to take.
        let lease = self.get("lease", go::LEASE, NAMESPACE).await;
        assert!(
            lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty(),
            "{lease:#}"
        );
    }
}

/// The root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl Left {
    /// The AppWrapper as it is now; null if it is gone.
    async fn now(&self, move_: &Move) -> Value {
        move_.get("appwrapper", self.name, TEAM).await
    }
}
