//! What the threads of the journal share.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use base::lock::{Condvar, Mutex, Rank};
use base::{AgBlock, AgNumber, Lsn};
use block::Device;
use format::Geometry;

use super::crew::Crew;
use super::pusher::BatchSize;
use crate::engine::ail::Ail;
use crate::engine::cache::BufferCache;
use crate::engine::cil::{Checkpoint, Cil};
use crate::engine::error::Error;
use crate::engine::grant::{Grant, Pressure};
use crate::engine::halt::Halt;
use crate::engine::iclog::{Host, Iclogs};
use crate::engine::in_flight::InFlight;
use crate::engine::item::{Stable, ahead};
use crate::engine::stats::{Counters, Statistics};
use crate::engine::target::{BusyExtent, StableHook};

/// The parts of a journal.
pub struct Shared {
    pub data: Arc<dyn Device>,
    pub cache: Arc<BufferCache>,
    pub geometry: Geometry,
    pub grant: Grant,
    pub iclogs: Iclogs,
    pub cil: Cil,
    pub ail: Ail,
    pub counters: Counters,
    /// Checkpoints end without a record.
    pub unrecorded: bool,
    hook: Option<Arc<dyn StableHook>>,
    shut: AtomicBool,
    cause: OnceLock<Arc<str>>,
    /// Intents from before keep the tail where it is, until the one thread that works has answered them.
    pub answering: AtomicBool,
    /// The identifier of the next intent.
    pub next_intent: AtomicU64,
    /// How many batches were written home, and how many of these a flush has covered.
    pub home_written: AtomicU64,
    home_flushed: AtomicU64,
    /// How many blocks were written past the log, and how many of these a flush has covered.
    pub past_log: AtomicU64,
    past_log_flushed: AtomicU64,
    /// The tail should reach this position.
    pub wanted_tail: AtomicU64,
    /// Wakes the thread that writes home.
    pub home: Bell,
    /// Held by who writes a batch of metadata back, until the device has ended it.
    pub writing_back: Mutex<BatchSize>,
    /// What that batch covers.
    pub in_flight: InFlight,
    /// Wakes the thread that pushes checkpoints.
    pub background: Bell,
    /// Whether an idle log is still to be covered: not when its unmount record is on its way, behind which nothing may
    /// be logged.
    pub covering: Mutex<bool>,
    /// The threads.
    pub crew: Crew,
}

/// A thread waits for it to ring; it stays layer until somebody has come.
#[derive(Debug)]
pub struct Bell {
    layer: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    layer: bool,
    stopping: bool,
}

impl Bell {
    fn new() -> Self {
        Self { layer: Mutex::new(Rank::Leaf, Rung::default()), changed: Condvar::new() }
    }

    /// Rings it.
    pub fn ring(&self) {
        self.layer.lock().layer = true;
        self.changed.notify_one();
    }

    /// Waits until it was layer since the last time, or for `timeout`; whether it was layer. `None` when the thread
    /// should end.
    pub fn wait_rung(&self, timeout: std::time::Duration) -> Option<bool> {
        let mut state = self.layer.lock();
        if !state.layer && !state.stopping {
            self.changed.wait_for(&mut state, timeout);
        }
        let layer = std::mem::take(&mut state.layer);
        (!state.stopping).then_some(layer)
    }

    /// The same where it does not matter whether it was layer; `false` when the thread should end.
    pub fn wait(&self, timeout: std::time::Duration) -> bool {
        self.wait_rung(timeout).is_some()
    }

    /// Lets the thread end.
    pub fn stop(&self) {
        self.layer.lock().stopping = true;
        self.changed.notify_one();
    }
}

