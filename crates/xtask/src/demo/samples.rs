//! The samples, how each is expected to end, and the wait until it has.
//!
//! kwok runs no commands, so annotations on the pod templates say what the commands of a sample would have come to.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use appwrapper_api::annotations::suffix::RETRY_LIMIT;
use appwrapper_api::{ANNOTATION_PREFIX, AppWrapper, AppWrapperStatus, ConditionType, Phase, conditions};
use appwrapper_testkit::cluster::Cluster;
use serde_json::{Value, json};
use tokio::time::timeout_at;

use super::NAMESPACE;
use super::board::{Board, Row};
use crate::cargo::root;
use appwrapper_testkit::wrappers::{self, Watch};

/// How long all of them may take.
const DEADLINE: Duration = Duration::from_secs(120);

/// How a sample is expected to end.
#[derive(Debug, Clone, Copy)]
enum End {
    Succeeded,
    /// After all retries that its annotation allows.
    Failed,
    /// It does not end, and has all its pods.
    PodsReady,
}

/// A file in `deploy/samples` and what is to come of it.
struct File {
    name: &'static str,
    /// Annotations for its pods.
    pods: &'static [(&'static str, &'static str)],
    end: End,
}

const fn file(name: &'static str, pods: &'static [(&'static str, &'static str)], end: End) -> File {
    File { name, pods, end }
}

const RUN: &str = "appwrapper.test/run-seconds";
const FILES: [File; 7] = [
    file("job.yaml", &[(RUN, "2")], End::Succeeded),
    file("multi-component.yaml", &[(RUN, "3")], End::Succeeded),
    file("failing-job.yaml", &[("appwrapper.test/exit-code", "1")], End::Failed),
    file("generate-name-job.yaml", &[(RUN, "1")], End::Succeeded),
    file("deployment.yaml", &[], End::PodsReady),
    file("statefulset.yaml", &[], End::PodsReady),
    file(
        "pod.yaml",
        &[(RUN, "1"), ("appwrapper.test/complete", "true")],
        End::Succeeded,
    ),
];

/// What a sample has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Waiting,
    AsExpected,
    Otherwise,
}

struct Sample {
    name: String,
    object: Value,
    expected: Expected,
}

#[derive(Debug, Clone, Copy)]
struct Expected {
    end: End,
    retries: i32,
}

/// Submits all samples and waits until each has ended as expected.
pub async fn run(cluster: &Cluster) -> Result<()> {
    let samples = FILES.iter().map(Sample::read).collect::<Result<Vec<Sample>>>()?;
    let client = cluster.client();
    let mut watch = Watch::start(&client, NAMESPACE).await?;
    for sample in &samples {
        wrappers::create(&client, NAMESPACE, &sample.object).await?;
    }

    let rows = samples
        .iter()
        .map(|sample| Row::new(&sample.name, sample.expected.to_string()));
    let mut board = Board::new(rows.collect());
    let expected: BTreeMap<&str, Expected> = samples
        .iter()
        .map(|sample| (sample.name.as_str(), sample.expected))
        .collect();
    let mut verdicts: BTreeMap<&str, Verdict> = BTreeMap::new();
    let until = (Instant::now() + DEADLINE).into();
    while verdicts.len() < samples.len() || verdicts.values().any(|verdict| *verdict == Verdict::Waiting) {
        let Ok(wrapper) = timeout_at(until, watch.next()).await else {
            break;
        };
        let wrapper = wrapper?;
        let name = wrapper.metadata.name.as_deref().unwrap_or_default();
        let Some((name, expected)) = expected.get_key_value(name) else {
            continue;
        };
        let verdict = expected.judge(&wrapper.status);
        verdicts.insert(name, verdict);
        board.show(name, &seen(&wrapper), verdict != Verdict::Waiting);
    }
    board.end();

    let name = |sample: &Sample| sample.name.clone();
    let others = samples
        .iter()
        .filter(|sample| verdicts.get(sample.name.as_str()) != Some(&Verdict::AsExpected));
    let others: Vec<String> = others.map(name).collect();
    if !others.is_empty() {
        bail!("not as expected: {}", others.join(", "));
    }
    Ok(())
}

impl Sample {
    fn read(file: &File) -> Result<Self> {
        let path = root().join("deploy/samples").join(file.name);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let mut object: Value = serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        let components = object.pointer_mut("/spec/components").and_then(Value::as_array_mut);
        for component in components.into_iter().flatten() {
            if let Some(template) = component.get_mut("template") {
                annotate(template, file.pods);
            }
        }
        let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
        let limit = annotations.and_then(|all| all.get(&format!("{ANNOTATION_PREFIX}{RETRY_LIMIT}"))?.as_str());
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        Ok(Self {
            name: name.with_context(|| format!("{} has no name", file.name))?.to_owned(),
            expected: Expected {
                end: file.end,
                retries: limit.unwrap_or("0").parse().context("a retry limit is a number")?,
            },
            object,
        })
    }
}

/// Annotates the pod template in a component's template, if it has one where the kinds of the samples have theirs.
fn annotate(template: &mut Value, annotations: &[(&str, &str)]) {
    let pod = if template.get("kind").is_some_and(|kind| kind == "Pod") {
        Some(template)
    } else {
        template.pointer_mut("/spec/template")
    };
    if let Some(pod) = pod {
        let more: serde_json::Map<String, Value> = annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        json_patch::merge(pod, &json!({ "metadata": { "annotations": more } }));
    }
}

impl Expected {
    fn judge(self, status: &AppWrapperStatus) -> Verdict {
        let as_expected = match (status.phase(), self.end) {
            (Some(Phase::Succeeded), end) => matches!(end, End::Succeeded),
            (Some(Phase::Failed), end) => matches!(end, End::Failed) && status.resetting_count == self.retries,
            (Some(Phase::Running), End::PodsReady)
                if conditions::is_true(&status.conditions, ConditionType::PodsReady) =>
            {
                true
            }
            _ => return Verdict::Waiting,
        };
        if as_expected {
            Verdict::AsExpected
        } else {
            Verdict::Otherwise
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.end {
            End::Succeeded => f.write_str("Succeeded"),
            End::Failed => write!(f, "Failed, {}", counted(self.retries)),
            End::PodsReady => f.write_str("Running, pods ready"),
        }
    }
}

/// The phase and what goes with it, as the column shows it.
fn seen(wrapper: &AppWrapper) -> String {
    let status = &wrapper.status;
    let phase = status.phase.as_str();
    let phase = if phase.is_empty() { "submitted" } else { phase };
    let ready = conditions::is_true(&status.conditions, ConditionType::PodsReady);
    let ready = if ready && status.phase() == Some(Phase::Running) {
        ", pods ready"
    } else {
        ""
    };
    match status.resetting_count {
        0 => format!("{phase}{ready}"),
        retries => format!("{phase}{ready}, {}", counted(retries)),
    }
}

fn counted(retries: i32) -> String {
    format!("{retries} {}", if retries == 1 { "retry" } else { "retries" })
}
