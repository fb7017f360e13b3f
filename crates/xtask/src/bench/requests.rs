//! The controller's requests, as the API server counted them in its audit log.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use appwrapper_testkit::cluster::Cluster;
use serde::{Deserialize, Serialize};

use super::times::round;

const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// A place in the audit log.
pub struct Mark {
    log: PathBuf,
    offset: u64,
}

/// What was asked between a mark and now.
#[derive(Debug, Serialize)]
pub struct Requests {
    /// Writes for each AppWrapper, those of Leases left out.
    pub writes_per_appwrapper: f64,
    /// Reads of single objects for each AppWrapper, those of Leases left out.
    pub gets_per_appwrapper: f64,
    /// Number by verb and resource.
    pub by_kind: BTreeMap<String, u64>,
    /// Number by code of the answer, where it was an error.
    pub refused: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    audit_id: String,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<Object>,
    response_status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    resource: String,
    api_group: String,
    subresource: String,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        for (separator, part) in [('.', &self.api_group), ('/', &self.subresource)] {
            if !part.is_empty() {
                write!(f, "{separator}{part}")?;
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Status {
    code: Option<u16>,
}

impl Mark {
    /// The end of the log as it is now.
    pub fn now(cluster: &Cluster) -> Result<Self> {
        let log = cluster.audit_log().context("the cluster writes no audit log")?;
        let offset = std::fs::metadata(&log)?.len();
        Ok(Self { log, offset })
    }

    /// The requests since, for so many AppWrappers.
    pub fn requests(&self, appwrappers: usize) -> Result<Requests> {
        let mut file = File::open(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut counted = Counted::default();
        for line in BufReader::new(file).lines() {
            // The last line may not be written to its end yet.
            if let Ok(event) = serde_json::from_str::<Event>(&line?) {
                counted.add(event);
            }
        }
        Ok(counted.requests(appwrappers))
    }
}

#[derive(Default)]
struct Counted {
    seen: HashSet<String>,
    writes: u32,
    gets: u32,
    by_kind: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
}

impl Counted {
    fn add(&mut self, event: Event) {
        // A watch is told of twice: when it begins and when it ends.
        if !self.seen.insert(event.audit_id) {
            return;
        }
        let kind = match event.object_ref {
            Some(object) => {
                if object.resource != "leases" {
                    self.writes += u32::from(WRITES.contains(&event.verb.as_str()));
                    self.gets += u32::from(event.verb == "get");
                }
                format!("{} {object}", event.verb)
            }
            // Discovery, once for a kind.
            None => format!("{} {}", event.verb, event.uri),
        };
        if let Some(code) = event
            .response_status
            .and_then(|status| status.code)
            .filter(|code| *code >= 400)
        {
            *self.refused.entry(format!("{code} {kind}")).or_default() += 1;
        }
        *self.by_kind.entry(kind).or_default() += 1;
    }

    fn requests(self, appwrappers: usize) -> Requests {
        let count = f64::from(u32::try_from(appwrappers.max(1)).unwrap_or(u32::MAX));
        Requests {
            writes_per_appwrapper: round(f64::from(self.writes) / count),
            gets_per_appwrapper: round(f64::from(self.gets) / count),
            by_kind: self.by_kind,
            refused: self.refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_once_and_only_for_appwrappers_if_it_concerns_objects() {
        let lines = [
            r#"{"auditID":"1","verb":"create","requestURI":"","objectRef":{"resource":"jobs","apiGroup":"batch"},"responseStatus":{"code":201}}"#,
            r#"{"auditID":"2","verb":"patch","requestURI":"","objectRef":{"resource":"appwrappers","apiGroup":"workload.codeflare.dev","subresource":"status"},"responseStatus":{"code":409}}"#,
            r#"{"auditID":"3","verb":"update","requestURI":"","objectRef":{"resource":"leases","apiGroup":"coordination.k8s.io"}}"#,
            r#"{"auditID":"4","verb":"watch","requestURI":"","objectRef":{"resource":"pods"}}"#,
            r#"{"auditID":"4","verb":"watch","requestURI":"","objectRef":{"resource":"pods"}}"#,
            r#"{"auditID":"5","verb":"get","requestURI":"/apis/batch/v1"}"#,
        ];
        let mut counted = Counted::default();
        for line in lines {
            counted.add(serde_json::from_str(line).unwrap());
        }
        let requests = counted.requests(2);
        assert!((requests.writes_per_appwrapper - 1.0).abs() < 1e-9);
        assert!(requests.gets_per_appwrapper.abs() < 1e-9);
        assert_eq!(requests.by_kind["watch pods"], 1);
        assert_eq!(
            requests.refused["409 patch appwrappers.workload.codeflare.dev/status"],
            1
        );
    }
}
