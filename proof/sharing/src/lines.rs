//! Cache lines of two threads, with the transfers between them that a coherence protocol such as MESI makes.
//!
//! Each thread has a cache without limit. A line is transferred when a thread reads what the other one wrote last, or
//! writes what the other one has a copy of. Lines that both only read are not.

use rustc_hash::FxHashMap;

use crate::calls::Calls;
use crate::trace::Kind;

/// Bytes of a line.
pub const LINE: u64 = base::line_alloc::LINE as u64;
/// Chains of calls that are kept for a line and a side: that many which write, and that many which read.
const CHAINS: usize = 8;

/// The calls that lead to an access of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallChain {
    /// The instruction and the return addresses of its callers, the innermost first.
    pub addresses: Box<[u64]>,
    /// Whether it writes.
    pub writes: bool,
}

/// What happened to a line in the rounds of a pair.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The sides with a valid copy.
    copies: [bool; 2],
    /// The side that wrote it last.
    written_by: Option<usize>,
    /// Transfers in each counted round.
    transfers: Vec<u32>,
    /// The code of each side that touches it.
    chains: [Vec<CallChain>; 2],
}

/// A line with transfers.
#[derive(Clone, Debug)]
pub struct SharedLine {
    /// Address of its first byte.
    pub address: u64,
    /// Transfers in each counted round.
    pub transfers: Vec<u32>,
    /// The code of each side that touches it.
    pub chains: [Vec<CallChain>; 2],
}

impl Line {
    /// An access of a side. Returns whether the line is transferred.
    fn access(&mut self, side: usize, writes: bool) -> bool {
        let has_copy = std::mem::replace(&mut self.copies[side], true);
        if writes {
            self.written_by = Some(side);
            std::mem::take(&mut self.copies[1 - side])
        } else {
            !has_copy && self.written_by == Some(1 - side)
        }
    }

    fn count(&mut self, round: usize) {
        if self.transfers.len() <= round {
            self.transfers.resize(round + 1, 0);
        }
        self.transfers[round] += 1;
    }

    fn add_chain(&mut self, side: usize, calls: &Calls, writes: bool) {
        let chains = &mut self.chains[side];
        let (at, caller) = (calls.at(), calls.caller());
        let is_known = |chain: &CallChain| {
            chain.addresses.first() == Some(&at) && chain.addresses.get(1).copied().unwrap_or(0) == caller
        };
        match chains.iter().position(is_known) {
            Some(known) => chains[known].writes |= writes,
            None if chains.iter().filter(|chain| chain.writes == writes).count() == CHAINS => {}
            None => chains.push(CallChain { addresses: calls.chain(), writes }),
        }
    }
}

/// The lines that the rounds of a pair touch.
#[derive(Debug, Default)]
pub struct Lines(FxHashMap<u64, Line>);

impl Lines {
    /// An access by a side. `round` is `None` in the round that is not counted.
    pub fn access(
        &mut self,
        side: usize,
        round: Option<usize>,
        (kind, at, len): (Kind, u64, u64),
        calls: &Calls,
    ) {
        for number in at / LINE..=(at + len - 1) / LINE {
            let line = self.0.entry(number).or_default();
            if line.access(side, kind.writes())
                && let Some(round) = round
            {
                line.count(round);
            }
            line.add_chain(side, calls, kind.writes());
        }
    }

    /// Forgets all lines, and returns those with transfers, in the order of their addresses.
    pub fn take_shared(&mut self) -> Vec<SharedLine> {
        let shared = self.0.drain().filter(|(_, line)| !line.transfers.is_empty());
        let mut shared: Vec<SharedLine> = shared
            .map(|(number, line)| SharedLine {
                address: number * LINE,
                transfers: line.transfers,
                chains: line.chains,
            })
            .collect();
        shared.sort_unstable_by_key(|line| line.address);
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses of lines with transfers, and their number, after accesses (side, kind, address, length).
    fn transfers(accesses: &[(usize, Kind, u64, u64)]) -> Vec<(u64, u32)> {
        let (mut lines, calls) = (Lines::default(), Calls::default());
        for (side, kind, at, len) in accesses {
            lines.access(*side, Some(0), (*kind, *at, *len), &calls);
        }
        lines.take_shared().iter().map(|line| (line.address, line.transfers.iter().sum())).collect()
    }

    #[test]
    fn what_both_read_and_what_one_writes_is_not_transferred() {
        let accesses =
            [(0, Kind::Load, 0, 8), (1, Kind::Load, 0, 8), (0, Kind::Store, 64, 8), (0, Kind::Load, 64, 8)];
        assert!(transfers(&accesses).is_empty());
    }

    #[test]
    fn each_change_of_the_writer_is_a_transfer() {
        let counter = |side| (side, Kind::Modify, 130, 4);
        assert_eq!(transfers(&[counter(0), counter(1), counter(0), counter(0)]), [(128, 2)]);
    }

    #[test]
    fn a_reader_gets_the_line_and_the_writer_invalidates_it() {
        let (read, write) = ((0, Kind::Load, 0, 8), (1, Kind::Store, 8, 8));
        assert_eq!(transfers(&[read, write, read, read, write]), [(0, 3)]);
    }

    #[test]
    fn an_access_may_touch_two_lines() {
        assert_eq!(transfers(&[(0, Kind::Store, 60, 8), (1, Kind::Load, 60, 8)]), [(0, 1), (64, 1)]);
    }
}
