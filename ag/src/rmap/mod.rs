//! Reverse mappings: the owner of each extent of an AG, and its offset in the owner.
//!
//! | part | subject |
//! |---|---|
//! | this file | adding and removing a mapping under an AGF; [`Groups::map_allocated`] |
//! | [`deferred`] | changes after a transaction, with an intent (RUI) and its done item (RUD) |
//!
//! On a volume without an rmapbt every call is a no-op.
//!
//! # Invariants
//! - Two mappings of one owner that are adjacent in blocks and in the file, with equal flags, are one record.
//! - Shared blocks of files have several owners: their records overlap.

pub mod deferred;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::sync::Arc;

use base::AgBlock;
use error::{Error, Result};
use format::btree::{Btree, Rmap, RmapBt, rmap};
use format::ondisk::{U32, U64};
use journal::engine::Transaction;

use crate::btree::{BtreeCursor, BtreeType, RmapLookupKey};
use crate::group::{Groups, LockedAg};
use crate::owner::ExtentOwner;
use crate::space::trees::AgfTree;
use deferred::FileExtent;

/// A decoded rmapbt record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReverseMapping {
    /// First block.
    pub start: u32,
    /// Blocks.
    pub count: u32,
    /// Inode number, or a negative number for metadata.
    pub owner: u64,
    /// Logical block, with the flags in the high bits.
    pub offset: u64,
}

impl ReverseMapping {
    fn of(record: &Rmap) -> Self {
        Self {
            start: record.startblock.get(),
            count: record.blockcount.get(),
            owner: record.owner.get(),
            offset: record.offset.get(),
        }
    }

    fn record(&self) -> Rmap {
        Rmap {
            startblock: U32::new(self.start),
            blockcount: U32::new(self.count),
            owner: U64::new(self.owner),
            offset: U64::new(self.offset),
        }
    }

    fn key(&self) -> RmapLookupKey {
        RmapBt::record_lookup_key(&self.record())
    }

    fn end(&self) -> u64 {
        u64::from(self.start) + u64::from(self.count)
    }

    /// Whether the offset advances with the blocks: true of file data.
    fn runs(&self) -> bool {
        self.owner >> 63 == 0 && self.offset & rmap::BMBT_BLOCK == 0
    }

    /// The offset, with flags, after `blocks` blocks.
    fn offset_after(&self, blocks: u32) -> u64 {
        if self.runs() { self.offset.wrapping_add(blocks.into()) } else { self.offset }
    }

    /// Whether `next` continues this mapping.
    fn continues(&self, next: &Self) -> bool {
        self.owner == next.owner
            && self.end() == u64::from(next.start)
            && self.offset_after(self.count) == next.offset
            && self.count.checked_add(next.count).is_some()
    }

    /// Whether `part` is a part of this mapping.
    fn covers(&self, part: &Self) -> bool {
        let within = self.start <= part.start && part.end() <= self.end();
        within
            && self.owner == part.owner
            && self.offset_after(part.start.wrapping_sub(self.start)) == part.offset
    }

    /// The remainders on both sides of a part.
    fn without(&self, part: &Self) -> [Self; 2] {
        let before = part.start - self.start;
        let skip = before + part.count;
        [
            Self { count: before, ..*self },
            Self {
                start: self.start + skip,
                count: self.count - skip,
                offset: self.offset_after(skip),
                ..*self
            },
        ]
    }
}

type RmapCursor<'g> = BtreeCursor<AgfTree<'g, RmapBt>>;

impl Groups {
    /// Adds the reverse mappings of files' extents in the transaction that allocates their blocks, which lie in one AG
    /// and whose AGF it has locked. So no intent is needed. Extents in ascending order share searches.
    ///
    /// # Errors
    /// Damage: a mapping exists already, or an extent is in another AG than the first one.
    pub fn map_allocated(&self, tx: &mut Transaction, extents: &[FileExtent]) -> Result<()> {
        let Some(first) = extents.first().filter(|_| self.geometry.features.rmapbt()) else { return Ok(()) };
        let (group, _) = self.of_block(first.start, first.count)?;
        let locked = group.lock(tx)?;
        let mut cursor = locked.cursor::<RmapBt>();
        for extent in extents {
            let (own, at) = self.of_block(extent.start, extent.count)?;
            if !Arc::ptr_eq(own, group) {
                let expected = format_args!("a block of AG {}, where the others are", group.ag);
                return Err(own.damage(at, ("extent", "startblock"), expected, extent.start));
            }
            if locked.fix_freelist(tx)? {
                cursor = locked.cursor();
            }
            locked.map_at(tx, &mut cursor, extent.mapping(at))?;
        }
        locked.update_contribution(tx, 0);
        Ok(())
    }
}

