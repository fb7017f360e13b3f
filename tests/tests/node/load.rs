//! A steady stream of AppWrappers, some of which stay, while something else is done to the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use appwrapper_api::{API_VERSION, KIND};
use futures::TryStreamExt as _;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::installation::Installation;

/// Time between two submissions.
const PERIOD: Duration = Duration::from_millis(400);
/// How many AppWrappers have a pod that runs all the time.
const RESIDENTS: usize = 3;
/// How long the last ones may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stream under way.
pub struct Load<'i> {
    installation: &'i Installation,
    namespace: String,
    residents: Vec<String>,
    stop: CancellationToken,
    task: JoinHandle<Outcome>,
}

/// What has become of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many were submitted and accepted.
    pub accepted: usize,
    /// When submissions were refused, from the start, and why.
    pub refused: Vec<(Duration, String)>,
    /// The longest time from acceptance to the end.
    pub longest: Duration,
    /// The longest time in which none came to its end.
    pub gap: Duration,
}

impl<'i> Load<'i> {
    /// Begins, in a namespace of its own, once the residents run.
    pub async fn start(installation: &'i Installation, namespace: &str) -> Self {
        installation.kubectl(&["create", "namespace", namespace]).await;
        let wrappers = wrappers(installation.node.client(), namespace);
        for index in 0..RESIDENTS {
            let name = format!("resident-{index}");
            let create = wrappers
                .create(&PostParams::default(), &object(&name, &sleeper(&name)))
                .await;
            create.unwrap();
        }
        installation
            .kubectl(&[
                "wait",
                "-n",
                namespace,
                "appwrapper",
                "--all",
                "--for=condition=PodsReady",
                "--timeout=60s",
            ])
            .await;
        let stop = CancellationToken::new();
        let task = tokio::spawn(submit(wrappers, stop.clone()));
        let mut load = Self {
            installation,
            namespace: namespace.to_owned(),
            residents: Vec::new(),
            stop,
            task,
        };
        load.residents = load.pods().await;
        assert_eq!(load.residents.len(), RESIDENTS);
        load
    }

    /// Ends it; nothing may have failed and no resident may have been touched.
    pub async fn end(self, what: &str) -> Outcome {
        self.stop.cancel();
        let residents = self.pods().await;
        let outcome = self.task.await.unwrap();
        println!(
            "measured: {what}: {} accepted, {} refused, 0 failed; longest wait {:.1} s, longest gap {:.1} s",
            outcome.accepted,
            outcome.refused.len(),
            outcome.longest.as_secs_f32(),
            outcome.gap.as_secs_f32()
        );
        assert!(outcome.accepted > 0);
        for (at, why) in outcome.refused.iter().take(10) {
            println!("refused after {:.1} s: {why}", at.as_secs_f32());
        }
        assert_eq!(residents, self.residents, "a resident was restarted");
        self.installation
            .kubectl(&["delete", "namespace", &self.namespace, "--timeout=120s"])
            .await;
        outcome
    }

    /// The uids of the residents' pods.
    async fn pods(&self) -> Vec<String> {
        let list = self.installation.get(&["pods", "-n", &self.namespace]).await;
        let uids = list["items"].as_array().unwrap().iter();
        let mut uids: Vec<String> = uids
            .map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned())
            .collect();
        uids.sort();
        uids
    }
}

/// Submits until told to stop, and follows each to its end.
async fn submit(wrappers: Api<DynamicObject>, stop: CancellationToken) -> Outcome {
    let mut outcome = Outcome::default();
    let started = Instant::now();
    let mut waiting: BTreeMap<String, Instant> = BTreeMap::new();
    let mut last_end = started;
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let changes = watcher(wrappers.clone(), watcher::Config::default())
        .default_backoff()
        .applied_objects();
    let mut changes = std::pin::pin!(changes);
    let mut number = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = ticks.tick() => {
                number += 1;
                let name = format!("load-{number}");
                match wrappers.create(&PostParams::default(), &object(&name, &nothing_to_run(&name))).await {
                    Ok(_) => {
                        outcome.accepted += 1;
                        waiting.insert(name, Instant::now());
                    }
                    Err(error) => outcome.refused.push((started.elapsed(), error.to_string())),
                }
            }
            change = changes.try_next() => ended(change, &mut waiting, &mut outcome, &mut last_end),
        }
    }
    while !waiting.is_empty() {
        let change = timeout(PATIENCE, changes.try_next()).await;
        let change = change.unwrap_or_else(|_| panic!("not in time: {:?} end", waiting.keys()));
        ended(change, &mut waiting, &mut outcome, &mut last_end);
    }
    outcome
}

fn ended(
    change: Result<Option<DynamicObject>, watcher::Error>,
    waiting: &mut BTreeMap<String, Instant>,
    outcome: &mut Outcome,
    last_end: &mut Instant,
) {
    // A watch that breaks begins anew by itself.
    let Ok(Some(wrapper)) = change else { return };
    let status = &wrapper.data["status"];
    assert!(status["phase"] != "Failed", "{} failed: {status:#}", wrapper.name_any());
    if status["phase"] == "Succeeded"
        && let Some(since) = waiting.remove(&wrapper.name_any())
    {
        outcome.longest = outcome.longest.max(since.elapsed());
        outcome.gap = outcome.gap.max(last_end.elapsed());
        *last_end = Instant::now();
    }
}

fn wrappers(client: Client, namespace: &str) -> Api<DynamicObject> {
    let (group, version) = API_VERSION.split_once('/').unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, KIND));
    Api::namespaced_with(client, namespace, &resource)
}

fn object(name: &str, template: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": {"name": name},
        "spec": {"components": [{"template": template}]},
    });
    serde_json::from_value(object).unwrap()
}

/// Succeeds as soon as it is seen, since it is to have no pod.
fn nothing_to_run(name: &str) -> Value {
    let labels = json!({"app": name});
    let pod =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "none", "image": "busybox:1.37"}]}});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": pod});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
}

fn sleeper(name: &str) -> Value {
    let container = json!({
        "name": "work", "image": "busybox:1.37", "command": ["sleep", "3600"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    });
    let pod =
        json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": pod}})
}
