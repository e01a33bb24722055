//! Range query over the rmapbt, whose records may overlap.
//!
//! Low keys alone are not enough: a long mapping may start far before the range. The walk enters every block whose high
//! key reaches the range, and leaves each level at the first low key beyond it.

use std::ops::{ControlFlow, RangeInclusive};

use format::btree::{Rmap, RmapBt, RmapKey};

use super::{BtreeCursor, BtreeOps};
use error::Result;
use journal::engine::Transaction;

impl<T: BtreeOps<Type = RmapBt>> BtreeCursor<T> {
    /// Calls `each` for every mapping that intersects the range, in order, until it breaks. The cursor has no position
    /// afterwards.
    pub fn overlapping(
        &mut self,
        tx: &mut Transaction,
        blocks: RangeInclusive<u32>,
        mut each: impl FnMut(&Rmap) -> ControlFlow<()>,
    ) -> Result<()> {
        self.levels = 0;
        let mut level = self.open_root(tx)?;
        let levels = level + 1;
        // Damaged pointers could form a cycle: limit the walk to the number of blocks in the AG.
        let mut budget = self.tree().geometry().ag_blocks;
        loop {
            let next = if level == 0 {
                if self.visit_records(tx, &blocks, &mut each).is_break() {
                    return Ok(());
                }
                None
            } else {
                self.next_child(tx, level, &blocks)
            };
            match next {
                Some(slot) => {
                    let Some(rest) = budget.checked_sub(1) else {
                        return Err(self.damage(
                            self.path_level(level).block,
                            "ptr",
                            "a tree without cycles",
                            "a block seen twice",
                        ));
                    };
                    budget = rest;
                    self.set_slot(level, slot);
                    level -= 1;
                    self.enter_child(tx, level)?;
                }
                None if level + 1 == levels => return Ok(()),
                None => {
                    level += 1;
                    self.set_slot(level, self.path_level(level).slot + 1);
                }
            }
        }
    }

    /// The first child at or after the level's slot that reaches the range.
    fn next_child(&self, tx: &Transaction, level: usize, blocks: &RangeInclusive<u32>) -> Option<usize> {
        let keys = self.layout(level).view::<RmapKey>(self.bytes(tx, level));
        let from = self.path_level(level).slot;
        let ahead = keys.iter().enumerate().skip(from);
        ahead
            .take_while(|(_, key)| key.startblock.get() <= *blocks.end())
            .find(|(_, key)| key.startblock_hi.get() >= *blocks.start())
            .map(|(slot, _)| slot)
    }

    fn visit_records(
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
