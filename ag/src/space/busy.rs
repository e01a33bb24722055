//! Blocks that were freed, and must not be used again before the freeing is stable and no write over them is in flight:
//! until then the old contents belong to whoever is found after a power cut, and a late write would land on the new
//! ones. The journal tells when both are so ([`BusyExtentHook`](journal::engine::BusyExtentHook)).
//!
//! Metadata may use them at once where nothing else is left: its new contents come to the disk through the log, behind
//! the freeing, and by a later batch of writeback.
//!
//! Blocks that files shared, and that have one owner left, are busy in the same sense: the other owner may still be
//! found after a power cut, and must not show what the one that is left writes to them meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Relaxed, Release};

use base::AgBlock;
use journal::engine::{BusyExtent, Transaction};

use super::claim::ClaimedExtents;
use crate::group::Group;

/// Free blocks of one group that are not for everybody.
#[derive(Debug, Default)]
pub struct UnusableBlocks {
    pub(crate) busy: BusyExtents,
    pub(crate) claims: ClaimedExtents,
}

/// The busy extents of one group. The same blocks can be freed more than once before the first freeing is stable.
#[derive(Debug, Default)]
pub struct BusyExtents {
    /// By first block and length: how many times.
    extents: BTreeMap<(u32, u32), u32>,
    /// Longest extent that was busy since there were none.
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

    /// Hands every part of a range that is not busy to `each`, in order.
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
    /// Blocks of this group were freed by the transaction, or lost their last owner but one.
    pub(crate) fn busy(&self, tx: &mut Transaction, at: AgBlock, count: u32) {
        tx.busy(BusyExtent { start: self.fs_block(at), blocks: count });
        self.unusable.lock().busy.insert(at.get(), count);
        self.busy_count.fetch_add(1, Relaxed);
    }

    /// The freeing of these blocks is stable, and no write over them is in flight: they can be used again.
    pub(crate) fn not_busy(&self, at: AgBlock, count: u32) {
        self.unusable.lock().busy.remove(at.get(), count);
        self.released.fetch_add(1, Relaxed);
        // Whoever sees that nothing is busy sees that something was released.
        self.busy_count.fetch_sub(1, Release);
    }

    /// Hands every part of an extent that nobody has claimed, and that is not busy unless such blocks will do, to
    /// `each`, in order.
    pub(crate) fn clear_parts(
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
    fn what_is_busy_twice_is_free_after_both() {
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
