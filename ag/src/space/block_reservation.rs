//! Blocks that are promised: to users' changes, and to the growth of trees.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use base::AgNumber;
use base::lock::Rank;
use base::percpu::Counter;
use format::Geometry;
use format::agi::RawAgi;
use format::btree::{Btree, FinoBt, RefcountBt, RmapBt};
use format::geometry::INODES_PER_CHUNK;
use format::ondisk::OnDisk;
use journal::engine::{BufferId, Error, Transaction};
use smallvec::SmallVec;

use crate::btree::BtreeRoot;
use crate::group::{Group, LockedAg, agf};
use crate::upgrade::ReadOnlyBtree;

/// Blocks of a volume that a change may allocate. What it does not is given back when this is dropped.
#[derive(Debug)]
pub struct BlockReservation<'g> {
    free: &'g Counter,
    left: u32,
    /// The groups whose AGFs the transaction has locked to take blocks of, ascending: see [`Groups::alloc_extent`].
    pub(crate) held: SmallVec<[AgNumber; 2]>,
}

impl<'g> BlockReservation<'g> {
    pub(crate) fn take(free: &'g Counter, count: u32) -> Result<Self, Error> {
        if count > 0 && !free.try_sub(count.into()) {
            return Err(Error::NoSpace { what: "new blocks" });
        }
        Ok(Self::of_given(free, count))
    }

    /// Blocks that are left.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Takes up to so many blocks out of it; how many. They belong to the caller, who hands them to
    /// [`Groups::given_blocks`](crate::Groups::given_blocks).
    pub fn give(&mut self, count: u32) -> u32 {
        let given = count.min(self.left);
        self.left -= given;
        given
    }

    /// Parts up to so many blocks from it.
    #[must_use = "what is parted is given back when it is dropped"]
    pub fn split(&mut self, count: u32) -> Self {
        Self::of_given(self.free, self.give(count))
    }

    /// Takes in what was parted from it.
    pub fn join(&mut self, mut other: Self) {
        self.left += other.give(u32::MAX);
    }

    /// Of blocks that another reservation gave.
    pub(crate) fn of_given(free: &'g Counter, count: u32) -> Self {
        Self { free, left: count, held: SmallVec::new() }
    }

    /// Takes more, so that at least so many are left. `false`, with nothing changed, where there are not so many.
    pub fn top_up(&mut self, least: u32) -> bool {
        let missing = least.saturating_sub(self.left);
        let has = missing == 0 || self.free.try_sub(missing.into());
        if has {
            self.left += missing;
        }
        has
    }

    /// The transaction rolled, or ended, and holds no AGF any more.
    pub fn rolled(&mut self) {
        self.held.clear();
    }

    /// The transaction has locked the AGF of a group to take blocks of it.
    pub(crate) fn hold(&mut self, ag: AgNumber) {
        if let Err(at) = self.held.binary_search(&ag) {
            self.held.insert(at, ag);
        }
    }

    /// Asked before blocks are allocated: so many are left.
    ///
    /// # Errors
    /// No space: more than was reserved, and nothing more in the counter.
    pub(crate) fn cover(&mut self, count: u32) -> Result<(), Error> {
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

    /// Blocks were allocated for which [`cover`](Self::cover) was asked.
    pub(crate) fn spend(&mut self, count: u32) {
        debug_assert!(count <= self.left, "{count} blocks are taken, and {} are left", self.left);
        self.left = self.left.saturating_sub(count);
    }
}

impl BlockReservation<'_> {
    /// Blocks that were spent are not needed after all.
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

/// Blocks set aside in one group for trees that must be able to grow. Changed under the AGF.
#[derive(Debug, Default)]
pub struct AgReservation {
    /// From the group's length.
    usual: AtomicU32,
    /// Beyond that.
    raised: AtomicU32,
    used: AtomicU32,
    /// Changes that may make the trees grow, in progress or about to be made. It changes without the AGF. A new change
    /// adds to it, then reads `raised`. Lowering stores `raised`, then reads this. So one of both sees the other.
    changes: AtomicU32,
}

impl AgReservation {
    /// Sets `usual` blocks aside for trees that have `used` already.
    fn set(&self, usual: u32, used: u32) {
        self.usual.store(usual, Relaxed);
        self.used.store(used, Relaxed);
    }

    /// Blocks that are set aside, used or not.
    pub(crate) fn asked(&self) -> u32 {
        self.usual().saturating_add(self.raised())
    }

    /// Blocks that a group of this length sets aside.
    pub(crate) fn usual(&self) -> u32 {
        self.usual.load(Relaxed)
    }

    /// Blocks that are set aside beyond that.
    pub(crate) fn raised(&self) -> u32 {
        self.raised.load(SeqCst)
    }

    /// Blocks that the trees have.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Blocks that are set aside and not yet used.
    pub fn left(&self) -> u32 {
        self.asked().saturating_sub(self.used())
    }

