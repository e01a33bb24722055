//! All records that touch a range of blocks, in the tree whose records may overlap: reverse mappings.
//!
//! Low keys alone do not find them: a long mapping may begin far before the range. So the walk enters every block
//! whose high key reaches the range, and leaves each level where low keys are behind it.

use std::ops::{ControlFlow, RangeInclusive};

use format::btree::{Rmap, RmapBt, RmapKey};

use super::cursor::Descent;
use super::{BtreeCursor, BtreeOps};
use journal::engine::{Error, Transaction};

impl<T: BtreeOps<Type = RmapBt>> BtreeCursor<T> {
    /// Hands each mapping that has a block in the range to `each`, in order, until that breaks. The cursor has no
    /// position afterwards.
    pub fn overlapping(
        &mut self,
        tx: &mut Transaction,
        blocks: RangeInclusive<u32>,
        mut each: impl FnMut(&Rmap) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.seek(tx, Descent::First)?;
        let levels = std::mem::take(&mut self.levels);
        // Damaged pointers could lead through the same blocks again and again: no tree has more than its AG.
        let mut budget = self.tree().geometry().ag_blocks;
        // The first descent was only to open the root: start there.
        let mut level = levels - 1;
        self.set_slot(level, 0);
        loop {
            let next = if level == 0 {
                if self.hand_over(tx, &blocks, &mut each).is_break() {
                    return Ok(());
                }
                None
            } else {
                self.next_child(tx, level, &blocks)
            };
            match next {
                Some(slot) => {
                    let Some(rest) = budget.checked_sub(1) else {
                        return Err(self.damage(self.step(level).block, "ptr", "a tree", "blocks met twice"));
                    };
                    budget = rest;
                    self.set_slot(level, slot);
                    level -= 1;
                    self.enter_child(tx, level)?;
                }
                None if level + 1 == levels => return Ok(()),
                None => {
                    level += 1;
                    self.set_slot(level, self.step(level).slot + 1);
                }
            }
        }
    }

    /// The first child from the level's slot on that reaches the range.
    fn next_child(&self, tx: &Transaction, level: usize, blocks: &RangeInclusive<u32>) -> Option<usize> {
        let keys = self.shape(level).view::<RmapKey>(self.bytes(tx, level));
        let from = self.step(level).slot;
        let ahead = keys.iter().enumerate().skip(from);
        ahead
            .take_while(|(_, key)| key.startblock.get() <= *blocks.end())
            .find(|(_, key)| key.startblock_hi.get() >= *blocks.start())
            .map(|(slot, _)| slot)
    }

    fn hand_over(
        &self,
        tx: &Transaction,
        blocks: &RangeInclusive<u32>,
        each: &mut impl FnMut(&Rmap) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let records = self.records(tx).iter();
        let mut touching =
            records.take_while(|record| record.startblock.get() <= *blocks.end()).filter(|record| {
                let end = u64::from(record.startblock.get()) + u64::from(record.blockcount.get());
                end > u64::from(*blocks.start())
            });
        touching.try_for_each(each)
    }
}
