//! The extents of a fork as a list in memory, sorted by file block, and the splices that change it.
//!
//! A change is first computed as a [`Splice`]: the records that it removes and adds at one index. The fork then applies
//! the same splice to the list, to the records in the inode and to the extent btree, so that the three always agree.
//!
//! # Invariants
//! Extents are in ascending order and do not overlap. Neighbours that could be one record need not be merged.

mod loaded;

use base::{FileBlock, FsBlock};
use format::extent::{Extent, MAX_EXTENT_BLOCKS};
pub use loaded::ExtentLimits;
pub(crate) use loaded::{ExtentWindow, LoadedExtents};
use std::ops::Range;

/// Up to three extents, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct SpliceRecords {
    items: [Extent; 3],
    len: usize,
}

const NONE: Extent = Extent { offset: FileBlock(0), start: FsBlock(0), count: 0, unwritten: false };

impl SpliceRecords {
    /// An empty list.
    pub const fn new() -> Self {
        Self { items: [NONE; 3], len: 0 }
    }

    /// Adds an extent. No splice needs a fourth one: it would be ignored.
    fn push(&mut self, extent: Extent) {
        debug_assert!(self.len < self.items.len(), "a splice has at most three records on a side");
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = extent;
            self.len += 1;
        }
    }

    /// Adds an extent unless it is empty.
    fn push_nonempty(&mut self, extent: Extent) {
        if extent.count > 0 {
            self.push(extent);
        }
    }
}

impl Default for SpliceRecords {
    fn default() -> Self {
        Self::new()
    }
}

impl std::ops::Deref for SpliceRecords {
    type Target = [Extent];
    fn deref(&self) -> &[Extent] {
        self.items.get(..self.len).unwrap_or(&[])
    }
}

/// A change of the list: the records `old`, from index `at` on, are replaced by `new`.
#[derive(Clone, Copy, Debug)]
pub struct Splice {
    /// Index of the first old record; without old records, the index where the new ones are inserted.
    pub at: usize,
    /// Removed records.
    pub old: SpliceRecords,
    /// Added records.
    pub new: SpliceRecords,
}

impl Splice {
    /// Whether it reduces the number of records.
    fn removes(&self) -> bool {
        self.old.len() > self.new.len()
    }
}

/// A range of a file that is within one extent or one hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentOrHole {
    /// First file block.
    pub offset: FileBlock,
    /// Length in blocks.
    pub count: u64,
    /// First block, and whether the extent is unwritten; `None` for a hole.
    pub mapping: Option<(FsBlock, bool)>,
}

impl ExtentOrHole {
    /// The range of the file.
    pub fn range(&self) -> Range<FileBlock> {
        self.offset..FileBlock(self.offset.get() + self.count)
    }
}

/// The extents of a fork.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentList {
    items: Vec<Extent>,
}

impl ExtentList {
    /// An empty list.
    pub const fn new() -> Self {
        Self { items: Vec::new() }
    }

    /// Creates a list of extents that are sorted and do not overlap ([`format::inode::verify_extents`]).
    pub fn from_sorted(items: Vec<Extent>) -> Self {
        debug_assert!(items.is_sorted_by(|l, r| l.end() <= r.offset));
        Self { items }
    }

    /// Adds extents before the first one. Returns `false`, with nothing changed, if they are not before it.
    #[must_use]
    pub(crate) fn prepend(&mut self, before: Vec<Extent>) -> bool {
        let end = before.last().map_or(FileBlock(0), Extent::end);
        let fits = self.items.first().is_none_or(|first| end <= first.offset);
        if fits {
            self.items.splice(..0, before);
        }
        fits
    }

    /// Adds extents after the last one. Returns `false`, with nothing changed, if they are not after it.
    #[must_use]
    pub(crate) fn append(&mut self, after: Vec<Extent>) -> bool {
        let fits = after.first().is_none_or(|first| self.end() <= first.offset);
        if fits {
            self.items.extend(after);
        }
        fits
    }

    /// Number of extents.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All extents.
    pub fn as_slice(&self) -> &[Extent] {
        &self.items
    }

    /// The extent at an index.
    pub fn get(&self, index: usize) -> Option<Extent> {
        self.items.get(index).copied()
    }

    /// The last extent.
    pub fn last(&self) -> Option<Extent> {
        self.items.last().copied()
    }

    /// End of the last extent.
    pub fn end(&self) -> FileBlock {
        self.items.last().map_or(FileBlock(0), Extent::end)
    }

    /// Index of the first extent that ends after `block`: the one that contains it, or the first one after the hole.
    pub fn index_at(&self, block: FileBlock) -> usize {
        // Most lookups are at the end: writers append.
        match self.items.last() {
            Some(last) if last.end() <= block => self.items.len(),
            _ => self.items.partition_point(|extent| extent.end() <= block),
        }
    }

