//! A fork: which logical blocks of a file lie where, in the form that their number asks for.
//!
//! | part | does |
//! |---|---|
//! | [`Fork`] | maps, unmaps, marks; changes the form where the extents no longer fit it |
//! | [`deferred`] | the same after a transaction, behind an intent |
//! | `load` | reads the extents of a tree |
//! | `root` | the root of that tree, as it lies in the inode |
//! | `tree` | the tree of extents whose root lies in the inode |
//!
//! A fork begins as a list of extents in the inode. When that is full, it becomes a tree; when a tree's extents fit the
//! inode again, it goes back at once, as a tree that could be a list is damage to other readers.
//!
//! # Invariants
//! The list in memory, the records on disk and the counters in the core tell the same after each call that returns
//! `Ok`. After an error in the middle of a change the transaction must be given up, which shuts the volume down.
//!
//! # Locking
//! The inode's lock protects all of a fork. Blocks of its tree have rank `Fork`.

pub mod deferred;
mod load;
pub(crate) mod root;
mod tree;

use base::{FileBlock, FsBlock, errno};
use error::Error;
use format::Geometry;
use format::damage::Place;
use format::extent::{Extent, MAX_EXTENT_BLOCKS, RawExtent};
use format::inode::ForkKind;
use format::ondisk::OnDisk;
use journal::engine::Transaction;

use crate::extents::{ExtentList, Splice};
use crate::shared::Shared;
use crate::space::{BlockRequest, BlockRun, ForkOwner, SpaceAllocator};
use crate::state::{ForkFormat, InodeState};

const NOT_LOADED: Error = Error::Refused { errno: errno::EINVAL, why: "the fork has no extents in memory" };
pub(crate) const TOO_MANY: Error =
    Error::Refused { errno: errno::EFBIG, why: "the file has as many extents as its counter can tell" };
const NOT_A_MAP: Error =
    Error::Refused { errno: errno::EINVAL, why: "the fork holds its contents itself: it cannot map blocks" };
pub(crate) const NOT_LOCKED: Error = Error::Refused {
    errno: errno::EINVAL,
    why: "an inode whose map is to change is not locked at the commit",
};
const TAKEN: Error = Error::Refused { errno: errno::EINVAL, why: "the range is mapped already, or is not" };

/// A fork of a locked inode, with its extents in memory.
#[derive(Debug)]
pub struct Fork<'a> {
    geometry: &'a Geometry,
    state: &'a mut InodeState,
    kind: ForkKind,
    /// See [`joining`](Self::joining).
    joins: bool,
}

impl<'a> Fork<'a> {
    /// Reads and verifies the extents, unless they are in memory.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Device`].
    ///
    /// # Locking
    /// Locks blocks of the tree one by one: the caller's transaction must not hold any, which it cannot where it has
    /// not opened this fork before.
    pub fn open(shared: &'a Shared, state: &'a mut InodeState, kind: ForkKind) -> Result<Self, Error> {
        let geometry = &shared.geometry;
        let place = Place::ino(state.ino());
        if !state.load_inline_extents(kind, geometry).map_err(|damage| Error::damaged(place, damage))? {
            let list = load::read_tree(shared, state, kind)?;
            state.set_list(kind, Some(list));
        }
        Ok(Self { geometry, state, kind, joins: true })
    }

    /// Whether [`map`](Self::map) and [`mark`](Self::mark) may take records away by joining neighbours, as they do
    /// unless told otherwise. Where they may not, no block of the tree becomes free, which others could take before the
    /// tree needs it again.
    pub fn joining(&mut self, joins: bool) -> &mut Self {
        self.joins = joins;
        self
    }

    /// The extents in order.
    pub fn list(&self) -> &ExtentList {
        const EMPTY: &ExtentList = &ExtentList::new();
        self.state.list(self.kind).unwrap_or(EMPTY)
    }

    /// Whether it is of a form that maps blocks, be it none.
    pub fn has_extents(&self) -> bool {
        matches!(self.state.fork_format(self.kind), Some(ForkFormat::Extents | ForkFormat::Btree))
    }

