//! What a row of the table of metrics says.

/// One metric family.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// Name in the exposition, with the unit as suffix.
    pub name: &'static str,
    /// Type, with the buckets of a histogram.
    pub kind: Kind,
    /// Labels in the order in which values are given.
    pub labels: &'static [Label],
    /// Which binaries export it.
    pub scope: Scope,
    /// Whether its series exist from the start.
    pub start: Start,
    /// Meaning, one or two sentences.
    pub help: &'static str,
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only ever rises, or starts again at 0 with the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Cumulative buckets with these upper bounds.
    Histogram(&'static [f64]),
}

/// Who exports a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The controller.
    Controller,
    /// The webhook.
    Webhook,
    /// Both.
    Both,
}

/// When the series of a metric begin to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At 0 when the process starts, for every combination of its label values. `increase()` over a series that first
    /// appears at 1 is 0, so an alert would miss the first event; and "no data" then always means a fault.
    Zero,
    /// At 0 as well, but only for the combinations that can occur; the struct that owns the metric knows them.
    Possible,
    /// When first used: a label has no closed set of values, or a 0 would be a lie (a timestamp, a cache that is not run).
    OnUse,
}

/// One label of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Name.
    pub name: &'static str,
    /// What values it may have.
    pub values: Values,
}

/// The values a label may have.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// These.
    Closed(&'static [&'static str]),
    /// `0` up to the configured number of shards.
    Shard,
    /// Namespaces, capped; what is beyond the cap is [`crate::capped::OVERFLOW`].
    Namespace,
    /// No set can be given; the text says what bounds it.
    Open(&'static str),
}

impl Descriptor {
    /// Unit, from the suffix of the name; empty for a plain number.
    pub fn unit(&self) -> &'static str {
        let base = self.name.strip_suffix("_total").unwrap_or(self.name);
        if base.ends_with("_timestamp_seconds") {
            "Unix time in seconds"
        } else if base.ends_with("_seconds") {
            "seconds"
        } else if base.ends_with("_bytes") {
            "bytes"
        } else {
            ""
        }
    }

    /// Label names in order.
    pub fn label_names(&self) -> Vec<&'static str> {
        self.labels.iter().map(|label| label.name).collect()
    }

    /// Whether this binary exports it.
    pub fn is_for(&self, scope: Scope) -> bool {
        self.scope == scope || self.scope == Scope::Both
    }

    /// Every combination of label values, if all of them are known beforehand.
    pub fn combinations(&self, shards: u32) -> Option<Vec<Vec<String>>> {
        let mut rows = vec![Vec::new()];
        for label in self.labels {
            let values: Vec<String> = match label.values {
                Values::Closed(values) => values.iter().map(ToString::to_string).collect(),
                Values::Shard => (0..shards).map(|shard| shard.to_string()).collect(),
                Values::Namespace | Values::Open(_) => return None,
            };
            rows = rows
                .into_iter()
                .flat_map(|row| {
                    values.iter().map(move |value| {
                        let mut longer: Vec<String> = row.clone();
                        longer.push(value.clone());
                        longer
                    })
                })
                .collect();
        }
        Some(rows)
    }
}

impl Kind {
    /// Type as in the `# TYPE` line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}
