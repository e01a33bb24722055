//! Changes of the bytes of one block, or of two neighbours: pure functions, which touch (and so log) no byte more
//! than they change.
//!
//! # Invariants
//! A [`BlockLayout`] fits the bytes that it is used with, and counts are read through [`BlockLayout::count`], which
//! never exceeds what fits: so no function here can reach outside of the bytes, whatever they say.

use std::ops::Range;

use format::btree::Btree;
use format::geometry::Geometry;
use format::ondisk::{OnDisk, U16};

/// Bytes that record which ranges of them are changed.
pub trait EditBytes {
    /// All of them.
    fn bytes(&self) -> &[u8];
    /// A range that is about to change.
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

/// Where a block keeps what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    /// Where the count of entries lies.
    count_at: usize,
    /// Where records or keys begin.
    entries: usize,
    /// Bytes of one.
    width: usize,
    /// Where pointers begin; unused in a leaf.
    pointers: usize,
    /// Bytes of a pointer; 0 in a leaf.
    pointer_width: usize,
    /// Most entries.
    max: usize,
}

/// Where every block's header has its count.
const COUNT_AT: usize = 6;
/// Where the siblings begin, left and then right.
const SIBLINGS_AT: usize = 8;

impl BlockLayout {
    /// A leaf.
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

    /// A node.
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

    /// A root in an inode's fork of `bytes` bytes: level and count, then keys and pointers.
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

    /// Most entries.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Least entries of a block that is not a root.
    pub fn min(&self) -> usize {
        self.max / 2
    }

    /// Entries in use, as the block says, but never more than fit.
    #[inline]
    pub fn count(&self, bytes: &[u8]) -> usize {
        let count = bytes.get(self.count_at..).and_then(U16::view).map_or(0, |count| count.get().into());
        self.max.min(count)
    }

    /// The bytes of some entries.
    #[inline]
    pub fn entries(&self, slots: Range<usize>) -> Range<usize> {
        self.entries + slots.start * self.width..self.entries + slots.end * self.width
    }

    /// The bytes of some pointers.
    #[inline]
    pub fn pointers(&self, slots: Range<usize>) -> Range<usize> {
        self.pointers + slots.start * self.pointer_width..self.pointers + slots.end * self.pointer_width
    }

    /// The entries in use, as structures.
    #[inline]
    pub fn view<'a, T: OnDisk>(&self, bytes: &'a [u8]) -> &'a [T] {
        bytes.get(self.entries..).and_then(|rest| T::view_array(rest, self.count(bytes))).unwrap_or_default()
    }

    /// The pointers in use.
    #[inline]
    pub fn view_pointers<'a, T: OnDisk>(&self, bytes: &'a [u8]) -> &'a [T] {
        let rest = bytes.get(self.pointers..);
        rest.and_then(|rest| T::view_array(rest, self.count(bytes))).unwrap_or_default()
    }
}

/// BufferEdit entry as bytes: a record, or a key with its pointer.
#[derive(Clone, Copy, Debug)]
pub struct BlockEntry<'a> {
    /// Record or key.
    pub body: &'a [u8],
    /// The pointer; empty in a leaf.
    pub pointer: &'a [u8],
}

/// Stores the count.
pub fn set_count(edit: &mut dyn EditBytes, shape: &BlockLayout, count: usize) {
    let at = shape.count_at;
    put(edit, at, &(count as u16).to_be_bytes());
}

/// Stores bytes, if they differ from what is there.
fn put(edit: &mut dyn EditBytes, at: usize, new: &[u8]) {
    let range = at..at + new.len();
    if edit.bytes().get(range.clone()) != Some(new) {
        edit.bytes_mut(range).copy_from_slice(new);
    }
}

/// Makes room for one thing at the start of a run of bytes and puts it there.
fn push_front(run: &mut [u8], new: &[u8]) {
    let rest = run.len() - new.len();
    run.copy_within(..rest, new.len());
    run.split_at_mut(new.len()).0.copy_from_slice(new);
}

/// Puts an entry before the one at `slot`. The block is not full, and `slot` is at most its count.
pub fn insert(edit: &mut dyn EditBytes, shape: &BlockLayout, slot: usize, entry: BlockEntry<'_>) {
    let count = shape.count(edit.bytes());
    debug_assert!(slot <= count && count < shape.max, "an entry at {slot} of {count}");
    push_front(edit.bytes_mut(shape.entries(slot..count + 1)), entry.body);
    if shape.pointer_width > 0 {
        push_front(edit.bytes_mut(shape.pointers(slot..count + 1)), entry.pointer);
    }
    set_count(edit, shape, count + 1);
}

/// Takes the entry at `slot` out.
pub fn remove(edit: &mut dyn EditBytes, shape: &BlockLayout, slot: usize) {
    let count = shape.count(edit.bytes());
    debug_assert!(slot < count, "the entry {slot} of {count}");
    let last = count.saturating_sub(1);
    pull(edit, shape.entries(slot..last), shape.width);
    if shape.pointer_width > 0 {
        pull(edit, shape.pointers(slot..last), shape.pointer_width);
    }
    set_count(edit, shape, last);
}

/// Overwrites a range with what lies `by` bytes behind. What lies behind the range is read, but not touched.
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

