//! The chain of calls that leads to an access, reconstructed from a trace.
//!
//! A trace has no calls. On x86-64 a call is an instruction that stores eight bytes, its return address, and is not
//! followed by the instruction behind it; a return loads them from the same place. Jumps store nothing. The chain
//! begins at a mark, so it has no callers of what the mark is in.

use crate::trace::Kind;

/// The calls of one thread that have not returned.
#[derive(Debug, Default)]
pub struct Calls {
    /// Return addresses and where they are stored, the innermost last.
    open: Vec<Call>,
    /// The last instruction: its address, and the address behind it.
    at: u64,
    next: u64,
    /// What the last instruction stored and loaded last, if it was eight bytes.
    stored: Option<u64>,
    loaded: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    returns_to: u64,
    stored_at: u64,
}

/// Size of a return address.
const WORD: u64 = 8;
/// Calls that are kept for an access: more than between an operation and what it does.
const DEPTH: usize = 40;

impl Calls {
    /// An instruction begins.
    pub fn instruction(&mut self, at: u64, len: u64) {
        if at != self.next && self.next != 0 {
            self.jumped(at);
        }
        (self.at, self.next) = (at, at.wrapping_add(len));
        (self.stored, self.loaded) = (None, None);
    }

    /// The last instruction was a call, a return, or a jump.
    fn jumped(&mut self, to: u64) {
        if let Some(stored_at) = self.stored {
            self.open.push(Call { returns_to: self.next, stored_at });
        } else if let Some(loaded) = self.loaded {
            // Unwinding leaves several calls at once.
            let returned = |call: &Call| (call.stored_at, call.returns_to) == (loaded, to);
            if let Some(depth) = self.open.iter().rposition(returned) {
                self.open.truncate(depth);
            }
        }
    }

    /// The last instruction accesses memory.
    pub fn access(&mut self, kind: Kind, at: u64, len: u64) {
        let word = (len == WORD).then_some(at);
        match kind {
            Kind::Load => self.loaded = word,
            Kind::Store | Kind::Modify => self.stored = word,
        }
    }

    /// The last instruction.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The innermost return address.
    pub fn caller(&self) -> u64 {
        self.open.last().map_or(0, |call| call.returns_to)
    }

    /// The last instruction and the return addresses behind it, the innermost first.
    pub fn chain(&self) -> Box<[u64]> {
        let callers = self.open.iter().rev().map(|call| call.returns_to);
        std::iter::once(self.at).chain(callers.take(DEPTH)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_returns_make_the_chain() {
        let mut calls = Calls::default();
        calls.instruction(100, 5);
        calls.access(Kind::Store, 0x8000, 8); // call 200
        calls.instruction(200, 1);
        calls.access(Kind::Store, 0x7ff8, 8); // push, which is no call
        calls.instruction(201, 2);
        calls.access(Kind::Load, 0x10, 8);
        calls.access(Kind::Store, 0x7ff0, 8); // call through memory
        calls.instruction(300, 4);
        assert_eq!(*calls.chain(), [300, 203, 105]);
        assert_eq!((calls.at(), calls.caller()), (300, 203));
        calls.instruction(400, 1); // a tail call
        calls.access(Kind::Load, 0x7ff0, 8); // ret
        calls.instruction(203, 2); // a jump follows, which returns nowhere
        assert_eq!(*calls.chain(), [203, 105]);
        calls.instruction(210, 1);
        calls.access(Kind::Load, 0x8000, 8); // ret
        calls.instruction(105, 1);
        assert_eq!(*calls.chain(), [105]);
    }
}
