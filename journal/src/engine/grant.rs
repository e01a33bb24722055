//! The grant head: accounting of log space.
//!
//! The *head* is one number: the position that the log would reach if every reservation were written. Reserving moves
//! it forward by compare-and-swap, releasing moves it back. The *tail* is the position of the oldest record that is
//! still needed. The space between them is in use. A thread waits only if that is the whole log.
//!
//! | caller | may use | waits |
//! |---|---|---|
//! | a new transaction | the log minus a margin | before it takes any lock, in order of arrival, behind all that roll |
//! | a transaction that rolls | the whole log | holding locks: its next reservation is taken at once, over the limit if need be, and it waits until the tail has caught up |
//!
//! Each CPU has a *cache* of log space that the head has passed and no transaction holds. A transaction usually
//! reserves from the cache of its CPU and returns there what it did not use, so that CPUs do not contend for the head.
//! As soon as a thread waits, all caches are drained.
//!
//! A transaction that rolls never gives up the claim on its unit, so later ones cannot take the space that it needs to
//! continue. It waits only for the tail to move, and the tail moves: the transaction has logged the items that it holds
//! again, away from the tail. The margin is the space for these.
//!
//! # Invariants
//! `tail <= written <= head`, where *written* is what the iclogs have taken. Nothing is reserved beyond `tail + limit`
//! except by transactions that roll and wait.
//!
//! # Locking
//! The queue of waiters has rank `Grant`; no lock is taken under it. No wake-up is lost: a waiter counts itself in
//! `waiting`, tries again, then sleeps; a thread that frees space frees it, then reads `waiting`. All four steps are
//! sequentially consistent, so one of the two sees the other.

use std::collections::VecDeque;
use std::sync::Arc;

use base::lock::{Condvar, Mutex, Rank};
use base::percpu::{self, PerCpu};
use base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use crossbeam_utils::CachePadded;

use super::shutdown::Shutdown;

/// Asks for the tail to move. Called without locks; must not wait.
pub trait TailPusher: Send + Sync {
    /// The tail should reach `position`, as far as possible.
    fn push_tail_to(&self, position: u64);
}

/// Tail and head of the log, in bytes (see `LogDevice`).
#[derive(Clone, Copy, Debug)]
pub struct GrantPositions {
    /// Oldest record still needed.
    pub tail: u64,
    /// Next record.
    pub head: u64,
}

/// The grant head, the tail, and the threads that wait for log space.
pub struct GrantHead {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    waiting: AtomicUsize,
    closed: AtomicBool,
    /// Bytes that may be in use.
    limit: u64,
    /// Bytes of `limit` that new transactions leave free.
    margin: u64,
    queue: Mutex<WaitQueue>,
    /// Space that no transaction holds, per CPU.
    cpu_caches: PerCpu<AtomicU64>,
    /// Largest size of a CPU's cache in bytes.
    cpu_cache_bytes: u64,
    waits: AtomicU64,
}

#[derive(Default)]
struct WaitQueue {
    rolling: VecDeque<Arc<Waiter>>,
    new: VecDeque<Arc<Waiter>>,
}

/// A thread that waits for space.
struct Waiter {
    need: u64,
    granted: AtomicBool,
    wake: Condvar,
}

impl GrantHead {
    /// The accounting of a log of `bytes`.
    pub fn new(bytes: u64, unit: u32, positions: GrantPositions) -> Self {
        // Head and tail never meet in a full log, and the unmount record always fits.
        let limit = bytes.saturating_sub(8 * u64::from(unit) + 4096);
        Self {
            head: CachePadded::new(AtomicU64::new(positions.head)),
            tail: CachePadded::new(AtomicU64::new(positions.tail)),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            limit,
            margin: limit / 8,
            queue: Mutex::new(Rank::Grant, WaitQueue::default()),
            cpu_caches: PerCpu::new(percpu::available(), |_| AtomicU64::new(0)),
            cpu_cache_bytes: (limit / 16 / percpu::available() as u64).min(1 << 20),
            waits: AtomicU64::new(0),
        }
    }

