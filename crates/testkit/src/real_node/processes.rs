//! The programs of a real node, inside its namespaces.

use std::fs::File;
use std::future::Future;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::NODE;
use super::namespaces::{ADDRESS, Namespaces};
use super::pki::kubeconfig_path;
use super::settings::{API_PORT, SERVICE_RANGE};
use crate::programs::{
    ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBE_PROXY, KUBE_SCHEDULER, KUBELET, Program, Programs,
    controlplane_dir,
};

/// Their names, which their logs bear too.
pub const NAMES: [&str; 7] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "containerd",
    "kubelet",
    "kube-proxy",
];

/// The API server's audit log, in a node's folder.
pub const AUDIT_LOG: &str = "logs/audit.log";

/// Those that have been started.
pub struct Processes<'a> {
    dir: &'a Path,
    namespaces: &'a Namespaces,
    programs: &'a Programs,
    running: Vec<(&'static str, Child)>,
}

impl<'a> Processes<'a> {
    /// None yet.
    pub fn new(dir: &'a Path, namespaces: &'a Namespaces, programs: &'a Programs) -> Self {
        Self {
            dir,
            namespaces,
            programs,
            running: Vec::new(),
        }
    }

    /// Store and API server, which waits for the store by itself.
    pub fn start_api_server(&mut self) -> Result<()> {
        let pki = |file: &str| self.pki(file);
        let etcd = vec![
            format!("--data-dir={}", self.dir.join("etcd").display()),
            "--listen-client-urls=http://127.0.0.1:2379".to_owned(),
            "--advertise-client-urls=http://127.0.0.1:2379".to_owned(),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        let api_server = vec![
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            format!("--secure-port={API_PORT}"),
            format!("--advertise-address={ADDRESS}"),
            format!("--tls-cert-file={}", pki("apiserver.crt")),
            format!("--tls-private-key-file={}", pki("apiserver.key")),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--cert-dir={}", self.dir.join("apiserver").display()),
            // By name it would ask a DNS that is not there.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            format!("--kubelet-client-certificate={}", pki("kubelet-client.crt")),
            format!("--kubelet-client-key={}", pki("kubelet-client.key")),
            format!("--service-account-key-file={}", pki("accounts.pub")),
            format!("--service-account-signing-key-file={}", pki("accounts.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            "--authorization-mode=Node,RBAC".to_owned(),
            format!(
                "--audit-policy-file={}",
                controlplane_dir().join("audit-policy.yaml").display()
            ),
            format!("--audit-log-path={}", self.dir.join(AUDIT_LOG).display()),
        ];
        self.start(ETCD, &etcd)?;
        self.start(KUBE_APISERVER, &api_server)
    }

    /// What makes pods and gives them their node. They end if the API server is not ready within 20 seconds.
    pub fn start_controllers(&mut self) -> Result<()> {
        let kubeconfig = |identity: &str| kubeconfig_path(self.dir, identity).display().to_string();
        let controller_manager = vec![
            format!("--kubeconfig={}", kubeconfig("controller-manager")),
            format!("--root-ca-file={}", self.pki("ca.crt")),
            format!("--service-account-private-key-file={}", self.pki("accounts.key")),
            "--use-service-account-credentials".to_owned(),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        let scheduler = vec![
            format!("--kubeconfig={}", kubeconfig("scheduler")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        self.start(KUBE_CONTROLLER_MANAGER, &controller_manager)?;
        self.start(KUBE_SCHEDULER, &scheduler)
    }

    /// What runs containers.
    pub fn start_runtime(&mut self) -> Result<()> {
        let config = self.dir.join("containerd.toml").display().to_string();
        self.spawn("containerd", Path::new("containerd"), &["--config".to_owned(), config])
    }

    /// The node itself, and its Services.
    pub fn start_node(&mut self) -> Result<()> {
        let file = |name: &str| self.dir.join(name).display().to_string();
        let kubelet = vec![
            format!("--kubeconfig={}", kubeconfig_path(self.dir, "kubelet").display()),
            format!("--config={}", file("kubelet.json")),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={ADDRESS}"),
            format!("--root-dir={}", file("kubelet")),
            format!("--cert-dir={}", file("pki/kubelet")),
        ];
        let proxy = vec![
            format!("--config={}", file("proxy.json")),
            format!("--hostname-override={NODE}"),
        ];
        self.start(KUBELET, &kubelet)?;
        self.start(KUBE_PROXY, &proxy)
    }

    fn pki(&self, file: &str) -> String {
        self.dir.join("pki").join(file).display().to_string()
    }

    fn start(&mut self, program: Program, arguments: &[String]) -> Result<()> {
        let path = self.programs.path(program)?.to_owned();
        self.spawn(program.name, &path, arguments)
    }

    fn spawn(&mut self, name: &'static str, program: &Path, arguments: &[String]) -> Result<()> {
        let output = File::create(self.dir.join("logs").join(name).with_extension("log"))?;
        let mut command = self.namespaces.enter(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().with_context(|| format!("running {name}"))?;
        self.running.push((name, child));
        Ok(())
    }

    /// The outcome of some work, unless a program ends before it is done.
    pub async fn unless_one_ends<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let ended = async {
            loop {
                for (name, child) in &mut self.running {
                    if let Ok(Some(status)) = child.try_wait() {
                        return (*name, status);
                    }
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::select! {
            done = work => done,
            (name, status) = ended => bail!("{name} ended: {status}"),
        }
    }
}
