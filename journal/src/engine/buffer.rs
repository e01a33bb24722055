//! A metadata buffer: one block, or several that are cached as one, in memory.
//!
//! # Invariants
//! - The bytes are those of the disk, present or future; LSN and checksum are set when the buffer is written back.
//! - `changed` are the chunks changed since the last writeback began, `in_flight` those that this write contains. The
//!   log vector of each new checkpoint covers both, because it may let the tail pass the earlier checkpoints.
//! - A buffer that left the cache is marked so under its lock: a thread that locks it later looks up its successor.
//!
//! # Locking
//! [`BufferContent`] is protected by the buffer's lock, whose rank depends on the block. A transaction holds it from
//! the first read to its commit; the AIL pusher only tries it. Blocks of files that are often read are read without it,
//! until a thread that holds it changes them ([`PeekedBuffers`](super::PeekedBuffers)).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use base::lock::{Mutex, OwnedMutexGuard, Peeked, Rank, UntilChanged};
use base::rcu::Section;
use base::{Daddr, Lsn};
use block::{BufferPool, PooledBuf};
use format::metadata_header::HeaderLayout;
use smallvec::SmallVec;

use super::chunk_bitmap::ChunkBitmap;
use super::item::{AfterCommit, ItemCore, LogItem};
use super::writeback::{DelwriQueue, PushResult, whole};

/// A range of the data device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiskExtent {
    /// Start address.
    pub daddr: Daddr,
    /// Length in bytes, a multiple of 512.
    pub bytes: u32,
}

/// The extents of a buffer: one or, for a directory block of several file system blocks, several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferExtents(SmallVec<[DiskExtent; 1]>);

impl BufferExtents {
    /// Extents in the order of the buffer's bytes; `None` if there are none.
    pub fn new(extents: &[DiskExtent]) -> Option<Self> {
        (!extents.is_empty()).then(|| Self(extents.into()))
    }

    /// Length of all extents in bytes.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|extent| extent.bytes as usize).sum()
    }

    /// Address of the first extent, by which the buffer is cached.
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

/// A metadata buffer, shared by the cache, transactions and the log.
pub struct Buffer {
    segments: BufferExtents,
    core: ItemCore,
    content: Mutex<BufferContent, UntilChanged>,
    /// It was used since the cache last scanned for buffers to drop.
    used: AtomicBool,
    /// Result of the last write, until a thread that holds the lock settles it.
    write_result: AtomicU8,
    /// A write is in flight, even if the block was freed meanwhile.
    writing: AtomicBool,
}

/// No result to settle.
const SETTLED: u8 = 0;
const SUCCEEDED: u8 = 1;
const FAILED: u8 = 2;

/// Guard of a buffer's lock.
pub type BufferGuard = OwnedMutexGuard<Buffer, BufferContent, UntilChanged>;

/// Contents that are read in a section.
pub(super) type PeekedContent<'s> = Peeked<'s, BufferContent, UntilChanged>;

/// State protected by a buffer's lock.
pub struct BufferContent {
    bytes: PooledBuf,
    changed: ChunkBitmap,
    in_flight: ChunkBitmap,
    state: State,
    /// It contains inodes: only their unlinked-list pointers are logged, and each inode has its own checksum.
    pub(super) inodes: bool,
    /// It must be written back although nothing of it is in the log.
    pub(super) ordered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not read yet: the bytes are unspecified.
    Empty,
    /// The bytes are the block's.
    Valid,
    /// The block was freed: the bytes are meaningless and not written.
    Stale,
    /// No longer in the cache: it has no bytes.
    Gone,
}

impl Buffer {
    /// A buffer that is not read yet.
    pub(super) fn new(segments: BufferExtents, rank: Rank, pool: &BufferPool) -> Self {
        let content = BufferContent {
            bytes: pool.take(segments.bytes()),
            changed: ChunkBitmap::NONE,
            in_flight: ChunkBitmap::NONE,
            state: State::Empty,
            inodes: false,
            ordered: false,
        };
        Self {
            segments,
            core: ItemCore::default(),
            content: Mutex::new_peeked(rank, content),
            used: AtomicBool::new(true),
            write_result: AtomicU8::new(SETTLED),
            writing: AtomicBool::new(false),
        }
    }

    /// The buffer's extents.
    pub fn segments(&self) -> &BufferExtents {
        &self.segments
    }

    /// Address of the buffer.
    pub fn daddr(&self) -> Daddr {
        self.segments.daddr()
    }