    /// Largest possible reservation in bytes.
    pub fn largest(&self) -> u64 {
        self.limit - self.margin
    }

    /// Position of the head.
    pub fn head(&self) -> u64 {
        self.head.load(SeqCst)
    }

    /// Position of the tail.
    pub fn tail(&self) -> u64 {
        self.tail.load(SeqCst)
    }

    /// How often a thread waited.
    pub fn waits(&self) -> u64 {
        self.waits.load(SeqCst)
    }

    /// Whether a thread waits now.
    pub fn has_waiters(&self) -> bool {
        self.waiting.load(SeqCst) != 0
    }

    /// The tail position at which a quarter of the log is free, or the waiting reservation fits.
    pub fn push_target(&self, need: u64) -> u64 {
        (self.head() + need.max(self.limit / 4) + self.margin).saturating_sub(self.limit)
    }

    /// Reserves `bytes` for a new transaction.
    ///
    /// # Errors
    /// [`Shutdown::Already`]; [`Shutdown::Because`] if it exceeds [`largest`](Self::largest).
    #[inline]
    pub fn reserve(&self, bytes: u64, pressure: &dyn TailPusher) -> Result<(), Shutdown> {
        if self.closed.load(SeqCst) {
            return Err(Shutdown::Already);
        }
        if self.waiting.load(SeqCst) == 0 && self.try_reserve(bytes) {
            if self.head() > self.tail() + self.largest() - self.limit / 4 {
                pressure.push_tail_to(self.push_target(0));
            }
            return Ok(());
        }
        if bytes > self.largest() {
            return Err(Shutdown::Because(format!(
                "a transaction of {bytes} bytes does not fit into the log, which has {} available (create the \
                volume with a larger log)",
                self.largest()
            )));
        }
        self.wait(bytes, pressure)
    }

    /// Reserves `bytes` if there is space: from this CPU's cache, which is refilled on the way, or from the log.
    pub fn try_reserve(&self, bytes: u64) -> bool {
        let (_, cache) = self.cpu_caches.local();
        if cache.fetch_update(SeqCst, SeqCst, |have| have.checked_sub(bytes)).is_ok() {
            return true;
        }
        let fill = self.cpu_cache_bytes / 2;
        if bytes < fill && self.take(bytes + fill, self.largest() - self.largest() / 4) {
            self.put_in_cpu_cache(fill);
            return true;
        }
        self.take(bytes, self.largest())
    }

    /// Reserves `bytes` of the whole log, like a transaction that rolls, if `more` bytes stay free for its rolling.
    pub fn try_reserve_whole_log(&self, bytes: u64, more: u64) -> bool {
        self.drain_cpu_caches();
        self.take(bytes, self.limit.saturating_sub(more))
    }

    /// Puts space into this CPU's cache, unless a thread waits for it.
    fn put_in_cpu_cache(&self, bytes: u64) {
        self.cpu_caches.local().1.fetch_add(bytes, SeqCst);
        // The cache first, then `waiting`: a waiter counts itself first and then drains the caches.
        self.wake();
    }

    /// Returns the space of all caches to the log.
    pub fn drain_cpu_caches(&self) {
        self.empty_cpu_caches();
        // A thread that began to wait between the two steps has seen the space neither in a cache nor in the log.
        self.wake();
    }

    fn empty_cpu_caches(&self) {
        let found: u64 = self.cpu_caches.iter().map(|cache| cache.swap(0, SeqCst)).sum();
        self.head.fetch_sub(found, SeqCst);
    }

