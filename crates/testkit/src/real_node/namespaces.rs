//! The mount, network and process namespaces of a real node, and the process that holds them.
//!
//! That process does nothing but set them up and reap what others leave behind. When it ends, the kernel ends everything
//! else in them, containers included, and with the last process the mounts and networks are gone.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::time::Instant;

/// The node's address, on the bridge of the pods: one of loopback could not be that of the API server's Service.
pub const ADDRESS: &str = "10.244.0.1";

/// What is mounted over so that nothing is left on the machine.
const PRIVATE: &str = "/run /var/lib/cni /var/lib/kubelet /var/log/containers";

/// Told by the first process once everything is set up.
const READY: &str = "namespaces-ready";
/// Holds its process id, as seen from outside.
const PID: &str = "namespaces-pid";

const PATIENCE: Duration = Duration::from_secs(20);

/// A node's namespaces.
#[derive(Debug)]
pub struct Namespaces {
    first: Pid,
}

impl Namespaces {
    /// Creates them.
    pub async fn create(dir: &Path) -> Result<Self> {
        let ready = dir.join(READY);
        let script = format!(
            "set -e
ip link set lo up
ip link add cni0 type bridge
ip addr add {ADDRESS}/24 dev cni0
ip link set cni0 up
ip route add default via {ADDRESS} dev cni0 || true
for folder in {PRIVATE}; do mkdir -p $folder; mount -t tmpfs tmpfs $folder; done
mkdir -p /run/netns
echo 1 > /proc/sys/net/ipv4/ip_forward
[ ! -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables
touch '{}'
while :; do sleep 3600 & wait; done",
            ready.display()
        );
        let log = dir.join("logs/namespaces.log");
        let output = File::create(&log)?;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["/bin/sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C in a terminal is for whoever started it, who then ends it in order.
            .process_group(0);
        let mut outer = command.spawn().context("running unshare")?;
        let until = Instant::now() + PATIENCE;
        while !ready.exists() {
            if let Some(status) = outer.try_wait()? {
                let text = fs::read_to_string(&log).unwrap_or_default();
                bail!("creating namespaces: {status}: {}", text.trim());
            }
            if Instant::now() >= until {
                outer.kill()?;
                bail!("creating namespaces took too long; see {}", log.display());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", outer.id()))?;
        fs::write(dir.join(PID), children.trim())?;
        Self::existing(dir)
    }

    /// Those that were created in that folder, if they are still there.
    pub fn existing(dir: &Path) -> Result<Self> {
        let text = fs::read_to_string(dir.join(PID)).context("the node has no namespaces")?;
        let first = text.trim().parse().ok().and_then(Pid::from_raw);
        let namespaces = Self {
            first: first.with_context(|| format!("{text:?} is no process id"))?,
        };
        // After a restart of the machine the process id may be another's.
        let command =
            fs::read_to_string(format!("/proc/{first}/cmdline", first = namespaces.first)).unwrap_or_default();
        if !command.contains(&*dir.to_string_lossy()) {
            bail!("the node does not run");
        }
        Ok(namespaces)
    }

    /// A command that runs a program inside.
    pub fn enter(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter_with(&[], program)
    }

    /// The same in the present working directory, which would else be the root.
    pub fn enter_here(&self, program: impl AsRef<OsStr>) -> Command {
        self.enter_with(&["--wd=."], program)
    }

    fn enter_with(&self, options: &[&str], program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.first.to_string(), "--mount", "--net", "--pid"])
            .args(options)
            .arg("--")
            .arg(program);
        command
    }

    /// The network namespace.
    pub fn network(&self) -> Result<File> {
        let path = format!("/proc/{}/ns/net", self.first);
        File::open(&path).with_context(|| format!("opening {path}"))
    }

    /// Ends everything in them, and waits until it is gone.
    pub fn end(&self) {
        let _ = kill_process(self.first, Signal::KILL);
        for _ in 0..500 {
            if test_kill_process(self.first).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