    /// Waits for the lock.
    #[track_caller]
    pub fn lock(self: &Arc<Self>) -> BufferGuard {
        OwnedMutexGuard::lock(Arc::clone(self), |buffer| &buffer.content)
    }

    /// Waits for the lock; the guard owns the reference.
    pub(super) fn into_lock(self: Arc<Self>) -> BufferGuard {
        OwnedMutexGuard::lock(self, |buffer| &buffer.content)
    }

    /// Takes the lock if it is free; the guard owns the reference, which is returned otherwise.
    pub(super) fn try_into_lock(self: Arc<Self>) -> Result<BufferGuard, Arc<Self>> {
        OwnedMutexGuard::try_lock_in_order(self, |buffer| &buffer.content)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(self: &Arc<Self>) -> Option<BufferGuard> {
        OwnedMutexGuard::try_lock(Arc::clone(self), |buffer| &buffer.content)
    }

    /// The contents, if they are those of the block and no thread has them locked. Does not wait.
    pub(super) fn peek<'s>(&'s self, section: &'s Section) -> Option<PeekedContent<'s>> {
        self.content.peek_in(section).filter(|content| content.state == State::Valid)
    }

    /// Marks the buffer as used; stores only if it is not marked yet.
    #[inline]
    pub(super) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// A write begins; it ends with [`LogItem::write_done`].
    pub(super) fn write_started(&self) {
        self.writing.store(true, Ordering::Release);
    }

    /// Whether a write is in flight.
    pub(super) fn is_being_written(&self) -> bool {
        self.writing.load(Ordering::Acquire)
    }

    /// See [`settle`].
    fn settle(&self, content: &mut BufferContent) {
        if self.write_result.load(Ordering::Acquire) == SETTLED {
            return;
        }
        let how = self.write_result.swap(SETTLED, Ordering::AcqRel);
        let in_flight = std::mem::replace(&mut content.in_flight, ChunkBitmap::NONE);
        if how == FAILED {
            content.changed |= &in_flight;
        }
    }

    /// Clears the mark of use; returns whether it was set.
    pub(super) fn forget_use(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

/// Applies the result of the last write.
///
/// [`LogItem::write_done`] does so itself if it gets the lock. It must not wait for it: a transaction may hold it and
/// wait for log space, which only comes when writeback continues.
pub(super) fn settle(guard: &mut BufferGuard) {
    if guard.owner().write_result.load(Ordering::Acquire) != SETTLED {
        let buffer = Arc::clone(guard.owner());
        buffer.settle(guard);
    }
}

impl BufferContent {
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

    /// Whether it has changes that are not written back.
    pub fn is_dirty(&self) -> bool {
        self.ordered || !self.changed.is_empty() || !self.in_flight.is_empty()
    }

    /// The buffer leaves the cache. Frees its bytes: the index and the log keep the object for longer.
    pub(super) fn leave_cache(&mut self) {
        self.state = State::Gone;
        self.bytes.release();
    }

    /// Adds chunks changed by a transaction that is being committed.
    pub(super) fn note_changed(&mut self, chunks: &ChunkBitmap) {
        self.changed |= chunks;
    }

    /// The chunks that a new checkpoint's log vector must cover, after [`settle`].
    pub(super) fn unwritten(&self) -> ChunkBitmap {
        let mut all = self.changed.clone();
        all |= &self.in_flight;
        all
    }

    /// The block is new, or was freed: earlier changes are obsolete.
    pub(super) fn reset(&mut self, state: State) {
        (self.changed, self.in_flight) = (ChunkBitmap::NONE, ChunkBitmap::NONE);
        (self.inodes, self.ordered) = (false, false);
        self.state = state;
    }

    /// The chunks that a write must contain if items in the buffer have changed `edited`, in whole units of bytes;
    /// `None` for all.
    pub(super) fn chunks_to_write(&self, edited: Option<ChunkBitmap>, unit: usize) -> Option<ChunkBitmap> {
        if !self.inodes || self.ordered {
            return None;
        }
        let mut chunks = ChunkBitmap::NONE;
        for changed in [&edited.unwrap_or_default(), &self.changed, &self.in_flight] {
            changed.byte_runs(self.bytes.len()).for_each(|run| chunks.add(whole(run, unit)));
        }
        Some(chunks)
    }

    /// A write begins: sets LSN and checksum in the bytes, which the caller copies. It ends with
    /// [`LogItem::write_done`].
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

    /// A freed buffer has nothing to write, unless a later change revived it, which pinned it again.
    fn committed(&self, _: Lsn) -> AfterCommit {
        let freed = !self.core.is_pinned()
            && self
                .content
                .try_lock_to_read()
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
