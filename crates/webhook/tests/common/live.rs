//! The binary against a real kube-apiserver, under the rights of its own account.
//!
//! Replicas run as processes behind a small TCP balancer that does what a Service does: new connections go to replicas that
//! say they are ready. They look after their certificates by themselves.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use appwrapper_testkit::{
    cluster::{Cluster, apply::apply_yaml},
    programs::cache_dir,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::sleep,
};

pub const NAMESPACE: &str = "appwrapper-system";

/// What the webhook may do: design/deploy-security.md section 6, and nothing else.
pub const ACCOUNT: &str = r#"
{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "appwrapper-system"}}
---
{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
---
{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "appwrapper-webhook", "namespace": "appwrapper-system"}}
---
{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "appwrapper-webhook-server-cert", "namespace": "appwrapper-system"}}
---
{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "appwrapper-webhook-certificates", "namespace": "appwrapper-system"}}
---
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "appwrapper-webhook"}, "rules": [
  {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
  {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["mutatingwebhookconfigurations"],
   "resourceNames": ["appwrapper-mutating-webhook-configuration"], "verbs": ["get", "update", "patch"]},
  {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"],
   "resourceNames": ["appwrapper-validating-webhook-configuration"], "verbs": ["get", "update", "patch"]}
]}
---
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "appwrapper-webhook"},
 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "appwrapper-webhook"},
 "subjects": [{"kind": "ServiceAccount", "name": "appwrapper-webhook", "namespace": "appwrapper-system"}]}
---
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "appwrapper-webhook", "namespace": "appwrapper-system"}, "rules": [
  {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["appwrapper-webhook-server-cert"], "verbs": ["get", "list", "watch", "update", "patch"]},
  {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["appwrapper-webhook-certificates"], "verbs": ["get", "list", "watch", "update", "patch"]}
]}
---
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "appwrapper-webhook", "namespace": "appwrapper-system"},
 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "appwrapper-webhook"},
 "subjects": [{"kind": "ServiceAccount", "name": "appwrapper-webhook", "namespace": "appwrapper-system"}]}
"#;

/// Users: a team by its group, and an admin of one namespace.
pub const USERS: &str = r#"
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "pod-wrapper"}, "rules": [
  {"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": ["*"]},
  {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
  {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}
]}
---
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "team", "namespace": "ns"},
 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pod-wrapper"},
 "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team"}]}
---
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "admin", "namespace": "ns"},
 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
 "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "namespace-admin"}]}
"#;

/// Wide open, so that scope and rights decide and not the list of kinds.
pub const OPEN: &str = "appwrapper:\n  admission:\n    allowedKinds: [\"*\"]\n    unsafeAllowPrivilegedKinds: true\n    maxComponents: 1000\n";

/// Whether a control plane can be started without building it first, which takes minutes.
pub fn is_built() -> bool {
    let has = |folder: PathBuf| folder.join("kube-apiserver").is_file();
    let cached = cache_dir()
        .ok()
        .and_then(|cache| std::fs::read_dir(cache.join("controlplane")).ok());
    let built = std::env::var_os("KUBEBUILDER_ASSETS").is_some_and(|folder| has(folder.into()))
        || cached.is_some_and(|folders| folders.flatten().any(|folder| has(folder.path())));
    if !built {
        eprintln!("skipped: there is no kube-apiserver in the cache; `cargo xtask cluster up` builds one");
    }
    built
}

/// One process of the webhook.
pub struct Replica {
    pub child: Child,
    pub health: SocketAddr,
    address: SocketAddr,
}

/// Starts processes of the webhook.
pub struct Launcher {
    kubeconfig: PathBuf,
    config: PathBuf,
    logs: PathBuf,
    flags: Vec<&'static str>,
    started: AtomicUsize,
}

