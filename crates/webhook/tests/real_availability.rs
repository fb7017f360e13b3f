//! Applies under load on a real kube-apiserver while replicas roll, certificates and authorities change, and one replica is
//! killed. Skipped, with a line that says so, where the programs of a control plane are not at hand.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use appwrapper_testkit::{
    cluster::{Cluster, ClusterOptions, Component},
    controller::{self, Controller, ControllerOptions},
};
use common::{component, live::*, pod};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

const SECRET: &str = "appwrapper-webhook-server-cert";

/// How long applies go on while everything changes, and how many there are a second.
const LOAD: Duration = Duration::from_secs(60);
const APPLIES_A_SECOND: u32 = 50;

/// Kinds of which each apply wraps one beside its Pod.
const KINDS: [(&str, &str); 20] = [
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "LimitRange"),
    ("v1", "ResourceQuota"),
    ("v1", "PodTemplate"),
    ("v1", "Endpoints"),
    ("v1", "ReplicationController"),
    ("apps/v1", "ControllerRevision"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("batch/v1", "CronJob"),
    ("coordination.k8s.io/v1", "Lease"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("networking.k8s.io/v1", "Ingress"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("policy/v1", "PodDisruptionBudget"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_apply_is_refused_while_controllers_die_replicas_roll_and_certificates_and_authorities_change() {
    if !is_built() {
        return;
    }
    let cluster = Cluster::start(ClusterOptions::unique("webhook-roll").nodes(0, 0))
        .await
        .unwrap();
    let admin = cluster.client();
    let balancer = Balancer::default();
    controller::install(&cluster).await.unwrap();
    install(&admin, balancer.start().await).await;
    let flags = [
        "--certificate-lifetime",
        "20s",
        "--authority-lifetime",
        "40s",
        "--bundle-settle-time",
        "3s",
        "--drain-time",
        "3s",
    ];
    let launcher = Launcher::new(&cluster, OPEN, &flags).await;
    let mut replicas: Vec<_> = (0..3).map(|_| launcher.start()).collect();
    for replica in &replicas {
        balancer.add(replica);
        replica.ready().await;
    }
    let mut controllers = Vec::new();
    for name in ["controller-0", "controller-1"] {
        let options = ControllerOptions::default().named(name).joining();
        controllers.push(Controller::start(&cluster, options).await.unwrap());
    }
    wait_until_served(&admin).await;
    let load = Load::start(&admin);

    let (authority, certificate) = (held(&admin, "ca.crt").await, held(&admin, "tls.crt").await);
    for controller in controllers {
        controller.kill().unwrap();
    }
    // Two of three are enough at any moment, as the disruption budget says.
    for _ in 0..4 {
        let replica = launcher.start();
        balancer.add(&replica);
        replica.ready().await;
        sleep(Duration::from_secs(1)).await;
        let old = std::mem::replace(&mut replicas[0], replica);
        let health = old.health;
        old.terminate().await;
        balancer.remove(health);
        replicas.rotate_left(1);
    }
    let until = load.begun + LOAD * 2;
    while load.begun.elapsed() < LOAD || held(&admin, "ca.crt").await == authority {
        assert!(Instant::now() < until, "the authority is not rolled");
        sleep(Duration::from_secs(1)).await;
    }
    assert_ne!(
        held(&admin, "tls.crt").await,
        certificate,
        "the certificate was rolled meanwhile"
    );
    // Emptied by hand: the replicas go on with what they hold.
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), NAMESPACE);
    let emptied = Patch::Merge(json!({"data": null}));
    secrets.patch(SECRET, &PatchParams::default(), &emptied).await.unwrap();
    while held(&admin, "tls.crt").await.is_empty() {
        sleep(Duration::from_millis(200)).await;
    }
    let (begun, (asked, refused)) = (load.begun, load.stop().await);
    eprintln!(
        "{asked} applies in {:?}, {} refused while rolling",
        begun.elapsed(),
        refused.len()
    );
    for replica in &replicas {
        eprintln!("resident memory of a replica: {} KiB", replica.resident_kib());
    }
    assert!(asked >= usize::try_from(LOAD.as_secs()).unwrap() * 49, "{asked}");
    assert_eq!(refused, Vec::<(Duration, String)>::new());

    // A replica that dies without a word is missed until the next probe finds out.
    let load = Load::start(&admin);
    sleep(Duration::from_secs(1)).await;
    let killed_at = load.begun.elapsed();
    replicas[0].child.kill().await.unwrap();
    sleep(Duration::from_secs(4)).await;
    let (asked, refused) = load.stop().await;
    let last = refused.iter().map(|(at, _)| *at).max().unwrap_or(killed_at);
    eprintln!(
        "{asked} applies, {} refused after SIGKILL, the last after {:?}",
        refused.len(),
        last.saturating_sub(killed_at)
    );
    assert!(last.saturating_sub(killed_at) < Duration::from_secs(2), "{refused:?}");

    // Replicas that start while the API server does not answer wait for it.
    cluster.pause(Component::KubeApiserver).await.unwrap();
    let mut early = [launcher.start(), launcher.start()];
    sleep(Duration::from_secs(20)).await;
    for replica in &mut early {
        assert!(replica.child.try_wait().unwrap().is_none(), "a replica gave up");
    }
    cluster.resume(Component::KubeApiserver).unwrap();
    for replica in &early {
        replica.ready().await;
    }
    cluster.stop().await.unwrap();
}

/// What the Secret of the certificates holds; nothing if it is empty.
async fn held(client: &Client, key: &str) -> Vec<u8> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let mut data = secrets.get(SECRET).await.unwrap().data.unwrap_or_default();
    data.remove(key).map(|value| value.0).unwrap_or_default()
}

/// Applies at a steady rate, in dry run: admission is what is asked for, and etcd need not remember it.
struct Load {
    begun: Instant,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    refused: Arc<Mutex<Vec<(Duration, String)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    fn start(client: &Client) -> Self {
        let (begun, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let (asked, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let task = {
            let (client, stop, asked, refused) = (
                client.clone(),
                Arc::clone(&stop),
                Arc::clone(&asked),
                Arc::clone(&refused),
            );
            tokio::spawn(async move {
                let mut requests = tokio::task::JoinSet::new();
                let mut tick = tokio::time::interval(Duration::from_secs(1) / APPLIES_A_SECOND);
                while !stop.load(Ordering::SeqCst) {
                    tick.tick().await;
                    let number = asked.fetch_add(1, Ordering::SeqCst);
                    let (client, refused) = (client.clone(), Arc::clone(&refused));
                    requests.spawn(async move {
                        let object = wrapper(
                            &format!("load-{number}"),
                            vec![component(pod("p")), component(kind(number))],
                        );
                        let object: DynamicObject = serde_json::from_value(object).unwrap();
                        let dry = PostParams {
                            dry_run: true,
                            ..PostParams::default()
                        };
                        if let Err(error) = appwrappers(&client).create(&dry, &object).await {
                            refused.lock().unwrap().push((begun.elapsed(), error.to_string()));
                        }
                    });
                }
                while requests.join_next().await.is_some() {}
            })
        };
        Self {
            begun,
            stop,
            asked,
            refused,
            task,
        }
    }

    async fn stop(self) -> (usize, Vec<(Duration, String)>) {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.unwrap();
        let refused = std::mem::take(&mut *self.refused.lock().unwrap());
        (self.asked.load(Ordering::SeqCst), refused)
    }
}

fn kind(number: usize) -> Value {
    let (api_version, kind) = KINDS[number % KINDS.len()];
    let pods = json!({"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}});
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "other"}, "spec": pods})
}