impl Shared {
    pub fn new(
        data: Arc<dyn Device>,
        cache: Arc<BufferCache>,
        grant: Grant,
        iclogs: Iclogs,
        (shards, head, geometry): (usize, Lsn, Geometry),
        hook: Option<Arc<dyn StableHook>>,
    ) -> Self {
        let cil = Cil::new(*iclogs.sizes(), shards);
        Self {
            data,
            cache,
            geometry,
            grant,
            iclogs,
            cil,
            ail: Ail::new(head),
            counters: Counters::default(),
            unrecorded: false,
            hook,
            shut: AtomicBool::new(false),
            cause: OnceLock::new(),
            answering: AtomicBool::new(false),
            // Unlike all from before: those began at an earlier head, and each takes more than a byte of the log.
            next_intent: AtomicU64::new(head.get() << 16),
            home_written: AtomicU64::new(0),
            home_flushed: AtomicU64::new(0),
            past_log: AtomicU64::new(0),
            past_log_flushed: AtomicU64::new(0),
            wanted_tail: AtomicU64::new(0),
            home: Bell::new(),
            writing_back: Mutex::new(Rank::Writeback, BatchSize::default()),
            in_flight: InFlight::default(),
            background: Bell::new(),
            covering: Mutex::new(Rank::Volume, true),
            crew: Crew::new(),
        }
    }

    pub fn is_shut_down(&self) -> bool {
        self.shut.load(SeqCst)
    }

    pub fn check(&self) -> Result<(), Error> {
        if self.is_shut_down() { Err(self.closed()) } else { Ok(()) }
    }

    /// Why it was shut down.
    pub fn cause(&self) -> Option<Arc<str>> {
        self.cause.get().filter(|_| self.is_shut_down()).cloned()
    }

    fn closed(&self) -> Error {
        let cause = self.cause.get().cloned();
        Error::ShutDown { cause: cause.unwrap_or_else(|| "it is being shut down".into()) }
    }

    /// Shuts down where that is why a part stopped; gives what to tell the caller.
    pub fn halt(&self, halt: Halt) -> Error {
        if let Halt::Because(cause) = halt {
            self.shut_down(&cause);
        }
        self.closed()
    }

    /// Ends all writing and wakes whoever waits for anything.
    pub fn shut_down(&self, cause: &str) {
        // Only the first cause is one; what follows from it is not.
        self.cause.get_or_init(|| cause.into());
        self.shut.store(true, SeqCst);
        self.grant.close();
        self.iclogs.close();
        self.cil.progress.close();
        self.home.ring();
        self.ail.close();
        self.in_flight.close();
        self.background.ring();
    }

    /// Lets all threads end once nothing is in flight.
    pub fn stop(&self) {
        self.home.stop();
        self.background.stop();
        self.iclogs.stop();
    }

    /// Pushes what was committed up to a checkpoint.
    pub fn push(&self, upto: u64) -> Result<(), Error> {
        self.check()?;
        if self.unrecorded {
            self.cil.end_unrecorded(upto, &self.iclogs, &self.grant, self);
            return Ok(());
        }
        self.cil.push(upto, &self.iclogs, &self.grant, self).map_err(|halt| self.halt(halt))
    }

    pub fn force_to(&self, checkpoint: u64) -> Result<(), Error> {
        Counters::add(&self.counters.forces, 1);
        let progress = &self.cil.progress;
        if progress.stable() >= checkpoint {
            return self.check();
        }
        progress.gather(checkpoint).map_err(|halt| self.halt(halt))?;
        self.push(checkpoint)?;
        self.help();
        // Where nothing had been committed, the current checkpoint is still empty, and the one before is what counts.
        progress.wait_stable(checkpoint.min(progress.current() - 1)).map_err(|halt| self.halt(halt))
    }

    /// Asks the background thread for a push.
    pub fn ask_for_push(&self, sequence: u64) {
        if self.cil.progress.current() <= sequence {
            self.need_threads();
            self.background.ring();
        }
    }

    /// Tells everybody who waits for space where the tail is now.
    pub fn tail_is(&self, tail: Lsn) {
        self.grant.advance_tail(self.iclogs.ring().position(tail));
    }

