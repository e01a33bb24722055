//! A metadata block in memory.
//!
//! # Invariants
//! - The bytes are those of the disk, as they are or as they will be; LSN and checksum are set on the way home.
//! - `changed` are the chunks that changed since the last write home began, `in_flight` those that such a write
//!   carries. Each new checkpoint's buffer_vector covers both, because it may let the log pass the checkpoints before
//!   it.
//! - A buffer that left the cache is marked so under its lock: whoever then locks it looks for its successor.
//!
//! # Locking
//! [`Content`] is behind the buffer's lock, of the rank that fits what the block is. A transaction holds it from the
//! first read to its commit; the pusher of the active item list only tries it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use base::lock::{Mutex, OwnedGuard, Rank};
use base::{Daddr, Lsn};
use format::metadata_header::HeaderLayout;
use smallvec::SmallVec;

use super::chunk_bitmap::ChunkBitmap;
use super::item::{AfterCommit, ItemCore, LogItem};
use super::writeback::{DelwriQueue, PushResult};

/// A run of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskExtent {
    /// Where it begins.
    pub daddr: Daddr,
    /// Bytes, a multiple of 512.
    pub bytes: u32,
}

/// Where the bytes of a buffer lie: one extent, or, for a directory block of several file system blocks, several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferExtents(SmallVec<[DiskExtent; 1]>);

impl BufferExtents {
    /// Several extents, in the order of the buffer's bytes; `None` for none at all.
    pub fn new(extents: &[DiskExtent]) -> Option<Self> {
        (!extents.is_empty()).then(|| Self(extents.into()))
    }

    /// Bytes of all together.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|extent| extent.bytes as usize).sum()
    }

    /// The address by which the buffer is known.
    pub fn daddr(&self) -> Daddr {
        self.0.first().map_or(Daddr(0), |extent| extent.daddr)
    }
}

impl From<DiskExtent> for BufferExtents {
    fn from(extent: DiskExtent) -> Self {
        Self(SmallVec::from_buf([extent]))
    }
}

impl Deref for BufferExtents {
    type Target = [DiskExtent];
    fn deref(&self) -> &[DiskExtent] {
        &self.0
    }
}

/// A metadata block in memory, shared by the cache, transactions and the log.
pub struct Buffer {
    segments: BufferExtents,
    core: ItemCore,
    content: Mutex<Content>,
    /// Used since the cache last looked for what it can drop.
    used: AtomicBool,
    /// How the last write home ended, until somebody who has the lock takes note.
    write_result: AtomicU8,
    /// A write home is on its way, be the block freed meanwhile or not.
    writing: AtomicBool,
}

/// Nothing is to be noted.
const SETTLED: u8 = 0;
const SUCCEEDED: u8 = 1;
const FAILED: u8 = 2;

/// The proof that a thread holds a buffer's lock.
pub type BufferGuard = OwnedGuard<Buffer, Content>;

/// What a buffer's lock protects.
pub struct Content {
    bytes: Box<[u8]>,
    changed: ChunkBitmap,
    in_flight: ChunkBitmap,
    state: State,
    /// Holds inodes: the log has only their unlinked links, and each has a checksum of its own.
    pub(super) inodes: bool,
    /// Must be written home though nothing of it is in the log.
    pub(super) ordered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was read yet: the bytes are zeros.
    Empty,
    /// The bytes are the block's.
    Valid,
    /// The block was freed: the bytes mean nothing and are not written.
    Stale,
    /// No longer in the cache.
    Gone,
}

impl Buffer {
    /// A buffer that nothing was read into.
    pub(super) fn new(segments: BufferExtents, rank: Rank) -> Self {
        let content = Content {
            bytes: vec![0; segments.bytes()].into_boxed_slice(),
            changed: ChunkBitmap::NONE,
            in_flight: ChunkBitmap::NONE,
            state: State::Empty,
            inodes: false,
            ordered: false,
        };
        Self {
            segments,
            core: ItemCore::default(),
            content: Mutex::new(rank, content),
            used: AtomicBool::new(true),
            write_result: AtomicU8::new(SETTLED),
            writing: AtomicBool::new(false),
        }
    }

    /// Where it lies.
    pub fn segments(&self) -> &BufferExtents {
        &self.segments
    }

    /// The address by which it is known.
    pub fn daddr(&self) -> Daddr {
        self.segments.daddr()
    }

    /// Waits for the lock.
    #[track_caller]
    pub fn lock(self: &Arc<Self>) -> BufferGuard {
        OwnedGuard::lock(Arc::clone(self), |buffer| &buffer.content)
    }

