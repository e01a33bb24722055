//! The grant head: how much of the log is spoken for.
//!
//! One number, the *head*, is the position that the log would have if every reservation had been written. Reserving
//! moves it forward by compare-and-swap, giving back moves it back; the *tail* is the position of the oldest record
//! that is still needed. Between them lies what is in use. Only where that is the whole log does anybody wait.
//!
//! | who | may use | waits |
//! |---|---|---|
//! | a new transaction | the log but for a margin | before it holds anything, in order of arrival, behind all that roll |
//! | a transaction that rolls | the whole log | holding locks: its next reservation is taken at once, over the limit if need be, and it waits until the tail has made the head legal again |
//!
//! Each CPU keeps a *stock*: space that the head has passed and nobody holds. A transaction usually begins with space
//! from the stock of its CPU and gives back what it did not use there, so that CPUs do not meet on the head. As soon as
//! somebody waits, all cpu_caches go back.
//!
//! A transaction that rolls never gives up the claim on its unit, so those that came later cannot take the space that
//! it needs to go on: what it waits for is only that the tail moves, and the tail does, because whoever rolls logs the
//! items that it holds again and so moves them away from the tail. The margin is the room for these.
//!
//! # Invariants
//! `tail <= written <= head`, where *written* is what the log's buffers have taken; nothing is reserved beyond
//! `tail + limit` but by transactions that roll and wait.
//!
//! # Locking
//! The queue of waiters has rank `GrantHead`; nothing is taken under it. No wake-up is lost: a waiter first counts
//! itself in `waiting`, then tries again, then sleeps; whoever frees space first frees it, then looks at `waiting`. All
//! four steps are sequentially consistent, so one of the two sees the other.

use std::collections::VecDeque;
use std::sync::Arc;

use base::lock::{Condvar, Mutex, Rank};
use base::percpu::{self, PerCpu};
use base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use crossbeam_utils::CachePadded;

use super::shutdown::Shutdown;

/// How a thread asks for the tail to move. Called without locks; must not wait.
pub trait TailPusher: Send + Sync {
    /// The tail should reach `position`, as far as that is possible.
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
    /// Bytes of it that new transactions leave free.
    margin: u64,
    queue: Mutex<Queue>,
    /// Space that is reserved for nobody yet, on each CPU: most transactions begin and end with it.
    cpu_caches: PerCpu<AtomicU64>,
    /// Bytes of a full cache.
    cpu_cache_bytes: u64,
    waits: AtomicU64,
}

#[derive(Default)]
struct Queue {
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
    /// A log of `bytes` with its tail and its head at these positions.
    pub fn new(bytes: u64, unit: u32, positions: GrantPositions) -> Self {
        // Head and tail never meet in a full log, and there is always room for the unmount record.
        let limit = bytes.saturating_sub(8 * u64::from(unit) + 4096);
        Self {
            head: CachePadded::new(AtomicU64::new(positions.head)),
            tail: CachePadded::new(AtomicU64::new(positions.tail)),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            limit,
            margin: limit / 8,
            queue: Mutex::new(Rank::Grant, Queue::default()),
            cpu_caches: PerCpu::new(percpu::available(), |_| AtomicU64::new(0)),
            cpu_cache_bytes: (limit / 16 / percpu::available() as u64).min(1 << 20),
            waits: AtomicU64::new(0),
        }
    }

    /// Most bytes that one reservation can have.
    pub fn largest(&self) -> u64 {
        self.limit - self.margin
    }

    /// The head's position.
    pub fn head(&self) -> u64 {
        self.head.load(SeqCst)
    }

    /// The tail's position.
    pub fn tail(&self) -> u64 {
        self.tail.load(SeqCst)
    }

    /// How often a thread had to wait.
    pub fn waits(&self) -> u64 {
        self.waits.load(SeqCst)
    }

    /// Whether somebody waits now.
    pub fn has_waiters(&self) -> bool {
        self.waiting.load(SeqCst) != 0
    }

    /// The position that the tail should have so that a quarter of the log is free, or what waits can be granted.
    pub fn push_target(&self, need: u64) -> u64 {
        (self.head() + need.max(self.limit / 4) + self.margin).saturating_sub(self.limit)
    }

    /// Reserves `bytes` for a new transaction.
    ///
    /// # Errors
    /// [`Shutdown::Already`]; [`Shutdown::Because`] where it is more than [`largest`](Self::largest).
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
                "a transaction of {bytes} bytes does not fit into the log, which has room for {} (make the volume with \
                 a larger log)",
                self.largest()
            )));
        }
        self.wait(bytes, pressure)
    }

    /// Reserves `bytes` if there is space: from this CPU's stock, which is filled up on the way, or from the log.
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

    /// Reserves `bytes` of the whole log, as a transaction that rolls may, if so many more are left for its rolling.
    pub fn try_reserve_whole_log(&self, bytes: u64, more: u64) -> bool {
        self.drain_cpu_caches();
        self.take(bytes, self.limit.saturating_sub(more))
    }

    /// Puts space into this CPU's stock, unless somebody waits for it.
    fn put_in_cpu_cache(&self, bytes: u64) {
        self.cpu_caches.local().1.fetch_add(bytes, SeqCst);
        // First the stock, then a look at who waits: whoever waits first counts itself, then gathers the cpu_caches.
        self.wake();
    }

    /// Gives all cpu_caches back to the log.
    pub fn drain_cpu_caches(&self) {
        self.empty_cpu_caches();
        // Between the two steps, what was in the cpu_caches is nobody's: a thread that has come to wait did not see it.
        self.wake();
    }

    fn empty_cpu_caches(&self) {
        let found: u64 = self.cpu_caches.iter().map(|cache| cache.swap(0, SeqCst)).sum();
        self.head.fetch_sub(found, SeqCst);
    }

    /// Reserves `bytes` for a transaction that rolls; the space is taken at once, and then waited for.
    ///
    /// # Errors
    /// [`Shutdown::Already`]; the space is taken all the same.
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

    /// Gives back what was reserved and not used.
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

    /// Refuses everybody from now on and wakes all that wait.
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

    /// Waits until the queue has served `bytes`; 0 means to wait for the head to be legal.
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
            // Space may have come while the lock was free: then `granted` is set, or the queue was served without us.
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

    /// Grants what can be granted, in order: first all that roll, then the new ones.
    #[cold]
    fn serve(&self, queue: &mut Queue) {
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
