//! The rest of a cluster, in small: the Job controller and the kubelet.
//!
//! `step_jobs` does for every Job what the controller manager would do by now: pods up to the parallelism, with the
//! template's labels and a controller reference, then counts and conditions from the pods' phases. It is one synchronous
//! step; a test calls it after it has changed a pod or a Job. Succeeded and failed pods are counted by looking at them, so a
//! finished pod should not be removed before the step that counts it. The pod functions play the kubelet.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ApiServer;
use super::object;
use super::remove::DeleteOptions;
use super::request::Verb;
use super::store::{Actor, ObjectKey, State};

const AUTHOR: &str = "job-controller";

/// Failures a Job accepts when it says nothing, as in `batch/v1`.
const BACKOFF_LIMIT: usize = 6;

impl ApiServer {
    /// One pass of the Job controller over all Jobs. Returns how many changes it made.
    pub fn step_jobs(&self) -> usize {
        self.write(|state| {
            let before = state.changes.len();
            let jobs: Vec<ObjectKey> = state.stored("jobs.batch", None).map(|(key, _)| key.clone()).collect();
            for job in jobs {
                state.step_job(&job);
            }
            state.changes.len() - before
        })
    }

    /// Creates a pod with a controller reference to an owner, for the kinds that have no controller here.
    pub fn create_pod_of(&self, owner: &Value, name: &str, labels: &Value) -> Arc<Value> {
        self.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": object::namespace(owner), "labels": labels,
                "ownerReferences": [controller_reference(owner)],
            },
            "spec": {"containers": [{"name": "main", "image": "busybox"}]},
        }))
    }

    /// Binds a pod to a node. From then on it stays terminating when deleted, until `finish_pod`.
    pub fn schedule_pod(&self, namespace: &str, name: &str, node: &str) -> Arc<Value> {
        self.patch("pods", namespace, name, &json!({"spec": {"nodeName": node}}))
    }

    /// Sets a pod's phase, and its Ready condition to whether it is Running.
    pub fn set_pod_phase(&self, namespace: &str, name: &str, phase: &str) -> Arc<Value> {
        let ready = if phase == "Running" { "True" } else { "False" };
        let now = self.read(|state| state.stamp(0));
        let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": now}]);
        self.patch_status(
            "pods",
            namespace,
            name,
            &json!({"phase": phase, "conditions": conditions}),
        )
    }

    /// Ends a pod's container with an exit code: Succeeded for 0, or else Failed.
    pub fn set_pod_exit(&self, namespace: &str, name: &str, code: i32) -> Arc<Value> {
        self.set_pod_phase(namespace, name, if code == 0 { "Succeeded" } else { "Failed" });
        let reason = if code == 0 { "Completed" } else { "Error" };
        let statuses = json!([{"name": "main", "state": {"terminated": {"exitCode": code, "reason": reason}}}]);
        self.patch_status("pods", namespace, name, &json!({"containerStatuses": statuses}))
    }

    /// The kubelet is done with a terminating pod: it goes, unless finalizers keep it.
    pub fn finish_pod(&self, namespace: &str, name: &str) {
        let options = DeleteOptions {
            grace: Some(0),
            ..DeleteOptions::default()
        };
        let kind = self.kind("pods");
        let key = ObjectKey {
            resource: kind.id(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let finished = self.write(|state| {
            let terminating = state.objects.get(&key).is_some_and(|pod| object::is_deleting(pod));
            assert!(terminating, "pod {namespace}/{name} is not terminating");
            state.delete(&Actor::internal("kubelet", Verb::Delete), &kind, &key, &options)
        });
        finished.unwrap_or_else(|refused| panic!("not finished: {refused:?}"));
    }
}

impl State {
    fn step_job(&mut self, key: &ObjectKey) {
        let Some(job) = self.objects.get(key).cloned() else {
            return;
        };
        let condition = |name: &str| {
            let conditions = object::list(&job, "/status/conditions");
            conditions
                .iter()
                .any(|c| object::text(c, "/type") == name && object::text(c, "/status") == "True")
        };
        if object::is_deleting(&job) || condition("Complete") || condition("Failed") {
            return;
        }
        let number = |pointer: &str| {
            job.pointer(pointer)
                .and_then(Value::as_u64)
                .and_then(|n| usize::try_from(n).ok())
        };
        let suspended = job
            .pointer("/spec/suspend")
            .and_then(Value::as_bool)
            .unwrap_or_default();
        let parallelism = if suspended {
            0
        } else {
            number("/spec/parallelism").unwrap_or(1)
        };
        let completions = number("/spec/completions").or(number("/spec/parallelism")).unwrap_or(1);

        let pods = self.pods_of(&job);
        let in_phase = |phase: &str| {
            pods.iter()
                .filter(|p| object::text(p, "/status/phase") == phase)
                .count()
        };
        let succeeded = in_phase("Succeeded").max(number("/status/succeeded").unwrap_or(0));
        let failed = in_phase("Failed").max(number("/status/failed").unwrap_or(0));
        let over = succeeded >= completions || failed > number("/spec/backoffLimit").unwrap_or(BACKOFF_LIMIT);
        let active: Vec<&Arc<Value>> = pods
            .iter()
            .filter(|p| !object::is_deleting(p) && !matches!(object::text(p, "/status/phase"), "Succeeded" | "Failed"))
            .collect();
        let wanted = if over {
            0
        } else {
            parallelism.min(completions - succeeded)
        };

        for pod in active.iter().skip(wanted) {
            self.delete_pod(pod);
        }
        for _ in active.len()..wanted {
            self.create_job_pod(&job);
        }
        let ready = active
            .iter()
            .filter(|p| object::text(p, "/status/phase") == "Running")
            .count()
            .min(wanted);
        let mut status = json!({"active": wanted, "ready": ready, "succeeded": succeeded, "failed": failed});
        let now = self.stamp(0);
        if !suspended && object::text(&job, "/status/startTime").is_empty() {
            status["startTime"] = now.clone();
        }
        if over {
            let (name, reason) = if succeeded >= completions {
                status["completionTime"] = now.clone();
                ("Complete", "CompletionsReached")
            } else {
                ("Failed", "BackoffLimitExceeded")
            };
            status["conditions"] = json!([{
                "type": name, "status": "True", "reason": reason, "lastProbeTime": now, "lastTransitionTime": now,
            }]);
        }
        let Some(kind) = self.kinds.get(&key.resource).cloned() else {
            return;
        };
        let patch = json!({"status": status});
        let by = Actor {
            subresource: Some("status".to_owned()),
            ..Actor::internal(AUTHOR, Verb::Patch)
        };
        // The Job was read in this very step, so it is there.
        let _ = self.edit(&by, &kind, key, |job| json_patch::merge(job, &patch));
    }

    fn pods_of(&self, job: &Value) -> Vec<Arc<Value>> {
        let is_ours = |reference: &Value| object::text(reference, "/uid") == object::uid(job);
        let pods = self.stored("pods", Some(object::namespace(job))).map(|(_, pod)| pod);
        pods.filter(|pod| object::list(pod, "/metadata/ownerReferences").iter().any(is_ours))
            .cloned()
            .collect()
    }

    fn create_job_pod(&mut self, job: &Value) {
        let mut pod = job.pointer("/spec/template").cloned().unwrap_or_else(|| json!({}));
        let metadata = object::metadata(&mut pod);
        metadata.insert("generateName".to_owned(), format!("{}-", object::name(job)).into());
        metadata.insert("namespace".to_owned(), object::namespace(job).into());
        metadata.insert("ownerReferences".to_owned(), json!([controller_reference(job)]));
        let labels = json!({"metadata": {"labels": {
            "batch.kubernetes.io/job-name": object::name(job), "job-name": object::name(job),
            "batch.kubernetes.io/controller-uid": object::uid(job), "controller-uid": object::uid(job),
        }}});
        json_patch::merge(&mut pod, &labels);
        let Some(kind) = self.kinds.get("pods").cloned() else {
            return;
        };
        // Refused in a terminating namespace, where the real controller fails as well.
        let _ = self.create(&Actor::internal(AUTHOR, Verb::Create), &kind, None, pod);
    }

    fn delete_pod(&mut self, pod: &Value) {
        let Some(kind) = self.kinds.get("pods").cloned() else {
            return;
        };
        let key = ObjectKey {
            resource: kind.id(),
            namespace: object::namespace(pod).to_owned(),
            name: object::name(pod).to_owned(),
        };
        // The pod was listed in this very step, so it is there.
        let _ = self.delete(
            &Actor::internal(AUTHOR, Verb::Delete),
            &kind,
            &key,
            &DeleteOptions::default(),
        );
    }
}

fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": object::text(owner, "/apiVersion"), "kind": object::text(owner, "/kind"),
        "name": object::name(owner), "uid": object::uid(owner), "controller": true, "blockOwnerDeletion": true,
    })
}