    pub fn statistics(&self) -> Statistics {
        let written = self.iclogs.written();
        Statistics {
            commits: self.cil.commits(),
            pushes: self.cil.progress.current() - 1,
            forces: Counters::get(&self.counters.forces),
            records: written.records,
            bytes: written.bytes,
            flushes: written.flushes,
            ail_items: self.ail.len() as u64,
            home_buffers: Counters::get(&self.counters.home_buffers),
            space_waits: self.grant.waits(),
            throttled: Counters::get(&self.counters.throttled),
        }
    }
}

impl Shared {
    /// Where an extent lies on the device, in bytes.
    fn place(&self, extent: &BusyExtent) -> Range<u64> {
        let geometry = &self.geometry;
        let start = extent.start.get();
        // Of a group that the volume has: a group is no longer than a number of 32 bits tells.
        let ag = AgNumber((start >> geometry.ag_block_log) as u32);
        let block = AgBlock((start & ((1 << geometry.ag_block_log) - 1)) as u32);
        let offset = geometry.ag_block_offset(ag, block);
        offset..offset + (u64::from(extent.blocks) << geometry.block_log)
    }

    /// Freed blocks may be used again.
    pub fn released(&self, extents: &[BusyExtent]) {
        if let (Some(hook), false) = (&self.hook, extents.is_empty()) {
            hook.extents_stable(extents);
        }
    }

    /// Makes stable what was written past the log, unless a record of the log has done so.
    pub fn flush_past_log(&self) -> Result<(), Error> {
        if self.has_written_past_log() {
            self.flush_data(true).map_err(|halt| self.halt(halt))?;
        }
        Ok(())
    }
}

impl Host for Shared {
    fn tail(&self) -> Lsn {
        self.ail.tail()
    }

    fn flush_data(&self, always: bool) -> Result<bool, Halt> {
        // Counted by the pusher before the tail moves past what it wrote, so this count covers the caller's tail.
        let written = self.home_written.load(SeqCst);
        if !always && self.home_flushed.load(SeqCst) >= written {
            return Ok(false);
        }
        let past_log = self.past_log.load(SeqCst);
        self.data.flush()?;
        self.home_flushed.fetch_max(written, SeqCst);
        self.past_log_flushed.fetch_max(past_log, SeqCst);
        Ok(true)
    }

    fn has_written_past_log(&self) -> bool {
        self.past_log_flushed.load(SeqCst) < self.past_log.load(SeqCst)
    }

    fn completed(&self, checkpoint: Checkpoint, ok: bool) {
        let mut rest = checkpoint.items.iter();
        while let Some(item) = rest.next() {
            ahead(rest.as_slice());
            item.core().unpin();
        }
        let (Some(start), true) = (checkpoint.start, ok) else { return };
        let lsn = self.iclogs.ring().lsn(start);
        let mut inserted = Vec::with_capacity(checkpoint.items.len());
        let mut unneeded = Vec::new();
        for item in checkpoint.items {
            match item.stable(lsn) {
                Stable::Insert => inserted.push(item),
                Stable::Remove => unneeded.push(item),
                Stable::Answer(intent) => unneeded.push(intent),
            }
        }
        // Before the list lets go of what was freed: who waits for the list waits for what is held back then.
        let usable = self.in_flight.hold_back(checkpoint.busy, |extent| self.place(extent));
        let commit = self.iclogs.ring().lsn(checkpoint.commit);
        self.tail_is(self.ail.complete(lsn, commit, &inserted, &unneeded));
        self.released(&usable);
        self.cil.progress.became_stable(checkpoint.sequence);
        if self.grant.is_waited_for() {
            self.home.ring();
        }
    }

    fn failed(&self, why: Halt) {
        self.halt(why);
    }
}

impl Pressure for Shared {
    fn move_tail_to(&self, position: u64) {
        if self.wanted_tail.fetch_max(position, SeqCst) < position || self.grant.is_waited_for() {
            self.need_threads();
            self.home.ring();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("grant", &self.grant).field("cil", &self.cil).finish_non_exhaustive()
    }
}
