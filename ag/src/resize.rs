//! Online grow and shrink: the last AG becomes longer or shorter, and AGs are added.
//!
//! | step of growing | what it does |
//! |---|---|
//! | [`Groups::extend_last`] | extends the last AG's headers and free space, in the transaction that grows the superblock |
//! | [`Groups::adopt_new`] | after that superblock is written back: makes the new AGs and the longer last AG available |
//!
//! Shrinking is one step, [`Groups::shorten_last`]; the blocks that it removes must be free.
//!
//! # Invariants
//! - No block beyond the old end is available before the superblock with the new size is written back. So if the log is
//!   replayed over the old superblock, it contains nothing beyond the old end except the last AG's length.
//! - Groups are never removed: threads keep references to them.
//!
//! # Locking
//! One caller at a time. The last AG's AGI is locked before its AGF.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::lock::Rank;
use base::{AgBlock, AgNumber};
use error::{Error, Result};
use format::agf::RawAgf;
use format::agi::{NULL_AG_INO, RawAgi};
use format::btree::BnoBt;
use format::limits::VolumeShape;
use journal::engine::{BufferId, Transaction};

use crate::group::{Group, Groups, LockedAg, agf};
use crate::space::claim::Claim;
use crate::space::contribution::Payer;

/// Blocks that a longer AG has gained: free in its trees, but not yet available.
#[derive(Debug)]
pub struct GainedBlocks {
    claim: Claim,
}

/// Free space at the end of an AG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeTail {
    /// First block of the free extent at the end of the AG; the AG's length if its last block is in use.
    pub used_end: u32,
    /// Minimum length of the AG: its trees and AGFL keep some of the free blocks.
    pub least: u32,
    /// Whether only the headers and the root blocks of the trees are in use.
    pub is_empty: bool,
}

impl Groups {
    /// Grows the volume to `blocks` blocks: extends the last AG in this transaction. `tell` is called with the new size
    /// in effect, while the AG's headers are locked.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn extend_last(
        &self,
        tx: &mut Transaction,
        blocks: u64,
        tell: impl FnOnce(),
    ) -> Result<Option<GainedBlocks>> {
        let Some(group) = self.iter().next_back() else { return Ok(None) };
        let (agi, locked) = group.lock_headers(tx)?;
        // The AG's contribution depends on its length: fill the AGFL while the length is the old one.
        locked.fix_freelist(tx)?;
        let before = self.geometry.ag_length(group.ag);
        self.geometry.resize(blocks);
        tell();
        let count = self.geometry.ag_length(group.ag).saturating_sub(before);
        if count == 0 {
            return Ok(None);
        }
        group.set_length(tx, agi, locked, before + count);
        // First: the claim is of blocks that are not contributed.
        group.withheld.fetch_add(count, Relaxed);
        let claim = Claim::of(group, before, count);
        locked.insert_free(tx, AgBlock(before), count)?;
        Ok(Some(GainedBlocks { claim }))
    }

    /// Makes the blocks of the volume's new size available. The headers of new AGs are on the device.
    ///
    /// # Errors
    /// I/O errors. Groups that were added before the error stay.
    pub fn adopt_new(&self, tx: &mut Transaction, gained: Option<GainedBlocks>) -> Result<()> {
        if let Some(GainedBlocks { claim }) = gained {
            let group = Arc::clone(claim.group());
            let locked = group.lock(tx)?;
            let count = claim.count();
            // In this order, so that claimed blocks never exceed reserved ones. Nobody can allocate them without the
            // AGF.
            drop(claim);
            group.withheld.fetch_sub(count, Relaxed);
            let before = group.base_reservations();
            group.reserve_for_length();
            // A small gain may be less than the larger trees require. What the AG has contributed is already reserved.
            if locked.contribution(tx) < group.contributed.load(Relaxed) {
                group.set_base_reservations(before);
            }
            locked.update_contribution(tx, 0);
            tx.release_clean();
        }
        for ag in self.count()..self.geometry.ag_count() {
            let group = Arc::new(Group::new(AgNumber(ag), &self.geometry, (&self.free, &self.faults)));
            let usable = group.load(tx)?;
            if self.groups.push(group).is_err() {
                return Err(Error::Refused {
                    errno: base::errno::EBUSY,
                    why: "the volume is being grown already",
                });
            }
            self.free.add(usable);
        }
        self.inodes.resize(&self.geometry, self.count());
        Ok(())
    }

    /// Free space at the end of an AG. Exact while the AG does not change.
    ///
    /// # Errors
    /// Errors of reading the headers or trees.
    pub fn free_tail(&self, tx: &mut Transaction, ag: AgNumber) -> Result<Option<FreeTail>> {
        let Some(group) = self.get(ag) else { return Ok(None) };
        let (agi, locked) = group.lock_headers(tx)?;
        let length = self.geometry.ag_length(ag);
        let last = locked.last_free(tx)?.filter(|(start, count)| start + count == length);
        let used_end = last.map_or(length, |last| last.0);
        let free = locked.get(tx, agf!(freeblks));
        let spare = locked.allocatable(tx, Payer::Reservation).min(free);
        let roots = VolumeShape::of(&self.geometry).roots().end;
        let inodes = tx.bytes(agi).get(offset_of!(RawAgi, count)..).and_then(be32).unwrap_or(u32::MAX);
        let tail = FreeTail {
            used_end,
            least: used_end.max(length.saturating_sub(spare)).max(self.geometry.min_last_ag()).min(length),
            is_empty: inodes == 0 && free + locked.get(tx, agf!(flcount)) + roots == length,
        };
        tx.release_clean();
        Ok(Some(tail))
    }

    /// Shrinks the volume to `blocks` blocks, with the same number of AGs: shortens the last AG in this transaction.
    /// `tell` as in [`extend_last`](Self::extend_last).
    ///
    /// # Errors
    /// `ENOSPC`, with nothing changed, if the end is not free or its blocks are reserved.
    pub fn shorten_last(&self, tx: &mut Transaction, blocks: u64, tell: impl FnOnce()) -> Result<()> {
        let in_use = Error::NoSpace { what: "shrinking the volume: blocks at its end are in use" };
        let Some(group) = self.iter().next_back() else { return Err(in_use) };
        let (agi, locked) = group.lock_headers(tx)?;
        let before = self.geometry.ag_length(group.ag);
        let start = blocks.checked_sub(u64::from(group.ag.get()) * u64::from(self.geometry.ag_blocks));
        let after = start.and_then(|after| u32::try_from(after).ok()).filter(|after| *after < before);
        let Some(after) = after.filter(|after| *after >= self.geometry.min_last_ag()) else {
            return Err(in_use);
        };
        let count = before - after;
        let tail = locked.last_free(tx)?.filter(|(from, length)| *from <= after && from + length == before);
        if tail.is_none() || !group.is_clear(after, count) {
            return Err(in_use);
        }
        let promised = Error::NoSpace { what: "shrinking the volume: the blocks at its end are reserved" };
        if locked.allocatable(tx, Payer::Reservation) < count {
            return Err(promised);
        }
        // Released if anything fails before the end is removed.
        let mut reserved = self.reserve_blocks(count).map_err(|_| promised)?;
        // Keeps the AGFL from being filled with these blocks.
        let claim = Claim::of(group, after, count);
        locked.fix_freelist(tx)?;
        let Some(free) =
            locked.last_free(tx)?.filter(|(from, length)| *from <= after && from + length == before)
        else {
            return Err(in_use);
        };
        locked.remove_free(tx, free, after, count)?;
        group.set_length(tx, agi, locked, after);
        group.forget_newest(tx, agi, after);
        self.geometry.resize(blocks);
        tell();
        drop(claim);
        reserved.detach(count);
        group.reserve_for_length();
        locked.update_contribution(tx, count);
        self.inodes.resize(&self.geometry, self.count());
        Ok(())
    }
}

