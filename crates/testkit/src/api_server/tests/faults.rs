//! Spoiled answers and hooks, under a paused clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Error;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::{pod, pods, refusal, typed};
use crate::api_server::{ApiServer, Effect, Match, Moment, Verb, Verdict};

fn with_pod() -> ApiServer {
    let server = ApiServer::new();
    server.create(pod("p", &json!({})));
    server
}

#[tokio::test(start_paused = true)]
async fn a_hung_request_never_answers_and_takes_no_real_time() {
    let server = with_pod();
    let fault = server
        .faults()
        .add(Match::verb(Verb::Get).resource("pods").name("p"), Effect::Hang);
    let real = std::time::Instant::now();
    assert!(
        timeout(Duration::from_secs(3600), pods(&server).get("p"))
            .await
            .is_err()
    );
    assert!(real.elapsed() < Duration::from_secs(30));
    assert_eq!((fault.hits(), server.requests()[0].code), (1, None));
    fault.remove();
    assert!(pods(&server).get("p").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_server_clock_follows_the_paused_clock() {
    let server = ApiServer::new();
    server.set_clock("2026-01-01T00:00:00Z".parse().unwrap());
    tokio::time::advance(Duration::from_secs(90)).await;
    assert_eq!(
        server.create(pod("p", &json!({})))["metadata"]["creationTimestamp"],
        "2026-01-01T00:01:30Z"
    );
}

#[tokio::test]
async fn every_refusal_reaches_the_client_as_it_was_made() {
    let server = with_pod();
    for (effect, expected) in [
        (Effect::forbidden(), (403, "Forbidden")),
        (Effect::conflict(), (409, "Conflict")),
        (Effect::expired(), (410, "Expired")),
        (Effect::too_many_requests(), (429, "TooManyRequests")),
        (Effect::unavailable(), (503, "ServiceUnavailable")),
        (Effect::timeout(), (504, "Timeout")),
        (Effect::Text(404, "not here"), (404, "Failed to parse error data")),
    ] {
        let fault = server.faults().add(Match::verb(Verb::Get), effect).times(1);
        let (code, reason) = refusal(pods(&server).get("p").await);
        assert_eq!((code, reason.as_str()), expected);
        assert_eq!(fault.hits(), 1);
    }
    server.faults().add(Match::any(), Effect::Undecodable).times(1);
    assert!(matches!(pods(&server).get("p").await, Err(Error::SerdeError(_))));
    server.faults().add(Match::any(), Effect::Refuse).times(1);
    assert!(matches!(pods(&server).get("p").await, Err(Error::Service(_))));
    server.faults().add(
        Match::any(),
        Effect::reply(|r| (200, pod(r.name.as_deref().unwrap(), &json!({})))),
    );
    assert!(pods(&server).get("anything").await.is_ok());
}

#[tokio::test]
async fn only_the_nth_matching_request_is_hit() {
    let server = with_pod();
    server
        .faults()
        .add(Match::verb(Verb::Get).author("tester"), Effect::unavailable())
        .nth(2);
    let api = pods(&server);
    let answers = [
        api.get("p").await.is_ok(),
        api.get("p").await.is_ok(),
        api.get("p").await.is_ok(),
    ];
    assert_eq!(answers, [true, false, true]);
}

#[tokio::test]
async fn a_dropped_answer_leaves_the_write_in_place() {
    let server = ApiServer::new();
    server
        .faults()
        .add(Match::verb(Verb::Create), Effect::DropAnswer)
        .times(1);
    let api = pods(&server);
    let lost = api.create(&PostParams::default(), &typed(pod("p", &json!({})))).await;
    assert!(matches!(lost, Err(Error::Service(_))));
    let again = api.create(&PostParams::default(), &typed(pod("p", &json!({})))).await;
    assert_eq!(refusal(again), (409, "AlreadyExists".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_held_write_is_applied_on_release_and_a_delayed_one_in_its_time() {
    let server = with_pod();
    let held = server.faults().add(Match::verb(Verb::Patch), Effect::Hold).times(1);
    let api = pods(&server);
    let write = {
        let api = api.clone();
        tokio::spawn(async move {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            api.patch("p", &PatchParams::default(), &patch).await
        })
    };
    server
        .wait_until("the write arrives", Duration::from_secs(5), |_| held.hits() == 1)
        .await
        .unwrap();
    assert_eq!(server.history().len(), 1);
    held.release();
    write.await.unwrap().unwrap();
    assert_eq!(server.history().len(), 2);

    server
        .faults()
        .add(Match::verb(Verb::Get), Effect::Delay(Duration::from_secs(7)))
        .times(1);
    let start = Instant::now();
    api.get("p").await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_hook_can_end_its_client_after_any_chosen_write() {
    let server = with_pod();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let inside = (server.clone(), Arc::clone(&seen));
    server.faults().on_write(move |call| {
        let (server, seen) = &inside;
        seen.lock()
            .unwrap()
            .push((call.moment, call.nth, server.history().len()));
        if call.nth == 2 && call.moment == Moment::After {
            Verdict::Hang
        } else {
            Verdict::Continue
        }
    });
    let api = pods(&server);
    let write = |label: &'static str| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {label: "x"}}}));
        let api = api.clone();
        async move { timeout(Duration::from_secs(60), api.patch("p", &PatchParams::default(), &patch)).await }
    };
    assert!(write("one").await.is_ok());
    assert!(write("two").await.is_err());
    let expected = [
        (Moment::Before, 1, 1),
        (Moment::After, 1, 2),
        (Moment::Before, 2, 2),
        (Moment::After, 2, 3),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_what_never_comes_ends_with_its_name() {
    let error = ApiServer::new()
        .wait_until("a pod", Duration::from_secs(5), |_| false)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "not within 5s: a pod");
}
