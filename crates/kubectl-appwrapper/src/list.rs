//! AppWrappers in a table.

use appwrapper_api::{AppWrapper, ConditionType, QUEUE_NAME_LABEL, conditions, podsets};
use jiff::Timestamp;
use serde::Serialize;

use crate::style::{Paint, age};

/// One AppWrapper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Phase.
    pub phase: String,
    /// What is wrong with it.
    pub unhealthy: String,
    /// Retries used.
    pub retries: i32,
    /// Components.
    pub components: usize,
    /// Pods that it should have.
    pub pods: i64,
    /// Queue.
    pub queue: String,
    /// When it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
}

/// The row of an AppWrapper.
pub fn row(wrapper: &AppWrapper) -> Row {
    let status = &wrapper.status;
    let unhealthy = conditions::find(&status.conditions, ConditionType::Unhealthy);
    let unhealthy = unhealthy.filter(|condition| condition.status == "True");
    let labels = wrapper.metadata.labels.as_ref();
    let queue = labels.and_then(|labels| labels.get(QUEUE_NAME_LABEL));
    Row {
        namespace: wrapper.metadata.namespace.clone().unwrap_or_default(),
        name: wrapper.metadata.name.clone().unwrap_or_default(),
        phase: status.phase.clone(),
        unhealthy: unhealthy.map(|condition| condition.reason.clone()).unwrap_or_default(),
        retries: status.resetting_count,
        components: wrapper.spec.components.len(),
        pods: podsets::expected_pods(&status.component_status),
        queue: queue.cloned().unwrap_or_default(),
        created: wrapper.metadata.creation_timestamp.as_ref().map(|time| time.0),
    }
}

/// The table, with the namespace if that is asked for.
pub fn text(rows: &[Row], with_namespace: bool, now: Timestamp, paint: Paint) -> String {
    let mut head = vec![
        "NAME",
        "PHASE",
        "UNHEALTHY",
        "RETRIES",
        "COMPONENTS",
        "PODS",
        "QUEUE",
        "AGE",
    ];
    if with_namespace {
        head.insert(0, "NAMESPACE");
    }
    let cells = |row: &Row| {
        let dash = |text: &str| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text.to_owned()
            }
        };
        let mut cells = vec![
            row.name.clone(),
            dash(&row.phase),
            dash(&row.unhealthy),
            row.retries.to_string(),
            row.components.to_string(),
            row.pods.to_string(),
            dash(&row.queue),
            row.created.map_or_else(|| "-".to_owned(), |created| age(created, now)),
        ];
        if with_namespace {
            cells.insert(0, row.namespace.clone());
        }
        cells
    };
    let mut table = vec![head.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    table.extend(rows.iter().map(cells));
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            let lengths = table
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count());
            lengths.max().unwrap_or_default()
        })
        .collect();
    let phase = if with_namespace { 2 } else { 1 };
    let mut text = String::new();
    for (index, row) in table.iter().enumerate() {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let cell = format!("{cell:<width$}");
            match (index, column) {
                (0, _) => paint.bold(&cell),
                (_, column) if column == phase => cell.replacen(cell.trim_end(), &paint.state(cell.trim_end()), 1),
                _ => cell,
            }
        });
        text += padded.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_has_aligned_columns() {
        let wrapper = |name: &str, phase: &str, unhealthy: &str| -> AppWrapper {
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"kueue.x-k8s.io/queue-name": "q"}},
                "spec": {"components": [{"template": {"apiVersion": "v1", "kind": "Pod"}}]},
                "status": {"phase": phase, "resettingCount": 2, "conditions": [{"type": "Unhealthy", "status": unhealthy,
                    "reason": "FoundFailedPods", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                    "componentStatus": [{"name": "", "kind": "", "apiVersion": "", "podSets": [{"path": "template", "replicas": 4}]}]},
            }))
            .unwrap()
        };
        let rows = [
            row(&wrapper("a", "Running", "False")),
            row(&wrapper("longer-name", "", "True")),
        ];
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(
            text(&rows, false, now, Paint::PLAIN),
            "NAME         PHASE    UNHEALTHY        RETRIES  COMPONENTS  PODS  QUEUE  AGE\n\
             a            Running  -                2        1           4     q      1h\n\
             longer-name  -        FoundFailedPods  2        1           4     q      1h\n"
        );
        assert!(text(&rows, true, now, Paint::PLAIN).starts_with("NAMESPACE  NAME"));
    }
}
