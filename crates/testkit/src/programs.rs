//! The programs a test cluster is made of: which there are, and where they are.
//!
//! [`Programs::find`] looks for each program in the folder of `KUBEBUILDER_ASSETS` first, then in a cache outside the
//! checkout, and builds what is still missing there from the Go modules under `tests/controlplane`. So the first call
//! on a machine takes minutes and says on standard error what it does; every later call, also from a fresh clone, is
//! immediate. A change to a module's `go.mod` or `go.sum` is another place in the cache.
//!
//! To add a program: pin it in a Go module of `tests/controlplane`, and name it here. `build` holds the building,
//! `go` the search for a Go toolchain.

mod build;
mod cache;
mod go;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

pub use cache::cache_dir;

/// A Go module below `tests/controlplane`, which pins the programs of one project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Module {
    /// Its folder below `tests/controlplane`.
    pub folder: &'static str,
    /// The required module whose version is written into the programs as Kubernetes' own version. Without it they
    /// report a version that clients cannot parse.
    pub kubernetes_version_of: Option<&'static str>,
}

/// A program that is built from a [`Module`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// Its file name.
    pub name: &'static str,
    /// The Go package to build.
    pub package: &'static str,
    /// The module that pins it.
    pub module: Module,
}

const KUBERNETES: Module = Module {
    folder: "kubernetes",
    kubernetes_version_of: Some("k8s.io/kubernetes"),
};

const fn kubernetes(name: &'static str, package: &'static str) -> Program {
    Program {
        name,
        package,
        module: KUBERNETES,
    }
}

/// The store.
pub const ETCD: Program = Program {
    name: "etcd",
    package: "go.etcd.io/etcd/server/v3",
    module: Module {
        folder: "etcd",
        kubernetes_version_of: None,
    },
};
/// The API server.
pub const KUBE_APISERVER: Program = kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver");
/// The controllers of the built-in kinds: Jobs, Deployments, owner references.
pub const KUBE_CONTROLLER_MANAGER: Program = kubernetes(
    "kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
);
/// The scheduler.
pub const KUBE_SCHEDULER: Program = kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler");
/// The command-line client.
pub const KUBECTL: Program = kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl");
/// The node agent; only a real node needs it.
pub const KUBELET: Program = kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet");
/// Services on a node; only a real node needs it.
pub const KUBE_PROXY: Program = kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy");

const KWOK_MODULE: Module = Module {
    folder: "kwok",
    kubernetes_version_of: None,
};

/// Plays nodes and pods, so that pods run and end without a kubelet.
pub const KWOK: Program = Program {
    name: "kwok",
    package: "sigs.k8s.io/kwok/cmd/kwok",
    module: KWOK_MODULE,
};
/// Starts and ends a cluster of processes.
pub const KWOKCTL: Program = Program {
    name: "kwokctl",
    package: "sigs.k8s.io/kwok/cmd/kwokctl",
    module: KWOK_MODULE,
};

/// All that a [`Cluster`](crate::cluster::Cluster) runs.
pub const OF_A_CLUSTER: [Program; 7] = [
    ETCD,
    KWOK,
    KWOKCTL,
    KUBECTL,
    KUBE_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    KUBE_SCHEDULER,
];

/// All that a [`RealNode`](crate::real_node::RealNode) runs, and what talks to it.
pub const OF_A_REAL_NODE: [Program; 7] = [
    ETCD,
    KUBECTL,
    KUBE_APISERVER,
    KUBE_CONTROLLER_MANAGER,
    KUBE_SCHEDULER,
    KUBELET,
    KUBE_PROXY,
];

/// The places of programs that were asked for.
#[derive(Debug, Clone, Default)]
pub struct Programs(BTreeMap<Program, PathBuf>);

impl Programs {
    /// Finds the programs, and builds those that are found nowhere.
    ///
    /// # Errors
    ///
    /// When something has to be built and there is no Go toolchain, or the build fails; the error carries the end of
    /// Go's own output.
    pub async fn find(wanted: &[Program]) -> Result<Self> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty());
        let mut found = BTreeMap::new();
        let mut missing = Vec::new();
        for program in wanted {
            let cached = cache::program_path(*program)?;
            match in_assets(assets.as_ref(), program.name).or_else(|| cached.is_file().then(|| cached.clone())) {
                Some(path) => drop(found.insert(*program, path)),
                None => missing.push((*program, cached)),
            }
        }
        let count = missing.len();
        for (index, (program, path)) in missing.into_iter().enumerate() {
            build::build(program, &path, index + 1, count).await?;
            found.insert(program, path);
        }
        Ok(Self(found))
    }

    /// The place of one of them.
    ///
    /// # Errors
    ///
    /// When it was not among those asked for.
    pub fn path(&self, program: Program) -> Result<&Path> {
        self.0
            .get(&program)
            .map(PathBuf::as_path)
            .with_context(|| format!("{} was not asked for", program.name))
    }
}

/// The folder of the repository that holds the Go modules, the stages and the audit policy.
pub fn controlplane_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/controlplane")
}

fn in_assets(assets: Option<&OsString>, name: &str) -> Option<PathBuf> {
    let path = Path::new(assets?).join(name);
    path.is_file().then_some(path)
}