    /// Sets so many aside beyond what is usual.
    pub(crate) fn raise(&self, blocks: u32) {
        self.raised.store(blocks, SeqCst);
    }

    /// Changes that may make the trees grow, in progress or about to be made.
    pub(crate) fn changes(&self) -> u32 {
        self.changes.load(SeqCst)
    }

    /// So many changes are about to be made.
    pub(crate) fn begin_changes(&self, changes: u32) {
        self.changes.fetch_add(changes, SeqCst);
    }

    /// They have ended, or will not be made.
    pub(crate) fn end_changes(&self, changes: u32) {
        self.changes.fetch_sub(changes, SeqCst);
    }

    /// Trees have grown.
    pub(crate) fn draw(&self, count: u32) {
        self.used.fetch_add(count, Relaxed);
    }

    /// Trees have shrunk.
    pub(crate) fn restore(&self, count: u32) {
        self.used.store(self.used.load(Relaxed).saturating_sub(count), Relaxed);
    }
}

/// Blocks that are set aside at least for reverse mappings, where blocks can have several owners.
const LEAST_MAPPINGS: u64 = 8;

/// Blocks of a tree with `records` records, if each block is only as full as it must be.
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
    /// Reads the headers, and sets blocks aside for the trees. Returns what users may reserve here.
    ///
    /// The sizes are those that the kernel sets aside: the largest that the trees can get, whatever happens, but for
    /// reverse mappings, where a hundredth of the group has to do.
    pub(crate) fn load(self: &Arc<Self>, tx: &mut Transaction) -> Result<u64, Error> {
        let geometry = &*self.geometry;
        let agi = tx.read(self.sector(2), Rank::Agi(self.ag.get()), |bytes| {
            RawAgi::verify(bytes, geometry, self.ag).map(drop)
        })?;
        if let Some(raw) = RawAgi::view(tx.bytes(agi)) {
            self.inodes.set(raw.count.get(), raw.freecount.get());
        }
        let finobt_blocks = self.free_inode_tree_blocks(tx, agi)?;
        tx.release(agi);
        let open = self.lock(tx)?;
        open.note(tx);
        let used_mappings = open.get(tx, agf!(rmapblocks));
        self.set_reserves((open.refcount_tree_blocks(tx).saturating_add(finobt_blocks), used_mappings));
        let usable = open.first_promise(tx);
        open.release(tx, None);
        Ok(usable)
    }

    /// Blocks of the free inode tree. The transaction holds the AGI.
    pub(crate) fn free_inode_tree_blocks(&self, tx: &mut Transaction, agi: BufferId) -> Result<u32, Error> {
        let features = self.geometry.features;
        let Some(raw) = RawAgi::view(tx.bytes(agi)).copied() else { return Ok(0) };
        if features.finobt() && !features.inobtcount() {
            let root = BtreeRoot::Block { block: raw.free_root.get().into(), levels: raw.free_level.get() };
            return ReadOnlyBtree::<FinoBt>::of(self, root).count(tx);
        }
        Ok(raw.fblocks.get())
    }

    /// Sets blocks aside for the trees of a group whose length changed: what they use is known. The caller holds the
    /// AGF.
    pub(crate) fn reserve_for_length(&self) {
        self.set_reserves((self.metadata.used(), self.mappings.used()));
    }

    /// How many blocks are set aside for the metadata trees and for the reverse-mapping btree, by the group's length.
    pub(crate) fn usual_reserves(&self) -> (u32, u32) {
        (self.metadata.usual(), self.mappings.usual())
    }

    /// Restores what [`usual_reserves`](Self::usual_reserves) returned before the group grew.
    pub(crate) fn set_usual_reserves(&self, (metadata, mappings): (u32, u32)) {
        self.metadata.set(metadata, self.metadata.used());
        self.mappings.set(mappings, self.mappings.used());
    }

    fn set_reserves(&self, (used, used_mappings): (u32, u32)) {
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
        self.metadata.set(small(asked), used);
        if geometry.features.rmapbt() {
            // Shared blocks have several records: some room for these in the smallest groups, too.
            let shared = if geometry.features.reflink() { LEAST_MAPPINGS } else { 0 };
            let usual = tree_size::<RmapBt>(geometry, blocks).max(blocks / 100).max(shared);
            self.mappings.set(small(usual), used_mappings);
        }
    }
}

impl LockedAg<'_> {
    /// Blocks of the tree of reference counts.
    pub(crate) fn refcount_tree_blocks(&self, tx: &Transaction) -> u32 {
        if self.group.geometry.features.reflink() { self.get(tx, agf!(refcntblocks)) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_gives_what_is_left_and_takes_back_what_it_gave() {
        let reserve = AgReservation::default();
        reserve.set(10, 4);
        reserve.draw(5);
        assert_eq!(reserve.left(), 1);
        reserve.draw(3);
        // Two were used beyond it: giving these back restores nothing.
        reserve.restore(2);
        assert_eq!(reserve.left(), 0);
        reserve.restore(3);
        assert_eq!(reserve.left(), 3);
    }
}
