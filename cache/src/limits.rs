//! Throttling of writers.
//!
//! Writers are throttled in proportion: above the middle between the background and the hard limit, each write pauses
//! for as long as the device needs for its bytes, times the fraction of the way to the hard limit, times two. At the
//! hard limit it waits until the flusher has written some. Dirty bytes fall with each write that ends, not with each
//! pass.
//!
//! # Invariants
//! A writer at the limit waits for the flusher, however long the device takes. It counts only passes that begin after
//! it started to wait: if such a pass fails and writes nothing, the writer gets `EIO`; if it finds nothing to write,
//! the writer goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use base::lock::{Condvar, Mutex, Rank};
use error::Error;

use crate::cache::Cache;
use crate::tuning::{INITIAL_RATE, PAUSE_MAX};
use backing::Backing;

/// State of throttling.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Recent write rate in bytes per second; 0 if unknown.
    rate: AtomicU64,
    /// The flusher is running.
    pub flusher: AtomicBool,
    /// Reclaim failed because of dirty folios.
    is_short: AtomicBool,
    passes: Mutex<Passes>,
    changed: Condvar,
}

/// Passes of writeback. They run one after the other.
#[derive(Debug, Default)]
struct Passes {
    begun: u64,
    ended: u64,
    /// Outcome of the last one.
    last: Outcome,
    /// Notifications sent.
    events: u64,
}

/// Outcome of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Outcome {
    Wrote,
    #[default]
    Nothing,
    Failed,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rate: AtomicU64::new(0),
            flusher: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            passes: Mutex::new(Rank::Leaf, Passes::default()),
            changed: Condvar::new(),
        }
    }
}

impl Pace {
    /// Reclaim failed because of dirty folios.
    pub fn note_short(&self) {
        self.is_short.store(true, Relaxed);
    }

    /// Wakes waiting writers, which check the limits again.
    pub fn notify(&self) {
        self.passes.lock().events += 1;
        self.changed.notify_all();
    }

    /// Begins a pass. Called before it takes dirty files.
    pub fn begin_pass(&self) {
        self.passes.lock().begun += 1;
    }

    /// Ends a pass.
    pub fn end_pass(&self, bytes: u64, nanos: u64, failed: bool) {
        if bytes > 0 && nanos > 0 {
            let now = u128::from(bytes) * 1_000_000_000 / u128::from(nanos);
            let now = u64::try_from(now).unwrap_or(u64::MAX).max(1);
            let before = self.rate.load(Relaxed);
            let rate = if before == 0 { now } else { before / 4 * 3 + now / 4 };
            self.rate.store(rate.max(1), Relaxed);
        }
        let mut passes = self.passes.lock();
        passes.ended = passes.begun;
        passes.last = match bytes {
            0 if failed => Outcome::Failed,
            0 => Outcome::Nothing,
            _ => Outcome::Wrote,
        };
        passes.events += 1;
        drop(passes);
        self.changed.notify_all();
    }

    /// Returns the number of the next pass, and the notifications sent.
    fn next_pass(&self) -> (u64, u64) {
        let passes = self.passes.lock();
        (passes.begun + 1, passes.events)
    }

    /// Waits until more than `events` notifications were sent. Returns their number, and the outcome of the last pass
    /// if `pass` has ended.
    fn wait(&self, pass: u64, events: u64) -> (u64, Option<Outcome>) {
        let mut passes = self.passes.lock();
        while passes.events == events {
            self.changed.wait(&mut passes);
        }
        (passes.events, (passes.ended >= pass).then_some(passes.last))
    }

    fn rate(&self) -> u64 {
        match self.rate.load(Relaxed) {
            0 => INITIAL_RATE,
            rate => rate,
        }
    }
}

impl<B: Backing> Cache<B> {
    /// Throttles a write. The caller holds no lock.
    ///
    /// # Errors
    /// `EIO` if writeback fails and writes nothing.
    #[inline]
    pub(crate) fn throttle(&self, bytes: u64) -> Result<(), Error> {
        let dirty = self.dirty.get();
        if dirty <= self.limits.background && !self.pace.is_short.load(Relaxed) {
            return Ok(());
        }
        self.throttle_slow(bytes)
    }

    #[cold]
    fn throttle_slow(&self, bytes: u64) -> Result<(), Error> {
        self.wakeup.notify();
        let (dirty, limits) = (self.dirty.get(), &self.limits);
        let middle = limits.background + (limits.hard - limits.background) / 2;
        if !self.pace.flusher.load(SeqCst) {
            // Without a flusher the writer writes back.
            if dirty > limits.hard || self.pace.is_short.swap(false, Relaxed) {
                let (wrote, error) = self.write_back_all();
                return error.filter(|_| wrote == 0 && self.dirty.get() > limits.hard).map_or(Ok(()), Err);
            }
            return Ok(());
        }
        if dirty > middle && dirty <= limits.hard {
            // Fraction of the way to the limit, in thousandths.
            let over = (dirty - middle) * 1000 / (limits.hard - middle).max(1);
            let micros = bytes.saturating_mul(1_000_000) / self.pace.rate() * over / 500;
            self.count_pause(|| base::thread::sleep(Duration::from_micros(micros).min(PAUSE_MAX)));
        }
        self.wait_for_writeback()
    }

    /// Waits while dirty bytes exceed the hard limit.
    fn wait_for_writeback(&self) -> Result<(), Error> {
        let (mut pass, mut events) = self.pace.next_pass();
        while self.pace.flusher.load(SeqCst) && (self.dirty.exact() > self.limits.hard || self.is_short()) {
            self.wakeup.notify();
            let (now, ended) = self.count_pause(|| self.pace.wait(pass, events));
            events = now;
            match ended {
                Some(Outcome::Failed) => {
                    return Err(Error::Refused {
                        errno: base::errno::EIO,
                        why: "writeback is failing; fsync reports the cause",
                    });
                }
                // All dirty data is being written by other threads.
                Some(Outcome::Nothing) => return Ok(()),
                Some(Outcome::Wrote) => pass = self.pace.next_pass().0,
                None => {}
            }
        }
        Ok(())
    }

    fn count_pause<R>(&self, pause: impl FnOnce() -> R) -> R {
        let begin = self.now();
        let result = pause();
        self.counters.throttled.add();
        let micros = self.now().saturating_sub(begin) / 1000;
        self.counters.throttled_us.add_many(micros);
        self.counters.pauses.add(micros);
        result
    }

    /// Returns whether memory is short because of dirty folios.
    fn is_short(&self) -> bool {
        self.pace.is_short.load(Relaxed) && {
            let short = self.memory.is_exceeded() && !self.reclaim(self.memory.limit());
            self.pace.is_short.store(short, Relaxed);
            short && self.dirty.exact() > 0
        }
    }
}
