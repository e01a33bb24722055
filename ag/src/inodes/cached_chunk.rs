//! The chunk of an AG's last inode. The next inode is allocated from it without a search, as long as it has a free one.
//!
//! # Invariants
//! - It is the chunk that a search would find: no chunk was added to the finobt since, and the parent is the same.
//! - `chunk` equals its record in both trees. Code that changes a chunk in the trees in another way drops the cache.
//!
//! A transaction that creates several files takes further inodes from it ([`NextInode`]).
//!
//! # Locking
//! The holder of the AGI takes it out and puts it back.

use base::{AgIno, Ino};
use error::Result;
use format::btree::{FinoBt, InoBt, InodeChunk};
use journal::engine::Transaction;

use super::agi::Agi;
use super::alloc::take_from;
use super::chunk::ChunkRecord;
use super::tree::update_at;
use crate::Groups;
use crate::btree::RecordHint;

/// A cached chunk; see the module documentation.
#[derive(Debug)]
pub struct CachedChunk {
    /// The parent for which it was searched.
    pub parent: Option<AgIno>,
    /// The chunk, with a free inode.
    pub chunk: ChunkRecord,
    /// The record of the chunk in the inobt and finobt.
    pub record: InodeChunk,
    /// Locations of the record in the inobt and in the finobt.
    pub hints: (RecordHint, RecordHint),
}

/// A free inode of the chunk from which a transaction has allocated its last one.
#[derive(Debug)]
pub struct NextInode {
    ino: Ino,
    agi: Agi,
    cached: CachedChunk,
    /// The chunk without the inode.
    rest: ChunkRecord,
}

impl NextInode {
    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }
}

impl Groups {
    /// Finds another inode of the chunk from which `tx` has just allocated `last`, for a file with the same parent.
    /// Locks and reads only what the transaction has changed, and changes nothing. Returns `None` if
    /// [`alloc_inode`](Self::alloc_inode) must find the inode, in a new transaction.
    ///
    /// # Errors
    /// [`Error::Damaged`](error::Error::Damaged).
    pub fn next_inode(&self, tx: &mut Transaction, last: Ino, parent: Ino) -> Result<Option<NextInode>> {
        let geometry = self.geometry();
        let Some((ag, _)) = geometry.split_ino(last) else { return Ok(None) };
        let parent = geometry.split_ino(parent).filter(|(home, _)| *home == ag).map(|(_, parent)| parent);
        let agi = self.lock_agi(tx, ag)?;
        let Some(cached) = self.group_of(agi)?.inodes.take_cached_chunk() else { return Ok(None) };
        if cached.parent != parent {
            return Ok(None);
        }
        let (ino, rest) = take_from(agi, cached.chunk)?;
        let next = NextInode { ino: geometry.ino(ag, ino), agi, cached, rest };
        if next.rest.free_mask() == 0 {
            // It must leave the finobt.
            self.leave_inode(next)?;
            return Ok(None);
        }
        Ok(Some(next))
    }

    /// Allocates an inode that [`next_inode`](Self::next_inode) has found.
    ///
    /// # Errors
    /// [`Error::Damaged`](error::Error::Damaged).
    pub fn take_next_inode(&self, tx: &mut Transaction, next: NextInode) -> Result<Ino> {
        let NextInode { ino, agi, mut cached, rest } = next;
        self.update_cached_chunk(tx, agi, &mut cached, rest)?;
        self.group_of(agi)?.inodes.put_cached_chunk(cached);
        self.count_taken(tx, agi)?;
        Ok(ino)
    }

    /// Leaves an inode to the next transaction that allocates one.
    ///
    /// # Errors
    /// None: the AG exists.
    pub fn leave_inode(&self, next: NextInode) -> Result<()> {
        self.group_of(next.agi)?.inodes.put_cached_chunk(next.cached);
        Ok(())
    }

    /// Allocates an inode of the cached chunk. Returns `None` if a search must find another chunk, or if this inode is
    /// the last of the chunk, which must then leave the finobt.
    pub(super) fn take_from_cached_chunk(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        parent: Option<AgIno>,
    ) -> Result<Option<AgIno>> {
        let inodes = &self.group_of(agi)?.inodes;
        let Some(mut current) = inodes.take_cached_chunk() else { return Ok(None) };
        if current.parent != parent {
            return Ok(None);
        }
        let (ino, rest) = take_from(agi, current.chunk)?;
        if rest.free_mask() == 0 {
            return Ok(None);
        }
        self.update_cached_chunk(tx, agi, &mut current, rest)?;
        inodes.put_cached_chunk(current);
        Ok(Some(ino))
    }

    /// Updates the cached chunk's records in both trees.
    pub(super) fn update_cached_chunk(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        current: &mut CachedChunk,
        to: ChunkRecord,
    ) -> Result<()> {
        let CachedChunk { chunk, record, hints: (all, free), .. } = current;
        let new = to.encode(self.geometry().features.sparse_inodes());
        update_at::<FinoBt>(self, tx, agi, free, record, &new)?;
        update_at::<InoBt>(self, tx, agi, all, record, &new)?;
        (*chunk, *record) = (to, new);
        Ok(())
    }
}
