//! Commands and flags.

use std::time::Duration;

use appwrapper_api::{GoDuration, Phase};
use clap::{Parser, Subcommand, ValueEnum};

/// Looks at AppWrappers: what they are made of, why they do not run; and tries failed ones again.
#[derive(Clone, Debug, Parser)]
#[command(name = "kubectl-appwrapper", bin_name = "kubectl appwrapper", version)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Namespace of the AppWrapper; that of the context by default.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Context of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the controller: its configuration and its Leases.
    #[arg(long, global = true, value_name = "NAME", default_value = "appwrapper-system")]
    pub system_namespace: String,
    /// How to print.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// Whether to use colours: by default on a terminal only, and not if NO_COLOR is set.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show an AppWrapper, its components and pods, its next deadline and who looks after it
    Status {
        /// Name of the AppWrapper.
        name: String,
    },
    /// Say in plain words why an AppWrapper is not running
    Explain {
        /// Name of the AppWrapper.
        name: String,
    },
    /// List AppWrappers
    List {
        /// Of all namespaces.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
    },
    /// Wait until an AppWrapper is in a phase. Exit codes: 0 it is, 1 error, 3 time is up, 4 it cannot be any more
    Wait {
        /// Name of the AppWrapper.
        name: String,
        /// A phase; or "finished" for Succeeded or Failed, or "deleted".
        #[arg(long = "for", value_name = "PHASE", default_value = "finished", value_parser = goal)]
        goal: Goal,
        /// How long at most, for example 90s or 1h30m; for ever by default.
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        timeout: Option<Duration>,
    },
    /// Try a failed AppWrapper again. Failed is final, so it is deleted and created anew, with all its retries
    Retry {
        /// Name of the AppWrapper.
        name: String,
        /// Do not ask.
        #[arg(short, long)]
        yes: bool,
        /// How long the deletion may take.
        #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
        timeout: Duration,
    },
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// This phase.
    Phase(Phase),
    /// Succeeded or Failed.
    Finished,
    /// That the object is gone.
    Deleted,
}

fn goal(text: &str) -> Result<Goal, String> {
    let known = |name: &str| name.eq_ignore_ascii_case(text);
    if known("finished") {
        return Ok(Goal::Finished);
    }
    if known("deleted") {
        return Ok(Goal::Deleted);
    }
    let found = Phase::NAMED.into_iter().find(|phase| known(phase.as_str()));
    found.map(Goal::Phase).ok_or_else(|| {
        let names: Vec<_> = Phase::NAMED.iter().map(|phase| phase.as_str()).collect();
        format!("no phase; one of finished, deleted, {}", names.join(", "))
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: GoDuration = text
        .parse()
        .map_err(|error: appwrapper_api::duration::ParseDurationError| error.to_string())?;
    u64::try_from(duration.as_nanos())
        .map(Duration::from_nanos)
        .map_err(|_| format!("{text} is negative"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("running", Ok(Goal::Phase(Phase::Running)))]
    #[case("Finished", Ok(Goal::Finished))]
    #[case("deleted", Ok(Goal::Deleted))]
    #[case("done", Err(()))]
    #[case("", Err(()))]
    fn a_goal_is_a_phase_or_an_end(#[case] text: &str, #[case] expected: Result<Goal, ()>) {
        assert_eq!(goal(text).map_err(|_| ()), expected);
    }

    #[test]
    fn global_flags_may_follow_the_command() {
        let args = Args::try_parse_from(["x", "status", "a", "-n", "team", "-o", "json"]).unwrap();
        assert_eq!((args.namespace.as_deref(), args.output), (Some("team"), Output::Json));
        let error = Args::try_parse_from(["x", "wait", "a", "--timeout", "5"]).unwrap_err();
        assert!(error.to_string().contains("--timeout"), "{error}");
    }
}
