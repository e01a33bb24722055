//! Byte edits within one block or between two neighbours: pure functions. They touch, and so log, only the bytes that
//! change.
//!
//! # Invariants
//! A [`BlockLayout`] fits the bytes that it is used with. Counts are read through [`BlockLayout::count`], which is at
//! most the capacity, so no function here reaches beyond the bytes, whatever they contain.

use std::ops::Range;

use format::btree::Btree;
use format::geometry::Geometry;
use format::ondisk::{OnDisk, U16};

/// Bytes that record which ranges were changed.
pub trait EditBytes {
    /// All bytes.
    fn bytes(&self) -> &[u8];
    /// A range that the caller is about to change.
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8];
}

impl EditBytes for journal::engine::JoinedBuffer {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.bytes_mut(range)
    }
}

/// Offsets and sizes within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// Offset of the entry count.
    count_at: usize,
    /// Offset of the first record or key.
    entries: usize,
    /// Size of a record or key.
    width: usize,
    /// Offset of the first pointer; unused in a leaf.
    pointers: usize,
    /// Size of a pointer; 0 in a leaf.
    pointer_width: usize,
    /// Maximum number of entries.
    max: usize,
}

/// Offset of the entry count in a block header.
const COUNT_AT: usize = 6;
/// Offset of the sibling pointers, left then right.
const SIBLINGS_AT: usize = 8;

impl BlockLayout {
    /// Layout of a leaf.
    pub fn leaf<B: Btree>(geometry: &Geometry) -> Self {
        Self {
            count_at: COUNT_AT,
            entries: B::Header::SIZE,
            width: B::Record::SIZE,
            pointers: 0,
            pointer_width: 0,
            max: B::max_records(geometry),
        }
    }

    /// Layout of a node.
    pub fn node<B: Btree>(geometry: &Geometry) -> Self {
        let max = B::max_keys(geometry);
        Self {
            count_at: COUNT_AT,
            entries: B::Header::SIZE,
            width: B::Key::SIZE,
            pointers: B::Header::SIZE + max * B::Key::SIZE,
            pointer_width: B::Pointer::SIZE,
            max,
        }
    }

    /// Layout of a root in an inode's fork of `bytes` bytes: level and count, then keys and pointers.
    pub fn inline<B: Btree>(bytes: usize) -> Self {
        const HEAD: usize = format::btree::BmapRoot::SIZE;
        let max = bytes.saturating_sub(HEAD) / (B::Key::SIZE + B::Pointer::SIZE);
        Self {
            count_at: 2,
            entries: HEAD,
            width: B::Key::SIZE,
            pointers: HEAD + max * B::Key::SIZE,
            pointer_width: B::Pointer::SIZE,
            max,
        }
    }

    /// Maximum number of entries.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Minimum number of entries of a block that is not the root.
    pub fn min(&self) -> usize {
        self.max / 2
    }

    /// Entries in use, at most [`max`](Self::max).
    #[inline]
    pub fn count(&self, bytes: &[u8]) -> usize {
        let count = bytes.get(self.count_at..).and_then(U16::view).map_or(0, |count| count.get().into());
        self.max.min(count)
    }

    /// Byte range of entries.
    #[inline]
    pub fn entries(&self, slots: Range<usize>) -> Range<usize> {
        self.entries + slots.start * self.width..self.entries + slots.end * self.width
    }

    /// Byte range of pointers.
    #[inline]
    pub fn pointers(&self, slots: Range<usize>) -> Range<usize> {
        self.pointers + slots.start * self.pointer_width..self.pointers + slots.end * self.pointer_width
    }

    /// Records or keys in use.
    #[inline]
    pub fn view<'a, T: OnDisk>(&self, bytes: &'a [u8]) -> &'a [T] {
        bytes.get(self.entries..).and_then(|rest| T::view_array(rest, self.count(bytes))).unwrap_or_default()
    }

    /// Pointers in use.
    #[inline]
    pub fn view_pointers<'a, T: OnDisk>(&self, bytes: &'a [u8]) -> &'a [T] {
        let rest = bytes.get(self.pointers..);
        rest.and_then(|rest| T::view_array(rest, self.count(bytes))).unwrap_or_default()
    }
}

