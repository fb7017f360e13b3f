//! Reads metrics in Prometheus' text format, as far as tests ask: values by name and labels.

/// All samples of one moment.
#[derive(Debug, Clone, Default)]
pub struct Scrape(Vec<Sample>);

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: String,
    value: f64,
}

impl Scrape {
    /// Reads a page of metrics. What is no sample is passed over.
    pub fn parse(text: &str) -> Self {
        let sample = |line: &str| {
            let (series, value) = line.trim_end().rsplit_once(' ')?;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            Some(Sample {
                name: name.to_owned(),
                labels: labels.trim_end_matches('}').to_owned(),
                value: value.parse().ok()?,
            })
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Self(lines.filter_map(sample).collect())
    }

    /// The sum of the series of this name that have all these labels; 0 if there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let pairs: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        let matches = |sample: &&Sample| {
            sample.name == name
                && pairs
                    .iter()
                    .all(|pair| sample.labels.split(',').any(|label| label == pair))
        };
        self.0.iter().filter(matches).map(|sample| sample.value).sum()
    }

    /// The same for a counter, as a whole number.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counters are whole and small"
    )]
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.sum(name, labels).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_name_and_labels() {
        let text =
            "# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"1\",y=\"3\"} 4\na{x=\"11\",y=\"2\"} 8\nab 16\nb 0.5\n";
        let scrape = Scrape::parse(text);
        assert_eq!(scrape.count("a", &[]), 15);
        assert_eq!(scrape.count("a", &[("x", "1")]), 7);
        assert_eq!(scrape.count("a", &[("y", "2"), ("x", "1")]), 3);
        assert_eq!(scrape.count("c", &[]), 0);
        assert!((scrape.sum("b", &[]) - 0.5).abs() < f64::EPSILON);
    }
}
