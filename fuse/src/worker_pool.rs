//! Worker pool for FUSE requests: which of the threads reads `/dev/fuse`.
//!
//! One worker reads the device; the others are idle. With several readers the kernel wakes them round-robin, so that a
//! client that sends one request at a time pays a cross-CPU wakeup for each: with one reader `open(2)` is three times
//! faster. A worker that took a request answers it itself; if no other worker is reading by then, it reads the next.
//! An idle worker sleeps until it is woken:
//!
//! | event | effect |
//! |---|---|
//! | a request that may block is taken ([`wake_reader`](WorkerPool::wake_reader)) | one worker is woken at once |
//! | requests arrive faster than one worker answers them ([`BUSY_STREAK`]) | one more worker is woken |
//! | a request has run for [`TICK`] and no worker reads the device | the watchdog starts to read |
//!
//! The watchdog is one of the idle workers: it sleeps with a timeout of [`TICK`], the others without one. After
//! [`QUIET_TICKS`] ticks without a request it stops ticking; the next request restarts it.
//!
//! # Invariants
//! - Unless all workers process requests, one of them reads the device or is about to, or the watchdog ticks and
//!   notices within two ticks that none does.
//! - No wakeup of the watchdog is lost: it sets `paused` before it checks `taken`, and a worker increments `taken`
//!   before it checks `paused`, both sequentially consistent, so that one of them sees the other's store.
//!
//! # Locking
//! One mutex for the state of idle workers. A worker that reads the device or processes a request does not hold it.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// After this many consecutive requests that were already queued when the worker came back, one more worker is woken.
const BUSY_STREAK: u32 = 32;

/// A read of the device that takes no longer than this, plus one nanosecond for each [`BYTES_PER_NANOSECOND`] copied,
/// found its request already queued.
const QUEUED_READ: Duration = Duration::from_micros(2);
const BYTES_PER_NANOSECOND: usize = 4;

/// Period of the watchdog.
const TICK: Duration = Duration::from_millis(1);

/// Ticks without a request after which the watchdog stops ticking.
const QUIET_TICKS: u32 = 20;

/// Shared state of the workers of one mount.
#[derive(Debug, Default)]
pub struct WorkerPool {
    /// Workers that read the device, or are about to.
    readers: AtomicUsize,
    /// Requests taken from the device so far (wraps around).
    taken: AtomicUsize,
    /// Workers that sleep until they are woken, including the watchdog.
    idle: AtomicUsize,
    /// The watchdog has stopped ticking until the next request.
    paused: AtomicBool,
    /// The mount has ended. Set while `state` is locked, so that no idle worker misses it.
    ended: AtomicBool,
    state: Mutex<IdleState>,
    notify: Condvar,
}

#[derive(Debug, Default)]
struct IdleState {
    /// Wakeups that were sent and that no worker has consumed yet.
    wakeups: usize,
    /// One of the idle workers is the watchdog.
    has_watchdog: bool,
}

/// One worker's part in the pool. When it is dropped, all other workers end, too.
#[derive(Debug)]
pub struct Worker<'p> {
    pool: &'p WorkerPool,
    /// Requests in a row that were queued when this worker came for them.
    streak: u32,
}

