//! AppWrappers as the Go controller leaves them, and what is to become of each.

use appwrapper_tests::components::{HOLD, job};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::{Move, TEAM};

/// One AppWrapper around one Job, which bears its name.
pub struct Left {
    /// Its name, which says where it was left.
    pub name: &'static str,
    /// The phase that it was left in.
    phase: &'static str,
    suspend: bool,
    /// The condition of its component; none if it was not begun.
    component: Option<&'static str>,
    /// Whether its Job is there.
    has_job: bool,
    /// Conditions that are true.
    is: &'static [&'static str],
    deleted: bool,
    /// The phase that it comes to; empty if it goes.
    comes_to: &'static str,
    job: Job,
}

/// What is to become of the Job.
#[derive(PartialEq, Eq)]
enum Job {
    Absent,
    Kept,
    Made,
}

const QUOTA: &str = "QuotaReserved";
const DEPLOYED: &str = "ResourcesDeployed";
const READY: &str = "PodsReady";
const UNHEALTHY: &str = "Unhealthy";

const NOTHING: Left = Left {
    name: "",
    phase: "",
    suspend: false,
    component: None,
    has_job: false,
    is: &[],
    deleted: false,
    comes_to: "",
    job: Job::Absent,
};

/// All of them.
pub const LEFT: [Left; 10] = [
    Left {
        name: "new",
        comes_to: "Running",
        job: Job::Made,
        ..NOTHING
    },
    Left {
        name: "suspended",
        phase: "Suspended",
        suspend: true,
        comes_to: "Suspended",
        ..NOTHING
    },
    Left {
        name: "resuming",
        phase: "Resuming",
        component: Some("Unknown"),
        has_job: true,
        is: &[QUOTA, DEPLOYED],
        comes_to: "Running",
        job: Job::Kept,
        ..NOTHING
    },
    Left {
        name: "running",
        phase: "Running",
        component: Some("True"),
        has_job: true,
        is: &[QUOTA, DEPLOYED, READY],
        comes_to: "Running",
        job: Job::Kept,
        ..NOTHING
    },
    Left {
        name: "resetting",
        phase: "Resetting",
        component: Some("True"),
        has_job: true,
        is: &[QUOTA, DEPLOYED, UNHEALTHY],
        comes_to: "Running",
        job: Job::Made,
        ..NOTHING
    },
    Left {
        name: "suspending",
        phase: "Suspending",
        suspend: true,
        component: Some("True"),
        has_job: true,
        is: &[QUOTA, DEPLOYED],
        comes_to: "Suspended",
        ..NOTHING
    },
    Left {
        name: "succeeded",
        phase: "Succeeded",
        component: Some("True"),
        has_job: true,
        is: &[DEPLOYED],
        comes_to: "Succeeded",
        job: Job::Kept,
        ..NOTHING
    },
    Left {
        name: "failed",
        phase: "Failed",
        component: Some("True"),
        has_job: true,
        is: &[QUOTA, DEPLOYED, UNHEALTHY],
        comes_to: "Failed",
        ..NOTHING
    },
    Left {
        name: "failed-before",
        phase: "Failed",
        is: &[UNHEALTHY],
        comes_to: "Failed",
        ..NOTHING
    },
    Left {
        name: "terminating",
        phase: "Terminating",
        component: Some("True"),
        has_job: true,
        is: &[QUOTA, DEPLOYED],
        deleted: true,
        ..NOTHING
    },
];

/// Retries that it has behind it; kept for good.
const RETRIES: u32 = 1;

