//! Replicas that look after their own certificates, on the fake API server and under a clock that is moved: first start,
//! rotation, damage, wrong clocks, several rotators, death of the holder, expiry.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use appwrapper_testkit::api_server::Match;
use appwrapper_webhook::certs::{replica::Memory, reports::Reports, rotator::Rotator};
use common::replicas::*;
use serde_json::{Value, json};
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn three_replicas_start_on_an_empty_secret_and_agree() {
    let server = installed();
    let replicas = three(&server, &issuing(90 * 24 * 60, 180 * 24 * 60));
    assert!(
        replicas.iter().all(|replica| !replica.health.ready().ok),
        "not ready before anything is trusted"
    );
    for replica in &replicas {
        replica.ready().await;
    }
    assert!(replicas.iter().all(|replica| replica.serial() == replicas[0].serial()));
    assert_eq!(common_bundle(&server).len(), 1);
    assert_eq!(secret_writes(&server), 2);
    sleep(MINUTE * 10).await;
    assert_eq!(secret_writes(&server), 2, "nobody fights");
    assert_eq!(
        server.count(&Match::writes().resource("mutatingwebhookconfigurations")),
        1
    );
    let page = replicas[0].metrics.registry().encode().unwrap();
    assert!(
        page.contains("appwrapper_webhook_certificate_not_after_timestamp_seconds{kind=\"serving\"} "),
        "{page}"
    );
    assert!(page.matches("appwrapper_webhook_ca_bundle_current{").count() == 2);
    assert!(!page.contains(
        "appwrapper_webhook_ca_bundle_current{webhook=\"/validate-workload-codeflare-dev-v1beta2-appwrapper\"} 0"
    ));
}

