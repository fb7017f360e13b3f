//! Go's duration grammar, which users write in annotations and configuration.
//!
//! The value is a signed 64-bit count of nanoseconds, as in Go. Parsing uses checked arithmetic and refuses what Go's
//! `time.ParseDuration` refuses, because two programs must read one manifest alike; formatting prints what
//! `time.Duration.String` prints, because conditions carry the text.

use std::{fmt, str::FromStr};

use jiff::SignedDuration;

const NANOSECOND: u64 = 1;
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// A Go `time.Duration`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// Why a text is no Go duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {text:?}: write a Go duration such as 90s, 5m or 1h30m")]
pub struct ParseDurationError {
    text: String,
}

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// The duration of `nanoseconds`.
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// The duration of `seconds`, saturating.
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The duration in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The duration as a library type.
    pub const fn signed(self) -> SignedDuration {
        SignedDuration::from_nanos(self.0)
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text)
            .map(Self)
            .ok_or_else(|| ParseDurationError { text: shorten(text) })
    }
}

/// Annotations may be 256 KiB long; an error text need not.
fn shorten(text: &str) -> String {
    const LIMIT: usize = 40;
    if text.chars().count() <= LIMIT {
        return text.to_owned();
    }
    text.chars().take(LIMIT).chain("...".chars()).collect()
}

fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    // The magnitude may reach 2^63, which only the negative sign brings back into range.
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (value, after) = parse_term(rest)?;
        total = total.checked_add(value).filter(|total| *total <= 1 << 63)?;
        rest = after;
    }
    if negative {
        0i64.checked_sub_unsigned(total)
    } else {
        i64::try_from(total).ok()
    }
}

/// One number with its unit, in nanoseconds, and what follows it.
fn parse_term(text: &str) -> Option<(u64, &str)> {
    let (whole_digits, rest) = split_digits(text);
    let (fraction_digits, rest) = match rest.strip_prefix('.') {
        Some(after_point) => split_digits(after_point),
        None => ("", rest),
    };
    if whole_digits.is_empty() && fraction_digits.is_empty() {
        return None;
    }
    let unit_end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit_name, rest) = rest.split_at_checked(unit_end)?;
    let unit = unit(unit_name)?;
    let whole = if whole_digits.is_empty() {
        0
    } else {
        whole_digits.parse::<u64>().ok()?
    };
    let value = whole.checked_mul(unit).filter(|value| *value <= 1 << 63)?;
    Some((value.checked_add(fraction(fraction_digits, unit))?, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn unit(name: &str) -> Option<u64> {
    Some(match name {
        "ns" => NANOSECOND,
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// `0.digits` of `unit`, rounded towards zero. Digits beyond the sixteenth are below a nanosecond of every unit.
fn fraction(digits: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0u128, 1u128);
    for digit in digits.bytes().take(16) {
        value = value * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    u64::try_from(value * u128::from(unit) / scale).unwrap_or(u64::MAX)
}

impl fmt::Display for GoDuration {
    /// As Go prints it: `1h30m0s`, `1.5s`, `500ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanoseconds {
            0 => f.write_str("0s"),
            1..MICROSECOND => write!(f, "{nanoseconds}ns"),
            MICROSECOND..MILLISECOND => write_decimal(f, nanoseconds, MICROSECOND, "\u{b5}s"),
            MILLISECOND..SECOND => write_decimal(f, nanoseconds, MILLISECOND, "ms"),
            _ => {
                let (hours, minutes) = (nanoseconds / HOUR, nanoseconds % HOUR / MINUTE);
                if hours > 0 {
                    write!(f, "{hours}h")?;
                }
                if hours > 0 || minutes > 0 {
                    write!(f, "{minutes}m")?;
                }
                write_decimal(f, nanoseconds % MINUTE, SECOND, "s")
            }
        }
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, value: u64, unit: u64, name: &str) -> fmt::Result {
    let width = usize::try_from(unit.ilog10()).unwrap_or(0);
    let fraction = format!("{:0width$}", value % unit);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        write!(f, "{}{name}", value / unit)
    } else {
        write!(f, "{}.{fraction}{name}", value / unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0", 0)]
    #[case("+0", 0)]
    #[case("-0", 0)]
    #[case("90s", 90_000_000_000)]
    #[case("1h30m", 5_400_000_000_000)]
    #[case("1.5h", 5_400_000_000_000)]
    #[case("300ms", 300_000_000)]
    #[case("2h45m30.5s", 9_930_500_000_000)]
    #[case("-5s", -5_000_000_000)]
    #[case(".5s", 500_000_000)]
    #[case("1.s", 1_000_000_000)]
    #[case("1\u{b5}s", 1_000)]
    #[case("1\u{3bc}s", 1_000)]
    #[case("9223372036854775807ns", i64::MAX)]
    #[case("-9223372036854775808ns", i64::MIN)]
    #[case("0.9223372036854775807h", 3_320_413_933_267)]
    fn what_go_accepts_has_its_value(#[case] text: &str, #[case] nanoseconds: i64) {
        assert_eq!(text.parse(), Ok(GoDuration::from_nanos(nanoseconds)));
    }

    #[rstest]
    #[case("")]
    #[case("1d")]
    #[case("5")]
    #[case(" 5s")]
    #[case("5s ")]
    #[case("222badTime")]
    #[case("-")]
    #[case(".")]
    #[case(".s")]
    #[case("1h-5m")]
    #[case("+-1s")]
    #[case("9223372036854775808ns")]
    #[case("1000000000000h")]
    #[case("99999999999999999999s")]
    fn what_go_refuses_is_refused(#[case] text: &str) {
        assert!(text.parse::<GoDuration>().is_err(), "{text:?}");
    }

    #[rstest]
    #[case(0, "0s")]
    #[case(10_000_000_000, "10s")]
    #[case(60_000_000_000, "1m0s")]
    #[case(300_000_000_000, "5m0s")]
    #[case(604_800_000_000_000, "168h0m0s")]
    #[case(1_500_000_000, "1.5s")]
    #[case(500_000_000, "500ms")]
    #[case(1_001, "1.001\u{b5}s")]
    #[case(-90_000_000_000, "-1m30s")]
    fn durations_print_as_in_go(#[case] nanoseconds: i64, #[case] text: &str) {
        assert_eq!(GoDuration::from_nanos(nanoseconds).to_string(), text);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text in ".{0,40}") {
            let _ = text.parse::<GoDuration>();
        }

        #[test]
        fn what_is_printed_is_read_back(nanoseconds in any::<i64>()) {
            let duration = GoDuration::from_nanos(nanoseconds);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }
}
