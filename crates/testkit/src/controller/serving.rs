//! Where a controller serves, by its own log, and how to ask there.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::{Client, Config};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(5);

/// Addresses as `HOST:PORT`.
#[derive(Debug, Default, Clone)]
pub struct Addresses {
    pub metrics: Option<String>,
    pub probes: Option<String>,
}

impl Addresses {
    /// Those that the log tells of so far.
    pub fn read(log: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(log).with_context(|| format!("reading {}", log.display()))?;
        let mut found = Self::default();
        for line in text.lines().filter(|line| line.contains("\"serving\"")) {
            // The last line may not be written to its end yet.
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let address = line.get("address").and_then(Value::as_str).map(str::to_owned);
            match line.get("what").and_then(Value::as_str) {
                Some("metrics") => found.metrics = address,
                Some("probes") => found.probes = address,
                _ => {}
            }
        }
        Ok(found)
    }
}

/// The text that is served at an address.
pub async fn get(address: &str, path: &str) -> Result<String> {
    let url = format!("http://{address}").parse()?;
    let client = Client::try_from(Config::new(url))?;
    let request = http::Request::get(path).body(Vec::new())?;
    let answer = tokio::time::timeout(PATIENCE, client.request_text(request)).await;
    Ok(answer.with_context(|| format!("{address}{path} does not answer"))??)
}
