//! A fork's extents as a list in memory, sorted by logical block, and the splices that change it.
//!
//! A change is computed first, as a [`Splice`]: which records go and which come, at one place of the list. The fork
//! applies the same splice to the list, to the records in the inode, and to the fork's tree, so that the three cannot
//! tell different stories.
//!
//! # Invariants
//! Extents do not overlap and ascend. Whether neighbours that could be one are one is the writer's choice: what was
//! read from a disk need not be merged.

use base::{FileBlock, FsBlock};
use format::extent::{Extent, MAX_EXTENT_BLOCKS};

/// Up to three extents, without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct SpliceRecords {
    items: [Extent; 3],
    len: usize,
}

const NONE: Extent = Extent { offset: FileBlock(0), start: FsBlock(0), count: 0, unwritten: false };

impl SpliceRecords {
    /// None yet.
    pub const fn new() -> Self {
        Self { items: [NONE; 3], len: 0 }
    }

    /// Adds one; a fourth is not taken, which no splice needs.
    fn push(&mut self, extent: Extent) {
        debug_assert!(self.len < self.items.len(), "a splice has at most three records on a side");
        if let Some(slot) = self.items.get_mut(self.len) {
            *slot = extent;
            self.len += 1;
        }
    }

    /// Adds one unless it is empty.
    fn push_some(&mut self, extent: Extent) {
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

/// A change of the list at one place: the records `old` from index `at` on become `new`.
#[derive(Clone, Copy, Debug)]
pub struct Splice {
    /// Index of the first record that goes, or before which the new ones come.
    pub at: usize,
    /// What goes.
    pub old: SpliceRecords,
    /// What comes.
    pub new: SpliceRecords,
}

impl Splice {
    /// Whether there are fewer records afterwards.
    fn removes(&self) -> bool {
        self.old.len() > self.new.len()
    }
}

/// The beginning of a range of a file: all of it in one extent, or in none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentOrHole {
    /// Blocks.
    pub count: u64,
    /// Where they lie, and whether they are unwritten; `None` for a hole.
    pub mapping: Option<(FsBlock, bool)>,
}

/// The extents of a fork in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentList {
    items: Vec<Extent>,
}

impl ExtentList {
    /// No extents.
    pub const fn new() -> Self {
        Self { items: Vec::new() }
    }

