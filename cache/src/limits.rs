//! Memory that is given back, and writers that are held back.
//!
//! Dropping takes clean folios alone, those that were not used since they were last looked at (second chance); it never
//! writes. A dirty folio is left to the flusher, which is woken (Gorman, "Reduce filesystem writeback from page
//! reclaim", 2011, taken to its end).
//!
//! Writers are held back in proportion: from the middle between both limits on, each write pauses for as long as the
//! device needs for its bytes, times how far the dirty bytes are on the way to the hard limit; at the limit, until the
//! flusher has written some. Dirty bytes fall with each write that ends, not with each pass.
//!
//! # Invariants
//! A writer at the limit waits for the flusher, however long the device takes. It waits for passes that begin after it
//! came: if such a pass fails and writes nothing, the writer gets `EIO`; if it finds nothing to write, the writer goes
//! on.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use base::lock::{Condvar, Mutex, Rank};
use error::Error;

use crate::backing::Backing;
use crate::cache::Cache;

/// The longest pause of one write below the limit.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Bytes a second that are assumed before any were measured.
const FIRST_RATE: u64 = 256 << 20;
/// Folios that are looked at for each that is wanted, before giving up.
const LOOKS_PER_CALL: usize = 256;

/// What pacing knows.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes a second that writeback wrote lately; 0 if not known.
    rate: AtomicU64,
    /// A flusher runs.
    pub flusher: AtomicBool,
    /// Memory is short, and what could not be dropped is dirty.
    short: AtomicBool,
    passes: Mutex<Passes>,
    changed: Condvar,
}

/// Passes of writeback, one after the other.
#[derive(Debug, Default)]
struct Passes {
    begun: u64,
    ended: u64,
    /// What the last one did.
    last: Outcome,
    /// Notifications so far.
    events: u64,
}

/// What a pass did.
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
            short: AtomicBool::new(false),
            passes: Mutex::new(Rank::Leaf, Passes::default()),
            changed: Condvar::new(),
        }
    }
}

impl Pace {
    /// Writers at the limit look again.
    pub fn notify(&self) {
        self.passes.lock().events += 1;
        self.changed.notify_all();
    }

    /// A pass begins, before it looks for what is dirty.
    pub fn begin_pass(&self) {
        self.passes.lock().begun += 1;
    }

    /// A pass ended that wrote so many bytes and took so long.
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

    /// The next pass, and how many notifications there were.
    fn next_pass(&self) -> (u64, u64) {
        let passes = self.passes.lock();
        (passes.begun + 1, passes.events)
    }

    /// Waits for another notification than the first so many. How many there are then; and what the last pass did, if
    /// `pass` has ended.
    fn wait(&self, pass: u64, events: u64) -> (u64, Option<Outcome>) {
        let mut passes = self.passes.lock();
        while passes.events == events {
            self.changed.wait(&mut passes);
        }
        (passes.events, (passes.ended >= pass).then_some(passes.last))
    }

    fn rate(&self) -> u64 {
        match self.rate.load(Relaxed) {
            0 => FIRST_RATE,
            rate => rate,
        }
    }
}

impl<B: Backing> Cache<B> {
    /// Before a write of so many bytes; no lock is held.
    ///
    /// # Errors
    /// `EIO` where the device takes nothing of what is dirty already.
    #[inline]
    pub(crate) fn pace(&self, bytes: u64) -> Result<(), Error> {
        let dirty = self.dirty.get();
        if dirty <= self.limits.background && !self.pace.short.load(Relaxed) {
            return Ok(());
        }
        self.hold_back(bytes)
    }

    #[cold]
    fn hold_back(&self, bytes: u64) -> Result<(), Error> {
        self.bell.ring();
        let (dirty, limits) = (self.dirty.get(), &self.limits);
        let middle = limits.background + (limits.hard - limits.background) / 2;
        if !self.pace.flusher.load(SeqCst) {
            // Nobody else writes back: the writer does.
            if dirty > limits.hard || self.pace.short.swap(false, Relaxed) {
                let (wrote, error) = self.write_back_all();
                return error.filter(|_| wrote == 0 && self.dirty.get() > limits.hard).map_or(Ok(()), Err);
            }
            return Ok(());
        }
        if dirty > middle && dirty <= limits.hard {
            // How far on the way to the limit, in thousandths.
            let over = (dirty - middle) * 1000 / (limits.hard - middle).max(1);
            let micros = bytes.saturating_mul(1_000_000) / self.pace.rate() * over / 500;
            self.counted(|| base::thread::sleep(Duration::from_micros(micros).min(PAUSE_MAX)));
        }
        self.wait_for_writeback()
    }

