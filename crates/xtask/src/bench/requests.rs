//! The controller's requests, as the API server counted them in its audit log.

use std::collections::BTreeMap;

use anyhow::Result;
use appwrapper_testkit::audit::{AuditEvent, AuditLog};
use appwrapper_testkit::cluster::Cluster;
use serde::Serialize;

use super::times::round;

/// A place in the audit log.
pub struct Mark(AuditLog);

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

impl Mark {
    /// The end of the log as it is now.
    pub fn now(cluster: &Cluster) -> Result<Self> {
        Ok(Self(AuditLog::from_now(cluster)?))
    }

    /// The requests since, for so many AppWrappers.
    pub fn requests(mut self, appwrappers: usize) -> Result<Requests> {
        let mut counted = Counted::default();
        self.0.read()?.iter().for_each(|event| counted.add(event));
        Ok(counted.requests(appwrappers))
    }
}

#[derive(Default)]
struct Counted {
    writes: u32,
    gets: u32,
    by_kind: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
}

impl Counted {
    fn add(&mut self, event: &AuditEvent) {
        // Discovery, once for a kind, is about nothing.
        if event
            .object_ref
            .as_ref()
            .is_some_and(|object| object.resource != "leases")
        {
            self.writes += u32::from(event.is_write());
            self.gets += u32::from(event.verb == "get");
        }
        let kind = event.kind();
        if event.code() >= 400 {
            *self.refused.entry(format!("{} {kind}", event.code())).or_default() += 1;
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
    fn a_request_counts_only_for_appwrappers_if_it_concerns_objects() {
        let events = [
            r#""verb":"create","objectRef":{"resource":"jobs","apiGroup":"batch"},"responseStatus":{"code":201}"#,
            r#""verb":"patch","objectRef":{"resource":"appwrappers","apiGroup":"workload.codeflare.dev","subresource":"status"},"responseStatus":{"code":409}"#,
            r#""verb":"update","objectRef":{"resource":"leases","apiGroup":"coordination.k8s.io"}"#,
            r#""verb":"watch","objectRef":{"resource":"pods"}"#,
            r#""verb":"get""#,
        ];
        let mut counted = Counted::default();
        for event in events {
            let common = r#""auditID":"1","requestURI":"/apis/batch/v1","user":{},"requestReceivedTimestamp":"2026-01-01T00:00:00Z","stageTimestamp":"2026-01-01T00:00:00Z""#;
            counted.add(&serde_json::from_str(&format!("{{{common},{event}}}")).unwrap());
        }
        let requests = counted.requests(2);
        assert!((requests.writes_per_appwrapper - 1.0).abs() < 1e-9);
        assert!(requests.gets_per_appwrapper.abs() < 1e-9);
        assert_eq!(requests.by_kind["watch pods"], 1);
        assert_eq!(requests.by_kind["get /apis/batch/v1"], 1);
        assert_eq!(
            requests.refused["409 patch appwrappers.workload.codeflare.dev/status"],
            1
        );
    }
}
