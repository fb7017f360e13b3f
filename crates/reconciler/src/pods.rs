//! The pods of an AppWrapper, counted by phase (spec/lifecycle.md 5b).
//!
//! Only pods whose chain of owners leads through a component to this AppWrapper count; the label alone can be put on any
//! pod by anybody.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use appwrapper_api::{Lineage, PodFacts, PodPhase, Uid};

use crate::{observed::NodeFaults, policy::Policy};

/// How many failed pods are told one by one.
const DESCRIBED: usize = 5;

/// Numbers of pods by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCount {
    /// Pods that do not run yet, whose node does not answer, or whose owner is not known yet.
    pub pending: i64,
    /// Pods that run and are not being deleted.
    pub running: i64,
    /// Pods that have succeeded.
    pub succeeded: i64,
    /// Those of them that are not being deleted.
    pub succeeded_for_good: i64,
    /// Pods that have failed.
    pub failed: i64,
}

/// Whose pods count.
#[derive(Debug)]
pub struct Owners<'a> {
    /// The AppWrapper.
    pub wrapper: &'a Uid,
    /// Its components as they are now; `None` if one of them is not known, so that any pod may be its own. Pods of an
    /// earlier attempt may linger in a cache.
    pub current: Option<HashSet<&'a Uid>>,
    /// Components that have ended well, whose pods do not count any more.
    pub finished: HashSet<&'a Uid>,
}

/// What the pods of an AppWrapper show.
#[derive(Debug, Default)]
pub struct PodSummary {
    /// Those of components that have not ended.
    pub total: PodCount,
    /// By the component they belong to.
    by_component: HashMap<Uid, PodCount>,
    /// A failed pod ended with an exit code that forbids a retry.
    pub terminal: bool,
    /// Failed pods, in words, by name.
    failed: BTreeMap<Arc<str>, String>,
    /// Nodes on which a pod uses a resource that is marked `NoExecute`.
    pub no_execute: BTreeSet<String>,
}

impl PodSummary {
    /// Counts pods.
    pub fn count(pods: &[PodFacts], owners: &Owners<'_>, policy: &Policy, nodes: &NodeFaults) -> Self {
        let mut summary = Self::default();
        for pod in pods {
            match &pod.lineage {
                Lineage::Component { owner, component } if owners.count(owner, component) => {
                    summary.by_component.entry(component.clone()).or_default().add(pod);
                    if !owners.finished.contains(component) {
                        summary.total.add(pod);
                        summary.judge(pod, policy, nodes);
                    }
                }
                Lineage::Unresolved => summary.total.pending += 1,
                _ => {}
            }
        }
        summary
    }

    /// The pods of one component.
    pub fn of(&self, component: &Uid) -> PodCount {
        self.by_component.get(component).copied().unwrap_or_default()
    }

    /// The first failed pods by name, each with its node and exit codes.
    pub fn describe_failed(&self) -> Vec<String> {
        self.failed.values().take(DESCRIBED).cloned().collect()
    }

    fn judge(&mut self, pod: &PodFacts, policy: &Policy, nodes: &NodeFaults) {
        match pod.phase {
            PodPhase::Failed => {
                self.terminal |= pod.exit_codes.iter().any(|code| policy.is_terminal(*code));
                self.failed.insert(Arc::clone(&pod.name), describe(pod));
            }
            PodPhase::Running if !pod.terminating => {
                if let Some(node) = &pod.node
                    && nodes.marks(node, &pod.resources)
                {
                    self.no_execute.insert(node.to_string());
                }
            }
            _ => {}
        }
    }
}

fn describe(pod: &PodFacts) -> String {
    let node = pod
        .node
        .as_ref()
        .map_or_else(String::new, |node| format!(" on node {node}"));
    let codes: Vec<String> = pod.exit_codes.iter().map(i32::to_string).collect();
    let codes = match codes.as_slice() {
        [] => String::new(),
        [code] => format!(", exit code {code}"),
        codes => format!(", exit codes {}", codes.join(", ")),
    };
    format!("pod {}{node}{codes}", pod.name)
}

