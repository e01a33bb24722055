//! Block reservations: of users' changes, and per AG for the growth of trees.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use base::AgNumber;
use base::lock::Rank;
use base::percpu::Counter;
use error::{Error, Result};
use format::Geometry;
use format::agi::RawAgi;
use format::btree::{Btree, FinoBt, RefcountBt, RmapBt};
use format::geometry::INODES_PER_CHUNK;
use format::ondisk::OnDisk;
use journal::engine::{BufferId, Transaction};
use smallvec::SmallVec;

use crate::btree::BtreeRoot;
use crate::group::{Group, LockedAg, agf};
use crate::upgrade::ReadOnlyBtree;

/// Blocks that a change may allocate. Blocks that it does not allocate are released when this is dropped.
#[derive(Debug)]
pub struct BlockReservation<'g> {
    free: &'g Counter,
    left: u32,
    /// AGs whose AGFs the transaction has locked for allocation, ascending: see [`Groups::alloc_extent`].
    pub(crate) locked_ags: SmallVec<[AgNumber; 2]>,
}

impl<'g> BlockReservation<'g> {
    pub(crate) fn take(free: &'g Counter, count: u32) -> Result<Self> {
        if count > 0 && !free.try_sub(count.into()) {
            return Err(Error::NoSpace { what: "new blocks" });
        }
        Ok(Self::of_detached(free, count))
    }

    /// Blocks that are left.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Detaches up to `count` blocks; returns how many. The caller owns them and passes them to
    /// [`Groups::attach_blocks`](crate::Groups::attach_blocks).
    pub fn detach(&mut self, count: u32) -> u32 {
        let detached = count.min(self.left);
        self.left -= detached;
        detached
    }

    /// Splits off up to `count` blocks.
    #[must_use = "the blocks are released when the result is dropped"]
    pub fn split(&mut self, count: u32) -> Self {
        Self::of_detached(self.free, self.detach(count))
    }

    /// Merges a reservation that was split off.
    pub fn join(&mut self, mut other: Self) {
        self.left += other.detach(u32::MAX);
    }

    /// A reservation of blocks that were detached from another one.
    pub(crate) fn of_detached(free: &'g Counter, count: u32) -> Self {
        Self { free, left: count, locked_ags: SmallVec::new() }
    }

    /// Reserves more, so that at least `least` blocks are left. Returns `false`, with nothing changed, if the volume
    /// has not as many.
    pub fn top_up(&mut self, least: u32) -> bool {
        let missing = least.saturating_sub(self.left);
        let has = missing == 0 || self.free.try_sub(missing.into());
        if has {
            self.left += missing;
        }
        has
    }

    /// The transaction rolled or ended, and holds no AGF any more.
    pub fn rolled(&mut self) {
        self.locked_ags.clear();
    }

    /// Records that the transaction has locked the AGF of an AG.
    pub(crate) fn note_locked(&mut self, ag: AgNumber) {
        if let Err(at) = self.locked_ags.binary_search(&ag) {
            self.locked_ags.insert(at, ag);
        }
    }

    /// Ensures that `count` blocks are left, before they are allocated.
    ///
    /// # Errors
    /// No space: more is needed than was reserved, and the volume has no more.
    pub(crate) fn cover(&mut self, count: u32) -> Result<()> {
        debug_assert!(
            count <= self.left,
            "{count} blocks are to be allocated, and {} are left of what was reserved",
            self.left
        );
        match self.top_up(count) {
            true => Ok(()),
            false => Err(Error::NoSpace { what: "more blocks than were reserved" }),
        }
    }

    /// Records the allocation of blocks that [`cover`](Self::cover) has ensured.
    pub(crate) fn spend(&mut self, count: u32) {
        debug_assert!(count <= self.left, "{count} blocks are taken, and {} are left", self.left);
        self.left = self.left.saturating_sub(count);
    }
}

