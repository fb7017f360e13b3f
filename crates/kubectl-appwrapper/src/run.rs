//! Runs a command and prints.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

use anyhow::{Context, bail};
use kube::{Api, api::ListParams};
use serde::Serialize;
use serde_json::json;

use crate::{
    args::{Args, Command, Output},
    explain, gather, list, retry,
    session::{Session, plain},
    style::Paint,
    tree, wait,
};

/// Runs the process to its end.
pub fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let session = Session::open(args).await?;
        let paint = Paint::new(args.color);
        let (text, code) = run(&session, args, paint).await?;
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            other => other.context("cannot print")?,
        }
        Ok(ExitCode::from(code))
    })
}

/// Runs a command; answers with what to print and the exit code.
pub async fn run(session: &Session, args: &Args, paint: Paint) -> anyhow::Result<(String, u8)> {
    let is_json = args.output == Output::Json;
    match &args.command {
        Command::Status { name } => {
            let report = gather::report(session, name).await?;
            let text = if is_json {
                pretty(&report)?
            } else {
                tree::text(&report, session.now(), paint)
            };
            Ok((text, 0))
        }
        Command::Explain { name } => {
            let report = gather::report(session, name).await?;
            let findings = explain::explain(&report, session.now());
            let text = if is_json {
                pretty(&findings)?
            } else {
                explain::text(&report, &findings)
            };
            Ok((text, 0))
        }
        Command::List { all_namespaces } => {
            let api = if *all_namespaces {
                Api::all(session.client.clone())
            } else {
                session.wrappers()
            };
            let wrappers = api.list(&ListParams::default()).await;
            let wrappers = wrappers.map_err(|error| anyhow::anyhow!("cannot list AppWrappers: {}", plain(&error)))?;
            let rows: Vec<list::Row> = wrappers.items.iter().map(list::row).collect();
            let text = if is_json {
                pretty(&rows)?
            } else {
                list::text(&rows, *all_namespaces, session.now(), paint)
            };
            Ok((text, 0))
        }
        Command::Wait { name, goal, timeout } => {
            let (ended, phase) = wait::wait(session, name, *goal, *timeout).await?;
            let text = if is_json {
                pretty(&json!({"name": name, "phase": phase, "reached": ended == wait::Ended::Reached}))?
            } else {
                format!("AppWrapper {name} is {}\n", paint.state(&phase))
            };
            Ok((text, ended.code()))
        }
        Command::Retry { name, yes, timeout } => {
            let wrapper = retry::candidate(session, name).await?;
            if !yes && !confirmed(name)? {
                return Ok(("Nothing was changed.\n".to_owned(), 1));
            }
            let created = retry::retry(session, &wrapper, *timeout).await?;
            let text = if is_json {
                pretty(&json!({"name": name, "uid": created.metadata.uid}))?
            } else {
                format!("AppWrapper {name} was deleted and created anew\n")
            };
            Ok((text, 0))
        }
    }
}

fn confirmed(name: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("AppWrapper {name} would be deleted with whatever is left of it, and created anew; confirm with --yes");
    }
    eprint!("Delete AppWrapper {name} with whatever is left of it, and create it anew? [y/N] ");
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn pretty(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("cannot write JSON")? + "\n")
}
