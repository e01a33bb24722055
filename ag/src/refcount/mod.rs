//! Reference counts: the number of owners of each shared extent, and CoW staging extents, which no file owns yet.
//!
//! | part | subject |
//! |---|---|
//! | this file | adjusting the counts of a range under an AGF |
//! | [`counts`] | the records after an adjustment: a pure function |
//! | [`deferred`] | adjustments after a transaction, with an intent (CUI) and its done item (CUD) |
//! | [`sharing`] | finding shared blocks |
//! | `staging` | freeing CoW staging extents after a crash |
//!
//! A block without a record has one owner, or is free. CoW staging extents have records of their own, with a count of 1
//! and the highest bit of the block set, so that they follow all others.
//!
//! # Invariants
//! Adjacent records with equal counts are merged.

pub mod counts;
pub mod deferred;
pub mod sharing;
mod staging;
#[cfg(test)]
mod tests;

use base::AgBlock;
use error::Result;
use format::btree::{Btree, REFCOUNT_COW, RefcountBt, RefcountExtent};
use format::ondisk::U32;
use journal::engine::Transaction;

use self::counts::{RefcountAdjustment, RefcountRecord};
use crate::btree::BtreeCursor;
use crate::group::LockedAg;
use crate::space::trees::AgfTree;

/// Maximum number of records that one transaction changes.
const RECORDS_MAX: usize = 8;

/// Domain of refcount records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefcountDomain {
    /// Shared extents.
    Shared,
    /// CoW staging extents.
    Staging,
}

impl RefcountDomain {
    /// Flag in the block numbers of its records.
    fn bit(self) -> u32 {
        if self == Self::Staging { REFCOUNT_COW } else { 0 }
    }

    /// Count of blocks without a record.
    fn base(self) -> u32 {
        u32::from(self == Self::Shared)
    }
}

/// Progress of an adjustment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefcountProgress {
    /// Blocks that are done, from the start of the range.
    pub blocks: u32,
    /// Extents without an owner: first block and length.
    pub freed: Vec<(u32, u32)>,
}

impl LockedAg<'_> {
    /// Adjusts the counts of a range by one, as far as one transaction may go.
    ///
    /// # Errors
    /// Damage: invalid records; staging extents that are missing, or exist already.
    pub fn adjust_refcounts(
        &self,
        tx: &mut Transaction,
        domain: RefcountDomain,
        step: RefcountAdjustment,
        (at, count): (AgBlock, u32),
    ) -> Result<RefcountProgress> {
        let mut cursor = self.cursor::<RefcountBt>();
        let (start, end) = (at.get(), at.get() + count);
        let (old, end) = self.records_near(tx, &mut cursor, domain, start, end)?;
        let Some(new) = counts::change(&old, start..end, step, domain.base()) else {
            let expected = format_args!("{} blocks from {start:#x} that allow: {step:?}", end - start);
            return Err(self.group.damage(at, (RefcountBt::NAME, "record"), expected, "others"));
        };
        self.replace_counts(tx, &mut cursor, domain, &old, &new.records)?;
        // Until this is stable, the other owner may still be found after a power cut: its blocks must not be written.
        for (start, count) in &new.alone {
            self.group.mark_busy(tx, AgBlock(*start), *count);
        }
        Ok(RefcountProgress { blocks: end - start, freed: new.freed })
    }

    /// The records that intersect or touch a range, and the end of the range that may change at once.
    fn records_near(
        &self,
        tx: &mut Transaction,
        cursor: &mut BtreeCursor<AgfTree<'_, RefcountBt>>,
        domain: RefcountDomain,
        start: u32,
        end: u32,
    ) -> Result<(Vec<RefcountRecord>, u32)> {
        let bit = domain.bit();
        let mut found = Vec::with_capacity(RECORDS_MAX);
        // The record before the range may touch it.
        let mut next = match cursor.lookup_le(tx, start.saturating_sub(1) | bit)? {
            Some(record) => Some(record),
            None => cursor.next(tx)?,
        };
        while let Some(record) = next {
            match (record.startblock.get() & REFCOUNT_COW, bit) {
                (own, bit) if own == bit => {
                    let refcount = self.check_record(&record, domain, found.last())?;
                    if refcount.start > end {
                        break;
                    }
                    // A record that only touches the end may still be merged.
                    if found.len() == RECORDS_MAX && refcount.start < end {
                        return Ok((found, refcount.start));
                    }
                    if refcount.end() >= start {
                        found.push(refcount);
                    }
                }
                // Staging extents follow all others.
                (_, 0) => break,
                _ => {}
            }
            next = cursor.next(tx)?;
        }
        Ok((found, end))
    }

    /// Verifies a record: within the AG, after the previous one, with a count that needs a record.
    pub(super) fn check_record(
        &self,
        record: &RefcountExtent,
        domain: RefcountDomain,
        before: Option<&RefcountRecord>,
    ) -> Result<RefcountRecord> {
        let start = record.startblock.get() & !REFCOUNT_COW;
        let refcount =
            RefcountRecord { start, blocks: record.blockcount.get(), count: record.refcount.get() };
        let possible = refcount.blocks > 0
            && self.group.holds(AgBlock(start), refcount.blocks)
            && refcount.count > domain.base()
            && before.is_none_or(|before| before.end() <= start);
        if possible {
            return Ok(refcount);
        }
        let expected = "blocks within the AG, after the previous record, shared or staging";
        let found = format_args!("{} blocks from {start:#x}, {} owners", refcount.blocks, refcount.count);
        Err(self.group.damage(AgBlock(start), (RefcountBt::NAME, "record"), expected, found))
    }

    fn replace_counts(
        &self,
        tx: &mut Transaction,
        cursor: &mut BtreeCursor<AgfTree<'_, RefcountBt>>,
        domain: RefcountDomain,
        old: &[RefcountRecord],
        new: &[RefcountRecord],
    ) -> Result<()> {
        let starts = |list: &[RefcountRecord], start| list.iter().any(|refcount| refcount.start == start);
        for gone in old.iter().filter(|gone| !starts(new, gone.start)) {
            cursor.lookup_eq(tx, gone.start | domain.bit())?;
            cursor.delete(tx)?;
        }
        for come in new.iter().filter(|come| !old.contains(come)) {
            let record = RefcountExtent {
                startblock: U32::new(come.start | domain.bit()),
                blockcount: U32::new(come.blocks),
                refcount: U32::new(come.count),
            };
            match cursor.lookup_eq(tx, record.startblock.get())? {
                Some(_) => cursor.update(tx, &record)?,
                None => cursor.insert(tx, &record)?,
            }
        }
        Ok(())
    }
}
