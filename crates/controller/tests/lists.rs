//! How often the objects of a shard are listed: lists are what costs most when a replica starts, and on a large cluster they
//! are what it starts with.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod common;

use std::{collections::BTreeMap, time::Duration};

use appwrapper_testkit::api_server::Verb;
use common::ring::{Member, Ring, names};

const SHARDS: usize = 4;
const UID: &str = "6f9619ff-8b86-d011-b42d-00c04fc964ff";

/// Lists by one client, by selector, pages after the first not counted.
fn lists(ring: &Ring, author: &str, resource: &str) -> BTreeMap<String, usize> {
    let mut lists = BTreeMap::new();
    for request in ring.server.requests() {
        let first = request.verb == Verb::List && request.param("continue").is_empty();
        if first && request.author == author && request.is_for(resource) {
            *lists.entry(request.param("labelSelector").to_owned()).or_default() += 1;
        }
    }
    // The leader's look for AppWrappers without a slot.
    lists.retain(|selector, _| resource != "appwrappers" || !selector.contains("notin"));
    lists
}

fn assert_listed_once(ring: &Ring, author: &str) {
    for resource in ["appwrappers", "pods", "jobs"] {
        let lists = lists(ring, author, resource);
        assert!(
            lists.len() == SHARDS && lists.values().all(|times| *times == 1),
            "{resource}: {lists:?}"
        );
    }
}

async fn holds_all(ring: &Ring, member: &Member) {
    ring.until("it holds all", 30, || member.holds().len() == SHARDS).await;
    ring.until("it is ready", 30, || member.health.ready().ok).await;
}

/// AppWrappers in every shard, run by a controller that is there no more.
async fn with_a_past(ring: &Ring, end: impl AsyncFnOnce(Member)) -> Vec<String> {
    let wrappers = names("train", 40);
    ring.submit_all(&wrappers);
    let first = ring.start_in_pod("a", Some(UID), "a", 1);
    holds_all(ring, &first).await;
    ring.all_running(&wrappers, 10).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    end(first).await;
    ring.server.reset_requests();
    wrappers
}

async fn runs_and_was_listed_once(ring: &Ring, author: &str, wrappers: &[String]) {
    ring.submit("later");
    ring.all_running(&["later".to_owned()], 10).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_listed_once(ring, author);
    let all: Vec<String> = wrappers.iter().cloned().chain(["later".to_owned()]).collect();
    ring.assert_made_once(&all);
}

#[tokio::test(start_paused = true)]
async fn on_a_new_cluster_each_shard_is_listed_once() {
    let ring = Ring::new(u32::try_from(SHARDS).unwrap());
    let wrappers = names("train", 40);
    ring.submit_all(&wrappers);
    let a = ring.start("a");
    holds_all(&ring, &a).await;
    ring.all_running(&wrappers, 10).await;
    runs_and_was_listed_once(&ring, "a", &wrappers).await;
}

#[tokio::test(start_paused = true)]
async fn after_an_orderly_end_each_shard_is_listed_once() {
    let ring = Ring::new(u32::try_from(SHARDS).unwrap());
    let wrappers = with_a_past(&ring, async |first| first.terminate().await).await;
    let b = ring.start("b");
    holds_all(&ring, &b).await;
    runs_and_was_listed_once(&ring, "b", &wrappers).await;
}

/// What is listed before the claim would have to be listed again after it, since until then the last holder could write.
#[tokio::test(start_paused = true)]
async fn after_a_crash_of_the_only_replica_each_shard_is_listed_once_and_after_the_claim() {
    let ring = Ring::new(u32::try_from(SHARDS).unwrap());
    let wrappers = with_a_past(&ring, async |first| first.kill(&ring.server)).await;
    let b = ring.start("b");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(b.holds().is_empty());
    holds_all(&ring, &b).await;
    runs_and_was_listed_once(&ring, "b", &wrappers).await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_restarts_in_its_pod_lists_each_shard_once() {
    let ring = Ring::new(u32::try_from(SHARDS).unwrap());
    let wrappers = with_a_past(&ring, async |first| first.kill(&ring.server)).await;
    let again = ring.start_in_pod("a", Some(UID), "again", 2);
    let begun = tokio::time::Instant::now();
    holds_all(&ring, &again).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    runs_and_was_listed_once(&ring, "again", &wrappers).await;
}