/// Bytes of one entry: a record, or a key with its pointer.
#[derive(Clone, Copy, Debug)]
pub struct BlockEntry<'a> {
    /// Record or key.
    pub body: &'a [u8],
    /// Pointer; empty in a leaf.
    pub pointer: &'a [u8],
}

/// Stores the entry count.
pub fn set_count(edit: &mut dyn EditBytes, layout: &BlockLayout, count: usize) {
    let at = layout.count_at;
    put(edit, at, &(count as u16).to_be_bytes());
}

/// Stores bytes if they differ from the old ones.
fn put(edit: &mut dyn EditBytes, at: usize, new: &[u8]) {
    let range = at..at + new.len();
    if edit.bytes().get(range.clone()) != Some(new) {
        edit.bytes_mut(range).copy_from_slice(new);
    }
}

/// Inserts `new` at the start of `run`, which loses its end.
fn push_front(run: &mut [u8], new: &[u8]) {
    let rest = run.len() - new.len();
    run.copy_within(..rest, new.len());
    run.split_at_mut(new.len()).0.copy_from_slice(new);
}

/// Inserts an entry before `slot`. The block is not full, and `slot` is at most its count.
pub fn insert(edit: &mut dyn EditBytes, layout: &BlockLayout, slot: usize, entry: BlockEntry<'_>) {
    let count = layout.count(edit.bytes());
    debug_assert!(slot <= count && count < layout.max, "an entry at {slot} of {count}");
    push_front(edit.bytes_mut(layout.entries(slot..count + 1)), entry.body);
    if layout.pointer_width > 0 {
        push_front(edit.bytes_mut(layout.pointers(slot..count + 1)), entry.pointer);
    }
    set_count(edit, layout, count + 1);
}

/// Removes the entry at `slot`.
pub fn remove(edit: &mut dyn EditBytes, layout: &BlockLayout, slot: usize) {
    let count = layout.count(edit.bytes());
    debug_assert!(slot < count, "the entry {slot} of {count}");
    let last = count.saturating_sub(1);
    pull(edit, layout.entries(slot..last), layout.width);
    if layout.pointer_width > 0 {
        pull(edit, layout.pointers(slot..last), layout.pointer_width);
    }
    set_count(edit, layout, last);
}

/// Overwrites `range` with the bytes `by` bytes further on. Bytes beyond the range are read, but not written.
fn pull(edit: &mut dyn EditBytes, range: Range<usize>, by: usize) {
    let mut piece = [0; 512];
    for start in range.clone().step_by(piece.len()) {
        let end = range.end.min(start + piece.len());
        let Some(from) = edit.bytes().get(start + by..end + by) else { return };
        let piece = piece.split_at_mut(from.len()).0;
        piece.copy_from_slice(from);
        edit.bytes_mut(start..end).copy_from_slice(piece);
    }
}

/// Replaces the record or key at `slot`; writes only the words from the first to the last that differ.
#[inline]
pub fn replace(edit: &mut (impl EditBytes + ?Sized), layout: &BlockLayout, slot: usize, body: &[u8]) {
    let range = layout.entries(slot..slot + 1);
    let Some(old) = edit.bytes().get(range.clone()) else { return };
    // All fields of records and keys are multiples of four bytes.
    let mut words = old.as_chunks::<4>().0.iter().zip(body.as_chunks::<4>().0);
    let Some(first) = words.position(|(old, new)| old != new) else { return };
    let last = words.rposition(|(old, new)| old != new).map_or(first, |offset| first + 1 + offset);
    if let Some(new) = body.get(4 * first..4 * last + 4) {
        edit.bytes_mut(range.start + 4 * first..range.start + 4 * last + 4).copy_from_slice(new);
    }
}

