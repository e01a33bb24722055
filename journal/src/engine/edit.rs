//! A locked buffer in a transaction: what of it changed, and what a commit takes of that.

use std::ops::Range;
use std::sync::Arc;

use format::edit::BlockMut;

use super::buffer::{Buffer, BufferGuard, State, settle};
use super::chunks::Chunks;
use super::image::BufferImage;
use super::item::{Commit, Grown, LogItem, Moment, Snapshot};

/// A locked buffer in a transaction.
pub struct Edit {
    pub(super) guard: BufferGuard,
    changed: Chunks,
    kind: Kind,
    /// It stays locked when the transaction rolls.
    pub(super) held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    /// Freed by this transaction.
    Invalidated,
    /// Written home only.
    Ordered,
}

impl Edit {
    pub(super) fn new(guard: BufferGuard) -> Self {
        Self { guard, changed: Chunks::NONE, held: false, kind: Kind::Normal }
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
        self.kind != Kind::Normal || !self.changed.is_empty()
    }

    /// All that changed is committed, or means nothing any more.
    pub(super) fn forget_changes(&mut self) {
        (self.changed, self.kind) = (Chunks::NONE, Kind::Normal);
    }

    /// See [`Transaction::invalidate`](super::Transaction::invalidate).
    pub(super) fn invalidate(&mut self) {
        self.guard.reset(State::Stale);
        (self.changed, self.kind) = (Chunks::NONE, Kind::Invalidated);
    }

    /// See [`Transaction::ordered`](super::Transaction::ordered).
    pub(super) fn order(&mut self) {
        self.guard.ordered = true;
        // What it was made with is not in the log, but for the item that can make it again.
        self.buffer().core().stay();
        (self.changed, self.kind) = (Chunks::NONE, Kind::Ordered);
    }
}

impl BlockMut for Edit {
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    #[inline]
    fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        self.bytes_mut(range)
    }
}

impl Commit for Edit {
    fn item(&self) -> Arc<dyn LogItem> {
        self.guard.owner().clone()
    }

    fn log(&mut self, at: Moment) -> Grown {
        settle(&mut self.guard);
        let Self { guard, changed, kind, .. } = self;
        guard.note_changed(changed);
        if *kind == Kind::Normal && !changed.is_empty() {
            // A change brings even the buffer of a freed block to life.
            guard.set_state(State::Valid);
        }
        guard.owner().core().log(at, |snapshot| match (kind, snapshot) {
            (Kind::Normal, Some(Snapshot::Buffer(image))) if !image.is_cancel() => {
                image.add(guard.bytes(), changed, guard.inodes);
            }
            (Kind::Normal, snapshot) => {
                let mut image = Box::new(BufferImage::new(guard.owner().segments()));
                image.add(guard.bytes(), &guard.unwritten(), guard.inodes);
                *snapshot = Some(Snapshot::Buffer(image));
            }
            (Kind::Ordered, snapshot) => {
                snapshot.get_or_insert(Snapshot::Ordered);
            }
            (Kind::Invalidated, snapshot) => {
                let image = BufferImage::cancelled(guard.owner().segments());
                *snapshot = Some(Snapshot::Buffer(Box::new(image)));
            }
        })
    }
}