    /// The inode.
    pub fn state(&mut self) -> &mut InodeState {
        self.state
    }

    fn owner(&self, tree: bool) -> ForkOwner {
        ForkOwner { ino: self.state.ino(), fork: self.kind, tree }
    }

    /// Allocates `least` to `most` blocks in one piece, as near to their neighbours as possible, and maps them at `at`,
    /// where a hole must be.
    ///
    /// # Errors
    /// As [`take`](Self::take) and [`map`](Self::map).
    pub fn allocate(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        at: FileBlock,
        (least, most): (u32, u32),
        unwritten: bool,
    ) -> Result<Extent, Error> {
        let run = self.take(tx, space, at, (least, most))?;
        let extent = Extent { offset: at, start: run.start, count: run.count.into(), unwritten };
        self.map(tx, space, extent)?;
        Ok(extent)
    }

    /// Allocates `least` to `most` blocks in one piece, as near as possible to the neighbours of a hole, which the
    /// caller maps to them next.
    ///
    /// # Errors
    /// [`Error::NoSpace`], with nothing of the fork changed; damage.
    pub fn take(
        &self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        at: FileBlock,
        (least, most): (u32, u32),
    ) -> Result<BlockRun, Error> {
        let most = most.min(MAX_EXTENT_BLOCKS as u32).max(least);
        let near = self.list().near(at);
        space.allocate(tx, self.owner(false), BlockRequest { near, most, least, align: 1 })
    }

    /// Maps a hole to blocks that were allocated for it, or that another range gave up.
    ///
    /// # Errors
    /// `EINVAL` where it is no hole, `EFBIG` where the counter of extents is full; damage.
    pub fn map(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        extent: Extent,
    ) -> Result<(), Error> {
        let splice = self.list().splice_insert(extent, !self.joins).ok_or(TAKEN)?;
        self.splice(tx, space, &splice)?;
        self.state.change_nblocks(extent.count as i64); // at most 21 bits
        space.mapped(tx, self.owner(false), &extent)
    }

    /// Unmaps the last extent of a range, or the part of it that lies there, and gives it. Its blocks stay allocated,
    /// for whoever maps them next. `None` where all of the range is a hole.
    ///
    /// # Errors
    /// Damage; [`Error::NoSpace`] where the tree had to grow.
    pub fn unmap(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        (from, to): (FileBlock, FileBlock),
    ) -> Result<Option<Extent>, Error> {
        let Some(last) = self.list().last_in(from, to) else { return Ok(None) };
        let (splice, gone) = self.list().splice_remove(last.offset, last.end()).ok_or(TAKEN)?;
        self.splice(tx, space, &splice)?;
        self.state.change_nblocks(-(gone.count as i64)); // at most 21 bits
        space.unmapped(tx, self.owner(false), &gone)?;
        Ok(Some(gone))
    }

    /// Unmaps a range that one extent maps whole, and frees its blocks. `shared` where other files may have them, too.
    ///
    /// # Errors
    /// `EINVAL` where one extent does not map the range; damage.
    pub fn free(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        (from, to): (FileBlock, FileBlock),
        shared: bool,
    ) -> Result<Extent, Error> {
        let (splice, gone) = self.list().splice_remove(from, to).ok_or(TAKEN)?;
        self.splice(tx, space, &splice)?;
        self.state.change_nblocks(-(gone.count as i64)); // at most 21 bits
        space.release(tx, self.owner(false), &gone, shared)?;
        Ok(gone)
    }

    /// Maps a range that one extent maps whole to written blocks from `start` on instead, and frees what it mapped.
    /// `shared` where other files may have these blocks, too. Takes no record away.
    ///
    /// # Errors
    /// `EINVAL` where the range is not mapped by one extent; no space for a block of the tree; damage; what reading
    /// reports.
    pub fn replace(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        (from, to): (FileBlock, FileBlock),
        (start, shared): (FsBlock, bool),
    ) -> Result<(), Error> {
        let (splice, gone) = self.list().splice_replace(from, to, start).ok_or(TAKEN)?;
        self.splice(tx, space, &splice)?;
        space.release(tx, self.owner(false), &gone, shared)?;
        space.mapped(tx, self.owner(false), &Extent { start, unwritten: false, ..gone })
    }

