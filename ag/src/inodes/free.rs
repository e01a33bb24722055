//! Freeing inodes of a chunk, and the chunk if no inode of it is in use.

use base::lock::Rank;
use base::{AgIno, Ino};
use error::{Error, Result};
use format::Damage;
use format::btree::{FinoBt, InoBt};
use journal::engine::{DiskExtent, Transaction};

use super::agi::Agi;
use super::alloc::{chunk_of, expect_equal};
use super::chunk::ChunkRecord;
use super::search::ChunkCursor;
use super::space::InodeBlocks;
use super::tree::InodeBtreeCursor;
use crate::Groups;
use crate::space::contribution::Payer;

/// Result of freeing inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedInodes {
    /// Number of freed inodes: the first of the request, and those after it that are in its chunk.
    pub count: usize,
    /// The chunk that was removed, if any.
    pub removed: Option<ChunkInodes>,
}

/// The inodes of a chunk. The inodes of a removed chunk must not be written any more: its blocks are about to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInodes {
    /// First inode number of the chunk.
    pub first: Ino,
    /// A bit for each inode that exists, the lowest for `first`.
    pub present: u64,
}

impl ChunkInodes {
    /// Whether the chunk covers an inode number.
    pub fn contains(&self, ino: Ino) -> bool {
        ino.get().checked_sub(self.first.get()).is_some_and(|n| n < 64)
    }

    /// The inodes that exist, or existed.
    pub fn inodes(&self) -> impl Iterator<Item = Ino> + use<> {
        let (first, present) = (self.first.get(), self.present);
        (0..64).filter(move |n| present & 1 << n != 0).map(move |n| Ino(first + n))
    }
}

impl Groups {
    /// Frees inodes in the trees and in all counts: the first, and those after it that are in its chunk, so that each
    /// tree changes in one place. The caller marks their slots free. If the chunk is removed, its buffers are cancelled
    /// here, and the caller drops its inodes.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the trees have no such inodes in use. [`Error::NoSpace`], with nothing changed, if the
    /// finobt may have to grow and the AG has no block for it.
    pub fn free_inodes(&self, tx: &mut Transaction, inos: &[Ino]) -> Result<FreedInodes> {
        let geometry = self.geometry();
        let Some(ino) = inos.first().copied() else { return Ok(FreedInodes { count: 0, removed: None }) };
        let damage = || Damage::new("inode", "number", "an inode within the volume", ino);
        let place = format::Place::ino(ino);
        let split = geometry.split_ino(ino);
        let (ag, within) = split.ok_or_else(|| Error::damaged(place, damage()))?;
        let agi = self.lock_agi(tx, ag)?;
        if let Some(count) = self.free_in_cached_chunk(tx, agi, (within, inos))? {
            return Ok(FreedInodes { count, removed: None });
        }
        let mut all = InodeBtreeCursor::<InoBt>::new(self, agi);
        let missing =
            || Damage::new("inode chunk", "startino", format_args!("a chunk with inode {ino}"), "none");
        let before = chunk_of(&mut all, tx, within)?.ok_or_else(|| Error::damaged(place, missing()))?;
        let (after, count) = self.put_back(agi, before, inos)?;
        let goes = self.goes(&after);
        // A full chunk is inserted into the finobt, which may have to grow: ensure blocks for this before anything
        // changes.
        if geometry.features.finobt() && before.free_mask() == 0 {
            if !goes {
                self.ensure_blocks_for_insertion(tx, agi, &before)?;
            }
            self.group_of(agi)?.inodes.forget_cached_chunk();
        }
        if goes {
            all.delete(tx)?;
        } else {
            all.update(tx, &after)?;
        }
        if geometry.features.finobt() {
            self.free_in_free_tree(tx, agi, &before, (!goes).then_some(&after))?;
        }
        let gone = if goes { after.count() } else { 0 };
        self.count_freed(tx, agi, (count as u32, gone))?;
        if goes {
            self.remove_chunk(tx, agi, &after)?;
        }
        let removed = ChunkInodes { first: geometry.ino(ag, after.start), present: after.present_mask() };
        Ok(FreedInodes { count, removed: goes.then_some(removed) })
    }

    /// Frees inodes of a chunk, from the first on as long as they are in it; returns how many: at most 64.
    fn put_back(&self, agi: Agi, mut chunk: ChunkRecord, inos: &[Ino]) -> Result<(ChunkRecord, usize)> {
        let mut count = 0;
        for ino in inos {
            let within = self.geometry().split_ino(*ino).filter(|(ag, _)| *ag == agi.ag);
            let Some((_, within)) = within.filter(|(_, within)| chunk.index_of(*within).is_some()) else {
                break;
            };
            chunk.put(within).map_err(|damage| Error::damaged(format::Place::ino(*ino), damage))?;
            count += 1;
        }
        Ok((chunk, count))
    }

