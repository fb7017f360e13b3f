//! A real node with the project's image on it, and what an administrator does there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use appwrapper_testkit::controller::program;
use appwrapper_testkit::image::{Builder, PROJECT_IMAGE};
use appwrapper_testkit::real_node::RealNode;
use appwrapper_tests::suite::Shared;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// Where the manifests put everything.
pub const NAMESPACE: &str = "appwrapper-system";
/// The overlay that is tested.
pub const OVERLAY: &str = "deploy/overlays/default";
/// The two workloads, by the value of their pods' label `control-plane`.
pub const WORKLOADS: [(&str, &str); 2] = [
    ("controller-manager", "appwrapper-controller-manager"),
    ("webhook", "appwrapper-webhook"),
];

/// A node, and the image.
pub struct Installation {
    pub node: RealNode,
    /// What the image says of itself.
    pub image: Value,
}

impl Shared for Installation {
    /// They disturb each other.
    const AT_ONCE: usize = 1;

    async fn start(name: &'static str) -> Self {
        let node = RealNode::start(&format!("{name}-{}", std::process::id()), false)
            .await
            .unwrap();
        let builder = Builder::in_folder(node.dir().join("project-image"));
        let programs = ["appwrapper-controller", "appwrapper-webhook"].map(program);
        let archive = builder.build_project(&programs).await.unwrap();
        node.import(&archive).await.unwrap();
        let image = builder.describe(PROJECT_IMAGE).await.unwrap();
        Self { node, image }
    }

    async fn end(self) {
        self.node.stop();
    }
}

impl Installation {
    /// Runs kubectl in the root of the repository; says what it prints, or why it failed.
    pub async fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.node.kubectl().unwrap();
        let command = command.args(arguments).current_dir(repository()).kill_on_drop(true);
        let output = command.output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr) + &text(&output.stdout))
        }
    }

    /// Runs kubectl, which must succeed.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        match self.try_kubectl(arguments).await {
            Ok(text) => text,
            Err(error) => panic!("kubectl {}: {error}\n{}", arguments.join(" "), self.state().await),
        }
    }

    /// An object, or a list of them, as JSON.
    pub async fn get(&self, arguments: &[&str]) -> Value {
        let text = self.kubectl(&[&["get", "-o", "json"], arguments].concat()).await;
        serde_json::from_str(&text).unwrap()
    }

    /// The pods of a workload that are not ending.
    pub async fn pods(&self, workload: &str) -> Vec<Value> {
        let selector = format!("control-plane={workload}");
        let list = self.get(&["pods", "-n", NAMESPACE, "-l", &selector]).await;
        let pods = list["items"].as_array().unwrap().iter();
        pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
            .cloned()
            .collect()
    }

    /// Waits until both workloads are complete and settled.
    pub async fn settled(&self) {
        for (_, deployment) in WORKLOADS {
            let name = format!("deployment/{deployment}");
            self.kubectl(&["rollout", "status", &name, "-n", NAMESPACE, "--timeout=240s"])
                .await;
        }
        // A container that was killed is back before its pod is ready, and a rollout says nothing of that.
        self.until("every replica is ready", async || {
            let mut ready = 0;
            for (workload, _) in WORKLOADS {
                ready += self.pods(workload).await.iter().filter(|pod| is_ready(pod)).count();
            }
            ready == 6
        })
        .await;
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let until = Instant::now() + Duration::from_secs(120);
        while !holds().await {
            let late = Instant::now() >= until;
            assert!(!late, "not in time: {what}\n{}", self.state().await);
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// What somebody who looks for a fault would look at first.
    pub async fn state(&self) -> String {
        let mut state = String::new();
        for arguments in [
            &["get", "pods,appwrappers", "-A", "-o", "wide"][..],
            &["get", "events", "-A", "--field-selector=type=Warning"],
            &[
                "logs",
                "-n",
                NAMESPACE,
                "-l",
                "app.kubernetes.io/name=appwrapper",
                "--prefix",
                "--tail=5",
            ],
        ] {
            state += &self.try_kubectl(arguments).await.unwrap_or_else(|error| error);
            state.push('\n');
        }
        state
    }
}

/// Whether a pod is ready.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut conditions = conditions.filter(|one| one["type"] == "Ready");
    conditions.any(|one| one["status"] == "True")
}

/// The names of objects with their versions.
pub fn versions(list: &[Value]) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = list.iter().map(|object| {
        let metadata = &object["metadata"];
        let name = format!("{} {}", text(&object["kind"]), text(&metadata["name"]));
        (name, text(&metadata["resourceVersion"]))
    });
    entries.collect()
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
