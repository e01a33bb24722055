//! A volume becomes larger or smaller while it is in use: its last group becomes longer or shorter, and groups come.
//!
//! | step of growing | what |
//! |---|---|
//! | [`Groups::extend_last`] | in the transaction that makes the volume larger: the last group's headers and free space |
//! | [`Groups::adopt_new`] | when that is home: new groups are for everybody, and so is what the last one gained |
//!
//! Shrinking is one step, [`Groups::shorten_last`]: what it takes away has to be free.
//!
//! # Invariants
//! - No block beyond the old end is given to anybody before the superblock that knows of it is at home. Who replays the
//!   log over the old superblock thus finds nothing in it that lies beyond the end, but for the last group's own
//!   length.
//! - A group that is there stays: threads keep references to it.
//!
//! # Locking
//! One caller at a time; AGI before AGF of the last group.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::lock::Rank;
use base::{AgBlock, AgNumber};
use format::agf::RawAgf;
use format::agi::{NULL_AG_INO, RawAgi};
use format::btree::BnoBt;
use format::limits::VolumeShape;
use journal::engine::{BufferId, Error, Transaction};

use crate::group::{Group, Groups, LockedAg, agf};
use crate::space::claim::Claim;
use crate::space::contribution::Payer;

/// Fewest blocks that a group can be shortened to, beyond which its headers do not verify (`XFS_MIN_AG_BLOCKS`).
const LEAST_BLOCKS: u32 = 64;

/// What a group gained: free in its trees, and nobody's yet.
#[derive(Debug)]
pub struct GainedBlocks {
    claim: Claim,
}

/// What is free at the end of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeTail {
    /// The first block of the free extent at its end; its length, where the last block is in use.
    pub used_end: u32,
    /// How short it can become: its trees and its list keep some blocks, though they are free.
    pub least: u32,
    /// Whether nothing of it is in use but the headers and the trees' first blocks.
    pub is_empty: bool,
}

impl Groups {
    /// The volume gets `blocks` blocks: in this transaction the last group becomes as long as it then is. The new size
    /// is told to `tell` while nobody else can look at the group's headers.
    ///
    /// # Errors
    /// What changing the trees meets.
    pub fn extend_last(
        &self,
        tx: &mut Transaction,
        blocks: u64,
        tell: impl FnOnce(),
    ) -> Result<Option<GainedBlocks>, Error> {
        let Some(group) = self.iter().next_back() else { return Ok(None) };
        let (agi, open) = group.lock_headers(tx)?;
        // What the group promises follows from its length: the list is filled while that is the old one.
        open.fix_list(tx)?;
        let before = self.geometry.ag_length(group.ag);
        self.geometry.resize(blocks);
        tell();
        let count = self.geometry.ag_length(group.ag).saturating_sub(before);
        if count == 0 {
            return Ok(None);
        }
        group.set_length(tx, agi, open, before + count);
        // First: the claim is of blocks that are not promised.
        group.withheld.fetch_add(count, Relaxed);
        let claim = Claim::of(group, before, count);
        open.put_in(tx, AgBlock(before), count)?;
        Ok(Some(GainedBlocks { claim }))
    }

