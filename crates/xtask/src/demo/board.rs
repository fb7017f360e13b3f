//! The table of AppWrappers and their phases.
//!
//! On a terminal it is one table that is drawn anew at every change. Elsewhere, as in a CI log, each change is a line of
//! its own, and the table comes at the end.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

/// One AppWrapper.
pub struct Row {
    name: String,
    expected: String,
    seen: String,
    seconds: f32,
    ended: bool,
}

impl Row {
    /// An AppWrapper that was just submitted.
    pub fn new(name: &str, expected: String) -> Self {
        Self {
            name: name.to_owned(),
            expected,
            seen: "submitted".to_owned(),
            seconds: 0.0,
            ended: false,
        }
    }
}

/// The table.
pub struct Board {
    rows: Vec<Row>,
    started: Instant,
    live: bool,
}

impl Board {
    /// Shows the table for the first time.
    pub fn new(rows: Vec<Row>) -> Self {
        let board = Self {
            rows,
            started: Instant::now(),
            live: std::io::stdout().is_terminal(),
        };
        if board.live {
            board.draw();
        }
        board
    }

    /// Shows what an AppWrapper is at, if that is news.
    pub fn show(&mut self, name: &str, seen: &str, ended: bool) {
        let seconds = self.started.elapsed().as_secs_f32();
        let Some(row) = self.rows.iter_mut().find(|row| row.name == name) else {
            return;
        };
        row.ended |= ended;
        if row.seen == seen {
            return;
        }
        seen.clone_into(&mut row.seen);
        row.seconds = seconds;
        if self.live {
            say(&format!("\x1b[{}A", self.rows.len() + 1));
            self.draw();
        } else {
            println!("{seconds:6.1} s  {name:26} {seen}");
        }
    }

    /// Shows the table for the last time.
    pub fn end(&self) {
        if !self.live {
            println!();
            self.draw();
        }
    }

    fn draw(&self) {
        let mut text = line("APPWRAPPER", "PHASE", "EXPECTED", "SINCE");
        for row in &self.rows {
            let mark = if row.ended { "" } else { " …" };
            let seen = format!("{}{mark}", row.seen);
            text.push_str(&line(&row.name, &seen, &row.expected, &format!("{:.1} s", row.seconds)));
        }
        say(&text);
    }
}

fn line(name: &str, seen: &str, expected: &str, since: &str) -> String {
    let clear = if std::io::stdout().is_terminal() { "\x1b[2K" } else { "" };
    format!("{clear}{name:26} {seen:26} {expected:22} {since:>8}\n")
}

/// A closed standard output is no reason to fail.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}
