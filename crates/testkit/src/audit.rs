//! The API server's audit log: what was asked, by whom, and what came of it.
//!
//! It is the one witness that no client can mislead. How much an event holds is up to the policy that the cluster was started
//! with ([`ClusterOptions::audited_by`](crate::cluster::ClusterOptions::audited_by)).

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::controller::{ACCOUNT, NAMESPACE};

/// The verbs that change something.
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
/// Where an event says which token was used.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// A place in the audit log, from which it is read on.
pub struct AuditLog {
    path: PathBuf,
    offset: u64,
    /// A watch is told of twice: when it begins and when it ends.
    seen: HashSet<String>,
}

/// One request.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    #[serde(rename = "auditID")]
    id: String,
    /// What was asked for.
    pub verb: String,
    /// Where.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// By whom.
    pub user: User,
    /// What it was about; discovery is about nothing.
    pub object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    /// The body, where the policy asks for it.
    #[serde(default)]
    pub request_object: Value,
    /// The object as it is after it, where the policy asks for it.
    #[serde(default)]
    pub response_object: Value,
    /// When it came.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    /// When it was answered.
    #[serde(rename = "stageTimestamp")]
    pub answered: Timestamp,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Who asked.
#[derive(Debug, Clone, Deserialize)]
pub struct User {
    /// The account.
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

/// What a request was about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// The plural.
    pub resource: String,
    /// Its group, empty for the core.
    pub api_group: String,
    /// Such as `status`; empty for the object itself.
    pub subresource: String,
    /// Where, if it is in a namespace.
    pub namespace: String,
    /// Its name; with a create it may be in the body alone.
    pub name: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Status {
    code: Option<u16>,
}

impl AuditLog {
    /// The end of the log as it is now.
    ///
    /// # Errors
    ///
    /// When the cluster writes none.
    pub fn from_now(cluster: &Cluster) -> Result<Self> {
        let mut log = Self::from_start(cluster)?;
        log.offset = std::fs::metadata(&log.path)?.len();
        Ok(log)
    }

    /// Its beginning.
    ///
    /// # Errors
    ///
    /// When the cluster writes none.
    pub fn from_start(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            path: cluster.audit_log().context("the cluster writes no audit log")?,
            offset: 0,
            seen: HashSet::new(),
        })
    }

    /// The requests since the last time, each once.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or a line of it is no event.
    pub fn read(&mut self) -> Result<Vec<AuditEvent>> {
        let path = self.path.display().to_string();
        let mut file = File::open(&self.path).with_context(|| format!("reading {path}"))?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut lines = BufReader::new(file);
        let mut events = Vec::new();
        let mut line = String::new();
        // The last line may not be written to its end yet; it is read the next time.
        while lines.read_line(&mut line)? > 0 && line.ends_with('\n') {
            self.offset += line.len() as u64;
            let event: AuditEvent = serde_json::from_str(&line).with_context(|| format!("an event in {path}"))?;
            if self.seen.insert(event.id.clone()) {
                events.push(event);
            }
            line.clear();
        }
        Ok(events)
    }
}

impl AuditEvent {
    /// The code of the answer; 0 if there was none.
    pub fn code(&self) -> u16 {
        self.response_status
            .as_ref()
            .and_then(|status| status.code)
            .unwrap_or(0)
    }

    /// Whether it changes something.
    pub fn is_write(&self) -> bool {
        WRITES.contains(&self.verb.as_str())
    }

    /// Whether it was done.
    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.code())
    }

    /// Whether it was refused for want of rights; quotas answer 403 too.
    pub fn is_forbidden(&self) -> bool {
        self.annotations
            .get("authorization.k8s.io/decision")
            .is_some_and(|decision| decision == "forbid")
    }

    /// Whether the controller's account asked.
    pub fn is_of_the_controller(&self) -> bool {
        let account = self.user.username.strip_prefix("system:serviceaccount:");
        account.and_then(|account| account.split_once(':')) == Some((NAMESPACE, ACCOUNT))
    }

    /// The token that was used. Each start of a controller has one of its own.
    pub fn credential(&self) -> Option<&str> {
        Some(self.user.extra.get(CREDENTIAL)?.first()?.as_str())
    }

    /// The version of the object after it. Versions of one API server are one sequence over all kinds.
    pub fn version(&self) -> Option<u64> {
        let version = self.response_object.pointer("/metadata/resourceVersion")?;
        version.as_str()?.parse().ok()
    }

    /// Verb and resource, or verb and address where there is none.
    pub fn kind(&self) -> String {
        match &self.object_ref {
            Some(object) => format!("{} {object}", self.verb),
            None => format!("{} {}", self.verb, self.uri),
        }
    }
}

impl fmt::Display for ObjectRef {
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn each_request_is_read_once_and_half_a_line_later() {
        let path = std::env::temp_dir().join(format!("audit-{}.log", std::process::id()));
        let event = |id: &str| {
            format!(
                r#"{{"auditID":"{id}","verb":"watch","requestURI":"/","user":{{}},"requestReceivedTimestamp":"2026-01-01T00:00:00Z","stageTimestamp":"2026-01-01T00:00:00Z"}}"#
            )
        };
        let mut file = File::create(&path).unwrap();
        let last = event("2");
        let (half, rest) = last.split_at(20);
        write!(file, "{}\n{}\n{half}", event("1"), event("1")).unwrap();
        let mut log = AuditLog {
            path: path.clone(),
            offset: 0,
            seen: HashSet::new(),
        };
        assert_eq!(log.read().unwrap().len(), 1);
        writeln!(file, "{rest}").unwrap();
        assert_eq!(log.read().unwrap().len(), 1);
        assert_eq!(log.read().unwrap().len(), 0);
        std::fs::remove_file(path).unwrap();
    }
}
