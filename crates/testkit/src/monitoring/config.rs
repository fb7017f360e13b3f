//! Configuration files, in JSON, which is YAML.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// Jobs of our own programs, as the rules name them.
pub const JOBS: [&str; 2] = ["appwrapper-controller", "appwrapper-webhook"];

/// Prometheus: our programs by files that are kept up to date, and the API server.
pub fn prometheus(server: &str, interval: Duration, alertmanager: Option<&str>) -> String {
    let interval = format!("{}ms", interval.as_millis());
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboards/rules/*.yaml");
    let job = |name: &str, more: Value| {
        let mut job = json!({
            "job_name": name,
            "authorization": {"credentials_file": "token"},
            // Certificates are made at start, as in a cluster without cert-manager.
            "tls_config": {"insecure_skip_verify": true},
        });
        json_patch::merge(&mut job, &more);
        job
    };
    let mut jobs: Vec<Value> = JOBS
        .iter()
        .map(|name| {
            let files = json!([{"files": [format!("{name}.json")], "refresh_interval": interval}]);
            job(name, json!({"honor_labels": true, "file_sd_configs": files}))
        })
        .collect();
    let (scheme, address) = server.split_once("://").unwrap_or(("https", server));
    let target = json!([{"targets": [address.trim_end_matches('/')]}]);
    jobs.push(job("apiserver", json!({"scheme": scheme, "static_configs": target})));
    let alerting = alertmanager.map(|address| json!({"alertmanagers": [{"static_configs": [{"targets": [address]}]}]}));
    json!({
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [rules],
        "alerting": alerting.unwrap_or_else(|| json!({})),
        "scrape_configs": jobs,
    })
    .to_string()
}

/// Alertmanager: everything is shown, nobody is called.
pub fn alertmanager() -> String {
    let nobody = "nobody";
    json!({
        "route": {"receiver": nobody, "group_by": ["alertname"], "group_wait": "1s", "group_interval": "5s"},
        "receivers": [{"name": nobody}],
    })
    .to_string()
}
