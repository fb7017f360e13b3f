//! Writes events of `events.k8s.io/v1`, one per fact: the same words told again soon count up the event that is there.
//!
//! kube's own recorder takes events for the same that differ in their note alone. Every failure of an AppWrapper has the
//! reason `Unhealthy`, as with the Go controller, so only the first one's words would ever be seen.

use std::collections::HashMap;

use appwrapper_api::conditions::truncate;
use appwrapper_reconciler::observation::Event;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    core::v1::ObjectReference,
    events::v1::{Event as Record, EventSeries},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

/// Longest note (events.k8s.io/v1).
const NOTE_LIMIT: usize = 1_000;
/// Longest part of an object's name in the name of an event.
const NAME_LIMIT: usize = 200;
/// For how long after it was last told a fact counts up its event; then it gets a new one, as with client-go.
const SERIES: SignedDuration = SignedDuration::from_mins(6);

/// What makes two events the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fact {
    uid: String,
    warning: bool,
    reason: &'static str,
    note: String,
}

/// The event that tells a fact.
#[derive(Debug)]
struct Told {
    name: String,
    count: i32,
    at: Timestamp,
}

/// Writes events.
pub struct Recorder {
    client: Client,
    instance: String,
    told: HashMap<Fact, Told>,
}

impl Recorder {
    /// A recorder that writes through `client` as this replica.
    pub fn new(client: Client, instance: &str) -> Self {
        Self {
            client,
            instance: instance.to_owned(),
            told: HashMap::new(),
        }
    }

    /// Writes one event.
    pub async fn publish(&mut self, event: &Event, regarding: &ObjectReference) -> kube::Result<()> {
        let now = Timestamp::now();
        self.told.retain(|_, told| now.duration_since(told.at) < SERIES);
        let namespace = regarding.namespace.as_deref().unwrap_or("default");
        let events: Api<Record> = Api::namespaced(self.client.clone(), namespace);
        let fact = Fact {
            uid: regarding.uid.clone().unwrap_or_default(),
            warning: event.warning,
            reason: event.reason,
            note: truncate(&event.note, NOTE_LIMIT),
        };
        if let Some(told) = self.told.get_mut(&fact) {
            told.count = told.count.saturating_add(1);
            told.at = now;
            let series = EventSeries {
                count: told.count,
                last_observed_time: MicroTime(now),
            };
            let patch = Patch::Merge(json!({"series": series}));
            events.patch(&told.name, &PatchParams::default(), &patch).await?;
            return Ok(());
        }
        let record = self.record(&fact, regarding, now);
        let name = record.metadata.name.clone().unwrap_or_default();
        events.create(&PostParams::default(), &record).await?;
        self.told.insert(
            fact,
            Told {
                name,
                count: 1,
                at: now,
            },
        );
        Ok(())
    }

    fn record(&self, fact: &Fact, regarding: &ObjectReference, now: Timestamp) -> Record {
        let about = regarding.name.as_deref().unwrap_or_default();
        // Names are ASCII, and this one gets an ending.
        let about = about.get(..NAME_LIMIT).unwrap_or(about);
        Record {
            metadata: ObjectMeta {
                namespace: regarding.namespace.clone(),
                name: Some(format!(
                    "{}.{:x}",
                    about.trim_end_matches(['.', '-']),
                    now.as_nanosecond()
                )),
                ..ObjectMeta::default()
            },
            action: Some("Reconcile".to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(fact.note.clone()),
            reason: Some(fact.reason.to_owned()),
            regarding: Some(regarding.clone()),
            reporting_controller: Some(appwrapper_api::EVENT_REPORTER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(if fact.warning { "Warning" } else { "Normal" }.to_owned()),
            ..Record::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use appwrapper_testkit::api_server::ApiServer;

    use super::*;

    #[tokio::test]
    async fn facts_with_one_reason_keep_their_words_and_a_repeated_one_is_counted() {
        let server = ApiServer::new();
        let mut recorder = Recorder::new(server.client_as("controller"), "replica");
        let regarding = ObjectReference {
            namespace: Some("team".to_owned()),
            name: Some("a".to_owned()),
            uid: Some("1".to_owned()),
            ..ObjectReference::default()
        };
        for note in ["one", "two", "one", "one"] {
            let event = Event::warning("Unhealthy", note);
            recorder.publish(&event, &regarding).await.unwrap();
        }
        let mut told: Vec<(String, i64)> = server
            .list("events.events.k8s.io", "team", "")
            .iter()
            .map(|event| {
                let note = event
                    .pointer("/note")
                    .and_then(serde_json::Value::as_str)
                    .unwrap_or_default();
                let count = event.pointer("/series/count").and_then(serde_json::Value::as_i64);
                (note.to_owned(), count.unwrap_or(1))
            })
            .collect();
        told.sort();
        assert_eq!(told, [("one".to_owned(), 3), ("two".to_owned(), 1)]);
    }
}