    /// The extent that contains `block`.
    pub fn find(&self, block: FileBlock) -> Option<Extent> {
        self.get(self.index_at(block)).filter(|extent| extent.offset <= block)
    }

    /// The disk block of `block`, and the number of blocks from there to the end of the extent.
    pub fn map(&self, block: FileBlock) -> Option<(FsBlock, u64)> {
        let extent = self.find(block)?;
        let skip = block.get() - extent.offset.get();
        Some((FsBlock(extent.start.get() + skip), extent.count - skip))
    }

    /// The first part of `from..to` that is within one extent or one hole.
    pub fn piece(&self, from: FileBlock, to: FileBlock) -> ExtentOrHole {
        match self.get(self.index_at(from)) {
            Some(extent) if extent.offset <= from && from < to => {
                let part = cut(&extent, from, extent.end().min(to));
                let mapping = Some((part.start, part.unwritten));
                ExtentOrHole { offset: from, count: part.count, mapping }
            }
            next => {
                let end = next.map_or(to, |extent| extent.offset.min(to));
                let count = end.get().saturating_sub(from.get());
                ExtentOrHole { offset: from, count, mapping: None }
            }
        }
    }

    /// The last extent in `from..to`, clipped to that range.
    pub fn last_in(&self, from: FileBlock, to: FileBlock) -> Option<Extent> {
        let end = self.items.partition_point(|extent| extent.offset < to);
        let last = self.get(end.checked_sub(1)?).filter(|last| last.end() > from && from < to)?;
        Some(cut(&last, last.offset.max(from), last.end().min(to)))
    }

    /// The preferred disk block for a block of a hole: after the extent to its left, otherwise at the extent to its
    /// right.
    pub fn near(&self, at: FileBlock) -> Option<FsBlock> {
        let index = self.index_at(at);
        let before = index.checked_sub(1).and_then(|before| self.get(before));
        match before {
            Some(before) => Some(FsBlock(before.start.get() + before.count)),
            None => self.get(index).map(|next| next.start),
        }
    }

    /// The first file block at or after `from` where a hole of `count` blocks begins.
    pub fn first_hole(&self, from: FileBlock, count: u64) -> FileBlock {
        let mut at = from;
        for extent in self.items.iter().skip(self.index_at(from)) {
            if extent.offset.get() >= at.get().saturating_add(count) {
                break;
            }
            at = extent.end().max(at);
        }
        at
    }

    /// The splice that maps a hole. Merges the extent with neighbours that are contiguous in the file and on disk, up
    /// to the maximum length of a record. With `keep`, the number of records does not fall: an extent that would merge
    /// with both neighbours merges with none. `None` if the range is empty or partly mapped.
    pub fn splice_insert(&self, extent: Extent, keep: bool) -> Option<Splice> {
        let joined = self.insert(extent, true)?;
        if keep && joined.removes() { self.insert(extent, false) } else { Some(joined) }
    }

    fn insert(&self, extent: Extent, joins: bool) -> Option<Splice> {
        let at = self.index_at(extent.offset);
        let right = self.get(at);
        if extent.count == 0 || right.is_some_and(|right| right.offset < extent.end()) {
            return None;
        }
        let left = at.checked_sub(1).and_then(|before| self.get(before));
        let left = left.filter(|left| joins && continues(left, &extent));
        let mut splice = Splice { at, old: SpliceRecords::new(), new: SpliceRecords::new() };
        let mut joined = extent;
        if let Some(left) = left {
            splice.at -= 1;
            splice.old.push(left);
            joined = Extent { count: left.count + extent.count, ..left };
        }
        if let Some(right) = right.filter(|right| joins && continues(&joined, right)) {
            splice.old.push(right);
            joined.count += right.count;
        }
        splice.new.push(joined);
        Some(splice)
    }

    /// The splice that unmaps `from..to`, which must be within one extent; and the unmapped part.
    pub fn splice_remove(&self, from: FileBlock, to: FileBlock) -> Option<(Splice, Extent)> {
        let at = self.index_at(from);
        let old = self.get(at).filter(|old| old.offset <= from && to <= old.end() && from < to)?;
        let mut splice = Splice { at, old: SpliceRecords::new(), new: SpliceRecords::new() };
        splice.old.push(old);
        splice.new.push_nonempty(cut(&old, old.offset, from));
        splice.new.push_nonempty(cut(&old, to, old.end()));
        Some((splice, cut(&old, from, to)))
    }

    /// The splice that maps `from..to`, which must be within one extent, to other, written blocks from `start` on; and
    /// the replaced part. Removes no record.
    pub fn splice_replace(&self, from: FileBlock, to: FileBlock, start: FsBlock) -> Option<(Splice, Extent)> {
        let (mut splice, gone) = self.splice_remove(from, to)?;
        let old = splice.old.first().copied()?;
        splice.new = SpliceRecords::new();
        splice.new.push_nonempty(cut(&old, old.offset, from));
        splice.new.push(Extent { start, unwritten: false, ..gone });
        splice.new.push_nonempty(cut(&old, to, old.end()));
        Some((splice, gone))
    }