impl BlockReservation<'_> {
    /// Returns spent blocks that were not allocated.
    pub(crate) fn refund(&mut self, count: u32) {
        self.left += count;
    }
}

impl Drop for BlockReservation<'_> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.free.add(self.left.into());
        }
    }
}

/// Blocks reserved in one AG for trees that must be able to grow (per-AG reservation). Changed under the AGF.
#[derive(Debug, Default)]
pub struct AgReservation {
    /// Size by the AG's length.
    base: AtomicU32,
    /// Size beyond `base`.
    raised: AtomicU32,
    used: AtomicU32,
    /// Changes in progress or about to begin that may make the trees grow. Changes without the AGF: a new change adds
    /// to it, then reads `raised`; lowering stores `raised`, then reads this. So one of both sees the other.
    changes: AtomicU32,
}

impl AgReservation {
    /// Reserves `base` blocks for trees that have `used` already.
    fn set(&self, base: u32, used: u32) {
        self.base.store(base, Relaxed);
        self.used.store(used, Relaxed);
    }

    /// Reserved blocks, used or not.
    pub(crate) fn asked(&self) -> u32 {
        self.base().saturating_add(self.raised())
    }

    /// Blocks reserved by the AG's length.
    pub(crate) fn base(&self) -> u32 {
        self.base.load(Relaxed)
    }

    /// Blocks reserved beyond that.
    pub(crate) fn raised(&self) -> u32 {
        self.raised.load(SeqCst)
    }

    /// Blocks of the trees.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Reserved blocks that are not used.
    pub fn left(&self) -> u32 {
        self.asked().saturating_sub(self.used())
    }

    /// Sets the number of blocks reserved beyond `base`.
    pub(crate) fn raise(&self, blocks: u32) {
        self.raised.store(blocks, SeqCst);
    }

    /// Changes in progress or about to begin.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(SeqCst)
    }

    /// Adds changes that are about to begin.
    pub(crate) fn begin_changes(&self, changes: u32) {
        self.changes.fetch_add(changes, SeqCst);
    }

    /// Removes changes that have ended or will not begin.
    pub(crate) fn end_changes(&self, changes: u32) {
        self.changes.fetch_sub(changes, SeqCst);
    }

    /// Records that trees have grown.
    pub(crate) fn draw(&self, count: u32) {
        self.used.fetch_add(count, Relaxed);
    }

    /// Records that trees have shrunk.
    pub(crate) fn restore(&self, count: u32) {
        self.used.store(self.used.load(Relaxed).saturating_sub(count), Relaxed);
    }
}

/// Minimum reservation for the rmapbt if blocks can have several owners.
const LEAST_MAPPINGS: u64 = 8;

/// Blocks of a tree with `records` records, if each block is at its minimum fill.
pub(crate) fn tree_size<B: Btree>(geometry: &Geometry, records: u64) -> u64 {
    let (leaf, node) = (B::max_records(geometry) / 2, B::max_keys(geometry) / 2);
    let mut blocks = records.div_ceil(leaf.max(1) as u64);
    let mut total = blocks;
    while blocks > 1 {
        blocks = blocks.div_ceil(node.max(2) as u64);
        total += blocks;
    }
    total.max(1)
}

impl Group {
    /// Reads the headers and sets the reservations for the trees. Returns the blocks that users may reserve in this AG.
    ///
    /// The sizes are those of the kernel: the maximum that the trees can have, except for reverse mappings, for which
    /// at least a hundredth of the AG is reserved.
    pub(crate) fn load(self: &Arc<Self>, tx: &mut Transaction) -> Result<u64> {
        let geometry = &*self.geometry;
        let agi = tx.read(self.sector(2), Rank::Agi(self.ag.get()), |bytes| {
            RawAgi::verify(bytes, geometry, self.ag).map(drop)
        })?;
        if let Some(raw) = RawAgi::view(tx.bytes(agi)) {
            self.inodes.set(raw.count.get(), raw.freecount.get());
        }
        let finobt_blocks = self.free_inode_tree_blocks(tx, agi)?;
        tx.release(agi);
        let locked = self.lock(tx)?;
        locked.refresh_counters(tx);
        let used_mappings = locked.get(tx, agf!(rmapblocks));
        self.set_reservations((locked.refcount_tree_blocks(tx).saturating_add(finobt_blocks), used_mappings));
        let usable = locked.publish_contribution(tx);
        locked.release(tx, None);
        Ok(usable)
    }