    /// What came with the volume's new size is for everybody now. The headers of new groups are on the device.
    ///
    /// # Errors
    /// What reading them meets; what was adopted until then stays.
    pub fn adopt_new(&self, tx: &mut Transaction, gained: Option<GainedBlocks>) -> Result<(), Error> {
        if let Some(GainedBlocks { claim }) = gained {
            let group = Arc::clone(claim.group());
            let open = group.lock(tx)?;
            let count = claim.count();
            // In this order: what is claimed is never more than what is reserved. Nobody takes them before the AGF.
            drop(claim);
            group.withheld.fetch_sub(count, Relaxed);
            let before = group.usual_reserves();
            group.reserve_for_length();
            // A few blocks may be fewer than the larger trees ask for. What the group has promised is reserved already.
            if open.promise(tx) < group.promised.load(Relaxed) {
                group.set_usual_reserves(before);
            }
            open.settle(tx, 0);
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

    /// What is free at the end of a group. Exact while nobody changes it.
    ///
    /// # Errors
    /// What reading meets.
    pub fn free_tail(&self, tx: &mut Transaction, ag: AgNumber) -> Result<Option<FreeTail>, Error> {
        let Some(group) = self.get(ag) else { return Ok(None) };
        let (agi, open) = group.lock_headers(tx)?;
        let length = self.geometry.ag_length(ag);
        let last = open.last_free(tx)?.filter(|(start, count)| start + count == length);
        let used_end = last.map_or(length, |last| last.0);
        let free = open.get(tx, agf!(freeblks));
        let spare = open.room(tx, Payer::Reservation).min(free);
        let roots = VolumeShape::of(&self.geometry).roots().end;
        let inodes = tx.bytes(agi).get(offset_of!(RawAgi, count)..).and_then(be32).unwrap_or(u32::MAX);
        let tail = FreeTail {
            used_end,
            least: used_end.max(length.saturating_sub(spare)).max(LEAST_BLOCKS).min(length),
            is_empty: inodes == 0 && free + open.get(tx, agf!(flcount)) + roots == length,
        };
        tx.release_clean();
        Ok(Some(tail))
    }

    /// The volume loses its end: it has `blocks` blocks from now on, and as many groups as before. In this transaction
    /// the last group becomes shorter; `tell` as with [`extend_last`](Self::extend_last).
    ///
    /// # Errors
    /// `ENOSPC`, with nothing changed, where the end is not free, or its blocks are not to be had.
    pub fn shorten_last(&self, tx: &mut Transaction, blocks: u64, tell: impl FnOnce()) -> Result<(), Error> {
        let in_use = Error::NoSpace { what: "a shorter volume: its end is in use" };
        let Some(group) = self.iter().next_back() else { return Err(in_use) };
        let (agi, open) = group.lock_headers(tx)?;
        let before = self.geometry.ag_length(group.ag);
        let start = blocks.checked_sub(u64::from(group.ag.get()) * u64::from(self.geometry.ag_blocks));
        let after = start.and_then(|after| u32::try_from(after).ok()).filter(|after| *after < before);
        let Some(after) = after.filter(|after| *after >= LEAST_BLOCKS) else { return Err(in_use) };
        let count = before - after;
        let tail = open.last_free(tx)?.filter(|(from, length)| *from <= after && from + length == before);
        if tail.is_none() || !group.is_clear(after, count) {
            return Err(in_use);
        }
        let promised = Error::NoSpace { what: "a shorter volume: the blocks at its end are promised" };
        if open.room(tx, Payer::Reservation) < count {
            return Err(promised);
        }
        // Given back where anything fails before the end is taken.
        let mut reserved = self.reserve_blocks(count).map_err(|_| promised)?;
        // Nor must the list be filled from it.
        let claim = Claim::of(group, after, count);
        open.fix_list(tx)?;
        let Some(free) =
            open.last_free(tx)?.filter(|(from, length)| *from <= after && from + length == before)
        else {
            return Err(in_use);
        };
        open.take_out(tx, free, after, count)?;
        group.set_length(tx, agi, open, after);
        group.forget_newest(tx, agi, after);
        self.geometry.resize(blocks);
        tell();
        drop(claim);
        reserved.give(count);
        group.reserve_for_length();
        open.settle(tx, count);
        self.inodes.resize(&self.geometry, self.count());
        Ok(())
    }
}

fn be32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

impl Group {
    fn lock_headers<'g>(
        self: &'g Arc<Self>,
        tx: &mut Transaction,
    ) -> Result<(BufferId, LockedAg<'g>), Error> {
        let agi = tx.read(self.sector(2), Rank::Agi(self.ag.get()), |bytes| {
            RawAgi::verify(bytes, &self.geometry, self.ag).map(drop)
        })?;
        Ok((agi, self.lock(tx)?))
    }

    fn set_length(&self, tx: &mut Transaction, agi: BufferId, open: LockedAg<'_>, length: u32) {
        let at = offset_of!(RawAgi, length);
        tx.bytes_mut(agi, at..at + 4).copy_from_slice(&length.to_be_bytes());
        open.set(tx, offset_of!(RawAgf, length), length);
    }

    /// The AGI's hint at the newest inodes may be at some that are gone: they must not lie behind the end.
    fn forget_newest(&self, tx: &mut Transaction, agi: BufferId, length: u32) {
        let at = offset_of!(RawAgi, newino);
        let newest = tx.bytes(agi).get(at..).and_then(be32).unwrap_or(NULL_AG_INO);
        if newest != NULL_AG_INO && newest >> self.geometry.inodes_per_block_log >= length {
            tx.bytes_mut(agi, at..at + 4).copy_from_slice(&NULL_AG_INO.to_be_bytes());
        }
    }

    /// Whether a free range is nobody's: neither busy nor claimed.
    fn is_clear(&self, start: u32, count: u32) -> bool {
        let mut clear = false;
        self.clear_parts((start, count), false, &mut |at, length| clear |= (at, length) == (start, count));
        clear
    }
}

impl LockedAg<'_> {
    /// The free extent that ends last.
    fn last_free(&self, tx: &mut Transaction) -> Result<Option<(u32, u32)>, Error> {
        let last = self.cursor::<BnoBt>().last(tx)?;
        Ok(last.map(|last| (last.startblock.get(), last.blockcount.get())))
    }
}
