//! Tells on standard error what is being waited for.
//!
//! On a terminal one line is rewritten every second with the seconds passed; elsewhere, as in a CI log, a line is
//! written at the start, every fifteen seconds and at the end. A [`Progress`] that is dropped without
//! [`Progress::done`] says that the work did not end well.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// One piece of work under way.
#[derive(Debug)]
pub struct Progress {
    label: String,
    started: Instant,
    note: watch::Sender<String>,
    ticker: JoinHandle<()>,
    done: bool,
}

impl Progress {
    /// Says that the work begins, and goes on telling until it is done. Needs a Tokio runtime.
    pub fn start(label: impl Into<String>) -> Self {
        let label = label.into();
        let started = Instant::now();
        let (note, notes) = watch::channel(String::new());
        if !std::io::stderr().is_terminal() {
            say(&format!("{label} …\n"));
        }
        let ticker = tokio::spawn(tick(label.clone(), started, notes));
        Self {
            label,
            started,
            note,
            ticker,
            done: false,
        }
    }

    /// What the work is at just now.
    pub fn note(&mut self, note: impl Into<String>) {
        self.note.send_replace(note.into());
    }

    /// Says that the work ended well.
    pub fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.ticker.abort();
        let seconds = self.started.elapsed().as_secs_f32();
        let end = if self.done { "done" } else { "ended" };
        say(&format!("{}{}: {end} after {seconds:.1} s\n", clear_line(), self.label));
    }
}

async fn tick(label: String, started: Instant, mut notes: watch::Receiver<String>) {
    let terminal = std::io::stderr().is_terminal();
    let mut interval = tokio::time::interval(Duration::from_secs(if terminal { 1 } else { 15 }));
    interval.tick().await;
    loop {
        interval.tick().await;
        let seconds = started.elapsed().as_secs();
        // An old note would only mislead.
        let note: String = match notes.has_changed() {
            Ok(true) => notes.borrow_and_update().chars().take(60).collect(),
            _ => String::new(),
        };
        let end = if terminal { "" } else { "\n" };
        say(&format!("{}{label} … {seconds} s {note}{end}", clear_line()));
    }
}

fn clear_line() -> &'static str {
    if std::io::stderr().is_terminal() {
        "\r\x1b[2K"
    } else {
        ""
    }
}

/// One write for the whole text, so that lines of several tasks do not mix. A closed standard error is no reason to fail.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