impl Launcher {
    pub async fn new(cluster: &Cluster, config: &str, flags: &[&'static str]) -> Self {
        let kubeconfig = cluster.dir().join("webhook.kubeconfig");
        cluster
            .service_account_kubeconfig(NAMESPACE, "appwrapper-webhook", None, &kubeconfig)
            .await
            .unwrap();
        let path = cluster.dir().join("webhook.yaml");
        std::fs::write(&path, config).unwrap();
        Self {
            kubeconfig,
            config: path,
            logs: cluster.dir().to_owned(),
            flags: flags.to_vec(),
            started: AtomicUsize::new(0),
        }
    }

    pub fn start(&self) -> Replica {
        let name = format!("webhook-{}", self.started.fetch_add(1, Ordering::SeqCst));
        let (health, address) = (free_address(), free_address());
        let log = std::fs::File::create(self.logs.join(format!("{name}.log"))).unwrap();
        // A release build can be put in its place, to measure it.
        let program = std::env::var("APPWRAPPER_WEBHOOK_BINARY");
        let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_appwrapper-webhook").into());
        let child = Command::new(program)
            .args([
                "--bind-address",
                &address.to_string(),
                "--health-bind-address",
                &health.to_string(),
            ])
            .args([
                "--metrics-bind-address",
                "127.0.0.1:0",
                "--namespace",
                NAMESPACE,
                "--certificate-names",
                "127.0.0.1",
            ])
            .args(["--pod-name", &name, "--log-format", "text"])
            .args(&self.flags)
            .arg("--config")
            .arg(&self.config)
            .env("KUBECONFIG", &self.kubeconfig)
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Replica { child, health, address }
    }
}

impl Replica {
    pub async fn ready(&self) {
        for _ in 0..600 {
            if is_ready(self.health).await {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("the webhook is not ready after 30 s");
    }

    /// What the process holds in memory, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Asks the process to end and waits for it.
    pub async fn terminate(mut self) {
        let pid = self.child.id().unwrap().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .await
                .unwrap()
                .success()
        );
        assert!(self.child.wait().await.unwrap().success());
    }
}

pub fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

pub async fn is_ready(address: SocketAddr) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = TcpStream::connect(address).await else {
        return false;
    };
    let mut answer = String::new();
    let request = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.starts_with("HTTP/1.1 200")
}

/// Does what a Service does: probes readiness twice a second, and sends new connections to who is ready.
#[derive(Clone, Default)]
pub struct Balancer {
    /// Health, address, and whether it was ready at the last probe.
    backends: Arc<Mutex<Vec<(SocketAddr, SocketAddr, bool)>>>,
}

impl Balancer {
    pub async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let balancer = self.clone();
        tokio::spawn(async move {
            let mut turn = 0usize;
            while let Ok((mut stream, _)) = listener.accept().await {
                let ready: Vec<_> = balancer
                    .backends
                    .lock()
                    .unwrap()
                    .iter()
                    .filter(|b| b.2)
                    .map(|b| b.1)
                    .collect();
                turn = turn.wrapping_add(1);
                let Some(backend) = ready.get(turn % ready.len().max(1)).copied() else {
                    continue;
                };
                tokio::spawn(async move {
                    if let Ok(mut backend) = TcpStream::connect(backend).await {
                        let _ = tokio::io::copy_bidirectional(&mut stream, &mut backend).await;
                    }
                });
            }
        });
        let balancer = self.clone();
        tokio::spawn(async move {
            loop {
                let known: Vec<_> = balancer
                    .backends
                    .lock()
                    .unwrap()
                    .iter()
                    .map(|backend| backend.0)
                    .collect();
                for health in known {
                    let ready = is_ready(health).await;
                    let mut backends = balancer.backends.lock().unwrap();
                    backends
                        .iter_mut()
                        .filter(|backend| backend.0 == health)
                        .for_each(|backend| backend.2 = ready);
                }
                sleep(Duration::from_millis(500)).await;
            }
        });
        address
    }

    pub fn add(&self, replica: &Replica) {
        self.backends
            .lock()
            .unwrap()
            .push((replica.health, replica.address, false));
    }

    pub fn remove(&self, health: SocketAddr) {
        self.backends.lock().unwrap().retain(|backend| backend.0 != health);
    }
}

/// Applies everything; the configurations call the balancer.
pub async fn install(client: &Client, balancer: SocketAddr) {
    apply_yaml(client, &appwrapper_api::crd::manifest().to_string())
        .await
        .unwrap();
    apply_yaml(client, ACCOUNT).await.unwrap();
    apply_yaml(client, USERS).await.unwrap();
    for (kind, object, name, operations) in [
        (
            "Mutating",
            "appwrapper-mutating-webhook-configuration",
            "mappwrapper.workload.codeflare.dev",
            json!(["CREATE"]),
        ),
        (
            "Validating",
            "appwrapper-validating-webhook-configuration",
            "vappwrapper.workload.codeflare.dev",
            json!(["CREATE", "UPDATE"]),
        ),
    ] {
        let path = if kind == "Mutating" {
            super::MUTATE
        } else {
            super::VALIDATE
        };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": object},
            "webhooks": [{
                "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 5,
                "clientConfig": {"url": format!("https://{balancer}{path}")},
                "rules": [{"apiGroups": ["workload.codeflare.dev"], "apiVersions": ["v1beta2"], "resources": ["appwrappers"], "operations": operations}],
            }],
        });
        apply_yaml(client, &configuration.to_string()).await.unwrap();
    }
}

pub fn appwrappers(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "workload.codeflare.dev",
        "v1beta2",
        "AppWrapper",
    ));
    Api::namespaced_with(client.clone(), "ns", &resource)
}

pub fn wrapper(name: &str, components: Vec<Value>) -> Value {
    let mut object = super::wrapper(components);
    object["metadata"] = if name.ends_with('-') {
        json!({"generateName": name})
    } else {
        json!({"name": name})
    };
    object
}

pub async fn create(client: &Client, object: &Value) -> Result<DynamicObject, String> {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    appwrappers(client)
        .create(&PostParams::default(), &object)
        .await
        .map_err(|error| error.to_string())
}

pub async fn wait_until_served(client: &Client) {
    for _ in 0..100 {
        let probe: DynamicObject =
            serde_json::from_value(wrapper("probe", vec![super::component(super::pod("p"))])).unwrap();
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        if appwrappers(client).create(&dry, &probe).await.is_ok() {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("no admission within ten seconds");
}
