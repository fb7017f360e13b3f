//! What goes over the wire: bounds, preconditions, field managers, and what the write guard lets through.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are not covered by the exception for tests"
)]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use appwrapper_coordination::{
    Claimed, Error, Fenced, GuardedLease, Identity, LeaseBackend, LeaseParams, LeaseTimings, SharedClock, Tenure,
    WriteTimeout, fenced, guarded_client, testing::TokioClock,
};
use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

type Seen = Arc<Mutex<Vec<(String, String, Value)>>>;

/// A server that writes down what it is asked and answers with `answer`, or never if that is none.
fn server(answer: impl Fn(&str, &Value) -> Option<(u16, Value)> + Send + Sync + 'static) -> (Client, Seen) {
    let seen = Seen::default();
    let (log, answer) = (Arc::clone(&seen), Arc::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
        async move {
            let (parts, body) = request.into_parts();
            let body: Value = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
            let (method, uri) = (parts.method.to_string(), parts.uri.to_string());
            log.lock().unwrap().push((method.clone(), uri, body.clone()));
            let Some((code, answer)) = answer(&method, &body) else {
                return std::future::pending().await;
            };
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Ok::<_, std::convert::Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (Client::new(service, "ns"), seen)
}

fn clock() -> (TokioClock, SharedClock) {
    let clock = TokioClock::default();
    (clock.clone(), Arc::new(clock))
}

fn lease(client: &Client) -> GuardedLease {
    let params = LeaseParams {
        namespace: "ns".to_owned(),
        name: "lock".to_owned(),
        identity: Identity::with_nonce("a", Some("uid"), "n1").unwrap(),
        timings: LeaseTimings::standard(),
        creation: None,
    };
    GuardedLease::new(client, params, clock().1).unwrap()
}

fn stored(holder: &str, version: &str, transitions: i32) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "lock", "namespace": "ns", "uid": "u", "resourceVersion": version},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 1, "leaseTransitions": transitions,
            "acquireTime": "2001-01-01T00:00:00.000000Z", "renewTime": "2001-01-01T00:00:00.000000Z"}})
}

#[tokio::test(start_paused = true)]
async fn a_lease_write_carries_version_limit_and_one_field_manager() {
    let (client, seen) = server(|method, body| {
        Some((
            200,
            if method == "GET" {
                stored("", "7", 3)
            } else {
                stored(body["spec"]["holderIdentity"].as_str().unwrap(), "8", 4)
            },
        ))
    });
    assert!(matches!(
        lease(&client).acquire_or_renew().await.unwrap(),
        Claimed::Held { .. }
    ));
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen[0].1,
        "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock?timeout=1500ms"
    );
    assert_eq!(
        seen[1].1,
        "/apis/coordination.k8s.io/v1/namespaces/ns/leases/lock?timeout=1500ms&fieldManager=appwrapper-lease"
    );
    assert_eq!(seen[1].2["metadata"]["resourceVersion"], "7");
    assert_eq!(seen[1].2["spec"]["leaseTransitions"], 4);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_names_another_holder_is_no_success() {
    let (client, _) = server(|method, _| {
        Some((
            200,
            if method == "GET" {
                stored("", "7", 3)
            } else {
                stored("other", "8", 4)
            },
        ))
    });
    let answer = lease(&client).acquire_or_renew().await;
    assert!(matches!(answer, Err(Error::Unexpected { .. })), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hung_request_ends_at_its_limit() {
    let (client, _) = server(|_, _| None);
    let begun = tokio::time::Instant::now();
    let answer = lease(&client).acquire_or_renew().await;
    assert!(matches!(answer, Err(Error::Timeout { .. })), "{answer:?}");
    assert_eq!(begun.elapsed(), LeaseTimings::standard().rpc_timeout);
}

#[tokio::test(start_paused = true)]
async fn garbage_is_an_error_and_not_a_lease() {
    for garbage in [json!(null), json!({"spec": 7}), json!([])] {
        let (client, _) = server(move |_, _| Some((200, garbage.clone())));
        assert!(lease(&client).acquire_or_renew().await.is_err());
    }
}

const BOUND: Duration = Duration::from_secs(3);

async fn post(client: &Client) -> kube::Result<Value> {
    client
        .request(
            Request::post("/api/v1/namespaces/ns/pods?dryRun=All")
                .body(b"{}".to_vec())
                .unwrap(),
        )
        .await
}

#[tokio::test(start_paused = true)]
async fn a_guarded_write_is_bounded_and_a_fenced_one_is_never_sent() {
    let (client, seen) = server(|_, _| Some((201, json!({}))));
    let (_, clock) = clock();
    let tenure = Tenure::for_testing("lock", Duration::from_secs(6), BOUND, clock);
    let guarded = guarded_client(&client, tenure.write_guard());
    post(&guarded).await.unwrap();
    assert_eq!(
        seen.lock().unwrap()[0].1,
        "/api/v1/namespaces/ns/pods?dryRun=All&timeout=3000ms"
    );
    tokio::time::advance(Duration::from_secs(6)).await;
    let refused = post(&guarded).await.unwrap_err();
    assert!(
        matches!(fenced(&refused), Some(Fenced::DeadlinePassed { .. })),
        "{refused:?}"
    );
    tenure.lose_for_testing();
    assert_eq!(fenced(&post(&guarded).await.unwrap_err()), Some(Fenced::Lost));
    assert_eq!(seen.lock().unwrap().len(), 1);
    // Reads go on: warm caches outlive the tenure.
    guarded
        .request::<Value>(Request::get("/api/v1/pods").body(Vec::new()).unwrap())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_counts_as_in_flight_until_its_outcome_is_certain() {
    for (code, waits) in [
        (201, false),
        (409, false),
        (403, false),
        (429, false),
        (500, true),
        (504, true),
    ] {
        let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "", "reason": ""});
        let (client, _) = server(move |_, _| Some((code, status.clone())));
        let tenure = Tenure::for_testing("lock", Duration::from_secs(60), BOUND, clock().1);
        let _ = post(&guarded_client(&client, tenure.write_guard())).await;
        let begun = tokio::time::Instant::now();
        tenure.drain().await;
        assert_eq!(begun.elapsed(), if waits { BOUND } else { Duration::ZERO }, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hung_write_is_cut_off_at_its_bound() {
    let (client, _) = server(|_, _| None);
    let tenure = Tenure::for_testing("lock", Duration::from_secs(60), BOUND, clock().1);
    let begun = tokio::time::Instant::now();
    let error = post(&guarded_client(&client, tenure.write_guard())).await.unwrap_err();
    let kube::Error::Service(cause) = error else {
        panic!("{error:?}")
    };
    assert_eq!(cause.downcast_ref::<WriteTimeout>(), Some(&WriteTimeout(BOUND)));
    assert_eq!(begun.elapsed(), BOUND);
    tenure.drain().await;
    assert_eq!(begun.elapsed(), BOUND);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_write_may_still_take_effect() {
    let (client, _) = server(|_, _| None);
    let tenure = Tenure::for_testing("lock", Duration::from_secs(60), BOUND, clock().1);
    let guarded = guarded_client(&client, tenure.write_guard());
    let begun = tokio::time::Instant::now();
    let _ = tokio::time::timeout(Duration::from_secs(1), post(&guarded)).await;
    tenure.drain().await;
    assert_eq!(begun.elapsed(), BOUND);
}