impl WorkerPool {
    /// Adds a worker. It reads the device when [`Worker::wait_to_read`] returns.
    pub fn join(&self) -> Worker<'_> {
        Worker { pool: self, streak: 0 }
    }

    /// Wakes an idle worker to read the device, unless one reads it now.
    pub fn wake_reader(&self) {
        if self.readers.load(SeqCst) == 0 && self.idle.load(SeqCst) > 0 {
            self.wake_one(&mut self.lock());
        }
    }

    fn wake_one(&self, state: &mut IdleState) {
        state.wakeups += 1;
        // The worker that wakes consumes the wakeup, whether it is the watchdog or another.
        self.notify.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, IdleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until this worker is woken or the mount ends.
    fn sleep(&self) {
        self.idle.fetch_add(1, SeqCst);
        let mut state = self.lock();
        while state.wakeups == 0 && !self.has_ended() {
            state = if state.has_watchdog {
                self.notify.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                state.has_watchdog = true;
                let mut state = self.watch(state);
                state.has_watchdog = false;
                // Another idle worker becomes the watchdog.
                self.notify.notify_one();
                state
            };
        }
        state.wakeups = state.wakeups.saturating_sub(1);
        self.idle.fetch_sub(1, SeqCst);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Runs the watchdog until there is a wakeup, its own included, or the mount ends.
    fn watch<'p>(&'p self, mut state: MutexGuard<'p, IdleState>) -> MutexGuard<'p, IdleState> {
        let (mut seen, mut quiet) = (self.taken.load(SeqCst), 0);
        while state.wakeups == 0 && !self.has_ended() {
            state = self.notify.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            let taken = self.taken.load(SeqCst);
            let is_stuck = taken == seen && self.readers.load(SeqCst) == 0;
            quiet = if taken == seen { quiet + 1 } else { 0 };
            seen = taken;
            if is_stuck {
                // The watchdog itself consumes this wakeup.
                state.wakeups += 1;
            } else if quiet >= QUIET_TICKS {
                quiet = 0;
                self.paused.store(true, SeqCst);
                // A worker that takes a request from here on sees `paused`.
                if self.taken.load(SeqCst) == seen && state.wakeups == 0 && !self.has_ended() {
                    state = self.notify.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                self.paused.store(false, SeqCst);
            }
        }
        state
    }
}

impl Worker<'_> {
    /// Returns `true` when this worker has to read the device, and `false` when the mount has ended.
    pub fn wait_to_read(&mut self) -> bool {
        // Two workers may pass this check at once: the second sleeps after its first answer.
        if self.pool.readers.load(SeqCst) > 0 {
            self.pool.sleep();
        }
        if self.pool.has_ended() {
            return false;
        }
        self.pool.readers.fetch_add(1, SeqCst);
        true
    }

    /// The read of the device has returned after `waited`, with a request of `length` bytes, or without one because
    /// the mount has ended.
    pub fn read_returned(&mut self, waited: Duration, length: usize) {
        let pool = self.pool;
        pool.readers.fetch_sub(1, SeqCst);
        pool.taken.fetch_add(1, SeqCst);
        if pool.paused.load(SeqCst) && pool.paused.swap(false, SeqCst) {
            // Once the lock is free, the watchdog waits on `notify`, or has seen `taken`.
            drop(pool.lock());
            pool.notify.notify_all();
        }
        let queued_read = QUEUED_READ + Duration::from_nanos((length / BYTES_PER_NANOSECOND) as u64);
        self.streak = if waited < queued_read { self.streak + 1 } else { 0 };
        if self.streak == BUSY_STREAK {
            self.streak = 0;
            pool.wake_reader();
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        let state = self.pool.lock();
        self.pool.ended.store(true, SeqCst);
        drop(state);
        self.pool.notify.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// The processing of a request.
    type Work = Box<dyn FnOnce() + Send>;

    /// A device that gives requests.
    struct Device(Mutex<Receiver<Work>>);

    /// Runs workers until the device ends, and returns how many requests each of them processed.
    fn serve(threads: usize, send: impl FnOnce(Sender<Work>)) -> Vec<u32> {
        let (sender, receiver) = channel();
        let (pool, device) = (WorkerPool::default(), Device(Mutex::new(receiver)));
        let work = || {
            let (mut worker, mut count) = (pool.join(), 0);
            while worker.wait_to_read() {
                let since = std::time::Instant::now();
                let request = device.0.lock().unwrap().recv();
                worker.read_returned(since.elapsed(), 0);
                let Ok(request) = request else { break };
                count += 1;
                request();
            }
            count
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            send(sender);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Requests that block delay no other request: an idle worker takes the next one, also after a long pause.
    #[test]
    fn a_request_that_blocks_delays_no_other() {
        /// Reached only if a request was delayed.
        const NEVER: Duration = Duration::from_secs(60);
        let (done, completions) = channel();
        let processed = serve(4, |sender| {
            let ends: Vec<Sender<()>> = (0..3)
                .map(|_| {
                    std::thread::sleep(Duration::from_millis(60));
                    let (end, ended) = channel();
                    sender.send(Box::new(move || ended.recv().unwrap_or_default())).unwrap();
                    end
                })
                .collect();
            for _ in 0..50 {
                let done = done.clone();
                sender.send(Box::new(move || done.send(()).unwrap())).unwrap();
            }
            let all = (0..50).all(|_| completions.recv_timeout(NEVER).is_ok());
            drop(ends);
            assert!(all, "requests wait behind those that block");
        });
        assert_eq!(processed.iter().sum::<u32>(), 53);
    }

    /// With pauses in which all workers but one sleep, each request is answered, and all workers end.
    #[test]
    fn requests_with_pauses_are_answered() {
        let processed = serve(8, |sender| {
            for _ in 0..200 {
                sender.send(Box::new(|| {})).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        assert_eq!(processed.iter().sum::<u32>(), 200);
    }

    /// The workers that were left served the mount alone, until the last of them had failed, too.
    #[test]
    fn a_worker_that_fails_ends_all() {
        let pool = WorkerPool::default();
        let (mut first, mut busy) = (pool.join(), pool.join());
        assert!(busy.wait_to_read());
        busy.read_returned(Duration::ZERO, 0);
        assert!(first.wait_to_read());
        std::thread::scope(|scope| {
            let idle = scope.spawn(|| pool.join().wait_to_read());
            std::thread::sleep(Duration::from_millis(20));
            first.read_returned(Duration::ZERO, 0);
            drop(first);
            assert!(!idle.join().unwrap());
        });
        assert!(!busy.wait_to_read());
    }
}