    /// Reserves `bytes` for a transaction that rolls: takes the space at once, then waits for it.
    ///
    /// # Errors
    /// [`Shutdown::Already`]; the space is taken nevertheless.
    pub fn regrant(&self, bytes: u64, pressure: &dyn TailPusher) -> Result<(), Shutdown> {
        let head = self.head.fetch_add(bytes, SeqCst) + bytes;
        if self.closed.load(SeqCst) {
            return Err(Shutdown::Already);
        }
        if head <= self.tail() + self.limit {
            return Ok(());
        }
        self.wait(0, pressure)
    }

    /// Releases unused reserved space.
    #[inline]
    pub fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (_, cache) = self.cpu_caches.local();
        if cache.load(SeqCst) + bytes <= self.cpu_cache_bytes {
            self.put_in_cpu_cache(bytes);
        } else {
            self.head.fetch_sub(bytes, SeqCst);
            self.wake();
        }
    }

    /// Moves the tail forward.
    pub fn advance_tail(&self, position: u64) {
        if self.tail.fetch_max(position, SeqCst) < position {
            self.wake();
        }
    }

    /// Fails all later reservations and wakes all waiting threads.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        let queue = self.queue.lock();
        for waiter in queue.rolling.iter().chain(&queue.new) {
            waiter.wake.notify_one();
        }
    }

    fn take(&self, bytes: u64, limit: u64) -> bool {
        let end = self.tail.load(SeqCst) + limit;
        let fits = |head: u64| (head + bytes <= end).then_some(head + bytes);
        self.head.fetch_update(SeqCst, SeqCst, fits).is_ok()
    }

    /// Waits until the queue has granted `need` bytes; 0 waits for the head to be within the limit.
    #[cold]
    fn wait(&self, need: u64, pressure: &dyn TailPusher) -> Result<(), Shutdown> {
        self.waits.fetch_add(1, SeqCst);
        let waiter = Arc::new(Waiter { need, granted: AtomicBool::new(false), wake: Condvar::new() });
        let mut queue = self.queue.lock();
        let line = if need == 0 { &mut queue.rolling } else { &mut queue.new };
        line.push_back(Arc::clone(&waiter));
        self.waiting.fetch_add(1, SeqCst);
        self.serve(&mut queue);
        while !waiter.granted.load(SeqCst) {
            if self.closed.load(SeqCst) {
                queue.rolling.retain(|other| !Arc::ptr_eq(other, &waiter));
                queue.new.retain(|other| !Arc::ptr_eq(other, &waiter));
                self.waiting.fetch_sub(1, SeqCst);
                return Err(Shutdown::Already);
            }
            drop(queue);
            pressure.push_tail_to(self.push_target(need));
            queue = self.queue.lock();
            // Space may have become free while the lock was released: then `granted` is set, or the queue was served
            // without us.
            if !waiter.granted.load(SeqCst) && !self.closed.load(SeqCst) {
                waiter.wake.wait(&mut queue);
            }
        }
        Ok(())
    }

    #[inline]
    fn wake(&self) {
        if self.waiting.load(SeqCst) != 0 {
            self.serve(&mut self.queue.lock());
        }
    }

    /// Grants waiting reservations in order: first transactions that roll, then new ones.
    #[cold]
    fn serve(&self, queue: &mut WaitQueue) {
        self.empty_cpu_caches();
        while let Some(first) = queue.rolling.front() {
            if self.head() > self.tail() + self.limit {
                return;
            }
            self.grant(first);
            queue.rolling.pop_front();
        }
        while let Some(first) = queue.new.front() {
            if !self.take(first.need, self.largest()) {
                return;
            }
            self.grant(first);
            queue.new.pop_front();
        }
    }

    fn grant(&self, waiter: &Waiter) {
        waiter.granted.store(true, SeqCst);
        self.waiting.fetch_sub(1, SeqCst);
        waiter.wake.notify_one();
    }
}

impl std::fmt::Debug for GrantHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrantHead")
            .field("head", &self.head())
            .field("tail", &self.tail())
            .finish_non_exhaustive()
    }
}
