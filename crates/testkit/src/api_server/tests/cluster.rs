//! What happens without a client: garbage collection, namespaces, pods, the Job controller.

use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::{job, pod, pods, refusal, typed};
use crate::api_server::ApiServer;

/// A Job with two pods, of which the first is bound to a node.
fn started_job(server: &ApiServer) -> (Api<Job>, Vec<String>) {
    server.create(job("j", 2));
    server.step_jobs();
    let pods: Vec<String> = server
        .list("pods", "default", "app=j")
        .iter()
        .map(|p| p["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(pods.len(), 2);
    server.schedule_pod("default", &pods[0], "node-1");
    (Api::namespaced(server.client(), "default"), pods)
}

#[tokio::test]
async fn foreground_deletion_keeps_the_owner_until_its_dependents_are_gone() {
    let server = ApiServer::new();
    let (jobs, pods) = started_job(&server);
    jobs.delete("j", &DeleteParams::foreground()).await.unwrap();
    let owner = server.get("jobs", "default", "j").unwrap();
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert!(
        server.get("pods", "default", &pods[1]).is_none(),
        "an unscheduled pod goes at once"
    );
    server.finish_pod("default", &pods[0]);
    assert!(server.get("jobs", "default", "j").is_none());
}

#[tokio::test]
async fn background_deletion_removes_the_owner_first() {
    let server = ApiServer::new();
    server.set_auto_collect(false);
    let (jobs, pods) = started_job(&server);
    jobs.delete("j", &DeleteParams::background()).await.unwrap();
    assert!(server.get("jobs", "default", "j").is_none());
    assert_eq!(server.list("pods", "default", "").len(), 2);
    assert!(server.collect_garbage() > 0);
    let left = server.get("pods", "default", &pods[0]).unwrap();
    assert!(left["metadata"]["deletionTimestamp"].is_string());
    server.finish_pod("default", &pods[0]);
    assert!(server.list("pods", "default", "").is_empty());
}

#[tokio::test]
async fn a_job_deleted_without_a_policy_leaves_its_pods_behind() {
    let server = ApiServer::new();
    let (jobs, pods) = started_job(&server);
    jobs.delete("j", &DeleteParams::default()).await.unwrap();
    assert!(server.get("jobs", "default", "j").is_none());
    let orphan = server.get("pods", "default", &pods[1]).unwrap();
    assert!(orphan["metadata"].get("ownerReferences").is_none());
}

#[tokio::test]
async fn a_scheduled_pod_stays_terminating_until_forced() {
    let server = ApiServer::new();
    server.create(pod("p", &json!({})));
    server.schedule_pod("default", "p", "node-1");
    let api = pods(&server);
    api.delete("p", &DeleteParams::default()).await.unwrap();
    let terminating = server.get("pods", "default", "p").unwrap();
    assert_eq!(terminating["metadata"]["deletionGracePeriodSeconds"], 30);
    api.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(server.get("pods", "default", "p").is_none());
}

#[tokio::test]
async fn nothing_is_created_in_a_terminating_namespace_and_its_content_goes() {
    let server = ApiServer::new();
    server.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}));
    server.create(pod("p", &json!({})));
    server.schedule_pod("default", "p", "node-1");
    server.delete("namespaces", "", "default", "Background");
    let refused = pods(&server)
        .create(&PostParams::default(), &typed(pod("q", &json!({}))))
        .await;
    assert_eq!(refusal(refused), (403, "Forbidden".to_owned()));
    server.finish_pod("default", "p");
    assert!(server.get("namespaces", "", "default").is_none());
}

#[tokio::test]
async fn a_namespace_that_must_exist_and_does_not_is_not_found() {
    let server = ApiServer::new();
    server.require_namespaces(true);
    let refused = pods(&server)
        .create(&PostParams::default(), &typed(pod("q", &json!({}))))
        .await;
    assert_eq!(refusal(refused), (404, "NotFound".to_owned()));
}

#[test]
fn the_job_controller_completes_a_job_whose_pods_succeeded() {
    let server = ApiServer::new();
    server.create(job("j", 2));
    server.step_jobs();
    for pod in server.list("pods", "default", "batch.kubernetes.io/job-name=j") {
        server.set_pod_exit("default", pod["metadata"]["name"].as_str().unwrap(), 0);
    }
    server.step_jobs();
    let done = server.get("jobs", "default", "j").unwrap();
    assert_eq!(done["status"]["succeeded"], 2);
    assert_eq!(done["status"]["conditions"][0]["type"], "Complete");
    assert_eq!(server.step_jobs(), 0);
}

#[test]
fn the_job_controller_replaces_a_lost_pod_and_gives_up_after_its_backoff_limit() {
    let server = ApiServer::new();
    let mut fragile = job("j", 1);
    fragile["spec"]["backoffLimit"] = 1.into();
    server.create(fragile);
    server.step_jobs();
    let only = || {
        server
            .list("pods", "default", "app=j")
            .into_iter()
            .find(|p| p["status"]["phase"] == "Pending")
            .unwrap()
    };
    let first = only()["metadata"]["name"].as_str().unwrap().to_owned();
    server.delete("pods", "default", &first, "Background");
    server.step_jobs();
    for _ in 0..2 {
        server.set_pod_exit("default", only()["metadata"]["name"].as_str().unwrap(), 3);
        server.step_jobs();
    }
    assert_eq!(
        server.get("jobs", "default", "j").unwrap()["status"]["conditions"][0]["type"],
        "Failed"
    );
}