    /// The splice that marks `from..to`, which must be within one extent, as written or unwritten. Merges with
    /// neighbours like [`splice_insert`](Self::splice_insert). `None` also if the range already has this state.
    pub fn splice_mark(&self, from: FileBlock, to: FileBlock, unwritten: bool, keep: bool) -> Option<Splice> {
        let joined = self.mark(from, to, unwritten, true)?;
        if keep && joined.removes() { self.mark(from, to, unwritten, false) } else { Some(joined) }
    }

    fn mark(&self, from: FileBlock, to: FileBlock, unwritten: bool, joins: bool) -> Option<Splice> {
        let at = self.index_at(from);
        let old = self.get(at).filter(|old| old.offset <= from && to <= old.end() && from < to)?;
        if old.unwritten == unwritten {
            return None;
        }
        let mut middle = Extent { unwritten, ..cut(&old, from, to) };
        let mut splice = Splice { at, old: SpliceRecords::new(), new: SpliceRecords::new() };
        let left = at.checked_sub(1).and_then(|before| self.get(before));
        if let Some(left) = left.filter(|left| joins && from == old.offset && continues(left, &middle)) {
            splice.at -= 1;
            splice.old.push(left);
            middle = Extent { count: left.count + middle.count, ..left };
        }
        splice.old.push(old);
        splice.new.push_nonempty(cut(&old, old.offset, from));
        let right = self.get(at + 1).filter(|right| joins && to == old.end() && continues(&middle, right));
        if let Some(right) = right {
            splice.old.push(right);
            middle.count += right.count;
        }
        splice.new.push(middle);
        splice.new.push_nonempty(cut(&old, to, old.end()));
        Some(splice)
    }

    /// The splice that moves the extent that begins at `from` to `to`, between the same neighbours. Merges it with the
    /// extent before it if possible. `None` if it does not fit, or no extent begins at `from`.
    pub fn splice_move(&self, from: FileBlock, to: FileBlock) -> Option<Splice> {
        let at = self.index_at(from);
        let old = self.get(at).filter(|old| old.offset == from)?;
        let mut moved = Extent { offset: to, ..old };
        let left = at.checked_sub(1).and_then(|before| self.get(before));
        let right = self.get(at + 1);
        if left.is_some_and(|left| to < left.end()) || right.is_some_and(|right| right.offset < moved.end()) {
            return None;
        }
        let mut splice = Splice { at, old: SpliceRecords::new(), new: SpliceRecords::new() };
        if let Some(left) = left.filter(|left| continues(left, &moved)) {
            splice.at -= 1;
            splice.old.push(left);
            moved = Extent { count: left.count + moved.count, ..left };
        }
        splice.old.push(old);
        splice.new.push(moved);
        Some(splice)
    }

    /// The splice that divides the extent that contains `block` at that block. `None` if there is no such extent, or if
    /// it begins there.
    pub fn splice_split(&self, block: FileBlock) -> Option<Splice> {
        let at = self.index_at(block);
        let old = self.get(at).filter(|old| old.offset < block)?;
        let mut splice = Splice { at, old: SpliceRecords::new(), new: SpliceRecords::new() };
        splice.old.push(old);
        splice.new.push(cut(&old, old.offset, block));
        splice.new.push(cut(&old, block, old.end()));
        Some(splice)
    }

    /// Applies a splice that was computed from this list.
    pub fn apply(&mut self, splice: &Splice) {
        let end = (splice.at + splice.old.len()).min(self.items.len());
        let start = splice.at.min(end);
        debug_assert_eq!(self.items.get(start..end), Some(&*splice.old), "a splice of another list");
        if let (Some(target), true) = (self.items.get_mut(start..end), splice.old.len() == splice.new.len()) {
            target.copy_from_slice(&splice.new);
            return;
        }
        self.items.splice(start..end, splice.new.iter().copied());
    }
}

/// Whether two extents are contiguous in the file and on disk, and fit one record.
fn continues(left: &Extent, right: &Extent) -> bool {
    left.end() == right.offset
        && left.start.get() + left.count == right.start.get()
        && left.unwritten == right.unwritten
        && left.count + right.count <= MAX_EXTENT_BLOCKS
}

/// The part `from..to` of an extent.
fn cut(extent: &Extent, from: FileBlock, to: FileBlock) -> Extent {
    Extent {
        offset: from,
        start: FsBlock(extent.start.get() + (from.get() - extent.offset.get())),
        count: to.get() - from.get(),
        unwritten: extent.unwritten,
    }
}

#[cfg(test)]
mod tests;
