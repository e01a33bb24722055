//! Throttling of writers.
//!
//! Above the middle between the background and the hard limit, writers take turns at a rate: twice the device's at the
//! middle, and less with each byte, so that all writers together make as much dirty as the device writes, however many
//! they are. The threads of a CPU take one turn for [`TURN_BYTES`] that they wrote. A pause for each write would be
//! shorter than what it takes to sleep, and many writers would only wake each other. At the hard limit a writer waits
//! until the flushers have written some. Dirty bytes fall with each write that ends, not with each pass.
//!
//! # Invariants
//! A writer at the limit waits for the flushers, however long the device takes. It counts only passes that begin after
//! it started to wait. If one of them writes something, it waits on. If each stretch has had such a pass and none wrote
//! anything, the writer gets `EIO` if one of them failed; otherwise there was nothing to write, and it goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use base::lock::{Condvar, Mutex, Rank};
use base::percpu::PerCpu;
use error::Error;

use crate::cache::Cache;
use crate::sync::PassResult;
use crate::tuning::{INITIAL_RATE, PAUSE_MAX, TURN_BYTES};
use backing::Backing;

/// State of throttling.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Recent write rate of the device in bytes per second; 0 if unknown.
    rate: AtomicU64,
    /// When the turn of the last writer ends, by the clock of the cache, in nanoseconds.
    turn: AtomicU64,
    /// Bytes that the threads of a CPU wrote since their last turn.
    owed: PerCpu<AtomicU64>,
    /// Bytes written by all flushers, and by threads that write single files back.
    written: AtomicU64,
    /// All flushers are running.
    flushers: AtomicBool,
    /// Reclaim failed because of dirty folios.
    is_short: AtomicBool,
    passes: Mutex<Passes>,
    changed: Condvar,
}

/// Passes of writeback. Those of one stretch run one after the other.
#[derive(Debug)]
struct Passes {
    /// Passes that have begun. Each has a number.
    begun: u64,
    /// The highest number of an ended pass that wrote something.
    wrote: u64,
    /// The last ended pass of each stretch, and its outcome.
    last: Box<[(u64, Outcome)]>,
    /// Notifications sent.
    events: u64,
}

/// A pass that has begun.
#[derive(Debug)]
pub(crate) struct Pass {
    number: u64,
    /// Bytes written before it.
    written: u64,
}

/// Outcome of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    #[default]
    Nothing,
    Failed,
    Wrote,
}

/// A writer that waits: for passes after this number, and for notifications after that number.
#[derive(Debug)]
struct Waiting {
    since: u64,
    events: u64,
}

impl Passes {
    /// Returns what the passes together achieved that began after a number, once one of them wrote something or each
    /// stretch had one.
    fn outcome(&self, since: u64) -> Option<Outcome> {
        if self.wrote > since {
            return Some(Outcome::Wrote);
        }
        let last = self.last.iter().map(|(number, outcome)| (*number > since).then_some(*outcome));
        last.collect::<Option<Vec<_>>>()?.into_iter().max()
    }
}

impl Pace {
    /// Reclaim failed because of dirty folios.
    pub fn note_short(&self) {
        self.is_short.store(true, Relaxed);
    }

    /// Returns the state of a cache with these numbers of stretches and CPUs.
    pub fn new(stretches: usize, cpus: usize) -> Self {
        let last = vec![Default::default(); stretches].into();
        let passes = Passes { begun: 0, wrote: 0, last, events: 0 };
        Self {
            rate: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            owed: PerCpu::new(cpus, |_| AtomicU64::new(0)),
            written: AtomicU64::new(0),
            flushers: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            passes: Mutex::new(Rank::Leaf, passes),
            changed: Condvar::new(),
        }
    }

    /// Returns whether flushers write back. Otherwise writers do.
    pub fn has_flushers(&self) -> bool {
        self.flushers.load(SeqCst)
    }

    /// Sets whether all flushers are running.
    pub fn set_flushers(&self, running: bool) {
        self.flushers.store(running, SeqCst);
    }

    /// Takes a turn for some bytes, after those of all other writers. Returns how long until its end. `over` is the
    /// fraction of the way from the middle to the hard limit, in thousandths: the rate is twice the device's at 0, and
    /// an eighth of it from 937 on.
    fn take_turn(&self, bytes: u64, now: u64, over: u64) -> Duration {
        let share = 2000_u64.saturating_sub(2 * over).max(125);
        let nanos = u128::from(bytes) * 1_000_000_000_000 / (u128::from(self.rate()) * u128::from(share));
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        // The clock may have been set back.
        let last = now.saturating_add(PAUSE_MAX.as_nanos() as u64);
        let mut end = now;
        let _ = self.turn.fetch_update(Relaxed, Relaxed, |turn| {
            end = turn.max(now).saturating_add(nanos).min(last);
            Some(end)
        });
        Duration::from_nanos(end - now)
    }

