//! Watches and gates, seen through kube's watcher.

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{PartialObjectMeta, WatchEvent, WatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::timeout;

use super::{pod, pods};
use crate::api_server::{ApiServer, Effect, Match, Verb};

/// A watcher's events in words: `listed` after the initial list, `+name` for applied, `-name` for deleted, `error`.
struct Told {
    events: Pin<Box<dyn Stream<Item = String> + Send>>,
}

impl Told {
    fn by<K>(api: Api<K>, config: watcher::Config) -> Self
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let events = watcher(api, config).filter_map(|event| async move {
            match event {
                Ok(Event::Init) => None,
                Ok(Event::InitApply(object)) => Some(format!("={}", object.name_any())),
                Ok(Event::InitDone) => Some("listed".to_owned()),
                Ok(Event::Apply(object)) => Some(format!("+{}", object.name_any())),
                Ok(Event::Delete(object)) => Some(format!("-{}", object.name_any())),
                Err(_) => Some("error".to_owned()),
            }
        });
        Self {
            events: Box::pin(events),
        }
    }

    async fn listed(server: &ApiServer, config: watcher::Config) -> Self {
        let mut told = Self::by(pods(server), config);
        while told.next().await != "listed" {}
        told.settle(server).await;
        told
    }

    async fn next(&mut self) -> String {
        timeout(Duration::from_secs(5), self.events.next())
            .await
            .expect("an event in time")
            .unwrap()
    }

    async fn some(&mut self, count: usize) -> Vec<String> {
        let mut some = Vec::new();
        for _ in 0..count {
            some.push(self.next().await);
        }
        some
    }

    /// Polls the watcher until it has opened its next watch.
    async fn settle(&mut self, server: &ApiServer) {
        assert!(self.is_silent().await);
        server.gate("pods").watched().await;
    }

    async fn is_silent(&mut self) -> bool {
        timeout(Duration::from_secs(5), self.events.next()).await.is_err()
    }
}

