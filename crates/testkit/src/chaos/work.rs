//! What the AppWrappers of a chaos run wrap, by their number: what ends at once, what runs a while, what has several
//! components or names that are made, and what fails and is retried.

use appwrapper_api::{ANNOTATION_PREFIX, annotations::suffix};
use serde_json::{Value, json};

use crate::judge::End;
use crate::wrappers::{job, with_components};

const RUN: &str = "appwrapper.test/run-seconds";
const EXIT_CODE: &str = "appwrapper.test/exit-code";

/// The AppWrapper of a name.
pub fn wrapper(name: &str) -> Value {
    match number(name) % 5 {
        0 => with_components(name, &[job(name, &[])]),
        1 => with_components(name, &[job(name, &[(RUN, "2")])]),
        2 => with_components(
            name,
            &[generated(job(name, &[])), job(name, &[(RUN, "1")]), config_map(name)],
        ),
        3 => with_components(name, &[generated(job(name, &[])), generated(job(name, &[(RUN, "1")]))]),
        _ => {
            let mut failing = with_components(name, &[job(name, &[(EXIT_CODE, "1")])]);
            let annotation = |suffix: &str| format!("{ANNOTATION_PREFIX}{suffix}");
            failing["metadata"]["annotations"] = json!({
                annotation(suffix::FAILURE_GRACE): "0s",
                annotation(suffix::RETRY_PAUSE): "1s",
                annotation(suffix::RETRY_LIMIT): "1",
            });
            failing
        }
    }
}

/// How it should end.
pub fn end(name: &str) -> End {
    let fails = number(name) % 5 == 4;
    End {
        fails,
        retries: i64::from(fails),
    }
}

fn number(name: &str) -> usize {
    let number = name.rsplit('-').next().and_then(|number| number.parse().ok());
    number.unwrap_or_default()
}

/// The same with a name that is made by its prefix.
fn generated(mut component: Value) -> Value {
    let prefix = component["metadata"]["name"].as_str().map(|name| format!("{name}-"));
    component["metadata"] = json!({ "generateName": prefix });
    component
}

fn config_map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "a": "b" } })
}