    /// Whether a chunk is removed because none of its inodes is in use.
    fn goes(&self, chunk: &ChunkRecord) -> bool {
        chunk.is_unused() && self.geometry().inodes_per_block_log <= 6
    }

    /// Frees inodes of the cached chunk, which stays; returns how many. `None`, with nothing changed, if the first is
    /// in another chunk.
    fn free_in_cached_chunk(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        (first, inos): (AgIno, &[Ino]),
    ) -> Result<Option<usize>> {
        let inodes = &self.group_of(agi)?.inodes;
        let Some(mut current) = inodes.take_cached_chunk() else { return Ok(None) };
        if current.chunk.index_of(first).is_none() {
            inodes.put_cached_chunk(current);
            return Ok(None);
        }
        let (after, count) = self.put_back(agi, current.chunk, inos)?;
        if self.goes(&after) {
            return Ok(None);
        }
        self.update_cached_chunk(tx, agi, &mut current, after)?;
        inodes.put_cached_chunk(current);
        self.count_freed(tx, agi, (count as u32, 0))?;
        Ok(Some(count))
    }

    /// Updates the finobt; without `after`, the chunk is removed.
    fn free_in_free_tree(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        before: &ChunkRecord,
        after: Option<&ChunkRecord>,
    ) -> Result<()> {
        let mut free = InodeBtreeCursor::<FinoBt>::new(self, agi);
        let found = free.eq(tx, before.start)?;
        expect_equal(agi, found, (before.free_mask() != 0).then_some(before))?;
        match (found, after) {
            (Some(_), Some(after)) => free.update(tx, after),
            (Some(_), None) => free.delete(tx),
            (None, Some(after)) => free.insert(tx, after),
            (None, None) => Ok(()),
        }
    }

    /// Fails if inserting a chunk into the finobt needs blocks and the AG has none. The tree's reservation is enough
    /// for all possible chunks; an AG that another writer filled may lack it, and then gives blocks that are reserved
    /// for its other trees.
    fn ensure_blocks_for_insertion(&self, tx: &mut Transaction, agi: Agi, chunk: &ChunkRecord) -> Result<()> {
        let blocks = InodeBtreeCursor::<FinoBt>::new(self, agi).blocks_for(tx, chunk.start)?;
        if blocks > 0 && self.group_of(agi)?.lock(tx)?.allocatable(tx, Payer::Group) < blocks {
            return Err(Error::NoSpace { what: "the free inode tree" });
        }
        Ok(())
    }

    /// Updates the counts: `freed` inodes became free, and `gone` free inodes were removed.
    fn count_freed(&self, tx: &mut Transaction, agi: Agi, (freed, gone): (u32, u32)) -> Result<()> {
        let raw = agi.raw(tx)?;
        let (count, free) = (raw.count.get(), raw.freecount.get());
        let counts =
            (count.checked_sub(gone), free.checked_add(freed).and_then(|free| free.checked_sub(gone)));
        let (Some(count), Some(free)) = counts else {
            let expected = format_args!("the {gone} inodes of a chunk at least");
            return Err(agi.damage(Damage::new(
                "AGI",
                "count",
                expected,
                format_args!("{count}, {free} free"),
            )));
        };
        agi.set_counts(tx, count, free);
        self.group_of(agi)?.inodes.set(count, free);
        self.inodes().add_free(freed);
        self.inodes().sub_free(gone);
        self.inodes().unclaim(gone);
        Ok(())
    }

    /// Frees a chunk's blocks and cancels its buffers.
    fn remove_chunk(&self, tx: &mut Transaction, agi: Agi, chunk: &ChunkRecord) -> Result<()> {
        let (geometry, shape) = (self.geometry(), self.inodes().geometry());
        for (block, blocks) in shape.blocks_of(chunk) {
            for cluster in shape.clusters(block, blocks) {
                let at = DiskExtent { daddr: shape.daddr(geometry, agi.ag, &cluster), bytes: cluster.bytes };
                let id = tx.fresh(at, Rank::Buffer)?;
                tx.inode_buffer(id);
                tx.invalidate(id);
            }
            self.free_inode_blocks(tx, agi, InodeBlocks { block, blocks })?;
        }
        Ok(())
    }
}
