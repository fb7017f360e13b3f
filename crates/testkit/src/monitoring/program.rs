//! Programs that the system provides, found and run.

use std::env;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::Cluster;

/// How long a program may take to end.
const END: Duration = Duration::from_secs(10);

/// A program and the Debian package that has it.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its file.
    pub name: &'static str,
    /// The package; empty if there is none.
    pub package: &'static str,
}

impl Program {
    /// Where it is on the search path.
    ///
    /// # Errors
    ///
    /// When it is not there; the error says what to install.
    pub fn find(&self) -> Result<PathBuf> {
        let folders = env::var_os("PATH").unwrap_or_default();
        let mut places = env::split_paths(&folders).map(|folder| folder.join(self.name));
        match places.find(|place| place.is_file()) {
            Some(place) => Ok(place),
            None if self.package.is_empty() => bail!("{} is not in the search path", self.name),
            None => bail!(
                "{} is not in the search path; install the Debian package {}: apt-get install {}",
                self.name,
                self.package,
                self.package
            ),
        }
    }
}

/// A program that runs.
pub struct Running {
    child: Option<Child>,
    log: PathBuf,
}

impl Running {
    /// Starts it; its output goes to a log in the cluster's folder, with which it ends.
    pub fn start(cluster: &Cluster, program: &Path, name: &str, arguments: &[String]) -> Result<Self> {
        let log = cluster.dir().join("monitoring").join(format!("{name}.log"));
        let output = std::fs::File::create(&log).with_context(|| format!("creating {}", log.display()))?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(cluster.dir().join("monitoring"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command
            .spawn()
            .with_context(|| format!("running {}", program.display()))?;
        cluster.adopt(child.id())?;
        Ok(Self {
            child: Some(child),
            log,
        })
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.as_mut().map(Child::try_wait).transpose()?.flatten())
    }

    /// Its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Leaves it running until the cluster ends.
    pub fn leave(&mut self) {
        self.child = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        let until = Instant::now() + END;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A port that nobody listens on.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
