//! When what happened, by the clock of this process, and how that spreads.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result};
use appwrapper_api::{AppWrapper, ConditionType, Phase, conditions};
use serde::Serialize;
use tokio::time::timeout_at;

use super::stage::DEADLINE;
use appwrapper_testkit::wrappers::Watch;

/// What a watch has told of one AppWrapper so far.
#[derive(Debug, Default, Clone)]
pub struct Life {
    /// First seen in Running or beyond.
    pub running: Option<Instant>,
    /// How it ended, and when that was seen.
    pub ended: Option<(Phase, Instant)>,
    /// It was found unhealthy for this reason.
    pub unhealthy: Option<String>,
}

impl Life {
    /// Takes in what the watch delivered.
    pub fn see(&mut self, wrapper: &AppWrapper) {
        let now = Instant::now();
        let phase = wrapper.status.phase().unwrap_or_default();
        let ended = matches!(phase, Phase::Succeeded | Phase::Failed);
        if ended || phase == Phase::Running {
            self.running.get_or_insert(now);
        }
        if ended {
            self.ended.get_or_insert((phase, now));
        }
        let unhealthy = conditions::find(&wrapper.status.conditions, ConditionType::Unhealthy);
        if let Some(condition) = unhealthy.filter(|condition| condition.status == "True") {
            self.unhealthy = Some(condition.reason.clone());
        }
    }
}

/// Follows the watch until so many AppWrappers have ended, or until the deadline. `running` is told the name of each that
/// is seen in Running for the first time.
pub async fn follow(mut watch: Watch, count: usize, running: impl Fn(&str)) -> Result<BTreeMap<String, Life>> {
    let mut lives: BTreeMap<String, Life> = BTreeMap::new();
    let mut ended = 0;
    let until = (Instant::now() + DEADLINE).into();
    while ended < count {
        let Ok(wrapper) = timeout_at(until, watch.next()).await else {
            break;
        };
        let wrapper = wrapper?;
        let name = wrapper.metadata.name.clone().context("an AppWrapper has a name")?;
        let life = lives.entry(name.clone()).or_default();
        let before = life.clone();
        life.see(&wrapper);
        if before.running.is_none() && life.running.is_some() {
            running(&name);
        }
        if before.ended.is_none() && life.ended.is_some() {
            ended += 1;
        }
    }
    Ok(lives)
}

/// How a number of durations spread, in the unit in which they were given: seconds, if a name says no other.
#[derive(Debug, Clone, Serialize)]
pub struct Spread {
    /// Half are no longer than this.
    pub p50: f64,
    /// Of a hundred, 99 are no longer than this.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Spread {
    /// Of nothing there is none.
    pub fn of(durations: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = durations.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            p50: percentile(&sorted, 50)?,
            p99: percentile(&sorted, 99)?,
            max: round(*sorted.last()?),
        })
    }
}

/// The smallest of the sorted values that at least so many of a hundred do not exceed.
fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().map(round)
}

/// To three places, as clocks and schedulers give no more.
pub fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let spread = Spread::of((1..=200).rev().map(f64::from)).unwrap();
        assert!((spread.p50 - 100.0).abs() < 1e-9);
        assert!((spread.p99 - 198.0).abs() < 1e-9);
        assert!((spread.max - 200.0).abs() < 1e-9);
        assert!((Spread::of([3.0]).unwrap().p99 - 3.0).abs() < 1e-9);
        assert!(Spread::of([]).is_none());
    }
}
