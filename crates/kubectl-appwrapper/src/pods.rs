//! A pod in short: where it is and why it does not run.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};

use crate::report;

/// What a person wants to know of a pod.
pub fn read(pod: &Pod) -> report::Pod {
    let status = pod.status.clone().unwrap_or_default();
    let containers: Vec<ContainerStatus> = [&status.init_container_statuses, &status.container_statuses]
        .into_iter()
        .flatten()
        .flatten()
        .cloned()
        .collect();
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let phase = if terminating {
        "Terminating".to_owned()
    } else {
        status.phase.clone().unwrap_or_else(|| "Pending".to_owned())
    };
    let ended = containers
        .iter()
        .filter_map(|container| container.state.as_ref()?.terminated.as_ref());
    report::Pod {
        name: pod.metadata.name.clone().unwrap_or_default(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        why: why(pod, &phase, &containers),
        exit_codes: ended
            .map(|terminated| terminated.exit_code)
            .filter(|code| *code != 0)
            .collect(),
        restarts: containers.iter().map(|container| container.restart_count).sum(),
        phase,
    }
}

/// A reason and a message.
type Said<'a> = (Option<&'a str>, Option<&'a str>);

/// The most telling of the reasons that the scheduler, the kubelet and the containers give.
fn why(pod: &Pod, phase: &str, containers: &[ContainerStatus]) -> Option<String> {
    let status = pod.status.as_ref()?;
    let said = |reason: Option<&str>, message: Option<&str>| match (reason, message) {
        (Some(reason), Some(message)) if !message.is_empty() => Some(format!("{reason}: {message}")),
        (Some(reason), _) if !reason.is_empty() => Some(reason.to_owned()),
        _ => None,
    };
    if phase == "Running" || phase == "Succeeded" {
        return None;
    }
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    if let Some(gates) = gates.filter(|gates| !gates.is_empty()) {
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        return Some(format!("held by scheduling gates: {}", names.join(", ")));
    }
    let state = |pick: fn(&ContainerState) -> Option<Said<'_>>| {
        containers.iter().find_map(|container| {
            let (reason, message) = pick(container.state.as_ref()?)?;
            said(reason, message)
        })
    };
    said(status.reason.as_deref(), status.message.as_deref())
        .or_else(|| {
            let unscheduled = status
                .conditions
                .iter()
                .flatten()
                .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
            said(unscheduled.reason.as_deref(), unscheduled.message.as_deref())
        })
        .or_else(|| {
            state(|state| {
                let waiting = state.waiting.as_ref()?;
                let reason = waiting.reason.as_deref().filter(|reason| !is_routine(reason))?;
                Some((Some(reason), waiting.message.as_deref()))
            })
        })
        .or_else(|| {
            state(|state| {
                let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0)?;
                Some((ended.reason.as_deref(), ended.message.as_deref()))
            })
        })
}

/// What every container goes through.
fn is_routine(reason: &str) -> bool {
    matches!(reason, "ContainerCreating" | "PodInitializing")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::running(json!({}), json!({"phase": "Running"}), None)]
    #[case::unscheduled(json!({}), json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "0/3 nodes are available"}]}), Some("Unschedulable: 0/3 nodes are available"))]
    #[case::gated(json!({"schedulingGates": [{"name": "kueue.x-k8s.io/topology"}], "containers": []}), json!({"phase": "Pending"}),
        Some("held by scheduling gates: kueue.x-k8s.io/topology"))]
    #[case::image(json!({}), json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}]}), Some("ErrImagePull: no such image"))]
    #[case::starting(json!({}), json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": {"reason": "ContainerCreating"}}}]}), None)]
    #[case::evicted(json!({}), json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}), Some("Evicted: low on memory"))]
    #[case::killed(json!({}), json!({"phase": "Failed", "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}), Some("OOMKilled"))]
    fn a_pod_says_why_it_does_not_run(#[case] spec: Value, #[case] status: Value, #[case] why: Option<&str>) {
        let mut pod = json!({"metadata": {"name": "p"}, "status": status});
        if spec != json!({}) {
            pod["spec"] = spec;
        }
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(read(&pod).why.as_deref(), why);
    }
}