    /// Wakes waiting writers, which check the limits again.
    pub fn notify(&self) {
        self.passes.lock().events += 1;
        self.changed.notify_all();
    }

    /// Counts written bytes, and wakes waiting writers.
    pub fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Relaxed);
        self.notify();
    }

    /// Begins a pass. Called before it takes dirty files.
    pub fn begin_pass(&self) -> Pass {
        let mut passes = self.passes.lock();
        passes.begun += 1;
        Pass { number: passes.begun, written: self.written.load(Relaxed) }
    }

    /// Ends a pass of a stretch, which wrote some bytes in some nanoseconds.
    pub fn end_pass(&self, stretch: usize, pass: &Pass, (bytes, nanos): (u64, u64), failed: bool) {
        if bytes > 0 && nanos > 0 {
            // Everything that was written meanwhile: so the rates of several flushers add up.
            let written = self.written.load(Relaxed).saturating_sub(pass.written).max(bytes);
            let now = u128::from(written) * 1_000_000_000 / u128::from(nanos);
            let now = u64::try_from(now).unwrap_or(u64::MAX).max(1);
            let before = self.rate.load(Relaxed);
            let rate = if before == 0 { now } else { before / 4 * 3 + now / 4 };
            self.rate.store(rate.max(1), Relaxed);
        }
        let outcome = match bytes {
            0 if failed => Outcome::Failed,
            0 => Outcome::Nothing,
            _ => Outcome::Wrote,
        };
        let mut passes = self.passes.lock();
        if let Some(last) = passes.last.get_mut(stretch) {
            *last = (pass.number, outcome);
        }
        if outcome == Outcome::Wrote {
            passes.wrote = passes.wrote.max(pass.number);
        }
        passes.events += 1;
        drop(passes);
        self.changed.notify_all();
    }

    /// Begins to wait.
    fn begin_wait(&self) -> Waiting {
        let passes = self.passes.lock();
        Waiting { since: passes.begun, events: passes.events }
    }

    /// Returns whether a stretch had no pass since this writer waits.
    fn is_awaited(&self, stretch: usize, waiting: &Waiting) -> bool {
        self.passes.lock().last.get(stretch).is_some_and(|(number, _)| *number <= waiting.since)
    }

    /// Waits for the next notification. Returns the outcome of the passes that the writer waits for, if it is known. If
    /// something was written, it then waits for later passes.
    fn wait(&self, waiting: &mut Waiting) -> Option<Outcome> {
        let mut passes = self.passes.lock();
        while passes.events == waiting.events {
            self.changed.wait(&mut passes);
        }
        waiting.events = passes.events;
        let outcome = passes.outcome(waiting.since);
        if outcome == Some(Outcome::Wrote) {
            waiting.since = passes.begun;
        }
        outcome
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
        let (dirty, limits) = (self.dirty.get(), &self.limits);
        let owed = self.pace.owed.local().1;
        let before = owed.fetch_add(bytes, Relaxed);
        if before == 0 || dirty <= limits.background + TURN_BYTES {
            self.wake_flushers();
        }
        let is_hurried = dirty > limits.hard || self.pace.is_short.load(Relaxed);
        if before.saturating_add(bytes) < TURN_BYTES && !is_hurried {
            return Ok(());
        }
        // Of several threads of a CPU, one pays for all.
        let bytes = owed.swap(0, Relaxed);
        if bytes == 0 && !is_hurried {
            return Ok(());
        }
        let middle = limits.background + (limits.hard - limits.background) / 2;
        if !self.pace.has_flushers() {
            // Without a flusher the writer writes back.
            if dirty > limits.hard || self.pace.is_short.swap(false, Relaxed) {
                let PassResult { written, failed } = self.write_back_all();
                return failed.filter(|_| written == 0 && self.dirty.get() > limits.hard).map_or(Ok(()), Err);
            }
            return Ok(());
        }
        if dirty > middle && dirty <= limits.hard {
            // Fraction of the way to the limit, in thousandths.
            let over = (dirty - middle) * 1000 / (limits.hard - middle).max(1);
            let pause = self.pace.take_turn(bytes, self.now(), over);
            self.count_pause(|| base::thread::sleep(pause));
        }
        self.wait_for_writeback()
    }

    /// Waits while dirty bytes exceed the hard limit.
    fn wait_for_writeback(&self) -> Result<(), Error> {
        let mut waiting = self.pace.begin_wait();
        let mut outcome = None;
        while self.pace.has_flushers() && (self.dirty.exact() > self.limits.hard || self.is_short()) {
            match outcome {
                Some(Outcome::Failed) => {
                    return Err(Error::Refused {
                        errno: base::errno::EIO,
                        why: "writeback is failing; fsync reports the cause",
                    });
                }
                // All dirty data is being written by other threads.
                Some(Outcome::Nothing) => return Ok(()),
                Some(Outcome::Wrote) | None => {}
            }
            for (at, stretch) in self.stretches.iter().enumerate() {
                if self.pace.is_awaited(at, &waiting) {
                    stretch.wakeup.notify();
                }
            }
            outcome = self.count_pause(|| self.pace.wait(&mut waiting));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Dice;

    /// Passes of several stretches begin and end in any order. Against a list of all of them.
    #[test]
    fn a_writer_counts_passes_that_begin_after_it() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let stretches = dice.next(4) as usize + 1;
            let pace = Pace::new(stretches, 1);
            let mut running: Vec<Option<Pass>> = (0..stretches).map(|_| None).collect();
            // Stretch, number and outcome of ended passes.
            let mut ended = Vec::new();
            let since = dice.next(6);
            for _ in 0..20 {
                let at = dice.next(stretches as u64) as usize;
                match running[at].take() {
                    None => running[at] = Some(pace.begin_pass()),
                    Some(pass) => {
                        let (bytes, failed) = (dice.next(4) / 3, dice.next(2) == 0);
                        pace.end_pass(at, &pass, (bytes, 1), failed);
                        let outcome = if bytes > 0 {
                            Outcome::Wrote
                        } else if failed {
                            Outcome::Failed
                        } else {
                            Outcome::Nothing
                        };
                        ended.push((at, pass.number, outcome));
                    }
                }
                let counted = || ended.iter().filter(|(_, number, _)| *number > since);
                let last =
                    |at| counted().rev().find(|(other, ..)| *other == at).map(|(.., outcome)| *outcome);
                let lasts: Option<Vec<_>> = (0..stretches).map(last).collect();
                let wanted = if counted().any(|(.., outcome)| *outcome == Outcome::Wrote) {
                    Some(Outcome::Wrote)
                } else {
                    lasts.map(|lasts| match lasts.contains(&Outcome::Failed) {
                        true => Outcome::Failed,
                        false => Outcome::Nothing,
                    })
                };
                assert_eq!(pace.passes.lock().outcome(since), wanted, "seed {seed}");
            }
        }
    }

    /// A pause for each write was the longer, the more writers there were, but not long enough to hold them off.
    #[test]
    fn writers_take_turns_at_the_rate_of_the_device() {
        let pace = Pace::new(1, 1);
        pace.end_pass(0, &pace.begin_pass(), (1 << 20, 1_000_000_000), false);
        let turn = |bytes, now, over| pace.take_turn(bytes, now, over).as_millis();
        // Halfway, at the rate of the device; nearer to the middle faster, and nearer to the limit slower.
        assert_eq!((1..=4).map(|_| turn(32 << 10, 0, 500)).collect::<Vec<_>>(), [31, 62, 93, 125]);
        assert_eq!(turn(32 << 10, 1_000_000_000, 0), 15);
        assert_eq!(turn(32 << 10, 2_000_000_000, 750), 62);
        // Whatever happens, a pause has a limit; the clock may be set back.
        assert_eq!(turn(1 << 30, 2_000_000_000, 1000), PAUSE_MAX.as_millis());
        assert_eq!(turn(32 << 10, 0, 500), PAUSE_MAX.as_millis());
        assert_eq!(turn(32 << 10, 1_000_000_000, 500), 31);
    }

    /// Two passes at once, each at half of the device's rate.
    #[test]
    fn rates_of_passes_at_once_add_up() {
        let pace = Pace::new(2, 1);
        for _ in 0..8 {
            let passes = [0, 1].map(|_| pace.begin_pass());
            for _ in 0..20 {
                pace.wrote(1000);
            }
            for (at, pass) in passes.iter().enumerate() {
                pace.end_pass(at, pass, (10_000, 1_000_000_000), false);
            }
        }
        assert_eq!(pace.rate(), 20_000);
    }
}