#[tokio::test(start_paused = true)]
async fn certificates_and_authorities_roll_without_a_moment_of_distrust() {
    let server = installed();
    let issuing = issuing(12, 36);
    let replicas = three(&server, &issuing);
    for replica in &replicas {
        replica.ready().await;
    }
    let (refused, _prober) = probe(&server, &replicas);
    let mut serials = std::collections::BTreeSet::new();
    let mut authorities = std::collections::BTreeSet::new();
    let mut largest = 0;
    for _ in 0..80 {
        sleep(MINUTE).await;
        serials.insert(replicas[1].serial());
        authorities.insert(secret(&server).ca.unwrap().certificate.serial);
        largest = largest.max(common_bundle(&server).len());
    }
    assert_eq!(refused.load(Ordering::SeqCst), 0);
    assert!(authorities.len() >= 3, "{} authorities", authorities.len());
    assert!(serials.len() >= 8, "{} certificates", serials.len());
    assert_eq!(largest, 2, "old and new at most");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_secret_heals_and_nobody_notices() {
    let server = installed();
    let replicas = three(&server, &issuing(90 * 24 * 60, 180 * 24 * 60));
    for replica in &replicas {
        replica.ready().await;
    }
    let before = secret(&server);
    let (refused, _prober) = probe(&server, &replicas);
    let damages = [
        json!({"data": null}),
        json!({"data": {"ca.crt": "", "ca.key": "", "tls.crt": "", "tls.key": ""}}),
        json!({"data": {"ca.crt": "YQ==", "ca.key": "YQ==", "tls.crt": "YQ==", "tls.key": "YQ=="}}),
    ];
    for damage in damages {
        server.patch("secrets", NAMESPACE, SECRET, &damage);
        wait("the Secret is as it was", || secret(&server) == before).await;
    }
    // One half alone cannot be put back, but can be made anew: the way to force a renewal by hand.
    server.patch("secrets", NAMESPACE, SECRET, &json!({"data": {"tls.key": null}}));
    wait("a new certificate is served", || {
        replicas
            .iter()
            .all(|replica| replica.serial() != before.serving.as_ref().unwrap().leaf.serial)
    })
    .await;
    server.patch("secrets", NAMESPACE, SECRET, &json!({"data": {"ca.key": null}}));
    wait("a new authority", || {
        secret(&server)
            .ca
            .is_some_and(|ca| ca.certificate != before.ca.as_ref().unwrap().certificate)
    })
    .await;
    wait("the old one is dropped", || common_bundle(&server).len() == 1).await;
    assert_eq!(refused.load(Ordering::SeqCst), 0);
    assert!(replicas.iter().all(|replica| replica.health.ready().ok));
}

#[tokio::test(start_paused = true)]
async fn without_the_secret_the_loaded_certificate_stays_and_the_manifests_bring_it_back() {
    let server = installed();
    server.delete("secrets", NAMESPACE, SECRET, "Background");
    let mut replicas = three(&server, &issuing(90 * 24 * 60, 180 * 24 * 60));
    sleep(MINUTE).await;
    let told = replicas[0].health.ready().text;
    assert!(told.contains("does not exist: apply the manifests"), "{told}");
    create_secret(&server);
    for replica in &replicas {
        replica.ready().await;
    }
    let (serial, bundle) = (replicas[0].serial(), common_bundle(&server));
    let (refused, _prober) = probe(&server, &replicas);
    server.delete("secrets", NAMESPACE, SECRET, "Background");
    sleep(MINUTE * 5).await;
    create_secret(&server);
    wait("the Secret is written back", || secret(&server).serving.is_some()).await;
    assert_eq!(secret(&server).serving.unwrap().leaf.serial, serial);
    assert_eq!(common_bundle(&server), bundle);
    assert_eq!(refused.load(Ordering::SeqCst), 0);
    replicas[0].kill();
}

#[tokio::test(start_paused = true)]
async fn an_edited_bundle_is_repaired_within_seconds() {
    let server = installed();
    let replicas = three(&server, &issuing(90 * 24 * 60, 180 * 24 * 60));
    for replica in &replicas {
        replica.ready().await;
    }
    let bundle = common_bundle(&server);
    for value in [
        Value::Null,
        json!(""),
        json!("YQ=="),
        json!("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="),
    ] {
        for (plural, name) in [
            ("mutatingwebhookconfigurations", "m"),
            ("validatingwebhookconfigurations", "v"),
        ] {
            let mut webhooks = server.get(plural, "", name).unwrap()["webhooks"].clone();
            webhooks[0]["clientConfig"]["caBundle"] = value.clone();
            server.patch(plural, "", name, &json!({"webhooks": webhooks}));
            let begun = tokio::time::Instant::now();
            wait("the bundle is as it was", || {
                bundles(&server).iter().all(|c| c.certificates() == bundle)
            })
            .await;
            assert!(begun.elapsed() <= Duration::from_secs(10), "{:?}", begun.elapsed());
            assert_eq!(
                server.get(plural, "", name).unwrap()["webhooks"][0]["clientConfig"]["service"]["path"],
                "/x"
            );
        }
    }
    assert_eq!(secret_writes(&server), 2, "the Secret is not touched for it");
}

#[tokio::test(start_paused = true)]
async fn another_replica_carries_on_where_the_holder_was_killed() {
    let server = installed();
    let issuing = issuing(30, 90);
    let mut replicas = three(&server, &issuing);
    for replica in &replicas {
        replica.ready().await;
    }
    let first = secret(&server).ca.unwrap().certificate;
    // Until the roll has begun, whoever holds the Lease.
    wait_long("a new authority is introduced", || secret(&server).next.is_some()).await;
    let holder = server.get("leases", NAMESPACE, LEASE).unwrap()["spec"]["holderIdentity"]
        .as_str()
        .unwrap()
        .to_owned();
    let index = (0..3)
        .find(|index| holder.starts_with(&format!("webhook-{index}")))
        .unwrap();
    let mut dead = replicas.remove(index);
    dead.kill();
    let (refused, _prober) = probe(&server, &replicas);
    wait("the next replica finishes", || {
        let now = secret(&server);
        now.next.is_none() && now.ca.is_some_and(|ca| ca.certificate != first)
    })
    .await;
    // The dead one is known to be gone only after a while; until then the old authority stays for its sake.
    assert_eq!(common_bundle(&server).len(), 2);
    wait_long("the old authority is dropped", || common_bundle(&server).len() == 1).await;
    assert_eq!(refused.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn two_rotators_at_once_waste_rounds_but_never_fight() {
    let server = installed();
    let mut rotators: Vec<_> = ["a", "b"]
        .iter()
        .map(|name| {
            let memory = Arc::new(Memory::default());
            (
                server.client_as(name),
                Rotator::new(
                    server.client_as(name),
                    options(name, issuing(90 * 24 * 60, 180 * 24 * 60)),
                    clock(0),
                    memory,
                ),
            )
        })
        .collect();
    for _ in 0..30 {
        let rounds = rotators
            .iter_mut()
            .map(|(client, rotator)| rotator.round(client, Reports::default()));
        // A lost race is an error of that round alone.
        let _ = futures::future::join_all(rounds).await;
        sleep(Duration::from_secs(1)).await;
    }
    let material = secret(&server);
    assert_eq!(
        common_bundle(&server),
        material.anchors().into_iter().cloned().collect::<Vec<_>>()
    );
    bundles(&server)[0]
        .trusts(&material.serving.unwrap(), clock(0).now())
        .unwrap();
    let stored = server
        .history()
        .iter()
        .filter(|change| change.resource == "secrets")
        .count();
    assert_eq!(stored, 1 + 2, "created, then the two writes of a first start");
}

/// Without dates in the answers clocks may differ by the hour that certificates are backdated; with them, by anything.
#[tokio::test(start_paused = true)]
async fn rotators_with_wrong_clocks_neither_fight_nor_issue_what_is_not_valid_yet() {
    let days = |days: i64| days * 24 * 60;
    for (shifts, dates) in [([50, 0, -5], false), ([0, days(70), days(-10)], true)] {
        let server = installed();
        let mut rotators: Vec<_> = shifts
            .iter()
            .enumerate()
            .map(|(index, shift)| {
                let (name, clock) = (format!("webhook-{index}"), clock(*shift));
                let options = options(&name, issuing(days(90), days(180)));
                let client = server.client_as(&name);
                (
                    client.clone(),
                    Rotator::new(client, options, clock.clone(), Arc::new(Memory::default())),
                    clock,
                )
            })
            .collect();
        for _ in 0..20 {
            for (client, rotator, clock) in &mut rotators {
                if dates {
                    clock.observe(&date());
                }
                rotator.round(client, Reports::default()).await.unwrap();
                sleep(Duration::from_secs(5)).await;
            }
        }
        assert_eq!(secret_writes(&server), 2, "dates: {dates}");
        assert!(secret(&server).serving.unwrap().leaf.is_valid(clock(0).now()));
    }
}

/// The head of an answer of a server whose clock is right.
fn date() -> http::HeaderMap {
    let now = clock(0).now().in_tz("UTC").unwrap();
    let date = jiff::fmt::rfc2822::DateTimePrinter::new()
        .zoned_to_string(&now)
        .unwrap()
        .replace("+0000", "GMT");
    let mut headers = http::HeaderMap::new();
    headers.insert("date", date.parse().unwrap());
    headers
}

#[tokio::test(start_paused = true)]
async fn an_expired_certificate_is_replaced_and_was_never_ready() {
    let server = installed();
    let issuing = issuing(30, 90);
    {
        let mut rotator = Rotator::new(
            server.client(),
            options("old", issuing.clone()),
            clock(-600),
            Arc::new(Memory::default()),
        );
        for _ in 0..3 {
            rotator.round(&server.client(), Reports::default()).await.unwrap();
        }
    }
    let expired = secret(&server).serving.unwrap().leaf;
    assert!(!expired.is_valid(clock(0).now()));
    let replicas = three(&server, &issuing);
    for replica in &replicas {
        replica.ready().await;
        assert_ne!(replica.serial(), expired.serial);
    }
}
