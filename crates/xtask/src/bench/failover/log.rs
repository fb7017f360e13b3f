//! When shards changed hands, by the logs of all controllers of a cluster, which run on one machine and so by one clock.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use appwrapper_testkit::fleet::ring::SHARD_LEASE;
use jiff::Timestamp;
use serde::Deserialize;

/// The hand-overs since some moment.
pub struct Taken {
    since: Timestamp,
    /// By shard, when a holder let go of it, and when one began to act.
    moments: BTreeMap<usize, Vec<(Timestamp, Moment)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Released,
    ActedOn,
}

#[derive(Deserialize)]
struct Line {
    timestamp: Timestamp,
    message: String,
    #[serde(default)]
    shard: String,
    #[serde(default)]
    lease: String,
}

/// Reads all logs in the folder of a cluster.
pub fn taken(folder: &Path, since: Timestamp) -> Result<Taken> {
    let mut taken = Taken {
        since,
        moments: BTreeMap::new(),
    };
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("controller-") && path.extension().is_some_and(|extension| extension == "log") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            text.lines().for_each(|line| taken.hear(line));
        }
    }
    for moments in taken.moments.values_mut() {
        moments.sort_by_key(|(at, _)| *at);
    }
    Ok(taken)
}

impl Taken {
    fn hear(&mut self, line: &str) {
        // Other lines may have other fields.
        let Ok(line) = serde_json::from_str::<Line>(line) else {
            return;
        };
        let (shard, moment) = match line.message.as_str() {
            "lease released" => (
                line.lease.strip_prefix(SHARD_LEASE).unwrap_or_default(),
                Moment::Released,
            ),
            "the shard is ours" => (line.shard.as_str(), Moment::ActedOn),
            _ => return,
        };
        let number = shard.split('-').next().and_then(|number| number.parse().ok());
        if let Some(number) = number.filter(|_| line.timestamp >= self.since) {
            self.moments.entry(number).or_default().push((line.timestamp, moment));
        }
    }

    /// The longest, in seconds, that a shard was not acted on, by somebody's beginning to: after a release, or, unless only
    /// releases count, after the beginning. None if nobody began.
    pub fn longest(&self, shard: usize, from_release: bool) -> Option<f64> {
        let moments = self.moments.get(&shard)?;
        let mut idle_since = Some(self.since).filter(|_| !from_release);
        let mut longest = None;
        for (at, moment) in moments {
            match moment {
                Moment::Released => idle_since = idle_since.or(Some(*at)),
                Moment::ActedOn => {
                    if let Some(since) = idle_since.take() {
                        let seconds = at.duration_since(since).as_secs_f64();
                        longest = Some(longest.map_or(seconds, |longest: f64| longest.max(seconds)));
                    }
                }
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_idle_from_its_release_or_the_beginning_until_somebody_acts() {
        let mut taken = Taken {
            since: "2026-01-01T00:00:00Z".parse().unwrap(),
            moments: BTreeMap::new(),
        };
        for line in [
            r#"{"timestamp":"2026-01-01T00:00:01Z","message":"lease released","lease":"appwrapper-shard-3-of-8"}"#,
            r#"{"timestamp":"2026-01-01T00:00:03Z","message":"the shard is ours","shard":"3-of-8"}"#,
            r#"{"timestamp":"2025-12-31T00:00:03Z","message":"the shard is ours","shard":"4-of-8"}"#,
            r#"{"timestamp":"2026-01-01T00:00:03Z","message":"lease released","lease":"f134c674.codeflare.dev"}"#,
        ] {
            taken.hear(line);
        }
        assert_eq!(taken.longest(3, true), Some(2.0));
        assert_eq!(taken.longest(3, false), Some(3.0));
        assert_eq!(taken.longest(4, true), None);
    }
}