impl LockedAg<'_> {
    /// Adds the reverse mapping of allocated blocks, if it belongs to the same transaction.
    pub(crate) fn map_owner(
        &self,
        tx: &mut Transaction,
        at: AgBlock,
        count: u32,
        owner: ExtentOwner,
    ) -> Result<()> {
        match owner.mapping() {
            Some((owner, offset)) => self.map(tx, ReverseMapping { start: at.get(), count, owner, offset }),
            None => Ok(()),
        }
    }

    /// Removes the reverse mapping of blocks that are being freed.
    pub(crate) fn unmap_owner(
        &self,
        tx: &mut Transaction,
        at: AgBlock,
        count: u32,
        owner: ExtentOwner,
    ) -> Result<()> {
        match owner.mapping() {
            Some((owner, offset)) => self.unmap(tx, ReverseMapping { start: at.get(), count, owner, offset }),
            None if owner == ExtentOwner::Unknown => self.unmap_unknown(tx, at.get(), count),
            None => Ok(()),
        }
    }

    /// Adds a mapping, joined with those of the same owner that it continues or that continue it.
    ///
    /// # Errors
    /// Damage: the mapping exists already.
    pub fn map(&self, tx: &mut Transaction, new: ReverseMapping) -> Result<()> {
        if !self.group.geometry.features.rmapbt() {
            return Ok(());
        }
        self.map_at(tx, &mut self.cursor::<RmapBt>(), new)
    }

    /// [`map`](Self::map) with a cursor that may be near the place.
    fn map_at(&self, tx: &mut Transaction, cursor: &mut RmapCursor<'_>, new: ReverseMapping) -> Result<()> {
        let left = self.left_of(tx, cursor, &new)?;
        let next = ReverseMapping {
            start: new.start.wrapping_add(new.count),
            offset: new.offset_after(new.count),
            ..new
        };
        // Nothing continues most mappings, and the leaf where they belong shows it.
        let mut right = None;
        if cursor.lookup_eq_near(tx, new.key())?.is_some() || !cursor.leaf_lacks(tx, next.key()) {
            right = cursor.lookup_eq(tx, next.key())?.map(|record| ReverseMapping::of(&record));
        }
        let mut whole = new;
        if let Some(right) = right.filter(|right| new.continues(right)) {
            cursor.delete(tx)?;
            whole.count += right.count;
        }
        if let Some(left) = left.filter(|left| left.continues(&whole)) {
            whole = ReverseMapping { count: left.count + whole.count, ..left };
            self.find_mapping(tx, cursor, &left)?;
            return cursor.update(tx, &whole.record());
        }
        if right.is_some() {
            cursor.lookup_eq(tx, whole.key())?;
        }
        cursor.insert(tx, &whole.record())
    }

    /// Removes a mapping, which is a whole record or a part of one.
    ///
    /// # Errors
    /// Damage: there is no such mapping.
    pub fn unmap(&self, tx: &mut Transaction, gone: ReverseMapping) -> Result<()> {
        if !self.group.geometry.features.rmapbt() {
            return Ok(());
        }
        let mut cursor = self.cursor::<RmapBt>();
        let Some(whole) = self.covering(tx, &mut cursor, &gone)? else {
            return Err(self.no_mapping(&gone, "none"));
        };
        self.find_mapping(tx, &mut cursor, &whole)?;
        let [before, after] = whole.without(&gone);
        if before.count > 0 {
            cursor.update(tx, &before.record())?;
        } else {
            cursor.delete(tx)?;
        }
        if after.count > 0 {
            cursor.lookup_eq(tx, after.key())?;
            cursor.insert(tx, &after.record())?;
        }
        Ok(())
    }

    /// The owner of blocks in a recovered extent-free intent is unknown. If their mapping still exists, it covers all
    /// of them; if an earlier operation has removed it, no mapping touches them.
    fn unmap_unknown(&self, tx: &mut Transaction, start: u32, count: u32) -> Result<()> {
        if !self.group.geometry.features.rmapbt() {
            return Ok(());
        }
        let end = start.saturating_add(count);
        let mut cursor = self.cursor::<RmapBt>();
        let last = cursor.lookup_le(tx, (end.saturating_sub(1), u64::MAX, u64::MAX))?;
        let Some(found) =
            last.map(|record| ReverseMapping::of(&record)).filter(|found| found.end() > start.into())
        else {
            return Ok(());
        };
        let offset = found.offset_after(start.wrapping_sub(found.start));
        let gone = ReverseMapping { start, count, owner: found.owner, offset };
        if !found.covers(&gone) {
            return Err(self.no_mapping(&gone, "a part of it"));
        }
        self.unmap(tx, gone)
    }

    /// The mapping that a new one may continue.
    fn left_of(
        &self,
        tx: &mut Transaction,
        cursor: &mut RmapCursor<'_>,
        new: &ReverseMapping,
    ) -> Result<Option<ReverseMapping>> {
        if !self.may_overlap(new) {
            let left = cursor.lookup_le(tx, new.key())?;
            let left = left.map(|record| ReverseMapping::of(&record));
            if let Some(left) = left.filter(|left| left.end() > new.start.into()) {
                let found =
                    format_args!("{} blocks from {:#x} of {}", left.count, left.start, left.owner as i64);
                return Err(self.no_mapping(new, found));
            }
            return Ok(left);
        }
        // The start of a file continues nothing.
        let Some(before) = new.start.checked_sub(1).filter(|_| new.offset & rmap::OFFSET_MASK != 0) else {
            return Ok(None);
        };
        let nearest = cursor.lookup_le(tx, new.key())?.map(|record| ReverseMapping::of(&record));
        if let Some(left) = nearest.filter(|left| left.continues(new)) {
            return Ok(Some(left));
        }
        let mut found = None;
        cursor.overlapping(tx, before..=before, |record| {
            let left = ReverseMapping::of(record);
            found = found.or(left.continues(new).then_some(left));
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// The record that contains a mapping.
    fn covering(
        &self,
        tx: &mut Transaction,
        cursor: &mut RmapCursor<'_>,
        part: &ReverseMapping,
    ) -> Result<Option<ReverseMapping>> {
        let nearest = cursor.lookup_le(tx, part.key())?;
        let nearest = nearest.map(|record| ReverseMapping::of(&record)).filter(|whole| whole.covers(part));
        if nearest.is_some() || !self.may_overlap(part) {
            return Ok(nearest);
        }
        let mut found = None;
        cursor.overlapping(tx, part.start..=part.start, |record| {
            let whole = ReverseMapping::of(record);
            found = found.or(whole.covers(part).then_some(whole));
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }

    /// Blocks may have several owners only on a volume with reflink, and only file data.
    fn may_overlap(&self, mapping: &ReverseMapping) -> bool {
        self.group.geometry.features.reflink() && mapping.runs()
    }

    fn find_mapping(
        &self,
        tx: &mut Transaction,
        cursor: &mut RmapCursor<'_>,
        mapping: &ReverseMapping,
    ) -> Result<()> {
        match cursor.lookup_eq_near(tx, mapping.key())? {
            Some(_) => Ok(()),
            None => Err(self.no_mapping(mapping, "none")),
        }
    }

    #[cold]
    fn no_mapping(&self, wanted: &ReverseMapping, found: impl std::fmt::Display) -> Error {
        let ReverseMapping { start, count, owner, offset } = *wanted;
        let owner = owner as i64;
        let expected =
            format_args!("the mapping of {count} blocks from {start:#x} of {owner} at {offset:#x}");
        self.group.damage(AgBlock(start), (RmapBt::NAME, "record"), expected, found)
    }
}
