//! The metadata buffer cache: all metadata buffers in memory, by disk address.
//!
//! # Invariants
//! - An address has one buffer at a time. A buffer that is dropped is first marked `Gone` under its lock; a thread that
//!   finds it so looks it up again. A buffer without contents gives way to one of another length.
//! - Only clean, unpinned buffers whose lock is free are dropped. A thread that adds a buffer beyond the budget looks
//!   for buffers to drop: at [`SCAN`] at most, as it may hold locks that others wait for.
//! - Buffers are looked at in the order in which they were added; one that was used since is kept, and looked at again
//!   after all others. If none could be dropped in two rounds, no thread looks until something is written back, or the
//!   cache has become larger.
//!
//! # Locking
//! A lookup takes no lock and writes only the buffer's reference count. The queues, one for each CPU, have a lock of
//! rank `Leaf`, held for one push or pop.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use base::Daddr;
use base::WeakQueue;
use base::lock::{Mutex, Rank};
use base::memory::{Share, Shrink};
use base::percpu::{self, PerCpu};
use block::{ALIGNMENT, BufferPool, Device, WriteRequest};
use rustc_hash::FxBuildHasher;
use scc::{Guard, HashIndex};

use super::CommitTarget;
use super::buffer::{Buffer, BufferExtents, BufferGuard, DiskExtent, State, settle};
use super::item::LogItem;
use super::tuning::SCAN;
use super::writeback::write_with_retry;
use error::Error;
use format::damage::{Damage, Place};

/// The metadata buffer cache of one volume.
pub struct BufferCache {
    device: Arc<dyn Device>,
    index: HashIndex<u64, Arc<Buffer>, FxBuildHasher>,
    /// Memory of all buffers, and of the log.
    memory: Arc<Share>,
    /// Memory of buffers.
    pools: PerCpu<BufferPool>,
    /// All buffers, in the order in which they are looked at.
    queues: PerCpu<Mutex<WeakQueue<Buffer>>>,
    /// Buffers that were looked at since one was dropped.
    fruitless: AtomicUsize,
    /// The log that keeps changed buffers in memory.
    log: OnceLock<Weak<dyn CommitTarget>>,
}

impl Shrink for BufferCache {
    fn shrink(&self, bytes: u64) -> bool {
        Self::shrink(self, bytes)
    }

    fn write_back(&self) {
        if let Some(log) = self.log.get().and_then(Weak::upgrade) {
            log.request_writeback();
        }
    }
}

impl std::fmt::Debug for BufferCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufferCache({} buffers of {:?})", self.index.len(), self.device)
    }
}

impl BufferCache {
    /// An empty cache with a share of a memory budget. Buffers that are needed are kept beyond it.
    pub fn new(device: Arc<dyn Device>, memory: Arc<Share>) -> Arc<Self> {
        let (log, cpus) = (OnceLock::new(), percpu::available());
        let pools = PerCpu::new(cpus, |_| BufferPool::of_share(&memory, cpus));
        let queues = PerCpu::new(cpus, |_| Mutex::new(Rank::Leaf, WeakQueue::default()));
        let (index, fruitless) = (HashIndex::default(), AtomicUsize::new(0));
        let cache = Arc::new(Self { device, index, memory, pools, queues, fruitless, log });
        let weak = Arc::downgrade(&cache);
        cache.memory.set_cache(weak);
        cache
    }

    /// Sets the log, which is asked to write back if the buffers exceed their memory. It is set once.
    pub fn set_log(&self, log: Weak<dyn CommitTarget>) {
        let _ = self.log.set(log);
    }

    /// The share of the buffers in the memory budget.
    pub(super) fn memory(&self) -> &Arc<Share> {
        &self.memory
    }

    /// The buffer of these extents, read or not; a new one gets `rank`.
    pub fn get(&self, segments: &BufferExtents, rank: Rank) -> Arc<Buffer> {
        let key = segments.daddr().get();
        if let Some(buffer) = self.index.peek_with(&key, |_, buffer| Arc::clone(buffer)) {
            buffer.touch();
            return buffer;
        }
        if self.memory.should_shrink() {
            self.memory.shrink(|bytes| Shrink::shrink(self, bytes));
        }
        let mut is_new = false;
        let entry = self.index.entry_sync(key).or_insert_with(|| {
            is_new = true;
            self.memory.add(memory_of(segments));
            Arc::new(Buffer::new(segments.clone(), rank, self.pools.local().1))
        });
        let buffer = Arc::clone(entry.get());
        drop(entry);
        if is_new {
            self.queues.local().1.lock().push(Arc::downgrade(&buffer), ());
        }
        buffer
    }

    /// The buffer at this address if it is in memory.
    pub fn peek(&self, daddr: Daddr) -> Option<Arc<Buffer>> {
        self.index.peek_with(&daddr.get(), |_, buffer| Arc::clone(buffer))
    }

    /// The buffer at this address if it is in memory. The guard keeps it there.
    pub(super) fn find<'g>(&'g self, daddr: Daddr, guard: &'g Guard) -> Option<&'g Buffer> {
        self.index.peek(&daddr.get(), guard).map(|buffer| &**buffer)
    }

    /// Locks the buffer of these extents, and reads it if it has no contents yet.
    ///
    /// # Errors
    /// [`Error::Device`]; [`Error::Damaged`] if `verify` rejects what was read, or the cache has a buffer of another
    /// length at this address (two structures claim the same block).
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

