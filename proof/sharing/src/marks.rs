//! Marks in a trace: stores of the traced program to known addresses.
//!
//! A trace has addresses and no values, so that each mark has an address of its own. The program prints the first one
//! before it stores to any.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, compiler_fence};

/// What a store marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    /// The rounds of the next pair begin.
    Pair,
    /// The storing thread begins its operation of a round, as the first side of the pair.
    BeginFirst,
    /// As above, as the second side.
    BeginSecond,
    /// The operation that the storing thread began has ended.
    End,
    /// All rounds of a pair are done.
    Done,
}

/// All marks, in the order of their addresses.
const ALL: [Mark; 5] = [Mark::Pair, Mark::BeginFirst, Mark::BeginSecond, Mark::End, Mark::Done];

/// Has a line of its own, which no operation of the engine touches.
#[repr(align(64))]
struct Cells([AtomicU8; ALL.len()]);

static CELLS: Cells = Cells([const { AtomicU8::new(0) }; ALL.len()]);

impl Mark {
    /// The beginning of the operation of a side.
    pub fn begin(side: usize) -> Self {
        if side == 0 { Self::BeginFirst } else { Self::BeginSecond }
    }

    /// Stores the mark. The compiler moves no access across it.
    #[inline]
    pub fn store(self) {
        compiler_fence(SeqCst);
        if let Some(cell) = CELLS.0.get(self as usize) {
            cell.store(0, std::sync::atomic::Ordering::Relaxed);
        }
        compiler_fence(SeqCst);
    }

    /// The mark at an address, if the marks begin at `first`.
    #[inline]
    pub fn at(address: u64, first: u64) -> Option<Self> {
        ALL.get(usize::try_from(address.checked_sub(first)?).ok()?).copied()
    }
}

/// Address of the first mark of this process.
pub fn address() -> u64 {
    CELLS.0.as_ptr().addr() as u64
}
