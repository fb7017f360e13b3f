//! The configuration files of containerd, kubelet, kube-proxy and the pod network.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::pki::kubeconfig_path;
use super::requirements::plugin_folder;

/// Where the API server listens.
pub const API_PORT: u16 = 6443;
/// The range of Services, and the first address of it, which the API server's own Service gets.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
/// See [`SERVICE_RANGE`].
pub const SERVICE_ADDRESS: &str = "10.96.0.1";
/// Where containerd listens; the folder is the node's own.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// The image that holds a pod's namespaces.
pub const PAUSE_IMAGE: &str = "localhost/pause:1";

const CGROUPS: &str = "/sys/fs/cgroup";
const POD_RANGE: &str = "10.244.0.0/24";

/// Writes them, and makes the cgroup below which the pods run.
pub fn write(dir: &Path, name: &str) -> Result<()> {
    let put = |file: &str, text: String| fs::write(dir.join(file), text).with_context(|| format!("writing {file}"));
    let plugins = plugin_folder().context("there are no network plugins")?;
    fs::create_dir_all(dir.join("cni"))?;
    for folder in cgroups(name) {
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    // The scores of containers must not be lowered where this process may not.
    put(
        "containerd.toml",
        format!(
            r#"version = 2
root = "{dir}/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{dir}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"#,
            dir = dir.display()
        ),
    )?;
    let network = json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local",
                    "dataDir": dir.join("addresses"),
                    "ranges": [[{ "subnet": POD_RANGE, "rangeStart": "10.244.0.10" }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    });
    put("cni/10-pods.conflist", network.to_string())?;
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", cgroup(name)),
        "failSwapOn": false,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": dir.join("pki/ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "podCIDR": POD_RANGE,
        "podLogsDir": dir.join("pods"),
        // There is no DNS.
        "resolvConf": "",
        "readOnlyPort": 0,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": { "memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
        "nodeStatusUpdateFrequency": "5s",
    });
    put("kubelet.json", kubelet.to_string())?;
    let proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": "10.244.0.0/16",
        "clientConnection": { "kubeconfig": kubeconfig_path(dir, "proxy") },
        // A setting of the whole machine, which is not ours to change.
        "conntrack": { "maxPerCore": 0, "min": 0 },
    });
    put("proxy.json", proxy.to_string())
}

/// Removes what is left of the cgroups of a node that has ended.
pub fn remove_cgroups(name: &str) {
    for folder in cgroups(name) {
        remove_tree(&folder);
    }
}

fn remove_tree(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    // Its files cannot be removed and go with it.
    let _ = fs::remove_dir(folder);
}

/// The cgroup that limits the memory of a container.
pub fn memory_cgroup(name: &str, pod_uid: &str, container: &str) -> Result<PathBuf> {
    let is_memory = |folder: &PathBuf| folder.starts_with("/sys/fs/cgroup/memory") || is_unified();
    let root = cgroups(name)
        .into_iter()
        .find(is_memory)
        .context("there is no cgroup for memory")?;
    let classes = ["kubepods/burstable", "kubepods/besteffort", "kubepods"];
    let folders = classes.map(|class| root.join(class).join(format!("pod{pod_uid}")).join(container));
    let found = folders.into_iter().find(|folder| folder.is_dir());
    found.with_context(|| {
        format!(
            "container {container} of pod {pod_uid} has no cgroup below {}",
            root.display()
        )
    })
}

fn cgroup(name: &str) -> String {
    format!("appwrapper-{name}")
}

/// Whether there is one hierarchy for everything, as version 2 has it.
fn is_unified() -> bool {
    Path::new(CGROUPS).join("cgroup.controllers").is_file()
}

/// The node's cgroup in every hierarchy of version 1, or in the only one of version 2.
fn cgroups(name: &str) -> Vec<PathBuf> {
    let root = Path::new(CGROUPS);
    if is_unified() {
        return vec![root.join(cgroup(name))];
    }
    let hierarchies = fs::read_dir(root).into_iter().flatten().flatten();
    // Beside the hierarchies there are links for two in one.
    let hierarchies = hierarchies.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    hierarchies.map(|entry| entry.path().join(cgroup(name))).collect()
}