/// Replaces the record or key at `slot`; only the words from the first that differs to the last are touched.
#[inline]
pub fn replace(edit: &mut (impl EditBytes + ?Sized), shape: &BlockLayout, slot: usize, body: &[u8]) {
    let range = shape.entries(slot..slot + 1);
    let Some(old) = edit.bytes().get(range.clone()) else { return };
    // The parts of all records and keys are multiples of four bytes.
    let mut words = old.as_chunks::<4>().0.iter().zip(body.as_chunks::<4>().0);
    let Some(first) = words.position(|(old, new)| old != new) else { return };
    let last = words.rposition(|(old, new)| old != new).map_or(first, |behind| first + 1 + behind);
    if let Some(new) = body.get(4 * first..4 * last + 4) {
        edit.bytes_mut(range.start + 4 * first..range.start + 4 * last + 4).copy_from_slice(new);
    }
}

/// Replaces the pointer at `slot`.
pub fn replace_pointer(edit: &mut dyn EditBytes, shape: &BlockLayout, slot: usize, pointer: &[u8]) {
    put(edit, shape.pointers(slot..slot + 1).start, pointer);
}

/// Moves the last `count` entries of `left` to the front of `right`, which has room for them.
pub fn move_right(left: &mut dyn EditBytes, right: &mut dyn EditBytes, shape: &BlockLayout, count: usize) {
    let (have, there) = (shape.count(left.bytes()), shape.count(right.bytes()));
    let count = count.min(have).min(shape.max - there);
    let (from, to) = (have - count..have, 0..there + count);
    if let Some(run) = left.bytes().get(shape.entries(from.clone())) {
        push_front(right.bytes_mut(shape.entries(to.clone())), run);
    }
    if shape.pointer_width > 0
        && let Some(run) = left.bytes().get(shape.pointers(from))
    {
        push_front(right.bytes_mut(shape.pointers(to)), run);
    }
    set_count(left, shape, have - count);
    set_count(right, shape, there + count);
}

/// Moves the first `count` entries of `right` behind those of `left`, which has room for them.
pub fn move_left(left: &mut dyn EditBytes, right: &mut dyn EditBytes, shape: &BlockLayout, count: usize) {
    let (have, there) = (shape.count(left.bytes()), shape.count(right.bytes()));
    let count = count.min(there).min(shape.max - have);
    let (from, to) = (0..count, have..have + count);
    if let Some(run) = right.bytes().get(shape.entries(from.clone())) {
        left.bytes_mut(shape.entries(to.clone())).copy_from_slice(run);
    }
    if shape.pointer_width > 0
        && let Some(run) = right.bytes().get(shape.pointers(from))
    {
        left.bytes_mut(shape.pointers(to)).copy_from_slice(run);
    }
    let keep = 0..there - count;
    pull(right, shape.entries(keep.clone()), count * shape.width);
    if shape.pointer_width > 0 {
        pull(right, shape.pointers(keep), count * shape.pointer_width);
    }
    set_count(left, shape, have + count);
    set_count(right, shape, there - count);
}

/// Copies all entries of `right`, which is about to go, behind those of `left`, which has room for them.
pub fn append_all(left: &mut dyn EditBytes, right: &dyn EditBytes, shape: &BlockLayout) {
    let (have, there) = (shape.count(left.bytes()), shape.count(right.bytes()));
    let count = there.min(shape.max - have);
    if let Some(run) = right.bytes().get(shape.entries(0..count)) {
        left.bytes_mut(shape.entries(have..have + count)).copy_from_slice(run);
    }
    if shape.pointer_width > 0
        && let Some(run) = right.bytes().get(shape.pointers(0..count))
    {
        left.bytes_mut(shape.pointers(have..have + count)).copy_from_slice(run);
    }
    set_count(left, shape, have + count);
}

/// Copies all entries of `from`, laid out by `from_shape`, into the empty block `to`, which has room for them.
pub fn copy_all(from: &[u8], from_shape: &BlockLayout, to: &mut dyn EditBytes, to_shape: &BlockLayout) {
    let count = from_shape.count(from).min(to_shape.max);
    if let Some(run) = from.get(from_shape.entries(0..count)) {
        to.bytes_mut(to_shape.entries(0..count)).copy_from_slice(run);
    }
    if to_shape.pointer_width > 0
        && let Some(run) = from.get(from_shape.pointers(0..count))
    {
        to.bytes_mut(to_shape.pointers(0..count)).copy_from_slice(run);
    }
    set_count(to, to_shape, count);
}

/// A side of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Towards lower records.
    Left,
    /// Towards higher records.
    Right,
}

/// Where a header has the pointer to a sibling; `width` is that of the tree's pointers.
fn sibling_at(side: Side, width: usize) -> usize {
    match side {
        Side::Left => SIBLINGS_AT,
        Side::Right => SIBLINGS_AT + width,
    }
}

/// The sibling on a side, as a pointer; all ones where there is none.
pub fn sibling<P: OnDisk>(bytes: &[u8], side: Side) -> Option<&P> {
    bytes.get(sibling_at(side, P::SIZE)..).and_then(P::view)
}

/// Stores the sibling on a side.
pub fn set_sibling(edit: &mut dyn EditBytes, side: Side, pointer: &[u8]) {
    put(edit, sibling_at(side, pointer.len()), pointer);
}

/// Stores the level of a root in an inode.
pub fn set_inline_level(edit: &mut dyn EditBytes, level: usize) {
    put(edit, 0, &(level as u16).to_be_bytes());
}
