//! Colours, and words for times.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};
use jiff::{SignedDuration, Timestamp};

use crate::args::Color;

/// Puts colour on words, or does not.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// What the flag asks for, on the standard output.
    pub fn new(color: Color) -> Self {
        let on = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
            }
        };
        Self { on }
    }

    /// No colour at all.
    pub const PLAIN: Self = Self { on: false };

    /// A phase or state in its colour: green is well, red is not, yellow waits.
    pub fn state(self, state: &str) -> String {
        let colour = match state {
            "Running" | "Succeeded" | "Complete" | "Active" => AnsiColor::Green,
            "Failed" | "Missing" | "Unhealthy" => AnsiColor::Red,
            _ => AnsiColor::Yellow,
        };
        self.put(colour.on_default(), state)
    }

    /// A name or heading.
    pub fn bold(self, text: &str) -> String {
        self.put(Style::new().bold(), text)
    }

    /// What matters less.
    pub fn dim(self, text: &str) -> String {
        self.put(Style::new().dimmed(), text)
    }

    fn put(self, style: Style, text: &str) -> String {
        if self.on {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// A time span as kubectl writes ages: the two largest units at most.
pub fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, 0) => format!("{minutes}m"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (0, hours, 0, _) => format!("{hours}h"),
        (0, hours, minutes, _) => format!("{hours}h{minutes}m"),
        (days, 0, ..) => format!("{days}d"),
        (days, hours, ..) => format!("{days}d{hours}h"),
    }
}

/// How long ago something was.
pub fn age(at: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(at))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "0s")]
    #[case(59, "59s")]
    #[case(60, "1m")]
    #[case(61, "1m1s")]
    #[case(7_200, "2h")]
    #[case(7_260, "2h1m")]
    #[case(90_000, "1d1h")]
    #[case(86_400, "1d")]
    #[case(-5, "0s")]
    fn a_span_has_two_units_at_most(#[case] seconds: i64, #[case] text: &str) {
        assert_eq!(span(SignedDuration::from_secs(seconds)), text);
    }

    #[test]
    fn without_colour_words_are_left_alone() {
        assert_eq!(Paint::PLAIN.state("Failed"), "Failed");
        let painted = Paint::new(Color::Always).state("Failed");
        assert!(
            painted.starts_with('\u{1b}') && painted.ends_with("\u{1b}[0m"),
            "{painted:?}"
        );
    }
}
