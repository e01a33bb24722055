//! Reference counts: for each run of blocks that several files share, how many they are; and copy-on-write staging,
//! which nobody owns yet.
//!
//! | part | subject |
//! |---|---|
//! | this file | changing the counts of a range under an AGF |
//! | [`counts`] | what a change makes of the records: a pure function |
//! | [`deferred`] | the same after a transaction, behind an intent (CUI) with its done item (CUD) |
//! | [`sharing`] | which blocks are shared |
//! | `staging` | freeing what a crash left of copy-on-write staging |
//!
//! A block without a record is owned once, or free. Staging has records of its own, with a count of 1 and the highest
//! bit of the block set, so that they stand behind all others.
//!
//! # Invariants
//! Records of equal counts that touch are one record.

pub mod counts;
pub mod deferred;
pub mod sharing;
mod staging;
#[cfg(test)]
mod tests;

use base::AgBlock;
use format::btree::{Btree, REFCOUNT_COW, RefcountBt, RefcountExtent};
use format::ondisk::U32;
use journal::engine::{Error, Transaction};

use self::counts::{RefcountAdjustment, RefcountRecord};
use crate::btree::BtreeCursor;
use crate::group::LockedAg;
use crate::space::trees::AgfTree;

/// How many records one transaction changes at most.
const RECORDS_MAX: usize = 8;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefcountDomain {
    /// Owners of blocks.
    Shared,
    /// Copy-on-write staging.
    Staging,
}

impl RefcountDomain {
    /// What is set in the block numbers of its records.
    fn bit(self) -> u32 {
        if self == Self::Staging { REFCOUNT_COW } else { 0 }
    }

    /// The count of blocks without a record.
    fn base(self) -> u32 {
        u32::from(self == Self::Shared)
    }
}

/// How far a change came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefcountProgress {
    /// Blocks from the start of the range that are done.
    pub blocks: u32,
    /// Extents that nobody owns any more: first block and blocks.
    pub freed: Vec<(u32, u32)>,
}

impl LockedAg<'_> {
    /// Counts the blocks of a range up or down by one; as far as one transaction may go.
    ///
    /// # Errors
    /// Damage: records that cannot be; staging that is not there, or is there already.
    pub fn count_owners(
        &self,
        tx: &mut Transaction,
        domain: RefcountDomain,
        step: RefcountAdjustment,
        (at, count): (AgBlock, u32),
    ) -> Result<RefcountProgress, Error> {
        let mut cursor = self.cursor::<RefcountBt>();
        let (start, end) = (at.get(), at.get() + count);
        let (old, end) = self.records_near(tx, &mut cursor, domain, start, end)?;
        let Some(new) = counts::change(&old, start..end, step, domain.base()) else {
            let expected =
                format_args!("{} blocks from {start:#x} that can be counted {step:?}", end - start);
            return Err(self.group.damage(at, (RefcountBt::NAME, "record"), expected, "others"));
        };
        self.replace_counts(tx, &mut cursor, domain, &old, &new.records)?;
        // Until this is stable, the other owner may still be found after a power cut: its blocks must not be written.
        for (start, count) in &new.alone {
            self.group.busy(tx, AgBlock(*start), *count);
        }
        Ok(RefcountProgress { blocks: end - start, freed: new.freed })
    }

    /// The records that lie in a range or touch it, and how much of the range they allow to change at once.
    fn records_near(
        &self,
        tx: &mut Transaction,
        cursor: &mut BtreeCursor<AgfTree<'_, RefcountBt>>,
        domain: RefcountDomain,
        start: u32,
        end: u32,
    ) -> Result<(Vec<RefcountRecord>, u32), Error> {
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
                    let counted = self.counted(&record, domain, found.last())?;
                    if counted.start > end {
                        break;
                    }
                    // One that only touches the end may still join what is done now.
                    if found.len() == RECORDS_MAX && counted.start < end {
                        return Ok((found, counted.start));
                    }
                    if counted.end() >= start {
                        found.push(counted);
                    }
                }
                // Staging stands behind all others.
                (_, 0) => break,
                _ => {}
            }
            next = cursor.next(tx)?;
        }
        Ok((found, end))
    }

    /// A record as it must be: within the group, behind the one before, with a count that needs a record.
    pub(super) fn counted(
        &self,
        record: &RefcountExtent,
        domain: RefcountDomain,
        before: Option<&RefcountRecord>,
    ) -> Result<RefcountRecord, Error> {
        let start = record.startblock.get() & !REFCOUNT_COW;
        let counted = RefcountRecord { start, blocks: record.blockcount.get(), count: record.refcount.get() };
        let possible = counted.blocks > 0
            && self.group.holds(AgBlock(start), counted.blocks)
            && counted.count > domain.base()
            && before.is_none_or(|before| before.end() <= start);
        if possible {
            return Ok(counted);
        }
        let expected = "blocks within the AG, behind the record before, shared or staging";
        let found = format_args!("{} blocks from {start:#x}, {} owners", counted.blocks, counted.count);
        Err(self.group.damage(AgBlock(start), (RefcountBt::NAME, "record"), expected, found))
    }

    fn replace_counts(
        &self,
        tx: &mut Transaction,
        cursor: &mut BtreeCursor<AgfTree<'_, RefcountBt>>,
        domain: RefcountDomain,
        old: &[RefcountRecord],
        new: &[RefcountRecord],
    ) -> Result<(), Error> {
        let starts = |list: &[RefcountRecord], start| list.iter().any(|counted| counted.start == start);
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