    /// From extents that are sorted and do not overlap, as [`format::inode::verify_extents`] has found.
    pub fn from_sorted(items: Vec<Extent>) -> Self {
        debug_assert!(items.is_sorted_by(|l, r| l.end() <= r.offset));
        Self { items }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All in order.
    pub fn as_slice(&self) -> &[Extent] {
        &self.items
    }

    /// The one with this index.
    pub fn get(&self, index: usize) -> Option<Extent> {
        self.items.get(index).copied()
    }

    /// The last.
    pub fn last(&self) -> Option<Extent> {
        self.items.last().copied()
    }

    /// The logical block behind the last mapped one.
    pub fn end(&self) -> FileBlock {
        self.items.last().map_or(FileBlock(0), Extent::end)
    }

    /// Index of the first extent that ends behind `block`: the one that holds it, or the next after the hole.
    pub fn index_at(&self, block: FileBlock) -> usize {
        // Appending and looking at the end are what writers do most.
        match self.items.last() {
            Some(last) if last.end() <= block => self.items.len(),
            _ => self.items.partition_point(|extent| extent.end() <= block),
        }
    }

    /// The extent that maps `block`.
    pub fn find(&self, block: FileBlock) -> Option<Extent> {
        self.get(self.index_at(block)).filter(|extent| extent.offset <= block)
    }

    /// Where `block` lies on the disk, and for how many blocks from there on the mapping goes on.
    pub fn map(&self, block: FileBlock) -> Option<(FsBlock, u64)> {
        let extent = self.find(block)?;
        let skip = block.get() - extent.offset.get();
        Some((FsBlock(extent.start.get() + skip), extent.count - skip))
    }

    /// What `from..to` begins with: how many of its blocks one extent maps or one hole leaves out, and the mapping.
    pub fn piece(&self, from: FileBlock, to: FileBlock) -> ExtentOrHole {
        match self.get(self.index_at(from)) {
            Some(extent) if extent.offset <= from && from < to => {
                let part = cut(&extent, from, extent.end().min(to));
                ExtentOrHole { count: part.count, mapping: Some((part.start, part.unwritten)) }
            }
            Some(extent) => {
                ExtentOrHole { count: extent.offset.min(to).get().saturating_sub(from.get()), mapping: None }
            }
            None => ExtentOrHole { count: to.get().saturating_sub(from.get()), mapping: None },
        }
    }

    /// The last extent of `from..to`, or the part of it that lies there.
    pub fn last_in(&self, from: FileBlock, to: FileBlock) -> Option<Extent> {
        let behind = self.items.partition_point(|extent| extent.offset < to);
        let last = self.get(behind.checked_sub(1)?).filter(|last| last.end() > from && from < to)?;
        Some(cut(&last, last.offset.max(from), last.end().min(to)))
    }

    /// The disk block that is best for a block of a hole: behind its neighbour on the left, else at that on the right.
    pub fn near(&self, at: FileBlock) -> Option<FsBlock> {
        let index = self.index_at(at);
        let before = index.checked_sub(1).and_then(|before| self.get(before));
        match before {
            Some(before) => Some(FsBlock(before.start.get() + before.count)),
            None => self.get(index).map(|behind| behind.start),
        }
    }

    /// The first logical block at or behind `from` that starts a hole of `count` blocks.
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

    /// The change that maps a hole: joined with the neighbours that continue it on both disk and file, as far as one
    /// record can hold. With `keep`, no record goes: where the change would join both neighbours, it joins none.
    /// `None` where part of the range is mapped already, or it is empty.
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

    /// The change that unmaps `from..to`, which one extent must map whole. Also what is unmapped.
    pub fn splice_remove(&self, from: FileBlock, to: FileBlock) -> Option<(Splice, Extent)> {
        let at = self.index_at(from);
        let old = self.get(at).filter(|old| old.offset <= from && to <= old.end() && from < to)?;
        let mut splice = Splice { at, old: SpliceRecords::new(), new: SpliceRecords::new() };
        splice.old.push(old);
        splice.new.push_some(cut(&old, old.offset, from));
        splice.new.push_some(cut(&old, to, old.end()));
        Some((splice, cut(&old, from, to)))
    }

    /// The change that maps `from..to`, which one extent must map whole, to written blocks from `start` on instead.
    /// No record goes.
    pub fn splice_replace(&self, from: FileBlock, to: FileBlock, start: FsBlock) -> Option<(Splice, Extent)> {
        let (mut splice, gone) = self.splice_remove(from, to)?;
        let old = splice.old.first().copied()?;
        splice.new = SpliceRecords::new();
        splice.new.push_some(cut(&old, old.offset, from));
        splice.new.push(Extent { start, unwritten: false, ..gone });
        splice.new.push_some(cut(&old, to, old.end()));
        Some((splice, gone))
    }

    /// The change that marks `from..to`, which one extent must map whole, as written or unwritten; joined with
    /// neighbours where possible. With `keep`, no record goes. `None` also where it is so already.
    pub fn splice_mark(
        &self,
        (from, to): (FileBlock, FileBlock),
        unwritten: bool,
        keep: bool,
    ) -> Option<Splice> {
        let joined = self.mark((from, to), unwritten, true)?;
        if keep && joined.removes() { self.mark((from, to), unwritten, false) } else { Some(joined) }
    }

    fn mark(&self, (from, to): (FileBlock, FileBlock), unwritten: bool, joins: bool) -> Option<Splice> {
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
        splice.new.push_some(cut(&old, old.offset, from));
        let right = self.get(at + 1).filter(|right| joins && to == old.end() && continues(&middle, right));
        if let Some(right) = right {
            splice.old.push(right);
            middle.count += right.count;
        }
        splice.new.push(middle);
        splice.new.push_some(cut(&old, to, old.end()));
        Some(splice)
    }

    /// The change by which the extent that begins at `from` begins at `to`, between the same neighbours; joined with
    /// the one before it where possible. `None` where it would not fit there, or there is no such extent.
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

    /// The change that makes two records of the extent that `block` lies within. `None` where there is none, or one
    /// begins there.
    pub fn splice_split(&self, block: FileBlock) -> Option<Splice> {
        let at = self.index_at(block);
        let old = self.get(at).filter(|old| old.offset < block)?;
        let mut splice = Splice { at, old: SpliceRecords::new(), new: SpliceRecords::new() };
        splice.old.push(old);
        splice.new.push(cut(&old, old.offset, block));
        splice.new.push(cut(&old, block, old.end()));
        Some(splice)
    }

    /// Makes a change that was computed from this very list.
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

/// Whether `right` goes on where `left` ends, in the file and on the disk, and one record can hold both.
fn continues(left: &Extent, right: &Extent) -> bool {
    left.end() == right.offset
        && left.start.get() + left.count == right.start.get()
        && left.unwritten == right.unwritten
        && left.count + right.count <= MAX_EXTENT_BLOCKS
}

/// The part of `extent` from `from` to `to`, which lie within it.
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