/// Moves the last `count` entries of `left` to the front of `right`, which has space for them.
pub fn move_right(left: &mut dyn EditBytes, right: &mut dyn EditBytes, layout: &BlockLayout, count: usize) {
    let (in_left, in_right) = (layout.count(left.bytes()), layout.count(right.bytes()));
    let count = count.min(in_left).min(layout.max - in_right);
    let (from, to) = (in_left - count..in_left, 0..in_right + count);
    if let Some(run) = left.bytes().get(layout.entries(from.clone())) {
        push_front(right.bytes_mut(layout.entries(to.clone())), run);
    }
    if layout.pointer_width > 0
        && let Some(run) = left.bytes().get(layout.pointers(from))
    {
        push_front(right.bytes_mut(layout.pointers(to)), run);
    }
    set_count(left, layout, in_left - count);
    set_count(right, layout, in_right + count);
}

/// Moves the first `count` entries of `right` to the end of `left`, which has space for them.
pub fn move_left(left: &mut dyn EditBytes, right: &mut dyn EditBytes, layout: &BlockLayout, count: usize) {
    let (in_left, in_right) = (layout.count(left.bytes()), layout.count(right.bytes()));
    let count = count.min(in_right).min(layout.max - in_left);
    let (from, to) = (0..count, in_left..in_left + count);
    if let Some(run) = right.bytes().get(layout.entries(from.clone())) {
        left.bytes_mut(layout.entries(to.clone())).copy_from_slice(run);
    }
    if layout.pointer_width > 0
        && let Some(run) = right.bytes().get(layout.pointers(from))
    {
        left.bytes_mut(layout.pointers(to)).copy_from_slice(run);
    }
    let keep = 0..in_right - count;
    pull(right, layout.entries(keep.clone()), count * layout.width);
    if layout.pointer_width > 0 {
        pull(right, layout.pointers(keep), count * layout.pointer_width);
    }
    set_count(left, layout, in_left + count);
    set_count(right, layout, in_right - count);
}

/// Copies all entries of `right`, which is about to be freed, to the end of `left`, which has space for them.
pub fn append_all(left: &mut dyn EditBytes, right: &dyn EditBytes, layout: &BlockLayout) {
    let (in_left, in_right) = (layout.count(left.bytes()), layout.count(right.bytes()));
    let count = in_right.min(layout.max - in_left);
    if let Some(run) = right.bytes().get(layout.entries(0..count)) {
        left.bytes_mut(layout.entries(in_left..in_left + count)).copy_from_slice(run);
    }
    if layout.pointer_width > 0
        && let Some(run) = right.bytes().get(layout.pointers(0..count))
    {
        left.bytes_mut(layout.pointers(in_left..in_left + count)).copy_from_slice(run);
    }
    set_count(left, layout, in_left + count);
}

/// Copies all entries of `from`, with layout `from_layout`, into the empty block `to`, which has space for them.
pub fn copy_all(from: &[u8], from_layout: &BlockLayout, to: &mut dyn EditBytes, to_layout: &BlockLayout) {
    let count = from_layout.count(from).min(to_layout.max);
    if let Some(run) = from.get(from_layout.entries(0..count)) {
        to.bytes_mut(to_layout.entries(0..count)).copy_from_slice(run);
    }
    if to_layout.pointer_width > 0
        && let Some(run) = from.get(from_layout.pointers(0..count))
    {
        to.bytes_mut(to_layout.pointers(0..count)).copy_from_slice(run);
    }
    set_count(to, to_layout, count);
}

/// Direction of a sibling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Lower records.
    Left,
    /// Higher records.
    Right,
}

/// Offset of a sibling pointer; `width` is the size of the tree's pointers.
fn sibling_at(side: Side, width: usize) -> usize {
    match side {
        Side::Left => SIBLINGS_AT,
        Side::Right => SIBLINGS_AT + width,
    }
}

/// The sibling pointer; all ones if there is none.
pub fn sibling<P: OnDisk>(bytes: &[u8], side: Side) -> Option<&P> {
    bytes.get(sibling_at(side, P::SIZE)..).and_then(P::view)
}

/// Stores a sibling pointer.
pub fn set_sibling(edit: &mut dyn EditBytes, side: Side, pointer: &[u8]) {
    put(edit, sibling_at(side, pointer.len()), pointer);
}

/// Stores the level of a root in an inode.
pub fn set_inline_level(edit: &mut dyn EditBytes, level: usize) {
    put(edit, 0, &(level as u16).to_be_bytes());
}
