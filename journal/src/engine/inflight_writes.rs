//! Metadata writes in flight, and freed blocks that wait for them.
//!
//! A buffer is unlocked when its bytes are copied, before they are written. So its block can be freed, and the freeing
//! become stable, while a write of the old bytes is in flight. If the block were reused, the old write could overwrite
//! its new contents. A write in flight still owns its blocks.
//!
//! | freed blocks | can be reused |
//! |---|---|
//! | no write over them is in flight | when the freeing is stable |
//! | a write over them is in flight | when the freeing is stable and the write has ended |
//!
//! Metadata may reuse busy blocks at once: its own writeback comes in a later batch, and there is one batch at a time.
//!
//! # Invariants
//! - The ranges of a batch are recorded here before its first buffer is unlocked. A freeing commits after that, so when
//!   its checkpoint is stable it finds every write of the old contents. A later batch cannot contain them: the buffer
//!   is stale.
//! - One batch is in flight at a time.
//!
//! # Locking
//! One mutex of rank `Leaf`, taken by writeback and by the thread that completes a checkpoint, never by a commit.

use std::ops::Range;

use base::lock::{Condvar, Mutex, Rank};

use super::commit_target::BusyExtent;

/// The batch of metadata writes in flight.
#[derive(Debug)]
pub struct InflightWrites {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Byte ranges of the device, ascending and disjoint.
    ranges: Vec<Range<u64>>,
    /// Freed blocks within them whose freeing is stable.
    held: Vec<BusyExtent>,
    /// Number of ended batches.
    batches: u64,
    /// The freed blocks of the last batch are being released.
    releasing: bool,
    closed: bool,
}

impl Default for InflightWrites {
    fn default() -> Self {
        Self { state: Mutex::new(Rank::Leaf, State::default()), released: Condvar::new() }
    }
}

impl InflightWrites {
    /// Records the ranges of a batch, ascending and disjoint, before it is written.
    pub fn begin(&self, ranges: Vec<Range<u64>>) {
        let mut state = self.state.lock();
        debug_assert!(state.ranges.is_empty(), "one batch at a time");
        state.ranges = ranges;
    }

    /// The freeing of these extents is stable; `place` returns their byte ranges. Returns the extents that can be
    /// reused at once; the others are released at the end of the batch.
    pub fn hold_back(
        &self,
        mut extents: Vec<BusyExtent>,
        place: impl Fn(&BusyExtent) -> Range<u64>,
    ) -> Vec<BusyExtent> {
        if extents.is_empty() {
            return extents;
        }
        let mut state = self.state.lock();
        let State { ranges, held, .. } = &mut *state;
        if !ranges.is_empty() {
            held.extend(extents.extract_if(.., |extent| touches(ranges, &place(extent))));
        }
        extents
    }

    /// The device has ended the batch, successfully or not. Calls `release` with the extents that waited for it.
    pub fn end(&self, release: impl FnOnce(&[BusyExtent])) {
        let mut state = self.state.lock();
        state.ranges = Vec::new();
        let held = std::mem::take(&mut state.held);
        if !held.is_empty() {
            state.releasing = true;
            drop(state);
            release(&held);
            state = self.state.lock();
        }
        state.releasing = false;
        state.batches += 1;
        self.released.notify_all();
    }

    /// Waits until the extents that are held back now are released.
    pub fn wait_released(&self) {
        let mut state = self.state.lock();
        let batches = state.batches;
        let is_held = |state: &State| state.releasing || !state.held.is_empty();
        while is_held(&state) && state.batches == batches && !state.closed {
            self.released.wait(&mut state);
        }
    }

    /// Wakes all waiting threads: the volume is shut down.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.released.notify_all();
    }
}

/// Whether one of the ascending ranges overlaps `with`.
fn touches(ranges: &[Range<u64>], with: &Range<u64>) -> bool {
    let first = ranges.partition_point(|range| range.end <= with.start);
    ranges.get(first).is_some_and(|range| range.start < with.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_touch_where_they_share_a_byte() {
        let ranges = [10..20, 30..40];
        for (with, expected) in
            [(0..10, false), (0..11, true), (19..20, true), (20..30, false), (20..31, true), (40..50, false)]
        {
            assert_eq!(touches(&ranges, &with), expected, "{with:?}");
        }
        assert!(!touches(&[], &(0..100)));
    }
}
