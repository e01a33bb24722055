//! Values of the tests of `find`.

use format::inode::FileType;
use format::timestamp::Timestamp;

use crate::commands::edit::mode::Mode;

/// A number to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    More(u64),
    Less(u64),
    Exactly(u64),
}

impl Bound {
    pub fn matches(self, number: u64) -> bool {
        match self {
            Self::More(bound) => number > bound,
            Self::Less(bound) => number < bound,
            Self::Exactly(bound) => number == bound,
        }
    }

    /// `N`, `+N` or `-N`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (variant, digits): (fn(u64) -> Self, &str) = match text.as_bytes().first() {
            Some(b'+') => (Self::More, text.get(1..).unwrap_or("")),
            Some(b'-') => (Self::Less, text.get(1..).unwrap_or("")),
            _ => (Self::Exactly, text),
        };
        let invalid = || format!("`{text}` is not a number with + or - before it");
        match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse().map(variant).map_err(|_| invalid()),
            false => Err(invalid()),
        }
    }
}

/// A size to compare with, in a unit to which sizes are rounded up.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    bound: Bound,
    unit: u64,
}

impl Size {
    pub fn matches(self, bytes: u64) -> bool {
        self.bound.matches(bytes.div_ceil(self.unit))
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let (unit, suffix_length) = match text.as_bytes().last() {
            Some(b'c') => (1, 1),
            Some(b'w') => (2, 1),
            Some(b'b') => (512, 1),
            Some(b'k') => (1 << 10, 1),
            Some(b'M') => (1 << 20, 1),
            Some(b'G') => (1 << 30, 1),
            _ => (512, 0),
        };
        let number = text.get(..text.len() - suffix_length).unwrap_or("");
        Ok(Self { bound: Bound::parse(number)?, unit })
    }
}

const NANOS: i128 = 1_000_000_000;

/// An age to compare with, in a unit.
#[derive(Clone, Copy, Debug)]
pub struct Age {
    /// `+`, `-`, or neither.
    sign: Option<u8>,
    /// In nanoseconds.
    length: i128,
    unit: i128,
}

impl Age {
    /// `N`, `+N` or `-N` in units of `seconds`; N may have a fraction.
    pub fn parse(text: &str, seconds: i128) -> Result<Self, String> {
        let invalid = || format!("`{text}` is not a number with + or - before it");
        let sign = text.bytes().next().filter(|byte| matches!(byte, b'+' | b'-'));
        let digits = if sign.is_some() { text.get(1..).unwrap_or("") } else { text };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || whole.len() > 15 {
            return Err(invalid());
        }
        let whole: i128 = whole.parse().map_err(|_| invalid())?;
        let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
        let fraction: i128 = digits.parse().map_err(|_| invalid())?;
        let unit = seconds * NANOS;
        Ok(Self { sign, length: whole * unit + fraction * seconds, unit })
    }

    /// Compares the age of a time at `now`. As in GNU find, a fraction of a day is ignored, and a fraction of a minute
    /// counts as a whole one.
    pub fn matches(self, time: Timestamp, now: Timestamp) -> bool {
        let nanos = |time: Timestamp| i128::from(time.seconds) * NANOS + i128::from(time.nanoseconds);
        let age = nanos(now) - nanos(time);
        let fraction = if self.unit > 60 * NANOS { self.unit } else { 0 };
        match self.sign {
            Some(b'+') => age >= self.length + fraction,
            Some(_) => age < self.length,
            None => (self.length..self.length + self.unit).contains(&(age + self.unit - fraction)),
        }
    }
}

/// Permissions to compare with.
#[derive(Clone, Copy, Debug)]
pub struct Perm {
    /// `-`, `/`, or neither.
    sign: Option<u8>,
    /// For files, and for directories.
    bits: (u16, u16),
}

impl Perm {
    /// `MODE`, `-MODE` or `/MODE`; in letters, the mode is applied to no permissions.
    pub fn parse(text: &str) -> Result<Self, String> {
        let sign = text.bytes().next().filter(|byte| matches!(byte, b'-' | b'/'));
        let mode: Mode = text.get(usize::from(sign.is_some())..).unwrap_or("").parse()?;
        Ok(Self { sign, bits: (mode.apply(0, false), mode.apply(0, true)) })
    }

    pub fn matches(self, permissions: u16, is_directory: bool) -> bool {
        let bits = if is_directory { self.bits.1 } else { self.bits.0 };
        match self.sign {
            None => permissions == bits,
            Some(b'-') => permissions & bits == bits,
            // In GNU find, no bits match every file.
            Some(_) => bits == 0 || permissions & bits != 0,
        }
    }
}

/// A letter of `-type`.
pub fn parse_type(letter: &str) -> Result<FileType, String> {
    Ok(match letter {
        "f" => FileType::Regular,
        "d" => FileType::Directory,
        "l" => FileType::Symlink,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        "b" => FileType::BlockDevice,
        "c" => FileType::CharDevice,
        _ => return Err("expected letters f, d, l, p, s, b or c".into()),
    })
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn parses_and_compares_bounds_and_sizes() {
        assert_eq!(Bound::parse("+3"), Ok(Bound::More(3)));
        assert_eq!(Bound::parse("-0"), Ok(Bound::Less(0)));
        assert!(Bound::parse("").is_err() && Bound::parse("+").is_err() && Size::parse("k").is_err());
        assert!(
            Bound::parse("++3").is_err() && Age::parse("1.", 60).is_err() && Age::parse(".5", 60).is_err()
        );
        let holds = |text: &str, bytes: u64| Size::parse(text).unwrap().matches(bytes);
        // Sizes are rounded up: a file of one byte is not smaller than one block.
        assert!(holds("1", 1) && !holds("-1", 1) && holds("-1", 0) && holds("+1k", 1025) && holds("7c", 7));
    }

    #[test]
    fn rounds_days_down_and_minutes_up() {
        let now = Timestamp { seconds: 10_000_000, nanoseconds: 0 };
        let days = |text: &str, age: i64| {
            Age::parse(text, 86_400)
                .unwrap()
                .matches(Timestamp { seconds: now.seconds - age, nanoseconds: 0 }, now)
        };
        assert!(days("0", 86_399) && !days("0", 86_400) && days("1", 86_400) && days("-1", 86_399));
        assert!(!days("+0", 86_399) && days("+0", 86_401) && days("-1", -5) && !days("+1", 100_000));
        assert!(days("0.5", 43_200) && !days("-0.5", 43_201));
        let minutes = |text: &str, age: i64| {
            Age::parse(text, 60)
                .unwrap()
                .matches(Timestamp { seconds: now.seconds - age, nanoseconds: 0 }, now)
        };
        assert!(
            minutes("1", 30)
                && !minutes("1", 70)
                && minutes("2", 70)
                && minutes("+1", 61)
                && minutes("-1", 59)
        );
    }
}
