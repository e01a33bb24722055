//! Busy extents: freed blocks that must not be reused before the freeing is stable in the log and no write to them is
//! in flight. After a power cut the old owner may still be found, and a late write would overwrite the new contents.
//! The journal reports when both hold ([`BusyExtentHook`](journal::engine::BusyExtentHook)).
//!
//! Metadata may reuse them at once if nothing else is left: its new contents reach the disk through the log, after the
//! freeing, and by a later round of writeback.
//!
//! Blocks that were shared and have one owner left are busy too: after a power cut the other owner may still be found,
//! and must not see what the remaining owner has written to them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Relaxed, Release};

use base::AgBlock;
use journal::engine::{BusyExtent, Transaction};

use super::claim::ClaimedExtents;
use crate::group::Group;

/// Free blocks of one AG that cannot be allocated freely.
#[derive(Debug, Default)]
pub struct UnusableBlocks {
    pub(crate) busy: BusyExtents,
    pub(crate) claims: ClaimedExtents,
}

/// Busy extents of one AG. Blocks can be freed again before the first freeing is stable.
#[derive(Debug, Default)]
pub struct BusyExtents {
    /// Number of freeings, by first block and length.
    extents: BTreeMap<(u32, u32), u32>,
    /// Length of the longest busy extent since there were none.
    longest: u32,
}

impl BusyExtents {
    fn insert(&mut self, start: u32, count: u32) {
        *self.extents.entry((start, count)).or_default() += 1;
        self.longest = self.longest.max(count);
    }

    fn remove(&mut self, start: u32, count: u32) {
        if let Some(times) = self.extents.get_mut(&(start, count)) {
            *times -= 1;
            if *times == 0 {
                self.extents.remove(&(start, count));
            }
        }
        if self.extents.is_empty() {
            self.longest = 0;
        }
    }

    /// Calls `each` for every part of a range that is not busy, in order.
    fn clear(&self, start: u32, end: u32, each: &mut dyn FnMut(u32, u32)) {
        let mut at = start;
        let from = start.saturating_sub(self.longest);
        for &(busy, count) in self.extents.range((from, 0)..(end, 0)).map(|(extent, _)| extent) {
            if busy > at {
                each(at, busy - at);
            }
            at = at.max(busy.saturating_add(count));
        }
        if at < end {
            each(at, end - at);
        }
    }
}

impl Group {
    /// Marks blocks busy that the transaction frees, or that lose their last owner but one.
    pub(crate) fn mark_busy(&self, tx: &mut Transaction, at: AgBlock, count: u32) {
        tx.busy(BusyExtent { start: self.fs_block(at), blocks: count });
        self.unusable.lock().busy.insert(at.get(), count);
        self.busy_count.fetch_add(1, Relaxed);
    }

    /// Clears blocks whose freeing is stable and that no write in flight can reach.
    pub(crate) fn clear_busy(&self, at: AgBlock, count: u32) {
        self.unusable.lock().busy.remove(at.get(), count);
        self.released.fetch_add(1, Relaxed);
        // A thread that sees no busy extents must also see the release.
        self.busy_count.fetch_sub(1, Release);
    }

    /// Calls `each` for every part of an extent that is not claimed, and not busy unless `busy_too`, in order.
    pub(crate) fn usable_parts(
        &self,
        (start, count): (u32, u32),
        busy_too: bool,
        each: &mut dyn FnMut(u32, u32),
    ) {
        let busy_matters = !busy_too && self.busy_count.load(Relaxed) > 0;
        if !busy_matters && self.claimed.load(Relaxed) == 0 {
            return each(start, count);
        }
        let unusable = self.unusable.lock();
        unusable.claims.clear(start, start.saturating_add(count), &mut |start, count| {
            if busy_matters {
                unusable.busy.clear(start, start + count, each);
            } else {
                each(start, count);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(busy: &BusyExtents, start: u32, end: u32) -> Vec<(u32, u32)> {
        let mut parts = Vec::new();
        busy.clear(start, end, &mut |at, count| parts.push((at, count)));
        parts
    }

    #[test]
    fn an_extent_freed_twice_is_busy_until_both_are_stable() {
        let mut busy = BusyExtents::default();
        busy.insert(10, 5);
        busy.insert(10, 5);
        busy.insert(12, 10);
        busy.insert(30, 1);
        assert_eq!(parts(&busy, 0, 40), [(0, 10), (22, 8), (31, 9)]);
        assert_eq!(parts(&busy, 13, 22), []);
        busy.remove(12, 10);
        assert_eq!(parts(&busy, 13, 22), [(15, 7)]);
        busy.remove(10, 5);
        assert_eq!(parts(&busy, 0, 12), [(0, 10)]);
        busy.remove(10, 5);
        busy.remove(30, 1);
        assert_eq!(parts(&busy, 0, 40), [(0, 40)]);
    }
}
