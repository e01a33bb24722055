//! Every metadata block that is in memory, by its disk address.
//!
//! # Invariants
//! - An address has one buffer at a time. One that is dropped is marked `Gone` under its lock first; whoever finds it
//!   so looks again. One that holds nothing gives way to one of another length.
//! - Only clean, unpinned buffers that nobody holds the lock of are dropped. Whoever brings a new one in beyond the
//!   budget looks for such.
//!
//! # Locking
//! A lookup takes no lock and stores to nothing but the buffer's own reference count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::Daddr;
use base::lock::Rank;
use block::{Device, WriteRequest};
use rustc_hash::FxBuildHasher;
use scc::HashIndex;

use super::buffer::{Buffer, BufferExtents, BufferGuard, DiskExtent, State, settle};
use super::error::Error;
use super::item::LogItem;
use super::writeback::write_with_retry;
use format::damage::{Damage, Place};

/// The cache of one volume's metadata blocks.
pub struct BufferCache {
    device: Arc<dyn Device>,
    index: HashIndex<u64, Arc<Buffer>, FxBuildHasher>,
    /// Bytes of all buffers that were made and not dropped: approximate, for the budget.
    bytes: AtomicUsize,
    budget: usize,
    /// A new buffer beyond so many bytes looks for others to drop. Above the budget where a look found too few: so the
    /// looks at all buffers are paid for by the buffers that came in between.
    limit: AtomicUsize,
}

impl std::fmt::Debug for BufferCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferCache({} buffers of {:?})", self.index.len(), self.device)
    }
}

