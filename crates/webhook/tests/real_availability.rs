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

use appwrapper_testkit::cluster::{Cluster, ClusterOptions};
use common::{component, job, live::*, pod};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
};
use tokio::time::sleep;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_apply_is_refused_while_replicas_roll_and_certificates_and_authorities_change() {
    if !is_built() {
        return;
    }
    let cluster = Cluster::start(ClusterOptions::unique("webhook-roll").nodes(0, 0))
        .await
        .unwrap();
    let admin = cluster.client();
    let balancer = Balancer::default();
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
    wait_until_served(&admin).await;
    let load = Load::start(&admin);

    let authority = authority_of(&admin).await;
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
    for _ in 0..60 {
        if authority_of(&admin).await != authority {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert_ne!(
        authority_of(&admin).await,
        authority,
        "the authority was rolled meanwhile"
    );
    let (asked, refused) = load.stop().await;
    eprintln!("{asked} applies, {} refused while rolling", refused.len());
    for replica in &replicas {
        eprintln!("resident memory of a replica: {} KiB", replica.resident_kib());
    }
    assert!(asked > 600, "{asked}");
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
    cluster.stop().await.unwrap();
}

async fn authority_of(client: &Client) -> Vec<u8> {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), NAMESPACE);
    secrets
        .get("appwrapper-webhook-server-cert")
        .await
        .unwrap()
        .data
        .unwrap()["ca.crt"]
        .0
        .clone()
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
                let mut tick = tokio::time::interval(Duration::from_millis(20));
                while !stop.load(Ordering::SeqCst) {
                    tick.tick().await;
                    let number = asked.fetch_add(1, Ordering::SeqCst);
                    let (client, refused) = (client.clone(), Arc::clone(&refused));
                    requests.spawn(async move {
                        let object = wrapper(
                            &format!("load-{number}"),
                            vec![component(pod("p")), component(job("j"))],
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
