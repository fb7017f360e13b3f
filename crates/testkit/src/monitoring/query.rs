//! What Prometheus answers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::Monitoring;
use crate::controller::serving;

/// How often an answer is asked for again.
const LOOK: Duration = Duration::from_millis(250);

/// A part of time.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Its beginning.
    pub start: SystemTime,
    /// Its end.
    pub end: SystemTime,
    /// From one point of an answer to the next.
    pub step: Duration,
}

/// A series of an answer.
#[derive(Debug, Clone)]
pub struct Series {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its values, the oldest first; without those that are no number.
    pub values: Vec<f64>,
}

impl Monitoring {
    /// Waits until a query has a number for an answer.
    ///
    /// # Errors
    ///
    /// When it has none in time.
    pub async fn until(&self, query: &str, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        loop {
            let now = SystemTime::now();
            let span = Span {
                start: now,
                end: now,
                step: LOOK,
            };
            let answer = self.range(query, span).await?;
            if answer.iter().any(|series| !series.values.is_empty()) {
                return Ok(());
            }
            if Instant::now() >= until {
                bail!("{query} has no answer in time");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A query over a part of time.
    ///
    /// # Errors
    ///
    /// When Prometheus refuses it, or warns of it.
    pub async fn range(&self, query: &str, span: Span) -> Result<Vec<Series>> {
        let parameters = form_urlencoded::Serializer::new(String::new())
            .append_pair("query", query)
            .append_pair("start", &seconds(span.start))
            .append_pair("end", &seconds(span.end))
            .append_pair("step", &span.step.as_secs_f64().to_string())
            .finish();
        let answer = serving::get(&self.address, &format!("/api/v1/query_range?{parameters}")).await;
        let answer: Value = serde_json::from_str(&answer.with_context(|| query.to_owned())?)?;
        if let Some(warnings) = answer.get("warnings") {
            bail!("{query}: {warnings}");
        }
        let result = answer.pointer("/data/result").and_then(Value::as_array);
        Ok(result.into_iter().flatten().map(series).collect())
    }
}

fn series(answer: &Value) -> Series {
    let values = answer["values"].as_array().into_iter().flatten();
    Series {
        labels: serde_json::from_value(answer["metric"].clone()).unwrap_or_default(),
        values: values
            .filter_map(|point| point[1].as_str()?.parse().ok())
            .filter(|value: &f64| value.is_finite())
            .collect(),
    }
}

fn seconds(time: SystemTime) -> String {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
        .to_string()
}