impl BufferCache {
    /// An empty cache that shrinks when its buffers pass `budget` bytes.
    pub fn new(device: Arc<dyn Device>, budget: usize) -> Self {
        Self {
            device,
            index: HashIndex::default(),
            bytes: AtomicUsize::new(0),
            budget,
            limit: AtomicUsize::new(budget),
        }
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The buffer for these segments, read or not; a new one gets `rank`.
    pub fn get(&self, segments: &BufferExtents, rank: Rank) -> Arc<Buffer> {
        let key = segments.daddr().get();
        if let Some(buffer) = self.index.peek_with(&key, |_, buffer| Arc::clone(buffer)) {
            buffer.touch();
            return buffer;
        }
        if self.bytes() > self.limit.load(Ordering::Relaxed) {
            self.shrink();
        }
        let entry = self.index.entry_sync(key).or_insert_with(|| {
            self.bytes.fetch_add(segments.bytes(), Ordering::Relaxed);
            Arc::new(Buffer::new(segments.clone(), rank))
        });
        Arc::clone(entry.get())
    }

    /// The buffer at this address, if there is one in memory.
    pub fn peek(&self, daddr: Daddr) -> Option<Arc<Buffer>> {
        self.index.peek_with(&daddr.get(), |_, buffer| Arc::clone(buffer))
    }

    /// Locks the buffer for these segments, as [`BufferCache::get`], and fills it if nothing was read yet.
    ///
    /// # Errors
    /// [`Error::Device`], and [`Error::Damaged`] where `verify` refuses what was read, or the cache has a buffer of
    /// another length at this address (two structures claim the same block).
    #[track_caller]
    pub fn lock_read(
        &self,
        segments: &BufferExtents,
        rank: Rank,
        verify: impl FnOnce(&[u8]) -> Result<(), Damage>,
    ) -> Result<BufferGuard, Error> {
        let guard = self.lock(segments, rank)?;
        self.fill(guard, verify)
    }

    /// The same if nobody holds the lock.
    ///
    /// # Errors
    /// As [`lock_read`](Self::lock_read).
    pub fn try_lock_read(
        &self,
        segments: &BufferExtents,
        rank: Rank,
        verify: impl FnOnce(&[u8]) -> Result<(), Damage>,
    ) -> Result<Option<BufferGuard>, Error> {
        loop {
            let Some(guard) = self.get(segments, rank).try_lock() else { return Ok(None) };
            if let Some(guard) = self.accept(guard, segments)? {
                return self.fill(guard, verify).map(Some);
            }
        }
    }

    /// Reads the buffer at an item's place, for [`LogItem::read_buffer`]: `false` where somebody holds its lock, which
    /// is only tried. Where `is_freed` says, under that lock, that the block is the item's no more, nothing is read or
    /// judged: another structure, or a file's data, may lie there.
    ///
    /// # Errors
    /// As [`lock_read`](Self::lock_read).
    pub fn read_buffer(
        &self,
        segments: &BufferExtents,
        rank: Rank,
        is_freed: impl Fn() -> bool,
        verify: impl FnOnce(&[u8]) -> Result<(), Damage>,
    ) -> Result<bool, Error> {
        loop {
            let Some(guard) = self.get(segments, rank).try_lock() else { return Ok(false) };
            if is_freed() {
                return Ok(true);
            }
            if let Some(guard) = self.accept(guard, segments)? {
                return self.fill(guard, verify).map(|_| true);
            }
        }
    }

    /// Locks the buffer for these segments, whatever it holds.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the cache has a buffer of another length at this address.
    #[track_caller]
    pub fn lock(&self, segments: &BufferExtents, rank: Rank) -> Result<BufferGuard, Error> {
        loop {
            if let Some(guard) = self.accept(self.get(segments, rank).lock(), segments)? {
                return Ok(guard);
            }
        }
    }

    /// The buffer that was found at an address, if it is the one for these segments. `None` where it left the cache, or
    /// leaves it now: one of another length that holds nothing. Then the address is looked up again.
    ///
    /// # Errors
    /// [`Error::Damaged`]: two structures claim one block with different lengths.
    fn accept(&self, guard: BufferGuard, segments: &BufferExtents) -> Result<Option<BufferGuard>, Error> {
        let buffer = Arc::clone(guard.owner());
        match guard.state() {
            State::Gone => Ok(None),
            _ if buffer.segments() == segments => Ok(Some(guard)),
            // Somebody looked for a block that was freed meanwhile.
            State::Empty if !is_needed(&buffer, &guard) => {
                self.remove(&buffer, guard);
                Ok(None)
            }
            _ => {
                let damage = Damage::new(
                    "metadata block",
                    "extents",
                    format_args!("{} bytes, as it is in use already", buffer.segments().bytes()),
                    format_args!("{} bytes", segments.bytes()),
                );
                Err(Error::damaged(Place::daddr(segments.daddr()), damage))
            }
        }
    }

    /// Reads what is not in memory. The buffer of a freed block stays so, whatever was read: the block may have a new
    /// owner, over which it must not be written.
    fn fill(
        &self,
        mut guard: BufferGuard,
        verify: impl FnOnce(&[u8]) -> Result<(), Damage>,
    ) -> Result<BufferGuard, Error> {
        if matches!(guard.state(), State::Empty | State::Stale) {
            if let Err(error) = self.read(&mut guard, verify) {
                guard.bytes_mut().fill(0);
                return Err(error);
            }
            if guard.state() == State::Empty {
                guard.set_state(State::Valid);
            }
        }
        Ok(guard)
    }

    fn read(
        &self,
        guard: &mut BufferGuard,
        verify: impl FnOnce(&[u8]) -> Result<(), Damage>,
    ) -> Result<(), Error> {
        let buffer = Arc::clone(guard.owner());
        let mut start = 0;
        for segment in buffer.segments().iter() {
            let end = start + segment.bytes as usize;
            let Some(bytes) = guard.bytes_mut().get_mut(start..end) else { break };
            self.device.read_at(segment.daddr.get().saturating_mul(512), bytes)?;
            start = end;
        }
        verify(guard.bytes()).map_err(|damage| Error::damaged(Place::daddr(buffer.daddr()), damage))
    }

    /// Bytes of all buffers in memory.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Drops buffers that are clean and were not used since the last call, until the rest is well within the budget.
    /// Takes no lock but by trying: it may be called with any held.
    #[cold]
    pub fn shrink(&self) {
        // Meanwhile others do not begin the same.
        self.limit.store(usize::MAX, Ordering::Relaxed);
        let mut doomed = Vec::new();
        self.index.iter_sync(|_, buffer| {
            if !buffer.forget_use() {
                doomed.push(Arc::clone(buffer));
            }
            true
        });
        for buffer in doomed {
            if self.bytes() <= self.budget / 8 * 7 {
                break;
            }
            self.drop_buffer(&buffer);
        }
        let next = self.budget.max(self.bytes() + self.budget / 8);
        self.limit.store(next, Ordering::Relaxed);
    }

    /// Drops one buffer if it is clean and nobody holds it.
    fn drop_buffer(&self, buffer: &Arc<Buffer>) {
        if let Some(guard) = buffer.try_lock() {
            self.drop_locked(buffer, guard);
        }
    }

    fn drop_locked(&self, buffer: &Arc<Buffer>, mut guard: BufferGuard) {
        settle(&mut guard);
        if !is_needed(buffer, &guard) && guard.state() != State::Gone {
            self.remove(buffer, guard);
        }
    }

    fn remove(&self, buffer: &Arc<Buffer>, mut guard: BufferGuard) {
        guard.set_state(State::Gone);
        drop(guard);
        self.index.remove_if_sync(&buffer.daddr().get(), |found| Arc::ptr_eq(found, buffer));
        self.bytes.fetch_sub(buffer.segments().bytes(), Ordering::Relaxed);
    }

    /// Writes a block that is not logged to its place at once, and keeps it as one that was read. It was allocated as
    /// one for data: so no write over what lay there before is in flight.
    ///
    /// # Errors
    /// [`Error::Device`], and as [`lock`](Self::lock).
    #[track_caller]
    pub(super) fn write_now(&self, at: DiskExtent, rank: Rank, bytes: &[u8]) -> Result<(), Error> {
        let mut guard = self.lock(&BufferExtents::from(at), rank)?;
        settle(&mut guard);
        guard.change_rank(rank);
        guard.reset(State::Empty);
        write_with_retry(&*self.device, &WriteRequest::new(at.daddr.get().saturating_mul(512), bytes))?;
        if guard.bytes().len() == bytes.len() {
            guard.bytes_mut().copy_from_slice(bytes);
            guard.set_state(State::Valid);
        }
        Ok(())
    }

    /// Drops a buffer of another shape that begins at the same address and whose block was freed: the address is about
    /// to get a new one. `false` where the freeing is not stable: until the log tells of the cancellation, the new
    /// buffer must not be logged, as both would be told by the same address. Force the log, and call again.
    ///
    /// The old buffer lives on as a log item until the journal and the device let go of it. Who has it locked looks at
    /// a file that is gone, by its number, and waits for nothing.
    #[must_use]
    pub(super) fn drop_stale(&self, segments: &BufferExtents) -> bool {
        let key = segments.daddr().get();
        let Some(buffer) = self.index.peek_with(&key, |_, buffer| Arc::clone(buffer)) else { return true };
        if buffer.segments() == segments {
            return true;
        }
        let mut guard = buffer.lock();
        settle(&mut guard);
        if guard.state() != State::Stale {
            self.drop_locked(&buffer, guard);
        } else if buffer.core().is_pinned() {
            return false;
        } else {
            self.remove(&buffer, guard);
        }
        true
    }
}

/// Whether something of a locked buffer is not home yet, or a write of it is in flight.
fn is_needed(buffer: &Buffer, guard: &BufferGuard) -> bool {
    let core = buffer.core();
    guard.is_dirty() || core.is_pinned() || core.lsn().is_some() || buffer.is_being_written()
}