    /// Like [`lock_read`](Self::lock_read), but returns `None` if another thread holds the lock.
    ///
    /// # Errors
    /// Those of [`lock_read`](Self::lock_read).
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

    /// Reads the buffer that an item is written back to, for [`LogItem::read_buffer`]. Returns `false` if another
    /// thread holds its lock, which is only tried. If `is_freed` returns true under that lock, the item no longer owns
    /// the block and nothing is read or verified: the block may contain another structure, or file data.
    ///
    /// # Errors
    /// Those of [`lock_read`](Self::lock_read).
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

    /// Locks the buffer of these extents, whatever its state.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the cache has a buffer of another length at this address.
    #[track_caller]
    pub fn lock(&self, segments: &BufferExtents, rank: Rank) -> Result<BufferGuard, Error> {
        loop {
            if let Some(guard) = self.accept(self.get(segments, rank).lock(), segments)? {
                return Ok(guard);
            }
        }
    }

    /// Returns the locked buffer if it is the one of these extents; `None` if it left the cache, or leaves it now
    /// because it has another length and no contents. The address is then looked up again.
    ///
    /// # Errors
    /// [`Error::Damaged`]: two structures claim one block with different lengths.
    fn accept(&self, guard: BufferGuard, segments: &BufferExtents) -> Result<Option<BufferGuard>, Error> {
        let buffer = Arc::clone(guard.owner());
        match guard.state() {
            State::Gone => Ok(None),
            _ if buffer.segments() == segments => Ok(Some(guard)),
            // Another thread looked up a block that was freed meanwhile.
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

    /// Reads a buffer without contents. The buffer of a freed block keeps that state whatever was read: the block may
    /// have a new owner, over which it must not be written.
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

    /// Bytes of all buffers in memory, and of the log.
    pub fn bytes(&self) -> u64 {
        self.memory.exact()
    }

    /// Drops buffers that are clean and were not used since they were last looked at, until the rest is at most
    /// `bytes`, or 128 buffers were looked at. Only tries locks, so it may be called with any lock held. Returns
    /// whether another call may drop more.
    #[cold]
    pub fn shrink(&self, bytes: u64) -> bool {
        let mut left = SCAN;
        let (_, local) = self.queues.local();
        for queue in std::iter::once(local).chain(self.queues.iter()) {
            let mut rounds = queue.lock().len();
            while rounds > 0 && left > 0 {
                if self.memory.used() <= bytes {
                    return true;
                }
                let Some((weak, ())) = queue.lock().pop() else { break };
                (rounds, left) = (rounds - 1, left - 1);
                let Some(buffer) = weak.upgrade() else { continue };
                if buffer.forget_use() || !self.drop_buffer(&buffer) {
                    queue.lock().push(weak, ());
                    self.fruitless.fetch_add(1, Relaxed);
                } else {
                    self.fruitless.store(0, Relaxed);
                }
            }
        }
        let all: usize = self.queues.iter().map(|queue| queue.lock().len()).sum();
        let has_more = self.fruitless.load(Relaxed) <= 2 * all;
        if !has_more {
            self.fruitless.store(0, Relaxed);
        }
        has_more
    }

    /// Drops a buffer if it is clean and its lock is free. Returns whether it is gone.
    fn drop_buffer(&self, buffer: &Arc<Buffer>) -> bool {
        buffer.try_lock().is_some_and(|guard| self.drop_locked(buffer, guard))
    }

    fn drop_locked(&self, buffer: &Arc<Buffer>, mut guard: BufferGuard) -> bool {
        settle(&mut guard);
        if guard.state() == State::Gone {
            return true;
        }
        let drops = !is_needed(buffer, &guard);
        if drops {
            self.remove(buffer, guard);
        }
        drops
    }

    fn remove(&self, buffer: &Arc<Buffer>, mut guard: BufferGuard) {
        guard.leave_cache();
        drop(guard);
        self.index.remove_if_sync(&buffer.daddr().get(), |found| Arc::ptr_eq(found, buffer));
        self.memory.sub(memory_of(buffer.segments()));
    }

    /// Writes an unlogged block to its place at once, and caches it. It was allocated like a data block, so no write
    /// over its former contents is in flight.
    ///
    /// # Errors
    /// [`Error::Device`], and those of [`lock`](Self::lock).
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

    /// Drops a buffer with other extents that begins at the same address and whose block was freed, because the address
    /// gets a new buffer. Returns `false` if the freeing is not stable: the new buffer must not be logged before the
    /// log contains the cancellation, as both have the same address. Force the log and call again.
    ///
    /// The old buffer lives on as a log item until the journal and the device release it. A thread that has it locked
    /// is reading a removed file by its inode number, and waits for nothing.
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

impl Drop for BufferCache {
    fn drop(&mut self) {
        // The index frees buffers later.
        self.pools.iter().for_each(BufferPool::close);
    }
}

/// Memory of a buffer: its pages, and what describes it. That includes its place in the index, in the queue, and in the
/// lists of the log.
fn memory_of(segments: &BufferExtents) -> u64 {
    const PLACES: usize = 96;
    (segments.bytes().next_multiple_of(ALIGNMENT) + size_of::<Buffer>() + PLACES) as u64
}

/// Whether a locked buffer has changes that are not written back, or a write of it is in flight.
fn is_needed(buffer: &Buffer, guard: &BufferGuard) -> bool {
    let core = buffer.core();
    guard.is_dirty() || core.is_pinned() || core.lsn().is_some() || buffer.is_being_written()
}