impl Owners<'_> {
    fn count(&self, owner: &Uid, component: &Uid) -> bool {
        let is_current = || self.current.as_ref().is_none_or(|current| current.contains(component));
        owner == self.wrapper && is_current()
    }
}

impl PodCount {
    fn add(&mut self, pod: &PodFacts) {
        match pod.phase {
            PodPhase::Pending | PodPhase::Unknown => self.pending += 1,
            PodPhase::Running => self.running += i64::from(!pod.terminating),
            PodPhase::Failed => self.failed += 1,
            PodPhase::Succeeded => {
                self.succeeded += 1;
                self.succeeded_for_good += i64::from(!pod.terminating);
            }
        }
    }

    /// Pods that have not ended.
    pub fn unfinished(self) -> i64 {
        self.pending + self.running
    }
}

#[cfg(test)]
mod tests {
    use appwrapper_api::config::AppWrapperConfig;

    use super::*;
    use crate::policy::Defaults;

    fn pod(phase: PodPhase, lineage: Lineage) -> PodFacts {
        PodFacts {
            name: "p".into(),
            uid: Uid::new("p"),
            version: None,
            lineage,
            phase,
            terminating: false,
            finalizers: Vec::new(),
            node: Some("node-a".into()),
            exit_codes: Vec::new(),
            resources: vec!["nvidia.com/gpu".into()],
        }
    }

    fn ours() -> Lineage {
        Lineage::Component {
            component: Uid::new("job"),
            owner: Uid::new("aw"),
        }
    }

    fn count(pods: &[PodFacts], nodes: &NodeFaults) -> PodSummary {
        let policy = Policy {
            terminal_exit_codes: vec![42],
            ..Defaults::new(&AppWrapperConfig::default())
                .resolve(&appwrapper_api::Annotations::default())
                .0
        };
        let owners = Owners {
            wrapper: &Uid::new("aw"),
            current: None,
            finished: HashSet::new(),
        };
        PodSummary::count(pods, &owners, &policy, nodes)
    }

    #[test]
    fn a_pod_with_the_label_but_another_owner_is_not_counted() {
        let other = Lineage::Component {
            component: Uid::new("x"),
            owner: Uid::new("other"),
        };
        let pods = [
            pod(PodPhase::Failed, Lineage::Foreign),
            pod(PodPhase::Succeeded, Lineage::Broken),
            pod(PodPhase::Running, other),
        ];
        assert_eq!(count(&pods, &NodeFaults::default()).total, PodCount::default());
    }

    #[test]
    fn a_running_pod_that_is_being_deleted_is_not_running() {
        let mut leaving = pod(PodPhase::Running, ours());
        leaving.terminating = true;
        let summary = count(&[leaving, pod(PodPhase::Running, ours())], &NodeFaults::default());
        assert_eq!(summary.total.running, 1);
        assert_eq!(summary.of(&Uid::new("job")).running, 1);
    }

    #[test]
    fn a_terminal_exit_code_beats_a_retryable_one() {
        let mut killed = pod(PodPhase::Failed, ours());
        killed.exit_codes = vec![137];
        let mut bad = killed.clone();
        bad.exit_codes = vec![42];
        assert!(!count(&[killed.clone()], &NodeFaults::default()).terminal);
        assert!(count(&[killed, bad], &NodeFaults::default()).terminal);
        assert!(!count(&[pod(PodPhase::Failed, ours())], &NodeFaults::default()).terminal);
    }

    #[test]
    fn only_a_pod_that_uses_a_marked_resource_is_on_a_bad_node() {
        let nodes = NodeFaults::from_iter([("node-a".into(), vec!["nvidia.com/gpu".into()])]);
        let mut plain = pod(PodPhase::Running, ours());
        plain.resources.clear();
        assert!(count(&[plain], &nodes).no_execute.is_empty());
        assert_eq!(count(&[pod(PodPhase::Running, ours())], &nodes).no_execute.len(), 1);
    }
}