fn be32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

impl Group {
    fn lock_headers<'g>(self: &'g Arc<Self>, tx: &mut Transaction) -> Result<(BufferId, LockedAg<'g>)> {
        let agi = tx.read(self.sector(2), Rank::Agi(self.ag.get()), |bytes| {
            RawAgi::verify(bytes, &self.geometry, self.ag).map(drop)
        })?;
        Ok((agi, self.lock(tx)?))
    }

    fn set_length(&self, tx: &mut Transaction, agi: BufferId, locked: LockedAg<'_>, length: u32) {
        let at = offset_of!(RawAgi, length);
        tx.bytes_mut(agi, at..at + 4).copy_from_slice(&length.to_be_bytes());
        locked.set(tx, offset_of!(RawAgf, length), length);
    }

    /// The AGI's `newino` hint may point at a removed chunk: it must not lie beyond the end.
    fn forget_newest(&self, tx: &mut Transaction, agi: BufferId, length: u32) {
        let at = offset_of!(RawAgi, newino);
        let newest = tx.bytes(agi).get(at..).and_then(be32).unwrap_or(NULL_AG_INO);
        if newest != NULL_AG_INO && newest >> self.geometry.inodes_per_block_log >= length {
            tx.bytes_mut(agi, at..at + 4).copy_from_slice(&NULL_AG_INO.to_be_bytes());
        }
    }

    /// Whether a free range is neither busy nor claimed.
    fn is_clear(&self, start: u32, count: u32) -> bool {
        let mut clear = false;
        self.usable_parts((start, count), false, &mut |at, length| clear |= (at, length) == (start, count));
        clear
    }
}

impl LockedAg<'_> {
    /// The last free extent of the AG.
    fn last_free(&self, tx: &mut Transaction) -> Result<Option<(u32, u32)>> {
        let last = self.cursor::<BnoBt>().last(tx)?;
        Ok(last.map(|last| (last.startblock.get(), last.blockcount.get())))
    }
}
