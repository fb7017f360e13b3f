//! What cargo-fuzz calls, for a few seconds each with values made here, so that it runs with the other tests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod common;
#[path = "../fuzz/entries.rs"]
mod entries;

use std::time::{Duration, Instant};

use common::{component, job, pod, review, user, wrapper};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use serde_json::{Value, json};

/// For each of the tests here.
const TIME: Duration = Duration::from_secs(4);

/// Calls an entry with generated values until the time is over.
fn run(strategy: impl Strategy<Value = Vec<u8>>, entry: fn(&[u8])) {
    let mut runner = TestRunner::deterministic();
    let begun = Instant::now();
    let mut cases = 0;
    while begun.elapsed() < TIME {
        entry(&strategy.new_tree(&mut runner).unwrap().current());
        cases += 1;
    }
    assert!(cases > 50, "only {cases} cases in {TIME:?}");
}

/// Any JSON, with the keys that mean something to us among others.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[ -~é]{0,12}".prop_map(Value::from),
        prop_oneof![
            Just("v1"),
            Just("batch/v1"),
            Just("Job"),
            Just("Pod"),
            Just("template"),
            Just("template.spec[0]"),
            Just("AppWrapper"),
            Just("workload.codeflare.dev/v1beta2")
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let key = prop_oneof![
            Just("metadata"),
            Just("spec"),
            Just("components"),
            Just("template"),
            Just("podSets"),
            Just("podSetInfos"),
            Just("path"),
            Just("replicas"),
            Just("labels"),
            Just("annotations"),
            Just("kind"),
            Just("apiVersion"),
            Just("name"),
            Just("generateName"),
            Just("namespace"),
            Just("containers"),
            Just("parallelism"),
            Just("completions"),
            Just("items"),
            Just("replicatedJobs"),
            Just("suspend"),
            Just("managedBy"),
            Just("status"),
            Just("x"),
        ]
        .prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

#[test]
fn any_review_gets_an_answer_from_both_webhooks() {
    let objects = (json_value(), json_value(), any::<bool>()).prop_map(|(object, old, update)| {
        review(if update { "UPDATE" } else { "CREATE" }, &user(), &object, &old).into_bytes()
    });
    run(objects, entries::review);
}

#[test]
fn any_bytes_get_an_answer() {
    let valid = review("CREATE", &user(), &wrapper(vec![component(pod("p"))]), &Value::Null).into_bytes();
    let noise = prop::collection::vec(any::<u8>(), 0..300);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6);
    let damaged = (damage, any::<prop::sample::Index>(), any::<bool>()).prop_map(move |(damage, end, cut)| {
        let mut body = valid.clone();
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if cut {
            body.truncate(end.index(body.len()));
        }
        body
    });
    run(prop_oneof![noise, damaged.clone(), damaged], entries::review);
}

#[test]
fn any_template_is_judged() {
    let near = json_value().prop_map(|odd| {
        let mut template = job("j");
        template["spec"]["template"]["spec"] = odd;
        template
    });
    let templates = prop_oneof![json_value(), near].prop_map(|template| template.to_string().into_bytes());
    run(templates, entries::template);
}

#[test]
fn any_path_leads_somewhere_or_is_refused() {
    let paths = prop_oneof![
        "template[.\\[\\]a-z0-9+-]{0,30}",
        "template(\\.spec|\\.list|\\[[0-2]\\]|\\.tpl|\\.){0,6}",
        ".{0,40}"
    ];
    let lines = (paths, prop::option::of(json_value())).prop_map(|(path, template)| match template {
        Some(template) => format!("{path}\n{template}").into_bytes(),
        None => path.into_bytes(),
    });
    run(lines, entries::path);
}

#[test]
fn any_annotation_is_read_or_warned_of() {
    let suffix = prop_oneof![
        Just("retryLimit".to_owned()),
        Just("terminalExitCodes".to_owned()),
        Just("successTTLDuration".to_owned()),
        Just("warmupGracePeriodDuration".to_owned()),
        "[ -~é]{0,20}",
    ];
    let value = prop_oneof!["[0-9hmsunµ.+-]{0,24}", "[0-9, -]{0,40}", ".{0,40}"];
    let lines = prop::collection::vec((suffix, value), 0..6).prop_map(|lines| {
        let lines: Vec<_> = lines
            .into_iter()
            .map(|(suffix, value)| format!("{suffix}={value}"))
            .collect();
        lines.join("\n").into_bytes()
    });
    run(lines, entries::annotations);
}