impl Left {
    /// Writes it, and its Job, as the Go controller would have.
    pub async fn leave(&self, move_: &Move) {
        let began = !self.phase.is_empty() && self.phase != "Suspended";
        let mut wrapper = json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
            "metadata": {
                "name": self.name, "namespace": TEAM,
                "annotations": {"workload.codeflare.dev.appwrapper/retryPausePeriodDuration": "1s"},
                "labels": {"workload.codeflare.dev/user": "alice", "workload.codeflare.dev/userid": "42"},
            },
            "spec": {"suspend": self.suspend, "components": [job(self.name, &[HOLD])]},
        });
        if began {
            wrapper["metadata"]["finalizers"] = json!(["workload.codeflare.dev/finalizer"]);
        }
        let created = create(move_, &wrapper).await;
        if self.has_job {
            let mut object = wrapper["spec"]["components"][0]["template"].clone();
            let label = json!({"workload.codeflare.dev/appwrapper": self.name});
            object["metadata"]["namespace"] = json!(TEAM);
            object["metadata"]["labels"] = label.clone();
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": self.name,
                "uid": created["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
            }]);
            object["spec"]["template"]["metadata"]["labels"] = label;
            create(move_, &object).await;
            let running = format!("job/{}", self.name);
            let wait = [
                "wait",
                &running,
                "-n",
                TEAM,
                "--for=jsonpath={.status.ready}=1",
                "--timeout=60s",
            ];
            move_.kubectl(&wait).await.unwrap();
        }
        if !self.phase.is_empty() {
            let patch = json!({"status": self.status()}).to_string();
            let write = [
                "patch",
                "appwrapper",
                self.name,
                "-n",
                TEAM,
                "--subresource=status",
                "--type=merge",
                "-p",
                &patch,
            ];
            move_.kubectl(&write).await.unwrap();
        }
        if self.deleted {
            move_
                .kubectl(&["delete", "appwrapper", self.name, "-n", TEAM, "--wait=false"])
                .await
                .unwrap();
        }
    }

    fn status(&self) -> Value {
        let time = format!("{:.0}", Timestamp::now());
        let condition = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": time});
        let conditions = if self.phase == "Suspended" {
            json!([])
        } else {
            let all = [QUOTA, DEPLOYED, READY, UNHEALTHY];
            let of = |name: &&str| condition(name, if self.is.contains(name) { "True" } else { "False" }, self.phase);
            all.iter().map(of).collect()
        };
        let pod_sets = json!([{"replicas": 1, "path": "template.spec.template"}]);
        let component = match self.component {
            None => json!({"name": "", "kind": "", "apiVersion": "", "podSets": pod_sets}),
            Some(status) => json!({
                "name": self.name, "kind": "Job", "apiVersion": "batch/v1", "podSets": pod_sets,
                "conditions": [condition(DEPLOYED, status, "ComponentCreationInitiated")],
            }),
        };
        json!({
            "phase": self.phase, "resettingCount": RETRIES, "conditions": conditions, "componentStatus": [component],
        })
    }

    /// Waits until it is where it should be, with the Job that it should have.
    pub async fn is_taken_over(&self, move_: &Move) {
        let what = format!("{} comes to {:?}", self.name, self.comes_to);
        move_
            .until(&what, async || {
                let now = self.now(move_).await;
                let job = move_.get("job", self.name, TEAM).await;
                now["status"]["phase"].as_str().unwrap_or_default() == self.comes_to
                    && job.is_null() == (self.job == Job::Absent)
                    && now.is_null() == self.deleted
            })
            .await;
        let now = self.now(move_).await;
        let job = move_.get("job", self.name, TEAM).await;
        // A Job that the Go controller made has no slot; ours gives one to each that it makes.
        let is_ours = !job["metadata"]["labels"]["workload.codeflare.dev/slot"].is_null();
        match self.job {
            Job::Kept => assert!(!is_ours, "{}: made again: {job:#}", self.name),
            Job::Made => assert!(is_ours, "{}: not made: {job:#}", self.name),
            Job::Absent => {}
        }
        if !self.deleted && !self.phase.is_empty() {
            assert_eq!(now["status"]["resettingCount"], RETRIES, "{}: {now:#}", self.name);
        }
        if self.job == Job::Kept && self.comes_to == "Running" {
            let selector = format!("job-name={}", self.name);
            let restarted = ["get", "pods", "-n", TEAM, "-l", &selector, "-o", "name"];
            assert_eq!(
                move_.kubectl(&restarted).await.unwrap().lines().count(),
                1,
                "{}",
                self.name
            );
        }
    }
}

async fn create(move_: &Move, object: &Value) -> Value {
    let path = move_.cluster.dir().join("object.json");
    std::fs::write(&path, object.to_string()).unwrap();
    let file = path.to_string_lossy().into_owned();
    let created = move_.kubectl(&["create", "-f", &file, "-o", "json"]).await.unwrap();
    serde_json::from_str(&created).unwrap()
}