fn small() -> watcher::Config {
    watcher::Config::default()
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_every_change_in_order() {
    let server = ApiServer::new();
    server.create(pod("old", &json!({})));
    let mut told = Told::by(pods(&server), small().page_size(1));
    assert_eq!(told.some(2).await, ["=old", "listed"]);
    server.create(pod("new", &json!({})));
    server.set_pod_phase("default", "new", "Running");
    server.delete("pods", "default", "old", "Background");
    assert_eq!(told.some(3).await, ["+new", "+new", "-old"]);
    assert!(told.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_leaves_the_selector_is_told_as_deleted_and_back_as_added() {
    let server = ApiServer::new();
    server.create(pod("p", &json!({"slot": "1"})));
    let mut told = Told::listed(&server, small().labels("slot in (1, 2)")).await;
    for (slot, expected) in [("2", "+p"), ("9", "-p"), ("1", "+p")] {
        server.patch("pods", "default", "p", &json!({"metadata": {"labels": {"slot": slot}}}));
        assert_eq!(told.next().await, expected);
    }
    server.create(pod("q", &json!({"slot": "9"})));
    assert!(told.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_metadata_watch_and_a_streaming_list_work_alike() {
    let server = ApiServer::new();
    server.create(pod("a", &json!({})));
    let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(server.client(), "default");
    let mut told = Told::by(api, small().streaming_lists());
    assert_eq!(told.some(2).await, ["=a", "listed"]);
    server.create(pod("b", &json!({})));
    assert_eq!(told.next().await, "+b");
}

#[tokio::test(start_paused = true)]
async fn a_held_gate_blinds_watches_while_reads_see_the_present() {
    let server = ApiServer::new();
    let mut told = Told::listed(&server, small()).await;
    let gate = server.gate("pods");
    gate.hold();
    server.create(pod("a", &json!({})));
    server.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}));
    server.create(pod("b", &json!({})));
    server.delete("pods", "default", "a", "Background");
    assert!(told.is_silent().await);
    assert!(pods(&server).get("b").await.is_ok());
    assert_eq!(gate.held().len(), 3);
    assert!(gate.release_one());
    assert_eq!(told.next().await, "+a");
    assert!(told.is_silent().await);
    gate.release();
    assert_eq!(told.some(2).await, ["+b", "-a"]);
    assert!(gate.held().is_empty() && !gate.release_one());
}

#[tokio::test(start_paused = true)]
async fn a_gate_can_blind_one_client_of_two() {
    let server = ApiServer::new();
    let mut told = Told::listed(&server, small()).await;
    let other: Api<Pod> = Api::namespaced(server.client_as("other"), "default");
    let mut other = Told::by(other, small());
    assert_eq!(other.next().await, "listed");
    server.gate("pods").for_client("other").hold();
    server.create(pod("a", &json!({})));
    assert_eq!(told.next().await, "+a");
    assert!(other.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn held_changes_can_be_told_out_of_order_twice_or_late() {
    let server = ApiServer::new();
    let mut told = Told::listed(&server, small()).await;
    let gate = server.gate("pods");
    server.create(pod("first", &json!({})));
    gate.hold();
    for name in ["a", "b", "c"] {
        server.create(pod(name, &json!({})));
    }
    gate.release_in_order(&[2, 0, 0]);
    assert_eq!(told.some(4).await, ["+first", "+c", "+a", "+a"]);
    assert!(told.is_silent().await);
    gate.release();
    gate.duplicate(true);
    server.delete("pods", "default", "c", "Background");
    assert_eq!(told.some(2).await, ["-c", "-c"]);
    gate.redeliver(2);
    assert_eq!(told.some(2).await, ["+c", "-c"]);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_survives_every_way_its_watch_can_break() {
    let server = ApiServer::new();
    server.create(pod("a", &json!({})));
    let mut told = Told::listed(&server, small()).await;
    let gate = server.gate("pods");

    gate.expire_watches();
    assert_eq!(told.some(3).await, ["error", "=a", "listed"]);
    told.settle(&server).await;
    gate.truncate_watches();
    server.create(pod("b", &json!({})));
    assert_eq!(told.next().await, "+b");
    told.settle(&server).await;
    gate.cut_watches();
    assert_eq!(told.next().await, "error");
    server.create(pod("c", &json!({})));
    assert_eq!(told.next().await, "+c");
    told.settle(&server).await;

    // kube relists on a 410 in the stream only; a 410 as HTTP status is an error and a new watch from the old version.
    let fault = server
        .faults()
        .add(Match::verb(Verb::Watch), Effect::expired())
        .times(1);
    gate.end_watches();
    assert_eq!(told.next().await, "error");
    server.create(pod("d", &json!({})));
    assert_eq!((told.next().await.as_str(), fault.hits()), ("+d", 1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_the_compaction_gets_a_410_in_its_stream() {
    let server = ApiServer::new();
    let first = server.create(pod("a", &json!({})));
    server.create(pod("b", &json!({})));
    server.compact();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let api = pods(&server);
    let mut events = api.watch(&WatchParams::default(), version).await.unwrap().boxed();
    let Some(Ok(WatchEvent::Error(status))) = events.next().await else {
        panic!("no error event")
    };
    assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_time_limit_with_a_bookmark_and_earlier_ones_on_request() {
    let server = ApiServer::new();
    let api = pods(&server);
    let start = server.revision();
    let mut events = api
        .watch(&WatchParams::default().timeout(60), &start.to_string())
        .await
        .unwrap()
        .boxed();
    server.create(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}));
    server.gate("pods").bookmark();
    for _ in 0..2 {
        let Some(Ok(WatchEvent::Bookmark(bookmark))) = events.next().await else {
            panic!("no bookmark")
        };
        assert_eq!(bookmark.metadata.resource_version, (start + 1).to_string());
    }
    assert!(events.next().await.is_none());
    drop(events);
    assert_eq!(server.gate("pods").open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn frozen_lists_are_stale_while_single_gets_are_exact() {
    let server = ApiServer::new();
    server.create(pod("a", &json!({})));
    let gate = server.gate("pods");
    gate.hold();
    gate.freeze_lists();
    server.create(pod("b", &json!({})));
    let api = pods(&server);
    assert_eq!(
        api.list(&kube::api::ListParams::default()).await.unwrap().items.len(),
        1
    );
    assert!(api.get("b").await.is_ok());
    assert!(api.get_with("b", &kube::api::GetParams::any()).await.is_err());
    let mut told = Told::by(api.clone(), small());
    assert_eq!(told.some(2).await, ["=a", "listed"]);
    assert!(told.is_silent().await);
    gate.release();
    assert_eq!(told.next().await, "+b");

    gate.freeze_cached_reads();
    server.create(pod("c", &json!({})));
    assert_eq!(
        api.list(&kube::api::ListParams::default()).await.unwrap().items.len(),
        3
    );
    let any = kube::api::ListParams::default().match_any();
    assert_eq!(api.list(&any).await.unwrap().items.len(), 2);
    gate.thaw();
    assert_eq!(api.list(&any).await.unwrap().items.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn cutting_off_one_client_breaks_its_watches() {
    let server = ApiServer::new();
    let mut told = Told::listed(&server, small()).await;
    server.create(pod("a", &json!({})));
    assert_eq!(told.next().await, "+a");
    server.cut_watches_of("tester");
    assert_eq!(told.next().await, "error");
}