    /// Marks a range that one extent maps whole as written or unwritten.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn mark(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        (from, to): (FileBlock, FileBlock),
        unwritten: bool,
    ) -> Result<(), Error> {
        let old = self.list().find(from).filter(|old| to <= old.end() && from < to).ok_or(TAKEN)?;
        let Some(splice) = self.list().splice_mark((from, to), unwritten, !self.joins) else { return Ok(()) };
        self.splice(tx, space, &splice)?;
        let skip = from.get() - old.offset.get();
        let start = (old.start.get() + skip).into();
        let marked = Extent { offset: from, start, count: to.get() - from.get(), unwritten };
        space.marked(tx, self.owner(false), &marked)
    }

    /// Maps what the extent that begins at `from` maps at `to` instead, between the same neighbours. Its record stays
    /// where it is, so the tree takes no blocks.
    ///
    /// # Errors
    /// `EINVAL` where no extent begins there, or it does not fit between its neighbours; damage.
    pub fn shift(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        (from, to): (FileBlock, FileBlock),
    ) -> Result<(), Error> {
        let old = self.list().find(from).ok_or(TAKEN)?;
        let splice = self.list().splice_move(from, to).ok_or(TAKEN)?;
        self.splice(tx, space, &splice)?;
        space.unmapped(tx, self.owner(false), &old)?;
        space.mapped(tx, self.owner(false), &Extent { offset: to, ..old })
    }

    /// Makes two records of an extent that maps blocks on both sides of a border.
    ///
    /// # Errors
    /// `EINVAL` where there is no such extent; `EFBIG` where the counter of extents is full; damage; [`Error::NoSpace`]
    /// where the tree had to grow.
    pub fn split(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        border: FileBlock,
    ) -> Result<(), Error> {
        let splice = self.list().splice_split(border).ok_or(TAKEN)?;
        self.splice(tx, space, &splice)
    }

    /// Makes the fork use no more than so many bytes of the inode, after which its area can be made that small: a list
    /// becomes a tree, a root with many entries one above a single block.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; damage.
    pub(crate) fn make_small(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        bytes: usize,
    ) -> Result<(), Error> {
        match self.state.fork_format(self.kind) {
            Some(ForkFormat::Extents) if self.list().len() * RawExtent::SIZE > bytes => {
                self.list_to_tree(tx, space)
            }
            Some(ForkFormat::Btree) => self.push_root_down(tx, space, bytes),
            _ => Ok(()),
        }
    }

    /// Makes a change in memory and on disk, and changes the form where it must.
    fn splice(
        &mut self,
        tx: &mut Transaction,
        space: &mut dyn SpaceAllocator,
        splice: &Splice,
    ) -> Result<(), Error> {
        let form = self.state.fork_format(self.kind);
        if !matches!(form, Some(ForkFormat::Extents | ForkFormat::Btree)) {
            return Err(NOT_A_MAP);
        }
        let count = (self.list().len() + splice.new.len()).saturating_sub(splice.old.len());
        if !self.state.set_extent_count(self.kind, count as u64) {
            return Err(TOO_MANY);
        }
        self.state.list_mut(self.kind).ok_or(NOT_LOADED)?.apply(splice);
        let fits = count <= self.state.inline_extents_max(self.kind);
        match (form, fits) {
            (Some(ForkFormat::Btree), fits) => {
                self.splice_tree(tx, space, splice)?;
                if fits { self.tree_to_list(tx, space) } else { Ok(()) }
            }
            (_, true) => {
                self.state.store_inline_extents(self.kind, splice.at);
                Ok(())
            }
            (_, false) => self.list_to_tree(tx, space),
        }
    }
}

#[cfg(test)]
mod tests;
