//! The test cluster and the proxy, on real programs: what the other tests of the workspace rely on.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use appwrapper_testkit::api_server::{Effect, Match, Verb};
use appwrapper_testkit::cluster::apply::apply_yaml;
use appwrapper_testkit::cluster::{Cluster, ClusterOptions, Component, client_from};
use appwrapper_testkit::proxy::Proxy;
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(30);

/// A service account that may do everything with ConfigMaps, and nothing else.
const ACCOUNT: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: clerk}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: clerk}
rules: [{apiGroups: [''], resources: [configmaps], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: clerk}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: clerk}
subjects: [{kind: ServiceAccount, name: clerk, namespace: default}]
";

async fn until<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

async fn clerk(cluster: &Cluster, proxy: &Proxy) -> Client {
    apply_yaml(&cluster.client(), ACCOUNT).await.unwrap();
    let kubeconfig = cluster.dir().join("clerk.kubeconfig");
    cluster
        .service_account_kubeconfig("default", "clerk", Some(&proxy.url()), &kubeconfig)
        .await
        .unwrap();
    client_from(&kubeconfig).await.unwrap()
}

async fn phases(client: &Client) -> BTreeMap<String, String> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let phase = |pod: &Pod| {
        pod.status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default()
    };
    let job = |pod: &Pod| pod.labels().get("job-name").cloned();
    let pods = pods.list(&ListParams::default()).await.unwrap();
    pods.iter()
        .map(|pod| (job(pod).unwrap_or_else(|| pod.name_any()), phase(pod)))
        .collect()
}

