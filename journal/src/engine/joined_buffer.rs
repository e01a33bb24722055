//! A buffer joined to a transaction: its changes, and what a commit logs of them (buf log item in Linux).

use std::ops::Range;
use std::sync::Arc;

use format::edit::BlockMut;

use super::buffer::{Buffer, BufferGuard, State, settle};
use super::buffer_vector::BufferVector;
use super::chunk_bitmap::ChunkBitmap;
use super::item::{CommitItem, CommitPosition, LogItem, LogVector, VectorGrowth};

/// A locked buffer joined to a transaction.
pub struct JoinedBuffer {
    pub(super) guard: BufferGuard,
    changed: ChunkBitmap,
    change: BufferChange,
    /// It stays locked when the transaction rolls.
    pub(super) held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BufferChange {
    Normal,
    /// Freed by this transaction.
    Invalidated,
    /// Not logged, only written back.
    Ordered,
}

impl JoinedBuffer {
    pub(super) fn new(guard: BufferGuard) -> Self {
        Self { guard, changed: ChunkBitmap::NONE, held: false, change: BufferChange::Normal }
    }

    /// The block's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.guard.bytes()
    }

    /// The bytes of `range`, to be changed and logged.
    ///
    /// # Panics
    /// If the range lies outside the buffer, like slicing: the caller knows the length.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "as documented")]
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.changed.add(range.clone());
        &mut self.guard.bytes_mut()[range]
    }

    /// All bytes, to be changed. The caller also calls [`log`](Self::log) with the changed ranges.
    #[inline]
    pub fn all_mut(&mut self) -> &mut [u8] {
        self.guard.bytes_mut()
    }

    /// Marks the bytes of `range` as changed.
    #[inline]
    pub fn log(&mut self, range: Range<usize>) {
        self.changed.add(range);
    }

    /// The buffer.
    #[inline]
    pub fn buffer(&self) -> &Arc<Buffer> {
        self.guard.owner()
    }

    /// Whether this transaction changed it.
    #[inline]
    pub(super) fn is_dirty(&self) -> bool {
        self.change != BufferChange::Normal || !self.changed.is_empty()
    }

    /// Forgets the changes: they are committed or obsolete.
    pub(super) fn forget_changes(&mut self) {
        (self.changed, self.change) = (ChunkBitmap::NONE, BufferChange::Normal);
    }

    /// See [`Transaction::invalidate`](super::Transaction::invalidate).
    pub(super) fn invalidate(&mut self) {
        self.guard.reset(State::Stale);
        (self.changed, self.change) = (ChunkBitmap::NONE, BufferChange::Invalidated);
    }

    /// See [`Transaction::ordered`](super::Transaction::ordered).
    pub(super) fn order(&mut self) {
        self.guard.ordered = true;
        // Its contents are not in the log, except for the item that can recreate them.
        self.buffer().core().keep_position();
        (self.changed, self.change) = (ChunkBitmap::NONE, BufferChange::Ordered);
    }
}

impl BlockMut for JoinedBuffer {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.bytes_mut(range)
    }
}

impl CommitItem for JoinedBuffer {
    fn item(&self) -> Arc<dyn LogItem> {
        self.guard.owner().clone()
    }

    fn log(&mut self, at: CommitPosition) -> VectorGrowth {
        settle(&mut self.guard);
        let Self { guard, changed, change, .. } = self;
        guard.note_changed(changed);
        if *change == BufferChange::Normal && !changed.is_empty() {
            // A change revives even the buffer of a freed block.
            guard.set_state(State::Valid);
        }
        guard.owner().core().log(at, |vector| match (change, vector) {
            (BufferChange::Normal, Some(LogVector::Buffer(buffer_vector))) if !buffer_vector.is_cancel() => {
                buffer_vector.add(guard.bytes(), changed, guard.inodes);
            }
            (BufferChange::Normal, vector) => {
                let mut buffer_vector = Box::new(BufferVector::new(guard.owner().segments()));
                buffer_vector.add(guard.bytes(), &guard.unwritten(), guard.inodes);
                *vector = Some(LogVector::Buffer(buffer_vector));
            }
            (BufferChange::Ordered, vector) => {
                vector.get_or_insert(LogVector::Ordered);
            }
            (BufferChange::Invalidated, vector) => {
                let buffer_vector = BufferVector::cancelled(guard.owner().segments());
                *vector = Some(LogVector::Buffer(Box::new(buffer_vector)));
            }
        })
    }
}
