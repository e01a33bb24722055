//! The extent map of a fork.
//!
//! | part | subject |
//! |---|---|
//! | [`Fork`] | map, unmap and mark ranges; conversion between the fork formats |
//! | [`deferred`] | changes of the map that are deferred, with an intent |
//! | `lookup` | what the map has at and around a block |
//! | `load` | reading the extents of a btree |
//! | `root` | the btree root in the inode |
//! | `tree` | the extent btree |
//!
//! A fork begins as a list of extents in the inode (`extents`). When the list no longer fits, it becomes a btree with
//! its root in the inode (`btree`). When the extents of a btree fit the inode again, it becomes a list at once: other
//! implementations treat a btree that could be a list as damage.
//!
//! A map that fits the inode, or has few extents ([`ExtentLimits`]), is in memory as a whole. Of a larger one there is
//! a window around the place that was used last; the btree, in metadata buffers, is the whole map. Each call reads the
//! extents that it needs: docs/design/extent-maps.md.
//!
//! # Invariants
//! After each call that returns `Ok`, the extents in memory, the records on disk and the extent counters agree. After
//! an error in the middle of a change the transaction must be dropped, which shuts the volume down.
//!
//! # Locking
//! The inode's lock protects the whole fork. Blocks of its btree have rank `Fork`. A transaction that changes the fork
//! has some of them locked until it ends: lookups within it get the transaction, to read these blocks through it.

pub mod deferred;
mod load;
mod lookup;
pub(crate) mod root;
mod tree;

use std::ops::{Range, RangeInclusive};

use base::{FileBlock, FsBlock, errno};
use error::{Error, Result};
use format::Geometry;
use format::damage::Place;
use format::extent::{Extent, MAX_EXTENT_BLOCKS, RawExtent};
use format::inode::ForkKind;
use format::ondisk::OnDisk;
use journal::engine::Transaction;

#[cfg(doc)]
use crate::extents::ExtentLimits;
use crate::extents::Splice;
use crate::shared::Shared;
use crate::space::{BlockRequest, BlockRun, ForkOwner, SpaceAllocator};
use crate::state::{ForkFormat, InodeState};

const NOT_LOADED: Error = Error::Refused { errno: errno::EINVAL, why: "the fork has no extents in memory" };
pub(crate) const TOO_MANY: Error =
    Error::Refused { errno: errno::EFBIG, why: "the file has the maximum number of extents" };
/// A read without locks needs what is not in memory, or is being changed. Never returned to users.
pub(crate) const NOT_IN_MEMORY: Error =
    Error::Refused { errno: errno::EIO, why: "the file must be locked to be read" };
const NOT_A_MAP: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "the fork has its contents in the inode: it cannot map blocks",
};
pub(crate) const NOT_LOCKED: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "an inode whose extent map changes is not locked at the commit",
};
const WRONG_RANGE: Error =
    Error::Refused { errno: errno::EINVAL, why: "the range is not mapped as the change requires" };

/// The most blocks that a change of the extent map allocates: one for each level and a new root.
pub const MAX_MAP_TREE_BLOCKS: u32 = 10;

/// The reserved blocks that are left after allocations for an inode that had `before` blocks.
pub(crate) fn reserved_left(reserved: u32, before: u64, state: &InodeState) -> u32 {
    let taken = state.nblocks().saturating_sub(before);
    reserved.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX))
}

/// A fork of a locked inode.
#[derive(Debug)]
pub struct Fork<'a> {
    shared: &'a Shared,
    state: &'a mut InodeState,
    kind: ForkKind,
    /// Merge extents with their neighbours: see [`joining`](Self::joining).
    joins: bool,
}

impl<'a> Fork<'a> {
    /// Opens a fork. Decodes and verifies extents that are in the inode, unless they are in memory already. Those of a
    /// btree are read when a call needs them.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    #[inline]
    pub fn open(shared: &'a Shared, state: &'a mut InodeState, kind: ForkKind) -> Result<Self> {
        let ino = state.ino();
        state
            .load_inline_extents(kind, &shared.geometry)
            .map_err(|damage| Error::damaged(Place::ino(ino), damage))?;
        Ok(Self { shared, state, kind, joins: true })
    }