#[tokio::test]
async fn pods_follow_their_annotations() {
    let cluster = Cluster::start(ClusterOptions::unique("stages")).await.unwrap();
    let client = cluster.client();
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await
        .unwrap();
    let has_gpus = |node: &&Node| {
        node.status
            .as_ref()
            .unwrap()
            .allocatable
            .as_ref()
            .unwrap()
            .contains_key("nvidia.com/gpu")
    };
    assert_eq!((nodes.items.len(), nodes.iter().filter(has_gpus).count()), (4, 2));

    // What an annotation makes of a bare pod and of a Job's pod.
    let table = [
        ("none", "", "Running", "Succeeded"),
        ("hold", "appwrapper.test/hold: 'true'", "Running", "Running"),
        ("pending", "appwrapper.test/hold: pending", "Pending", "Pending"),
        ("complete", "appwrapper.test/complete: 'true'", "Succeeded", "Succeeded"),
        ("zero", "appwrapper.test/exit-code: '0'", "Succeeded", "Succeeded"),
        ("seven", "appwrapper.test/exit-code: '7'", "Failed", "Failed"),
        (
            "later",
            "appwrapper.test/exit-code: '7', appwrapper.test/run-seconds: '3600'",
            "Running",
            "Running",
        ),
        (
            "soon",
            "appwrapper.test/complete: 'true', appwrapper.test/run-seconds: '2'",
            "Succeeded",
            "Succeeded",
        ),
    ];
    let mut expected = BTreeMap::new();
    for (name, annotations, bare, of_job) in table {
        let spec = "{restartPolicy: Never, containers: [{name: main, image: none}]}";
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, annotations: {{{annotations}}}}}, spec: {spec}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: job-{name}}}
spec: {{backoffLimit: 0, template: {{metadata: {{annotations: {{{annotations}}}}}, spec: {spec}}}}}"
        );
        apply_yaml(&client, &text).await.unwrap();
        expected.insert(name.to_owned(), bare.to_owned());
        expected.insert(format!("job-{name}"), of_job.to_owned());
    }
    until("every pod as its annotations say", async || {
        (phases(&client).await == expected).then_some(())
    })
    .await;

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let failed = pods
        .get("seven")
        .await
        .unwrap()
        .status
        .unwrap()
        .container_statuses
        .unwrap();
    assert_eq!(
        failed[0].state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code,
        7
    );
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    until("the Job failed", async || {
        jobs.get("job-seven")
            .await
            .ok()?
            .status?
            .failed
            .filter(|failed| *failed == 1)
    })
    .await;

    // A held pod ends once it is let go.
    let held = pods
        .list(&ListParams::default().labels("job-name=job-hold"))
        .await
        .unwrap()
        .items[0]
        .name_any();
    let let_go = json!({"metadata": {"annotations": {"appwrapper.test/hold": null}}});
    pods.patch(&held, &PatchParams::default(), &Patch::Merge(&let_go))
        .await
        .unwrap();
    until("the held Job succeeds", async || {
        jobs.get("job-hold").await.ok()?.status?.succeeded
    })
    .await;

    // A stuck pod stays Terminating.
    let stuck = json!({"metadata": {"annotations": {"appwrapper.test/stuck": "true"}}});
    pods.patch("none", &PatchParams::default(), &Patch::Merge(&stuck))
        .await
        .unwrap();
    for pod in ["none", "hold"] {
        pods.delete(pod, &DeleteParams::default()).await.unwrap();
    }
    until("the other pod is gone", async || {
        pods.get_opt("hold").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(pods.get("none").await.unwrap().metadata.deletion_timestamp.is_some());
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_service_account_reaches_the_api_server_through_the_proxy_with_its_own_rights() {
    let cluster = Cluster::start(ClusterOptions::unique("proxy").audited()).await.unwrap();
    let proxy = Proxy::in_front_of(&cluster).await.unwrap();
    let client = clerk(&cluster, &proxy).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let truth: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    until("the role is known", async || {
        maps.list(&ListParams::default()).await.ok()
    })
    .await;
    let denied = Api::<Pod>::default_namespaced(client.clone())
        .list(&ListParams::default())
        .await
        .unwrap_err();
    assert!(matches!(denied, kube::Error::Api(status) if status.code == 403));

    // The write takes place, the client hears nothing of it.
    let once = proxy
        .rules()
        .add(Match::verb(Verb::Create).resource("configmaps"), Effect::DropAnswer)
        .times(1);
    assert!(
        maps.create(&PostParams::default(), &config_map("unheard"))
            .await
            .is_err()
    );
    assert_eq!(once.hits(), 1);
    truth.get("unheard").await.unwrap();

    // A reflector's watch: blind while held, in order afterwards, and a 410 makes it list anew.
    let gate = proxy.rules().gate("configmaps");
    let (sender, mut events) = mpsc::unbounded_channel();
    let watched = watcher(maps.clone(), watcher::Config::default().any_semantic());
    let watching = tokio::spawn(watched.map(move |event| sender.send(event).is_ok()).collect::<Vec<_>>());
    let mut next = async || timeout(SOON, events.recv()).await.unwrap().unwrap();
    while !matches!(next().await.unwrap(), watcher::Event::InitDone) {}
    until("the watch is open", async || (gate.open_watches() == 1).then_some(())).await;
    gate.hold();
    for name in ["one", "two", "three"] {
        truth.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    until("the lines are held", async || (gate.held() >= 3).then_some(())).await;
    assert!(timeout(Duration::from_millis(100), next()).await.is_err());
    gate.release();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        if let watcher::Event::Apply(map) = next().await.unwrap() {
            seen.push(map.name_any());
        }
    }
    assert_eq!(seen, ["one", "two", "three"]);
    let is_list =
        |kind: &appwrapper_testkit::proxy::RequestKind| kind.verb == Verb::List && kind.resource == "configmaps";
    let lists = proxy.records().count(is_list);
    gate.expire_watches();
    while !matches!(next().await, Ok(watcher::Event::InitDone)) {}
    assert_eq!(proxy.records().count(is_list), lists + 1);
    watching.abort();

    // The API server knows who asked.
    let audit = std::fs::read_to_string(cluster.audit_log().unwrap()).unwrap();
    assert!(audit.contains("system:serviceaccount:default:clerk"));
    assert!(proxy.records().log().iter().all(|request| request.code != Some(502)));
}

#[tokio::test]
async fn hundreds_of_writers_and_watchers_pass_the_proxy_at_once() {
    let cluster = Cluster::start(ClusterOptions::unique("load")).await.unwrap();
    let proxy = Proxy::in_front_of(&cluster).await.unwrap();
    let client = clerk(&cluster, &proxy).await;
    let direct: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    until("the role is known", async || {
        maps.list(&ListParams::default()).await.ok()
    })
    .await;
    let create_all = async |api: &Api<ConfigMap>, prefix: &str| {
        let started = Instant::now();
        let names: Vec<String> = (0..600).map(|n| format!("{prefix}-{n}")).collect();
        let writes = names
            .iter()
            .map(async |name| api.create(&PostParams::default(), &config_map(name)).await);
        let answers = futures::stream::iter(writes)
            .buffer_unordered(300)
            .collect::<Vec<_>>()
            .await;
        assert!(
            answers.iter().all(Result::is_ok),
            "{:?}",
            answers.iter().find(|answer| answer.is_err())
        );
        started.elapsed()
    };
    let without = create_all(&direct, "direct").await;
    let with = create_all(&maps, "proxied").await;
    println!("600 creates, 300 at once: {without:?} without the proxy, {with:?} with it");
    assert!(
        with < without * 5 + Duration::from_secs(1),
        "{without:?} without the proxy, {with:?} with it"
    );
}

#[tokio::test]
async fn a_component_is_paused_killed_and_started_again() {
    let cluster = Cluster::start(ClusterOptions::unique("chaos")).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    maps.create(&PostParams::default(), &config_map("before"))
        .await
        .unwrap();

    cluster.pause(Component::Etcd).await.unwrap();
    let write = async || maps.create(&PostParams::default(), &config_map("while-paused")).await;
    let answer = timeout(Duration::from_millis(500), write()).await;
    assert!(answer.is_err(), "the store is paused: {answer:?}");
    cluster.resume(Component::Etcd).unwrap();
    until("the store answers", async || {
        maps.get_opt("before").await.ok().flatten()
    })
    .await;

    cluster.kill(Component::KubeApiserver).await.unwrap();
    assert!(!cluster.is_running(Component::KubeApiserver));
    let answer = maps.get("before").await;
    assert!(answer.is_err(), "the API server is gone: {answer:?}");
    cluster.start_killed().await.unwrap();
    until("the API server is back", async || {
        maps.get_opt("before").await.ok().flatten()
    })
    .await;
    for component in Component::ALL {
        assert!(cluster.is_running(component), "{component:?}");
    }
}

#[tokio::test]
async fn a_cluster_that_cannot_start_says_why_and_leaves_nothing() {
    let options = ClusterOptions::unique("broken").extra_arg(Component::KubeApiserver, "no-such-flag", "1");
    let name = options.name().to_owned();
    let error = timeout(SOON, Cluster::start(options))
        .await
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("kube-apiserver ended") && error.contains("no-such-flag"),
        "{error}"
    );
    assert!(!Cluster::names().unwrap().contains(&name));
}

#[tokio::test]
async fn clusters_run_side_by_side_and_end_with_what_started_them() {
    let options = || ClusterOptions::unique("side").nodes(1, 0);
    let (one, other) = tokio::join!(Cluster::start(options()), Cluster::start(options()));
    let (one, other) = (one.unwrap(), other.unwrap());
    assert_ne!(one.server(), other.server());
    let maps = |cluster: &Cluster| Api::<ConfigMap>::default_namespaced(cluster.client());
    maps(&one)
        .create(&PostParams::default(), &config_map("mine"))
        .await
        .unwrap();
    assert!(maps(&other).get_opt("mine").await.unwrap().is_none());

    // A second one of the same name is refused, and does no harm.
    let error = Cluster::start(ClusterOptions::named(one.name())).await.unwrap_err();
    assert!(error.to_string().contains("exists"), "{error:#}");
    maps(&one).get("mine").await.unwrap();

    // Attaching and letting go leaves it running.
    drop(Cluster::attach(one.name()).await.unwrap());
    maps(&one).get("mine").await.unwrap();

    let (dir, processes): (PathBuf, Vec<u32>) = (one.dir().to_owned(), processes_in(one.dir()));
    assert_eq!(processes.len(), 5);
    drop(one);
    assert!(!dir.exists());
    until("its processes are gone", async || {
        processes_in(&dir).is_empty().then_some(())
    })
    .await;
    maps(&other).list(&ListParams::default()).await.unwrap();
}

/// The processes whose program lies in the folder.
fn processes_in(dir: &std::path::Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let runs_there = |pid: &u32| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command
            .split('\0')
            .next()
            .is_some_and(|program| program.starts_with(&*dir.to_string_lossy()))
    };
    pids.filter(runs_there).collect()
}
