//! What the map of a fork has at and around a block.
//!
//! Each lookup gets the transaction that may have changed the fork, or `None` without one.

use std::ops::Range;

use base::{FileBlock, FsBlock};
use error::Result;
use format::extent::{Extent, MAX_FILE_BLOCKS};
use journal::engine::Transaction;

use super::load::MapTree;
use super::{Fork, MAX_MAP_TREE_BLOCKS, NOT_LOADED};
use crate::extents::{ExtentList, ExtentOrHole, LoadedExtents};
use crate::state::ForkFormat;

/// The most extents that one transaction changes or looks at next to each other, with a neighbour.
const CHANGED_AT_ONCE: usize = 4;

/// The most that one splice reduces the number of records by, and one more.
const SPLICE: usize = 3;

impl Fork<'_> {
    /// The extent that contains `at`, or the first one after it.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn next(&mut self, tx: Option<&mut Transaction>, at: FileBlock) -> Result<Option<Extent>> {
        let list = self.around(tx, at, 0, 0)?;
        Ok(list.get(list.index_at(at)))
    }

    /// The extent that contains `at`.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn find(&mut self, tx: Option<&mut Transaction>, at: FileBlock) -> Result<Option<Extent>> {
        Ok(self.around(tx, at, 0, 0)?.find(at))
    }

    /// The disk block of `at`, and the number of blocks from there to the end of the extent.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn locate(&mut self, tx: Option<&mut Transaction>, at: FileBlock) -> Result<Option<(FsBlock, u64)>> {
        Ok(self.around(tx, at, 0, 0)?.map(at))
    }

    /// The first part of `from..to` that is within one extent or one hole.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn piece(
        &mut self,
        tx: Option<&mut Transaction>,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<ExtentOrHole> {
        Ok(self.around(tx, from, 0, 0)?.piece(from, to))
    }

    /// The first pieces of a range, at most `max` of them mapped, and the block after them.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn pieces(
        &mut self,
        mut tx: Option<&mut Transaction>,
        Range { start: from, end: to }: Range<FileBlock>,
        max: usize,
    ) -> Result<(Vec<ExtentOrHole>, FileBlock)> {
        let (mut found, mut at, mut mapped) = (Vec::new(), from, 0);
        while at < to {
            let piece = self.piece(tx.as_deref_mut(), at, to)?;
            mapped += usize::from(piece.mapping.is_some());
            if mapped > max || piece.count == 0 {
                break;
            }
            found.push(piece);
            at = piece.range().end;
        }
        Ok((found, at))
    }

    /// The last extent in `from..to`, clipped to that range.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn last_in(
        &mut self,
        tx: Option<&mut Transaction>,
        from: FileBlock,
        to: FileBlock,
    ) -> Result<Option<Extent>> {
        let Some(last) = to.get().checked_sub(1) else { return Ok(None) };
        Ok(self.around(tx, FileBlock(last), 0, 0)?.last_in(from, to))
    }

    /// End of the last extent; 0 without extents.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn end(&mut self, tx: Option<&mut Transaction>) -> Result<FileBlock> {
        let last = self.last_in(tx, FileBlock(0), FileBlock(MAX_FILE_BLOCKS))?;
        Ok(last.map_or(FileBlock(0), |last| last.end()))
    }

    /// The preferred disk block for a block of a hole: see [`ExtentList::near`].
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn near(&mut self, tx: Option<&mut Transaction>, at: FileBlock) -> Result<Option<FsBlock>> {
        Ok(self.around(tx, at, 1, 0)?.near(at))
    }

    /// The first file block at or after `from` where a hole of `count` blocks begins.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn first_hole(
        &mut self,
        mut tx: Option<&mut Transaction>,
        from: FileBlock,
        count: u64,
    ) -> Result<FileBlock> {
        let mut at = from;
        loop {
            let list = self.around(tx.as_deref_mut(), at, 0, 0)?;
            let (found, end) = (list.first_hole(at, count), list.end());
            // What follows the list may be no hole.
            if found < end || self.state.loaded(self.kind).is_some_and(LoadedExtents::has_last) {
                return Ok(found);
            }
            at = end;
        }
    }

    /// All extents, one by one.
    #[cfg(test)]
    pub(crate) fn all(&mut self) -> Vec<Extent> {
        let mut at = FileBlock(0);
        let next = || self.next(None, at).unwrap().inspect(|extent| at = extent.end());
        std::iter::from_fn(next).collect()
    }

    /// Whether a range can be unmapped with `reserved` blocks for the btree, and within the extent counter, after
    /// `earlier` others of the same change, each of which may leave one more extent.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub(crate) fn can_unmap(
        &mut self,
        tx: Option<&mut Transaction>,
        range: Range<FileBlock>,
        reserved: u32,
        earlier: usize,
    ) -> Result<bool> {
        // Unmapping the middle of an extent leaves two extents.
        let old = self.find(tx, range.start)?;
        let is_middle = old.is_some_and(|old| old.offset < range.start && range.end < old.end());
        let fits = || {
            self.state.fork_format(self.kind) == Some(ForkFormat::Extents)
                && self.extent_count() as usize + earlier < self.state.inline_extents_max(self.kind)
        };
        Ok(!is_middle
            || self.state.check_extent_count(self.kind, 1 + earlier).is_ok()
                && (reserved >= MAX_MAP_TREE_BLOCKS || fits()))
    }

    /// Reads the extents around a block, if they are not in memory: as many as a transaction at that place uses. A
    /// caller does this before it changes anything, so that damage there refuses the change.
    ///
    /// # Errors
    /// Damage; I/O errors.
    pub fn load(&mut self, tx: Option<&mut Transaction>, at: FileBlock) -> Result<()> {
        self.around(tx, at, CHANGED_AT_ONCE, CHANGED_AT_ONCE).map(drop)
    }

    /// A list that has the extents around a block: see [`InodeState::extents_around`].
    ///
    /// [`InodeState::extents_around`]: crate::state::InodeState::extents_around
    ///
    /// # Errors
    /// Damage; I/O errors.
    #[inline]
    pub(crate) fn around(
        &mut self,
        tx: Option<&mut Transaction>,
        at: FileBlock,
        before: usize,
        after: usize,
    ) -> Result<&ExtentList> {
        if self.state.list(self.kind).is_none() {
            self.load_window(tx, at, before, after)?;
        }
        self.state.extents_around(self.kind, at, before, after).ok_or(NOT_LOADED)
    }

    #[cold]
    fn load_window(
        &mut self,
        tx: Option<&mut Transaction>,
        at: FileBlock,
        before: usize,
        after: usize,
    ) -> Result<()> {
        let count = self.extent_count();
        let loaded = self.state.loaded(self.kind);
        // A window is given up for the whole map only when that is much smaller than it may be, so that a map does not
        // change from one to the other again and again.
        let most = if loaded.is_some() { self.window_min() } else { self.whole_max() };
        if count > most && self.state.extents_around(self.kind, at, before, after).is_some() {
            return Ok(());
        }
        let mut tree = MapTree { shared: self.shared, state: &*self.state, kind: self.kind, tx };
        let extents = if count <= most {
            LoadedExtents::Whole(tree.all()?)
        } else {
            let side = self.shared.extent_limits.side();
            LoadedExtents::Window(Box::new(tree.around(at, before, after, side)?))
        };
        self.state.set_loaded(self.kind, Some(extents));
        Ok(())
    }

    /// The most extents of a map that is in memory as a whole. Those that fit the inode always are.
    pub(super) fn whole_max(&self) -> u64 {
        self.shared.extent_limits.whole.max(self.least()) as u64
    }

    /// A map of which only a window is in memory has more extents than this.
    fn window_min(&self) -> u64 {
        (self.shared.extent_limits.whole / 2).max(self.least()) as u64
    }

    /// So many extents may fit the inode after a splice, which stores all of them there.
    fn least(&self) -> usize {
        self.state.inline_extents_max(self.kind) + SPLICE
    }
}