    /// Waits for the lock, and keeps the buffer for it.
    pub(super) fn into_lock(self: Arc<Self>) -> BufferGuard {
        OwnedGuard::lock(self, |buffer| &buffer.content)
    }

    /// Takes the lock if nobody has it, and keeps the buffer for it; or gives the buffer back.
    pub(super) fn try_into_lock(self: Arc<Self>) -> Result<BufferGuard, Arc<Self>> {
        OwnedGuard::try_lock_in_order(self, |buffer| &buffer.content)
    }

    /// Takes the lock if nobody has it.
    pub fn try_lock(self: &Arc<Self>) -> Option<BufferGuard> {
        OwnedGuard::try_lock(Arc::clone(self), |buffer| &buffer.content)
    }

    /// Notes that the buffer is in use; a store only if it was not noted yet.
    #[inline]
    pub(super) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// A write home takes off; it lands with [`LogItem::written`].
    pub(super) fn write_started(&self) {
        self.writing.store(true, Ordering::Release);
    }

    /// Whether a write home is on its way.
    pub(super) fn is_being_written(&self) -> bool {
        self.writing.load(Ordering::Acquire)
    }

    /// See [`settle`].
    fn settle(&self, content: &mut Content) {
        if self.write_result.load(Ordering::Acquire) == SETTLED {
            return;
        }
        let how = self.write_result.swap(SETTLED, Ordering::AcqRel);
        let in_flight = std::mem::replace(&mut content.in_flight, ChunkBitmap::NONE);
        if how == FAILED {
            content.changed |= &in_flight;
        }
    }

    /// Whether it was used since the last call.
    pub(super) fn forget_use(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

/// Takes note of how the last write home ended.
///
/// [`LogItem::written`] does so itself where it gets the lock. It must not wait for it: a transaction may hold it and
/// wait for log space, which only comes when the writing goes on.
pub(super) fn settle(guard: &mut BufferGuard) {
    if guard.owner().write_result.load(Ordering::Acquire) != SETTLED {
        let buffer = Arc::clone(guard.owner());
        buffer.settle(guard);
    }
}

impl Content {
    /// The block's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn set_state(&mut self, state: State) {
        self.state = state;
    }

    /// Whether something of it is not home yet.
    pub fn is_dirty(&self) -> bool {
        self.ordered || !self.changed.is_empty() || !self.in_flight.is_empty()
    }

    /// Chunks changed, by a transaction that is being committed.
    pub(super) fn note_changed(&mut self, chunks: &ChunkBitmap) {
        self.changed |= chunks;
    }

    /// What a new checkpoint's buffer_vector must cover, after [`settle`].
    pub(super) fn unwritten(&self) -> ChunkBitmap {
        let mut all = self.changed.clone();
        all |= &self.in_flight;
        all
    }

    /// The block is new, or was freed: what changed before counts no more.
    pub(super) fn reset(&mut self, state: State) {
        (self.changed, self.in_flight) = (ChunkBitmap::NONE, ChunkBitmap::NONE);
        (self.inodes, self.ordered) = (false, false);
        self.state = state;
    }

    /// A write home begins: stamps LSN and checksum into the bytes, which the caller copies. To be ended by
    /// [`LogItem::written`] of the buffer.
    pub(super) fn begin_write(&mut self, lsn: Lsn) {
        let changed = std::mem::replace(&mut self.changed, ChunkBitmap::NONE);
        self.in_flight |= &changed;
        self.ordered = false;
        if !self.inodes
            && let Some(stamp) = HeaderLayout::of(&self.bytes)
        {
            stamp.seal(&mut self.bytes, lsn);
        }
    }
}

impl LogItem for Buffer {
    fn core(&self) -> &ItemCore {
        &self.core
    }

    /// A freed buffer has nothing to be written, unless it came to life again, which pins it again.
    fn committed(&self, _: Lsn) -> AfterCommit {
        let freed = !self.core.is_pinned()
            && self
                .content
                .try_lock()
                .is_some_and(|content| matches!(content.state, State::Stale | State::Gone));
        if freed { AfterCommit::Remove } else { AfterCommit::Insert }
    }

    fn push(self: Arc<Self>, batch: &mut DelwriQueue<'_>) -> PushResult {
        let item: Arc<dyn LogItem> = self.clone();
        batch.add(&self, item)
    }

    fn write_done(&self, ok: bool) {
        self.write_result.store(if ok { SUCCEEDED } else { FAILED }, Ordering::Release);
        self.writing.store(false, Ordering::Release);
        if let Some(mut content) = self.content.try_lock() {
            self.settle(&mut content);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:#x}, {} bytes)", self.daddr(), self.segments.bytes())
    }
}
