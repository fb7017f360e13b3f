//! What is told reaches the metrics under the kind that it is about.

use appwrapper_metrics::Build;
use appwrapper_reconciler::evidence::Doubt;
use serde_json::json;

use super::*;

fn wrapper() -> AppWrapper {
    let component = json!({"template": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "first"}}});
    serde_json::from_value(json!({
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper",
        "metadata": {"name": "aw", "namespace": "ns"}, "spec": {"components": [component]},
    }))
    .unwrap()
}

fn kind(api_version: &str, kind: &str) -> TypeRef {
    TypeRef {
        api_version: api_version.into(),
        kind: kind.into(),
    }
}

fn missing(type_ref: TypeRef, name: &str) -> Observation {
    Observation::ConfirmedMissing {
        component: ComponentRef {
            position: 0,
            type_ref,
            name: name.into(),
        },
        how: Missing::Absent,
    }
}

fn told(observations: impl IntoIterator<Item = Observation>) -> impl Fn(&str) -> u64 {
    let metrics = Metrics::new(&Build::default());
    let (teller, _publisher) = teller(Arc::clone(&metrics), 0);
    for observation in observations {
        teller.tell(&wrapper(), observation);
    }
    let page = metrics.registry().encode().unwrap();
    move |series| {
        let line = page.lines().find(|line| line.starts_with(&format!("{series} ")));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }
}

#[test]
fn reads_and_confirmations_are_counted_for_the_kinds_concerned() {
    let suspects = vec![kind("batch/v1", "Job"), kind("apps/v1", "Deployment")];
    let doubt = Doubt {
        reason: "timeout",
        message: "no answer".into(),
    };
    let value = told([
        Observation::CachedRead(kind("batch/v1", "Job"), CachedResult::Missing),
        Observation::CachedRead(kind("v1", "Service"), CachedResult::Present),
        Observation::Confirmed {
            suspects: suspects.clone(),
            result: ConfirmationResult::Doubt(doubt),
        },
        Observation::Confirmed {
            suspects,
            result: ConfirmationResult::Deferred,
        },
    ]);
    let reads = |resource, result| {
        value(&format!(
            "appwrapper_component_cached_reads_total{{resource=\"{resource}\",result=\"{result}\"}}"
        ))
    };
    assert_eq!(
        (
            reads("jobs.batch", "miss"),
            reads("services", "hit"),
            reads("services", "miss")
        ),
        (1, 1, 0)
    );
    for outcome in ["error", "deferred"] {
        for (resource, count) in [("jobs.batch", 1), ("deployments.apps", 1), ("services", 0)] {
            let series =
                format!("appwrapper_component_confirmations_total{{outcome=\"{outcome}\",resource=\"{resource}\"}}");
            assert_eq!(value(&series), count, "{series}");
        }
    }
}

#[test]
fn a_verdict_counts_once_for_each_kind_and_never_without_a_proof() {
    const FAILED: Observation = Observation::Failed("MissingComponent");
    let job = || kind("batch/v1", "Job");
    let verdicts = "appwrapper_missing_component_verdicts_total{namespace=\"ns\",resource=\"jobs.batch\"}";
    let tripwire = "appwrapper_unconfirmed_verdicts_total";
    let value = told([
        Observation::ConfirmationStarted,
        missing(job(), "a"),
        missing(job(), "b"),
        FAILED,
    ]);
    assert_eq!((value(verdicts), value(tripwire)), (1, 0));
    // The proof is of the confirmation before the verdict, and of no earlier one.
    let value = told([
        Observation::ConfirmationStarted,
        missing(job(), "a"),
        Observation::ConfirmationStarted,
        FAILED,
    ]);
    assert_eq!((value(verdicts), value(tripwire)), (0, 1));
}
