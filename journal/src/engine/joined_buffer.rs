//! A locked buffer in a transaction: what of it changed, and what a commit takes of that.

use std::ops::Range;
use std::sync::Arc;

use format::edit::BlockMut;

use super::buffer::{Buffer, BufferGuard, State, settle};
use super::buffer_vector::BufferVector;
use super::chunk_bitmap::ChunkBitmap;
use super::item::{CommitItem, CommitPosition, LogItem, LogVector, VectorGrowth};

/// A locked buffer in a transaction.
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
    /// Written home only.
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
    /// Where the range lies outside of the buffer, as slicing does: the caller knows the length.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "as documented")]
    pub fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.changed.add(range.clone());
        &mut self.guard.bytes_mut()[range]
    }

    /// The whole of the bytes, to be changed where [`log`](Self::log) was or will be told.
    #[inline]
    pub fn all_mut(&mut self) -> &mut [u8] {
        self.guard.bytes_mut()
    }

    /// Notes that the bytes of `range` changed.
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

    /// All that changed is committed, or means nothing any more.
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
        // What it was made with is not in the log, but for the item that can make it again.
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
            // A change brings even the buffer of a freed block to life.
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
