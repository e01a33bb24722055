//! The chunk that gave an AG's last inode. The next is taken from it without a search, as long as it has one.
//!
//! # Invariants
//! - It is the chunk that a search would find: the free inode tree has got no other since, and it is asked for by the
//!   same parent.
//! - `chunk` is what both trees say of it. Whoever changes chunks in the trees otherwise forgets it.
//!
//! # Locking
//! Taken by who holds the AGI, and put back.

use base::AgIno;
use format::btree::{FinoBt, InoBt, InodeChunk};
use journal::engine::{Error, Transaction};

use super::agi::Agi;
use super::alloc::take_from;
use super::chunk::ChunkRecord;
use super::tree::update_at;
use crate::Groups;
use crate::btree::RecordHint;

/// See the module.
#[derive(Debug)]
pub struct CachedChunk {
    /// For whom it was searched.
    pub parent: Option<AgIno>,
    /// The chunk, with an inode that is free.
    pub chunk: ChunkRecord,
    /// The same as both trees have it.
    pub record: InodeChunk,
    /// Where its records stand: in the inode tree, and in the free inode tree.
    pub spots: (RecordHint, RecordHint),
}

impl Groups {
    /// Takes an inode of the current chunk; `None` where a search has to find another chunk, or that chunk is used up
    /// with this inode and must leave the free inode tree.
    pub(super) fn take_of_current(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        parent: Option<AgIno>,
    ) -> Result<Option<AgIno>, Error> {
        let inodes = &self.group_of(agi)?.inodes;
        let Some(mut current) = inodes.take_current() else { return Ok(None) };
        if current.parent != parent {
            return Ok(None);
        }
        let (ino, rest) = take_from(agi, current.chunk)?;
        if rest.takable() == 0 {
            return Ok(None);
        }
        self.update_current(tx, agi, &mut current, rest)?;
        inodes.put_current(current);
        Ok(Some(ino))
    }

    /// Tells both trees what the current chunk is now: at its spots, or where a search finds its records.
    pub(super) fn update_current(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        current: &mut CachedChunk,
        to: ChunkRecord,
    ) -> Result<(), Error> {
        let CachedChunk { chunk, record, spots: (all, free), .. } = current;
        let new = to.encode(self.geometry().features.sparse_inodes());
        update_at::<FinoBt>((self, agi), tx, free, (record, &new))?;
        update_at::<InoBt>((self, agi), tx, all, (record, &new))?;
        (*chunk, *record) = (to, new);
        Ok(())
    }
}
