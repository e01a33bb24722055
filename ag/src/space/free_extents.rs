//! Free extents in both free-space trees, and the AGF's counters.

use base::AgBlock;
use error::{Error, Result};
use format::btree::{BnoBt, Btree, CntBt, FreeExtent};
use format::ondisk::U32;
use journal::engine::Transaction;

use crate::btree::BtreeCursor;
use crate::group::{LockedAg, agf};
use crate::space::trees::AgfTree;

/// A free extent: first block and length.
pub type Free = (u32, u32);

fn record((start, count): Free) -> FreeExtent {
    FreeExtent { startblock: U32::new(start), blockcount: U32::new(count) }
}

fn numbers(record: &FreeExtent) -> Free {
    (record.startblock.get(), record.blockcount.get())
}

impl LockedAg<'_> {
    /// Removes `count` blocks at `at` from the free extent that holds them.
    ///
    /// # Errors
    /// Damage: a tree does not have that extent.
    pub(crate) fn remove_free(&self, tx: &mut Transaction, free: Free, at: u32, count: u32) -> Result<()> {
        let left = (free.0, at - free.0);
        let right = (at + count, free.0 + free.1 - (at + count));
        let mut bno = self.cursor::<BnoBt>();
        let found = bno.lookup_eq(tx, free.0)?.map(|found| numbers(&found));
        if found != Some(free) {
            return Err(self.unknown(BnoBt::NAME, free));
        }
        match (left.1 > 0, right.1 > 0) {
            (false, false) => bno.delete(tx)?,
            (true, false) => bno.update(tx, &record(left))?,
            (false, true) => bno.update(tx, &record(right))?,
            (true, true) => {
                bno.update(tx, &record(left))?;
                bno.insert(tx, &record(right))?;
            }
        }
        let mut cnt = self.cursor::<CntBt>();
        let parts = [left, right].into_iter().filter(|part| part.1 > 0);
        self.replace_by_size(tx, &mut cnt, [free], parts)?;
        self.count_free(tx, -i64::from(count), free.1)
    }

    /// Adds blocks without an owner to free space, merged with their neighbours.
    ///
    /// # Errors
    /// Damage: some of them are free already, or a tree does not have a neighbour.
    pub(crate) fn insert_free(&self, tx: &mut Transaction, at: AgBlock, count: u32) -> Result<()> {
        let (start, end) = (at.get(), at.get() + count);
        let mut bno = self.cursor::<BnoBt>();
        let before = bno.lookup_le(tx, start)?.map(|found| numbers(&found));
        let after = bno.next(tx)?.map(|found| numbers(&found));
        let overlaps = |(s, c): Free| s < end && u64::from(s) + u64::from(c) > u64::from(start);
        if let Some(twice) = [before, after].into_iter().flatten().find(|free| overlaps(*free)) {
            let expected = format_args!("{count} blocks from {start:#x} in use");
            let found = format_args!("{} free blocks from {:#x}", twice.1, twice.0);
            return Err(self.group.damage(at, (BnoBt::NAME, "record"), expected, found));
        }
        if let Some(wrong) =
            [before, after].into_iter().flatten().find(|(s, c)| !self.group.holds(AgBlock(*s), *c))
        {
            let found = format_args!("{} blocks from {:#x}", wrong.1, wrong.0);
            return Err(self.group.damage(at, (BnoBt::NAME, "record"), "blocks within the AG", found));
        }
        let before = before.filter(|(s, c)| s + c == start);
        let after = after.filter(|(s, _)| *s == end);
        let whole_start = before.map_or(start, |(s, _)| s);
        let whole = (whole_start, after.map_or(end, |(s, c)| s + c) - whole_start);
        // The cursor is on the extent after the range, or in the gap at the end.
        match (before, after) {
            (Some(_), Some(_)) => {
                bno.delete(tx)?;
                bno.prev(tx)?;
                bno.update(tx, &record(whole))?;
            }
            (Some(_), None) => {
                bno.prev(tx)?;
                bno.update(tx, &record(whole))?;
            }
            (None, Some(_)) => bno.update(tx, &record(whole))?,
            (None, None) => bno.insert(tx, &record(whole))?,
        }
        let mut cnt = self.cursor::<CntBt>();
        self.replace_by_size(tx, &mut cnt, [before, after].into_iter().flatten(), [whole])?;
        self.count_free(tx, count.into(), whole.1)
    }

    /// Replaces extents in the cntbt, in place where the order allows it.
    fn replace_by_size(
        &self,
        tx: &mut Transaction,
        cnt: &mut BtreeCursor<AgfTree<'_, CntBt>>,
        old: impl IntoIterator<Item = Free>,
        new: impl IntoIterator<Item = Free>,
    ) -> Result<()> {
        let (mut old, mut new) = (old.into_iter(), new.into_iter());
        loop {
            let pair = (old.next(), new.next());
            if let Some(gone) = pair.0 {
                if cnt.lookup_eq(tx, (gone.1, gone.0))?.is_none() {
                    return Err(self.unknown(CntBt::NAME, gone));
                }
                if let Some(come) = pair.1
                    && cnt.update_in_order(tx, &record(come))?
                {
                    continue;
                }
                cnt.delete(tx)?;
            }
            if let Some(come) = pair.1 {
                cnt.lookup_eq(tx, (come.1, come.0))?;
                cnt.insert(tx, &record(come))?;
            }
            if pair == (None, None) {
                return Ok(());
            }
        }
    }

    /// Updates the AGF's counters after an extent of `changed` blocks was added or removed.
    fn count_free(&self, tx: &mut Transaction, by: i64, changed: u32) -> Result<()> {
        let longest = self.get(tx, agf!(longest));
        if by > 0 {
            if changed > longest {
                self.set(tx, agf!(longest), changed);
            }
        } else if changed >= longest {
            let last = self.cursor::<CntBt>().last(tx)?;
            self.set(tx, agf!(longest), last.map_or(0, |last| last.blockcount.get()));
        }
        self.adjust_counter(tx, agf!(freeblks), by);
        Ok(())
    }

    #[cold]
    fn unknown(&self, tree: &'static str, (start, count): Free) -> Error {
        let expected = format_args!("{count} free blocks from {start:#x}, as in the other tree");
        self.group.damage(AgBlock(start), (tree, "record"), expected, "none")
    }
}
