//! Allocating an inode: selects an AG, a chunk with a free inode, and that inode.

use std::sync::atomic::Ordering::Relaxed;

use base::lock::{Rank, might_lock};
use base::{AgIno, AgNumber, Ino};
use error::{Error, Result};
use format::Damage;
use format::btree::{FinoBt, InoBt};
use journal::engine::Transaction;

use super::agi::Agi;
use super::cached_chunk::CachedChunk;
use super::chunk::ChunkRecord;
use super::chunk_alloc::ChunkAllocPolicy;
use super::free::ChunkInodes;
use super::search::{self, ChunkCursor, ChunkTarget};
use super::select_ag::{AgSummary, InodeNeeds, SelectPass};
use super::tree::{InodeBtreeCursor, InodeBtreeType, update_at};
use crate::{BlockReservation, Groups};

/// An inode allocation request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeAllocRequest {
    /// Parent directory.
    pub parent: Ino,
    /// Whether the inode is for a directory.
    pub is_dir: bool,
    /// Blocks that it will soon need, such as those of a directory: 0 for a device node.
    pub blocks: u32,
}

/// One attempt to allocate from an AG.
#[derive(Clone, Copy)]
struct AgAttempt {
    /// The parent, if it lies in this AG.
    parent: Option<AgIno>,
    /// Whether to wait for the AGI's lock.
    wait: bool,
    /// The pass, which decides whether a new chunk may be allocated.
    pass: SelectPass,
}

impl Groups {
    /// Allocates an inode: it is no longer free in the trees and in all counts. Its slot still holds a free inode.
    ///
    /// May roll the transaction, to unlock the AGF of an AG in which a chunk was allocated before the inode is
    /// initialized: earlier changes of the transaction are then committed, and their buffers unlocked unless held. Best
    /// called first. `reservation` must hold [`blocks_for_inode`](Self::blocks_for_inode) blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if no AG has a free inode or space for a chunk, or the volume may have no more inodes.
    /// [`Error::Damaged`].
    pub fn alloc_inode(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        wanted: InodeAllocRequest,
    ) -> Result<Ino> {
        might_lock(Rank::Agi(0));
        let inodes = self.inodes();
        let home = self.geometry().split_ino(wanted.parent);
        let (home_ag, parent) = home.unwrap_or((AgNumber(0), AgIno(0)));
        let order =
            if wanted.is_dir { inodes.rotor.next_directory() } else { inodes.rotor.for_file(home_ag) };
        let mut growth = ChunkAllocPolicy::default();
        // The common case: a file goes to its directory's AG, which has free inodes.
        let near = AgAttempt { parent: Some(parent), wait: true, pass: SelectPass::Any };
        if !wanted.is_dir
            && home.is_some()
            && self.offer(home_ag).free_inodes > 0
            && let Some(ino) = self.alloc_inode_in(tx, reservation, home_ag, near, &mut growth)?
        {
            return Ok(ino);
        }
        for pass in SelectPass::ALL {
            if pass == SelectPass::Preferred && !wanted.is_dir {
                continue;
            }
            let average =
                if pass == SelectPass::Preferred { inodes.average(|| self.average_free()) } else { 0 };
            for ag in order.ags(pass) {
                let offer = self.offer(ag);
                let may_grow = offer.free_inodes == 0 && growth.allowed(self, pass);
                let need = InodeNeeds { may_grow, ..self.need(wanted.blocks) };
                if !pass.accepts(&offer, &need, average) {
                    continue;
                }
                let parent = (ag == home_ag && home.is_some()).then_some(parent);
                // A file waits for its directory's AG rather than go elsewhere, for locality.
                let wait = pass == SelectPass::Last || (parent.is_some() && !wanted.is_dir);
                if let Some(ino) =
                    self.alloc_inode_in(tx, reservation, ag, AgAttempt { parent, wait, pass }, &mut growth)?
                {
                    return Ok(ino);
                }
            }
        }
        Err(Error::NoSpace { what: "inodes" })
    }

    /// In-core summary of an AG, read without its locks.
    fn offer(&self, ag: AgNumber) -> AgSummary {
        self.get(ag).map_or(AgSummary::default(), |group| AgSummary {
            free_inodes: group.inodes.free(),
            free_blocks: group.unclaimed_contribution(),
            longest: group.longest.load(Relaxed),
        })
    }

    /// Average number of free blocks per AG.
    fn average_free(&self) -> u32 {
        let sum: u64 = self.iter().map(|group| u64::from(group.unclaimed_contribution())).sum();
        (sum / u64::from(self.count().max(1))) as u32 // no more than those of the largest
    }

    fn need(&self, file: u32) -> InodeNeeds {
        let shape = self.inodes().geometry();
        let chunk = shape.least_blocks();
        InodeNeeds { chunk, slack: if chunk > 1 { shape.align } else { 0 }, file, may_grow: false }
    }

    /// Tries one AG; `None` if it has no inode after all.
    fn alloc_inode_in(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        ag: AgNumber,
        attempt: AgAttempt,
        growth: &mut ChunkAllocPolicy,
    ) -> Result<Option<Ino>> {
        let agi = if attempt.wait {
            self.lock_agi(tx, ag)?
        } else {
            match Agi::try_read(tx, self.geometry(), ag)? {
                Some(agi) => agi,
                None => return Ok(None),
            }
        };
        if agi.raw(tx)?.freecount.get() == 0 {
            // The count read without the lock may be stale: others may have taken the last free inodes.
            if !growth.allowed(self, attempt.pass) {
                tx.release(agi.id);
                return Ok(None);
            }
            let grown = self.grow_inodes(tx, reservation, agi)?;
            if grown {
                // Unlock the AGF.
                tx.hold(agi.id);
                tx.roll(&mut [])?;
                tx.unhold(agi.id);
            } else if tx.is_dirty() {
                tx.roll(&mut [])?;
            } else {
                // In lock order the next AG's AGI comes before this AG's AGF.
                tx.release_clean();
            }
            reservation.rolled();
            if !grown {
                return Ok(None);
            }
        }
        let ino = self.take_inode(tx, agi, attempt.parent)?;
        Ok(Some(self.geometry().ino(ag, ino)))
    }