    /// Waits while there is too much that is dirty.
    fn wait_for_writeback(&self) -> Result<(), Error> {
        let (mut pass, mut events) = self.pace.next_pass();
        while self.pace.flusher.load(SeqCst) && (self.dirty.exact() > self.limits.hard || self.is_short()) {
            self.bell.ring();
            let (now, ended) = self.counted(|| self.pace.wait(pass, events));
            events = now;
            match ended {
                Some(Outcome::Failed) => {
                    return Err(Error::Refused {
                        errno: base::errno::EIO,
                        why: "writeback is failing; fsync reports the cause",
                    });
                }
                // What counts as dirty is in the hands of other threads.
                Some(Outcome::Nothing) => return Ok(()),
                Some(Outcome::Wrote) => pass = self.pace.next_pass().0,
                None => {}
            }
        }
        Ok(())
    }

    fn counted<R>(&self, pause: impl FnOnce() -> R) -> R {
        let begin = self.now();
        let result = pause();
        self.counters.paused.add();
        self.counters.paused_us.add_many(self.now().saturating_sub(begin) / 1000);
        result
    }

    /// Whether memory is short because of what is dirty.
    fn is_short(&self) -> bool {
        self.pace.short.load(Relaxed) && {
            let short = self.memory.get() > self.limits.memory && !self.reclaim();
            self.pace.short.store(short, Relaxed);
            short && self.dirty.exact() > 0
        }
    }

    /// Before something takes memory; no folio is held.
    #[inline]
    pub(crate) fn make_room(&self) {
        if self.memory.get() > self.limits.memory && !self.reclaim() {
            self.pace.short.store(true, Relaxed);
            self.bell.ring();
        }
    }

    /// Drops clean folios until memory is within its limit; whether it is.
    #[cold]
    fn reclaim(&self) -> bool {
        let (_, local) = self.folios.local();
        let mut looks = LOOKS_PER_CALL;
        for queue in std::iter::once(local).chain(self.folios.iter()) {
            // Everything twice: the first look takes the second chance away.
            let mut rounds = queue.lock().len() * 2;
            while rounds > 0 && looks > 0 {
                if self.memory.get() <= self.limits.memory {
                    return true;
                }
                let Some(weak) = queue.lock().pop_front() else { break };
                (rounds, looks) = (rounds - 1, looks - 1);
                self.counters.looked.add();
                if !self.drop_if_unused(&weak) && weak.strong_count() > 0 {
                    queue.lock().push_back(weak);
                }
            }
        }
        self.memory.get() <= self.limits.memory
    }

    /// Drops a folio that is clean and was not used lately; whether it is gone.
    fn drop_if_unused(&self, weak: &Weak<crate::folio::Folio<B>>) -> bool {
        let Some(folio) = weak.upgrade() else { return true };
        if folio.forget_use() {
            return false;
        }
        let Some(mut state) = folio.state.try_write() else { return false };
        if state.gone {
            return true;
        }
        if !state.is_clean() {
            self.counters.dirty_met.add();
            return false;
        }
        // Whose contents are being dropped takes its folios along.
        let Some(contents) = folio.owner.upgrade() else { return true };
        contents.drop_folio(&folio, &mut state);
        self.counters.dropped.add();
        drop(state);
        true
    }

    /// Drops every clean folio of the volume: for measurements that begin with nothing in memory.
    pub fn drop_clean(&self) {
        for queue in self.folios.iter() {
            let all = std::mem::take(&mut *queue.lock());
            for weak in all {
                let gone = (0..2).any(|_| self.drop_if_unused(&weak));
                if !gone && weak.strong_count() > 0 {
                    queue.lock().push_back(weak);
                }
            }
        }
    }
}