    /// Number of finobt blocks. The transaction holds the AGI.
    pub(crate) fn free_inode_tree_blocks(&self, tx: &mut Transaction, agi: BufferId) -> Result<u32> {
        let features = self.geometry.features;
        let Some(raw) = RawAgi::view(tx.bytes(agi)).copied() else { return Ok(0) };
        if features.finobt() && !features.inobtcount() {
            let root = BtreeRoot::Block { block: raw.free_root.get().into(), levels: raw.free_level.get() };
            return ReadOnlyBtree::<FinoBt>::of(self, root).count(tx);
        }
        Ok(raw.fblocks.get())
    }

    /// Updates the reservations for the AG's new length; the used blocks are known. The caller holds the AGF.
    pub(crate) fn reserve_for_length(&self) {
        self.set_reservations((self.metadata_reservation.used(), self.rmap_reservation.used()));
    }

    /// Sizes of both reservations by the AG's length.
    pub(crate) fn base_reservations(&self) -> (u32, u32) {
        (self.metadata_reservation.base(), self.rmap_reservation.base())
    }

    /// Restores the sizes that [`base_reservations`](Self::base_reservations) returned before the AG grew.
    pub(crate) fn set_base_reservations(&self, (metadata, mappings): (u32, u32)) {
        self.metadata_reservation.set(metadata, self.metadata_reservation.used());
        self.rmap_reservation.set(mappings, self.rmap_reservation.used());
    }

    fn set_reservations(&self, (used, used_mappings): (u32, u32)) {
        let geometry = &*self.geometry;
        let log_here = geometry.log_start.and_then(|start| geometry.split_fs_block(start));
        let log_here = log_here.filter(|(ag, _)| *ag == self.ag).map_or(0, |_| geometry.log_blocks);
        let blocks = u64::from(geometry.ag_length(self.ag).saturating_sub(log_here));
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let mut asked = 0;
        if geometry.features.finobt() {
            let chunks = (blocks << geometry.inodes_per_block_log) / u64::from(INODES_PER_CHUNK);
            asked += tree_size::<FinoBt>(geometry, chunks);
        }
        if geometry.features.reflink() {
            asked += tree_size::<RefcountBt>(geometry, blocks);
        }
        self.metadata_reservation.set(small(asked), used);
        if geometry.features.rmapbt() {
            // Shared blocks have several records: reserve some blocks in the smallest AGs, too.
            let shared = if geometry.features.reflink() { LEAST_MAPPINGS } else { 0 };
            let base = tree_size::<RmapBt>(geometry, blocks).max(blocks / 100).max(shared);
            self.rmap_reservation.set(small(base), used_mappings);
        }
    }
}

impl LockedAg<'_> {
    /// Number of refcountbt blocks.
    pub(crate) fn refcount_tree_blocks(&self, tx: &Transaction) -> u32 {
        if self.group.geometry.features.reflink() { self.get(tx, agf!(refcntblocks)) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_counts_used_and_returned_blocks() {
        let reserve = AgReservation::default();
        reserve.set(10, 4);
        reserve.draw(5);
        assert_eq!(reserve.left(), 1);
        reserve.draw(3);
        // Two blocks were used beyond the reservation: returning these restores nothing.
        reserve.restore(2);
        assert_eq!(reserve.left(), 0);
        reserve.restore(3);
        assert_eq!(reserve.left(), 3);
    }
}
