//! File modes: octal, and symbolic as in POSIX.

use std::str::FromStr;

/// A file mode of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// An octal mode.
    Bits {
        /// Twelve bits.
        bits: u16,
        /// Directories keep set-user-ID and set-group-ID, unless the mode has five digits or more, as in GNU.
        keeps_set_id: bool,
    },
    /// A symbolic mode: clauses, applied in order.
    Symbolic(Vec<Clause>),
}

/// A clause of a symbolic mode: `go-w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Bits that the clause may change.
    who: u16,
    operator: Operator,
    /// Permission bits, as if for all.
    bits: u16,
    /// `X`: execute only for directories and files that someone may execute.
    execute_if_useful: bool,
    /// Copy the permissions of `u`, `g` or `o`.
    copy: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

const USER: u16 = 0o4700;
const GROUP: u16 = 0o2070;
const OTHER: u16 = 0o1007;

impl Mode {
    /// Applies the mode to permissions.
    pub fn apply(&self, permissions: u16, directory: bool) -> u16 {
        match self {
            Self::Bits { bits, keeps_set_id } if *keeps_set_id && directory => bits | permissions & 0o6000,
            Self::Bits { bits, .. } => *bits,
            Self::Symbolic(clauses) => {
                clauses.iter().fold(permissions, |permissions, clause| clause.apply(permissions, directory))
            }
        }
    }
}

impl Clause {
    fn apply(&self, permissions: u16, directory: bool) -> u16 {
        let mut bits = self.bits;
        if self.execute_if_useful && (directory || permissions & 0o111 != 0) {
            bits |= 0o111;
        }
        if let Some(shift) = self.copy {
            bits |= (permissions >> shift & 7) * 0o111;
        }
        let bits = bits & self.who;
        match self.operator {
            Operator::Add => permissions | bits,
            Operator::Remove => permissions & !bits,
            Operator::Set => permissions & !(self.who & 0o777) | bits,
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
            let keeps_set_id = text.len() < 5;
            return bits
                .map(|bits| Self::Bits { bits, keeps_set_id })
                .ok_or_else(|| format!("{text:?} is not an octal mode up to 7777"));
        }
        let mut clauses = Vec::new();
        for clause in text.split(',') {
            parse_clause(clause, &mut clauses)
                .ok_or_else(|| format!("{clause:?} is not a mode (as in 644, u+x, go=rX)"))?;
        }
        Ok(Self::Symbolic(clauses))
    }
}

/// `[ugoa]*([-+=][rwxXst]*|[ugo])+`
fn parse_clause(clause: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let start = clause.find(['+', '-', '='])?;
    let (who, mut rest) = clause.split_at(start);
    let mut mask = 0;
    for letter in who.chars() {
        mask |= match letter {
            'u' => USER,
            'g' => GROUP,
            'o' => OTHER,
            'a' => USER | GROUP | OTHER,
            _ => return None,
        };
    }
    if mask == 0 {
        mask = USER | GROUP | OTHER;
    }
    while let Some(sign) = rest.chars().next() {
        let operator = match sign {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            '=' => Operator::Set,
            _ => return None,
        };
        let letters = rest.get(1..)?;
        let end = letters.find(['+', '-', '=']).unwrap_or(letters.len());
        let (letters, after) = letters.split_at(end);
        clauses.push(parse_letters(letters, mask, operator)?);
        rest = after;
    }
    Some(())
}

fn parse_letters(letters: &str, who: u16, operator: Operator) -> Option<Clause> {
    let mut clause = Clause { who, operator, bits: 0, execute_if_useful: false, copy: None };
    for letter in letters.chars() {
        match letter {
            'r' => clause.bits |= 0o444,
            'w' => clause.bits |= 0o222,
            'x' => clause.bits |= 0o111,
            's' => clause.bits |= 0o6000,
            't' => clause.bits |= 0o1000,
            'X' => clause.execute_if_useful = true,
            'u' if letters.len() == 1 => clause.copy = Some(6),
            'g' if letters.len() == 1 => clause.copy = Some(3),
            'o' if letters.len() == 1 => clause.copy = Some(0),
            _ => return None,
        }
    }
    Some(clause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(mode: &str, before: u16, directory: bool, after: u16) {
        let mode: Mode = mode.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(mode.apply(before, directory), after, "{mode:?}");
    }

    #[test]
    fn applies_modes_as_chmod_does() {
        expect("0644", 0o777, false, 0o644);
        expect("4755", 0, false, 0o4755);
        expect("755", 0o2700, true, 0o2755);
        expect("00755", 0o2700, true, 0o755);
        expect("755", 0o2700, false, 0o755);
        expect("u+x", 0o644, false, 0o744);
        expect("go-rwx", 0o777, false, 0o700);
        expect("a=r", 0o777, false, 0o444);
        expect("u=rwX,go=rX", 0o600, true, 0o755);
        expect("u=rwX,go=rX", 0o600, false, 0o644);
        expect("g=u", 0o740, false, 0o770);
        expect("+t", 0o755, true, 0o1755);
        expect("ug+s", 0o755, false, 0o6755);
        expect("u+r-w", 0o200, false, 0o400);
    }

    #[test]
    fn refuses_invalid_modes() {
        for text in ["", "rwx", "8", "77777", "u+q", "z+x", "u", "u+ux"] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }
}
