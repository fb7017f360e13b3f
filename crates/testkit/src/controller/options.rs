//! How a controller is started, and where its program is.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{NAMESPACE, repository};
use crate::proxy::Proxy;

/// The folder that holds our own programs; `cargo xtask test` sets it.
pub const BIN_DIR: &str = "APPWRAPPER_BIN_DIR";

/// The place of one of our own programs: in the folder of [`BIN_DIR`], or beside the program that asks, as Cargo puts
/// them.
pub fn program(name: &str) -> PathBuf {
    let beside = || {
        let asking = env::current_exe().ok()?;
        // A test lies one folder deeper, in `deps`.
        let folders = asking.ancestors().skip(1).take(2);
        folders.map(|folder| folder.join(name)).find(|path| path.is_file())
    };
    match env::var_os(BIN_DIR) {
        Some(folder) => Path::new(&folder).join(name),
        None => beside().unwrap_or_else(|| PathBuf::from(name)),
    }
}

/// The configuration of the overlay for controllers that are processes.
pub fn shipped_config() -> PathBuf {
    repository().join("deploy/overlays/dev/config.yaml")
}

/// How a controller is to be started.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    pub(super) name: String,
    start: usize,
    pub(super) program: PathBuf,
    pub(super) config: PathBuf,
    pub(super) server: Option<String>,
    pub(super) joins: bool,
    pub(super) arguments: Vec<String>,
    pub(super) variables: Vec<(String, String)>,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            name: "controller".to_owned(),
            start: 0,
            program: program("appwrapper-controller"),
            config: shipped_config(),
            server: None,
            joins: false,
            arguments: Vec::new(),
            variables: Vec::new(),
        }
    }
}

impl ControllerOptions {
    /// The name of this replica, `controller` by default. Its log and its kubeconfig bear it.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The same replica once more, after so many starts. Each start has files of its own.
    #[must_use]
    pub fn after_starts(mut self, starts: usize) -> Self {
        self.start = starts;
        self
    }

    /// What its files are called, without their endings.
    pub(super) fn files(&self) -> String {
        match self.start {
            0 => self.name.clone(),
            start => format!("{}.{start}", self.name),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The program to run, `appwrapper-controller` as found by [`program`] by default.
    #[must_use]
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// The configuration file, [`shipped_config`] by default.
    #[must_use]
    pub fn config(mut self, config: impl Into<PathBuf>) -> Self {
        self.config = config.into();
        self
    }

    /// It joins others: it works when it is ready, and need not hold everything.
    #[must_use]
    pub fn joining(mut self) -> Self {
        self.joins = true;
        self
    }

    /// Has it talk to the API server through a proxy.
    #[must_use]
    pub fn through(mut self, proxy: &Proxy) -> Self {
        self.server = Some(proxy.url());
        self
    }

    /// One more command-line argument. Of two with the same name the later one holds.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// An environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// The command. Ports are free ones, on loopback; the log says which.
    pub(super) fn command(&self, kubeconfig: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--config")
            .arg(&self.config)
            .args(["--metrics-bind-address", "127.0.0.1:0"])
            .args(["--health-bind-address", "127.0.0.1:0"])
            .args(["--namespace", NAMESPACE, "--identity", &self.name])
            .args(["--log-format", "json"])
            .args(&self.arguments)
            .env("KUBECONFIG", kubeconfig)
            // Read by whoever runs it. A flag beats this.
            .env("APPWRAPPER_METRICS_SECURE", "false")
            // Configuration comes from here alone.
            .env_remove("RUST_LOG")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            // Ctrl-C in a terminal is for whoever started it, who then ends it in order.
            .process_group(0);
        command
    }
}
