//! The ring of replicas: who holds what after which event.

mod sim;

use std::{collections::BTreeMap, time::Duration};

use appwrapper_coordination::shards::{ShardCount, ShardId, Slot};
use serde_json::json;
use sim::{Registry, Replica, ReplicaOptions, Server, object_path, run, sleep_ms};
use tokio::time::Instant;

fn server_with_objects() -> Server {
    let server = Server::default();
    for slot in Slot::all() {
        server.put(
            &object_path(slot),
            json!({"kind": "Object", "metadata": {}, "spec": {"count": 0}}),
        );
    }
    server
}

fn counts(replicas: &[&Replica]) -> Vec<usize> {
    replicas.iter().map(|replica| replica.holds().len()).collect()
}

fn owner(replicas: &[&Replica]) -> BTreeMap<ShardId, String> {
    let held = replicas
        .iter()
        .flat_map(|replica| replica.holds().into_iter().map(|id| (id, replica.options.pod.clone())));
    held.collect()
}

async fn until(what: &str, limit: u64, mut met: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !met() {
        assert!(
            begun.elapsed() < Duration::from_millis(limit),
            "{what}: not within {limit} ms"
        );
        sleep_ms(5).await;
    }
    begun.elapsed()
}

fn start(server: &Server, registry: &Registry, pod: &str, seed: u64) -> Replica {
    Replica::start(
        server,
        registry,
        ReplicaOptions {
            shards: 8,
            ..ReplicaOptions::of(pod, seed)
        },
    )
}

#[test]
fn three_replicas_share_eight_shards_soon_after_an_empty_start() {
    for seed in 0..10 {
        run(async move {
            let (server, registry) = (server_with_objects(), Registry::default());
            let a = start(&server, &registry, "a", seed * 10 + 1);
            let b = start(&server, &registry, "b", seed * 10 + 2);
            let c = start(&server, &registry, "c", seed * 10 + 3);
            let all = [&a, &b, &c];
            let took = until("all shards held", 4_000, || counts(&all).iter().sum::<usize>() == 8).await;
            assert!(took < Duration::from_secs(3), "{took:?}");
            until("shared evenly", 40_000, || {
                counts(&all).iter().all(|count| (2..=3).contains(count))
            })
            .await;
            sleep_ms(30_000).await;
            let before = owner(&all);
            sleep_ms(60_000).await;
            assert_eq!(before, owner(&all), "nothing moves when nothing happens");
        });
    }
}