    /// Allocates an inode of an AG that has a free one.
    fn take_inode(&self, tx: &mut Transaction, agi: Agi, parent: Option<AgIno>) -> Result<AgIno> {
        let wanted = ChunkTarget { parent, newest: Agi::newest(agi.raw(tx)?) };
        let ino = if self.geometry().features.finobt() {
            match self.take_from_cached_chunk(tx, agi, parent)? {
                Some(ino) => ino,
                None => self.take_by_free_tree(tx, agi, wanted)?,
            }
        } else {
            self.take_by_inode_tree(tx, agi, wanted)?
        };
        self.count_taken(tx, agi)?;
        Ok(ino)
    }

    /// Counts an inode that was taken.
    #[inline]
    pub(super) fn count_taken(&self, tx: &mut Transaction, agi: Agi) -> Result<()> {
        let raw = agi.raw(tx)?;
        let (count, free) = (raw.count.get(), raw.freecount.get());
        let left = free.checked_sub(1);
        let left = left.ok_or_else(|| agi.damage(Damage::new("AGI", "freecount", "at least 1", free)))?;
        agi.set_counts(tx, count, left);
        self.group_of(agi)?.inodes.set(count, left);
        self.inodes().sub_free(1);
        Ok(())
    }

    fn take_by_free_tree(&self, tx: &mut Transaction, agi: Agi, wanted: ChunkTarget) -> Result<AgIno> {
        let mut free = InodeBtreeCursor::<FinoBt>::new(self, agi);
        let chunk = search::in_free_tree(&mut free, tx, wanted)?;
        let (ino, rest) = take_from(agi, chunk)?;
        let used_up = rest.free_mask() == 0;
        if used_up {
            free.delete(tx)?;
        } else {
            free.update(tx, &rest)?;
        }
        let inodes = &self.group_of(agi)?.inodes;
        let sparse = self.geometry().features.sparse_inodes();
        // Usually in the leaf of the last search.
        let mut all = inodes.take_leaf();
        let record = rest.encode(sparse);
        update_at::<InoBt>(self, tx, agi, &mut all, &chunk.encode(sparse), &record)?;
        inodes.put_leaf(all.clone());
        if let (false, Some(free)) = (used_up, free.hint(tx)) {
            let current = CachedChunk { parent: wanted.parent, chunk: rest, record, hints: (all, free) };
            inodes.put_cached_chunk(current);
        }
        Ok(ino)
    }

    fn take_by_inode_tree(&self, tx: &mut Transaction, agi: Agi, wanted: ChunkTarget) -> Result<AgIno> {
        let mut memory = self.group_of(agi)?.inodes.memory();
        let walk = InodeBtreeCursor::<InoBt>::new(self, agi);
        let (mut at, chunk) = search::in_inode_tree(walk, tx, wanted, &mut memory)?;
        self.group_of(agi)?.inodes.remember(memory);
        let (ino, rest) = take_from(agi, chunk)?;
        at.update(tx, &rest)?;
        Ok(ino)
    }
}

pub(super) fn take_from(agi: Agi, mut chunk: ChunkRecord) -> Result<(AgIno, ChunkRecord)> {
    let ino = chunk.take();
    let none = || agi.damage(Damage::new("inode chunk", "free", "a free inode", "none"));
    Ok((ino.ok_or_else(none)?, chunk))
}

/// Verifies that both trees have the same record of a chunk.
pub(super) fn expect_equal(
    agi: Agi,
    found: Option<ChunkRecord>,
    expected: Option<&ChunkRecord>,
) -> Result<()> {
    if found.as_ref() == expected {
        return Ok(());
    }
    let words = |chunk: Option<&ChunkRecord>| {
        chunk.map_or_else(
            || "no record".to_owned(),
            |chunk| format!("inode {} with holes {:#x}, free {:#x}", chunk.start, chunk.holes, chunk.free),
        )
    };
    let expected = format!("{}, as in the other inode tree", words(expected));
    Err(agi.damage(Damage::new("inode chunk", "record", expected, words(found.as_ref()))))
}

impl Groups {
    /// The inodes of the chunk that contains an inode number; `None` if there is none. The AGI stays locked in `tx`,
    /// and as long as it does, the chunk stays.
    ///
    /// # Errors
    /// Damage in the inobt; I/O errors.
    pub fn chunk_inodes(&self, tx: &mut Transaction, ino: Ino) -> Result<Option<ChunkInodes>> {
        let Some((ag, within)) = self.geometry().split_ino(ino) else { return Ok(None) };
        let agi = self.lock_agi(tx, ag)?;
        let chunk = chunk_of(&mut InodeBtreeCursor::<InoBt>::new(self, agi), tx, within)?;
        Ok(chunk.map(|chunk| ChunkInodes {
            first: self.geometry().ino(ag, chunk.start),
            present: chunk.present_mask(),
        }))
    }
}

/// Finds the chunk of an inode in one of the trees.
pub(super) fn chunk_of<K: InodeBtreeType>(
    walk: &mut InodeBtreeCursor<'_, K>,
    tx: &mut Transaction,
    ino: AgIno,
) -> Result<Option<ChunkRecord>> {
    Ok(walk.le(tx, ino)?.filter(|chunk| chunk.index_of(ino).is_some()))
}