    fn geometry(&self) -> &'a Geometry {
        &self.shared.geometry
    }

    /// Sets whether [`map`](Self::map) and [`mark`](Self::mark) may reduce the number of records by merging neighbours;
    /// by default they do. Otherwise no block of the btree is freed, which another operation could allocate before the
    /// btree needs it again.
    pub fn joining(&mut self, joins: bool) -> &mut Self {
        self.joins = joins;
        self
    }

    /// Number of extents.
    pub fn extent_count(&self) -> u64 {
        self.state.extent_count(self.kind)
    }

    /// Whether the fork has a format that maps blocks.
    pub fn has_extents(&self) -> bool {
        matches!(self.state.fork_format(self.kind), Some(ForkFormat::Extents | ForkFormat::Btree))
    }

    fn owner(&self, tree: bool) -> ForkOwner {
        ForkOwner { ino: self.state.ino(), fork: self.kind, tree }
    }

    /// Allocates `count` contiguous blocks, near those of the neighbouring extents, and maps them at `at`, which
    /// must be a hole.
    ///
    /// # Errors
    /// As [`take`](Self::take) and [`map`](Self::map).
    pub fn allocate(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        at: FileBlock,
        count: RangeInclusive<u32>,
        unwritten: bool,
    ) -> Result<Extent> {
        let run = self.take(tx, space, at, count)?;
        let extent = Extent { offset: at, start: run.start, count: run.count.into(), unwritten };
        self.map(tx, space, extent)?;
        Ok(extent)
    }

    /// Allocates `count` contiguous blocks for a hole, near those of the neighbouring extents. The caller maps
    /// them next.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with the fork unchanged; damage.
    pub fn take(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        at: FileBlock,
        count: RangeInclusive<u32>,
    ) -> Result<BlockRun> {
        let (min, max) = count.into_inner();
        let max = max.min(MAX_EXTENT_BLOCKS as u32).max(min);
        let near = self.near(Some(tx), at)?;
        space.allocate(tx, self.owner(false), BlockRequest { near, max, min, align: 1 })
    }

    /// Maps a hole to blocks that were allocated for it or unmapped elsewhere.
    ///
    /// # Errors
    /// `EINVAL` if the range is not a hole, `EFBIG` if the extent counter is full; damage.
    pub fn map(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        extent: Extent,
    ) -> Result<()> {
        let keep = !self.joins;
        let list = self.around(Some(tx), extent.offset, 1, 1)?;
        let splice = list.splice_insert(extent, keep).ok_or(WRONG_RANGE)?;
        self.splice(tx, space, &splice)?;
        self.state.change_nblocks(extent.count as i64); // at most 21 bits
        space.mapped(tx, self.owner(false), &extent)
    }

    /// Unmaps the last extent of a range, clipped to the range, and returns it. Its blocks stay allocated. Returns
    /// `None` if the range is a hole.
    ///
    /// # Errors
    /// Damage; [`Error::NoSpace`] for a block of the btree.
    pub fn unmap(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        Range { start: from, end: to }: Range<FileBlock>,
    ) -> Result<Option<Extent>> {
        let Some(last) = self.last_in(Some(tx), from, to)? else { return Ok(None) };
        let list = self.around(Some(tx), last.offset, 1, 1)?;
        let (splice, unmapped) = list.splice_remove(last.offset, last.end()).ok_or(WRONG_RANGE)?;
        self.splice(tx, space, &splice)?;
        self.state.change_nblocks(-(unmapped.count as i64)); // at most 21 bits
        space.unmapped(tx, self.owner(false), &unmapped)?;
        Ok(Some(unmapped))
    }

    /// Unmaps a range within one extent, and frees its blocks. `shared` if other files may share them.
    ///
    /// # Errors
    /// `EINVAL` if the range is not within one extent; damage.
    pub fn free(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        Range { start: from, end: to }: Range<FileBlock>,
        shared: bool,
    ) -> Result<Extent> {
        let list = self.around(Some(tx), from, 1, 1)?;
        let (splice, unmapped) = list.splice_remove(from, to).ok_or(WRONG_RANGE)?;
        self.splice(tx, space, &splice)?;
        self.state.change_nblocks(-(unmapped.count as i64)); // at most 21 bits
        space.release(tx, self.owner(false), &unmapped, shared)?;
        Ok(unmapped)
    }

    /// Maps a range within one extent to other, written blocks from `start` on, and frees the old blocks. `shared` if
    /// other files may share the old blocks. Removes no record.
    ///
    /// # Errors
    /// `EINVAL` if the range is not within one extent; [`Error::NoSpace`] for a block of the btree; damage; I/O errors.
    pub fn replace(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        Range { start: from, end: to }: Range<FileBlock>,
        start: FsBlock,
        shared: bool,
    ) -> Result<()> {
        let list = self.around(Some(tx), from, 1, 1)?;
        let (splice, replaced) = list.splice_replace(from, to, start).ok_or(WRONG_RANGE)?;
        self.splice(tx, space, &splice)?;
        space.release(tx, self.owner(false), &replaced, shared)?;
        space.mapped(tx, self.owner(false), &Extent { start, unwritten: false, ..replaced })
    }

    /// Marks a range within one extent as written or unwritten.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn mark(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        Range { start: from, end: to }: Range<FileBlock>,
        unwritten: bool,
    ) -> Result<()> {
        let keep = !self.joins;
        let list = self.around(Some(tx), from, 1, 1)?;
        let old = list.find(from).filter(|old| to <= old.end() && from < to).ok_or(WRONG_RANGE)?;
        let Some(splice) = list.splice_mark(from, to, unwritten, keep) else { return Ok(()) };
        self.splice(tx, space, &splice)?;
        let skip = from.get() - old.offset.get();
        let start = (old.start.get() + skip).into();
        let marked = Extent { offset: from, start, count: to.get() - from.get(), unwritten };
        space.marked(tx, self.owner(false), &marked)
    }

    /// Moves the extent that begins at file block `from` to `to`, between the same neighbours. Its record keeps its
    /// place, so the btree allocates no blocks.
    ///
    /// # Errors
    /// `EINVAL` if no extent begins at `from`, or if it does not fit between its neighbours; damage.
    pub fn shift(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<()> {
        let list = self.around(Some(tx), from, 1, 1)?;
        let old = list.find(from).ok_or(WRONG_RANGE)?;
        let splice = list.splice_move(from, to).ok_or(WRONG_RANGE)?;
        self.splice(tx, space, &splice)?;
        space.unmapped(tx, self.owner(false), &old)?;
        space.mapped(tx, self.owner(false), &Extent { offset: to, ..old })
    }

    /// Divides an extent into two records at a file block within it.
    ///
    /// # Errors
    /// `EINVAL` if there is no such extent; `EFBIG` if the extent counter is full; damage; [`Error::NoSpace`] for a
    /// block of the btree.
    pub fn split(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        at: FileBlock,
    ) -> Result<()> {
        let splice = self.around(Some(tx), at, 1, 1)?.splice_split(at).ok_or(WRONG_RANGE)?;
        self.splice(tx, space, &splice)
    }

    /// Reduces the space that the fork uses in the inode to at most `bytes`: a list of extents becomes a btree, and a
    /// large root moves to a block below a root with one entry.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; damage.
    pub(crate) fn shrink_inline(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        bytes: usize,
    ) -> Result<()> {
        match self.state.fork_format(self.kind) {
            Some(ForkFormat::Extents) if self.extent_count() > (bytes / RawExtent::SIZE) as u64 => {
                self.list_to_tree(tx, space)
            }
            Some(ForkFormat::Btree) => self.push_root_down(tx, space, bytes),
            _ => Ok(()),
        }
    }

    /// Applies a splice in memory and on disk, and converts the fork to another format if necessary.
    fn splice(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        splice: &Splice,
    ) -> Result<()> {
        let format = self.state.fork_format(self.kind);
        if !matches!(format, Some(ForkFormat::Extents | ForkFormat::Btree)) {
            return Err(NOT_A_MAP);
        }
        let count = (self.extent_count() + splice.new.len() as u64).saturating_sub(splice.old.len() as u64);
        if !self.state.set_extent_count(self.kind, count) {
            return Err(TOO_MANY);
        }
        if !self.state.splice_extents(self.kind, splice, self.shared.extent_limits) {
            return Err(NOT_LOADED);
        }
        let fits = count <= self.state.inline_extents_max(self.kind) as u64;
        match (format, fits) {
            (Some(ForkFormat::Btree), fits) => {
                self.splice_tree(tx, space, splice)?;
                if fits {
                    return self.tree_to_list(tx, space);
                }
            }
            (_, true) => {
                self.state.store_inline_extents(self.kind, splice.at);
                return Ok(());
            }
            (_, false) => self.list_to_tree(tx, space)?,
        }
        if count > self.whole_max() {
            self.state.narrow_extents(self.kind, splice.at, self.shared.extent_limits);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod window_tests;
