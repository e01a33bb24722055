//! The lines of `valgrind --tool=lackey --trace-mem=yes --trace-sched=yes`.
//!
//! ```text
//! I  0401ab3c,4                     instruction: address, length
//!  L 1ffefff8a0,8                   load
//!  S 1ffefff8a0,8                   store
//!  M 0421c040,8                     load and store by one instruction
//! --123--   SCHED[2]:  acquired lock (...)     from here on, thread 2 runs
//! ```
//!
//! The traced program writes its own messages between them, which are kept: if it fails, they say why.

use anyhow::{Context, bail};

/// A line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'t> {
    /// An instruction is executed.
    Instruction {
        /// Its address.
        at: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Memory is accessed by the last instruction.
    Access {
        /// Load, store, or both.
        kind: Kind,
        /// First byte.
        at: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Another thread runs.
    Thread(u32),
    /// Something else that valgrind says.
    Valgrind,
    /// Output of the traced program.
    Message(&'t [u8]),
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads.
    Load,
    /// It writes.
    Store,
    /// It reads and writes.
    Modify,
}

impl Kind {
    /// Whether the access writes.
    pub fn writes(self) -> bool {
        self != Self::Load
    }
}

/// The largest access of an instruction: `xsave` writes some kilobytes.
const LARGEST: u64 = 1 << 16;

/// Parses a line without its line end.
///
/// # Errors
/// The line begins as one of the trace, but is torn.
#[inline]
pub fn parse(line: &[u8]) -> anyhow::Result<Event<'_>> {
    match line {
        [b'I', b' ', b' ', rest @ ..] => {
            let (at, len) = address_and_length(rest).with_context(|| torn(line))?;
            Ok(Event::Instruction { at, len })
        }
        [b' ', letter @ (b'L' | b'S' | b'M'), b' ', rest @ ..] => {
            let kind = match letter {
                b'L' => Kind::Load,
                b'S' => Kind::Store,
                _ => Kind::Modify,
            };
            let (at, len) = address_and_length(rest).with_context(|| torn(line))?;
            Ok(Event::Access { kind, at, len })
        }
        [b'-', b'-', ..] => scheduler(line),
        [b'=', b'=', ..] => Ok(Event::Valgrind),
        _ => Ok(Event::Message(line)),
    }
}

fn torn(line: &[u8]) -> String {
    format!(
        "the trace is torn: {:?} is neither an instruction nor an access",
        line.escape_ascii().to_string()
    )
}

/// Parses `ADDRESS,LENGTH`: hexadecimal, decimal.
#[inline]
fn address_and_length(text: &[u8]) -> Option<(u64, u64)> {
    let comma = text.iter().position(|byte| *byte == b',')?;
    let (address, length) = text.split_at_checked(comma)?;
    let at = number(address, 16)?;
    let len = number(length.get(1..)?, 10)?;
    (1..=LARGEST).contains(&len).then_some((at, len)).filter(|_| at.checked_add(len).is_some())
}

/// Parses digits, at least one.
#[inline]
fn number(digits: &[u8], base: u32) -> Option<u64> {
    let add = |number: u64, digit: &u8| {
        number.checked_mul(base.into())?.checked_add(char::from(*digit).to_digit(base)?.into())
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// Parses a line of valgrind itself. Only the thread that begins to run is of interest.
fn scheduler(line: &[u8]) -> anyhow::Result<Event<'_>> {
    let text = String::from_utf8_lossy(line);
    let Some((_, rest)) = text.split_once("SCHED[") else { return Ok(Event::Valgrind) };
    let Some((thread, what)) = rest.split_once("]:") else { bail!(torn(line)) };
    if !what.trim_start().starts_with("acquired lock") {
        return Ok(Event::Valgrind);
    }
    Ok(Event::Thread(thread.parse().with_context(|| torn(line))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_trace() {
        let parsed = |line: &'static str| parse(line.as_bytes()).unwrap();
        assert_eq!(parsed("I  0401ab3c,4"), Event::Instruction { at: 0x401_ab3c, len: 4 });
        assert_eq!(parsed(" L 1ffefff8a0,8"), Event::Access { kind: Kind::Load, at: 0x1f_feff_f8a0, len: 8 });
        assert_eq!(parsed(" S 10,16"), Event::Access { kind: Kind::Store, at: 16, len: 16 });
        assert_eq!(parsed(" M 10,1"), Event::Access { kind: Kind::Modify, at: 16, len: 1 });
        let acquired = "--17--   SCHED[3]:  acquired lock (VG_(client_syscall)[async])";
        assert_eq!(parsed(acquired), Event::Thread(3));
        let released = "--17--   SCHED[3]: releasing lock (VG_(client_syscall)[async]) -> VgTs_WaitSys";
        assert_eq!(parsed(released), Event::Valgrind);
        assert_eq!(parsed("==17== Command: target"), Event::Valgrind);
        assert_eq!(parsed("thread panicked"), Event::Message(b"thread panicked"));
    }

    #[test]
    fn torn_lines_are_refused() {
        for line in [
            "I  0401ab3c",
            "I  ,4",
            "I  0401ab3g,4",
            "I  10,",
            "I  10,x",
            " S 10,0",
            " L 10,99999999",
            " M fffffffffffffffff,1",
            " L ffffffffffffffff,2",
            "--1-- SCHED[x]: acquired lock",
            "--1-- SCHED[",
        ] {
            let error = parse(line.as_bytes()).map(|_| ()).map_err(|error| error.to_string());
            assert!(matches!(&error, Err(text) if text.contains("is torn")), "{line}: {error:?}");
        }
    }
}
