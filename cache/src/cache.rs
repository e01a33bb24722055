//! What the contents of all files of a volume share.
//!
//! | part | is |
//! |---|---|
//! | [`Cache`] | amounts, limits, lists of dirty files and of folios |
//! | `limits` | memory that is given back, writers that are held back |
//! | `pass` | writing many files back |
//! | [`Flusher`](crate::Flusher) | the thread that does so |
//!
//! # Invariants
//! - A file with dirty blocks is in one list of dirty files, or a pass has it and puts it back.
//! - Memory is given back by dropping clean folios alone: that never writes.
//!
//! # Locking
//! Lists are per CPU, each under a lock of rank `Cache` that is held for one push. One pass at a time (`Pass`).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use base::lock::{Condvar, Mutex, Rank};
use base::percpu::{self, PerCpu};
use block::{BufferPool, PlugCounters};

use crate::amount::Amount;
use crate::backing::Backing;
use crate::contents::Contents;
use crate::counters::{Counters, Statistics};
use crate::flusher::{Bell, Syncs};
use crate::folio::Folio;
use crate::limits::Pace;
use crate::options::{Limits, Options};

/// A tick of the clock that stamps files, in nanoseconds: as coarse as the kernel's.
const TICK_NS: u64 = 4_000_000;

/// See the module.
#[derive(Debug)]
pub struct Cache<B: Backing> {
    pub(crate) below: B,
    pub(crate) block_log: u32,
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    /// Where folios have their memory from.
    pub(crate) pools: PerCpu<BufferPool>,
    /// Bytes of folios.
    pub(crate) memory: Amount,
    /// Bytes of blocks that are dirty or being written.
    pub(crate) dirty: Amount,
    dirty_files: PerCpu<Mutex<Vec<Listed<B>>>>,
    pub(crate) folios: PerCpu<Mutex<VecDeque<Weak<Folio<B>>>>>,
    /// Files that have blocks claimed ahead.
    pub(crate) ahead: Mutex<Vec<Weak<Contents<B>>>>,
    /// One pass over many files at a time.
    pub(crate) pass: Mutex<()>,
    pub(crate) syncs: Mutex<Syncs>,
    pub(crate) synced: Condvar,
    pub(crate) bell: Bell,
    pub(crate) pace: Pace,
    pub(crate) counters: Counters,
    pub(crate) plug: PlugCounters,
}

/// A dirty file.
#[derive(Debug)]
pub(crate) struct Listed<B: Backing> {
    pub contents: Arc<Contents<B>>,
    /// When it became dirty, in nanoseconds of the clock. What stays dirty keeps its stamp.
    pub since: u64,
}

impl<B: Backing> Cache<B> {
    /// An empty cache over a volume.
    pub fn new(below: B, options: Options) -> Arc<Self> {
        let limits = Limits::of(&options);
        let cpus = percpu::available();
        Arc::new(Self {
            block_log: below.block_log(),
            pools: PerCpu::new(cpus, |_| BufferPool::default()),
            memory: Amount::new(limits.memory),
            dirty: Amount::new(limits.background),
            dirty_files: PerCpu::new(cpus, |_| Mutex::new(Rank::Cache, Vec::new())),
            folios: PerCpu::new(cpus, |_| Mutex::new(Rank::Cache, VecDeque::new())),
            ahead: Mutex::new(Rank::Leaf, Vec::new()),
            pass: Mutex::new(Rank::Pass, ()),
            syncs: Mutex::new(Rank::Leaf, Syncs::default()),
            synced: Condvar::new(),
            bell: Bell::default(),
            pace: Pace::default(),
            counters: Counters::default(),
            plug: PlugCounters::default(),
            below,
            options,
            limits,
        })
    }

    /// What lies below.
    pub fn below(&self) -> &B {
        &self.below
    }

    /// Nanoseconds of the clock.
    pub(crate) fn now(&self) -> u64 {
        let now = self.options.clock.now();
        u64::try_from(now.seconds).unwrap_or(0).saturating_mul(1_000_000_000) + u64::from(now.nanos)
    }

    /// Which tick it is; never 0, so that the first write of a file touches it.
    pub(crate) fn tick(&self) -> u64 {
        self.now() / TICK_NS + 1
    }

    /// The most that is read at once.
    pub(crate) fn window_most(&self) -> u64 {
        self.options.readahead_bytes.min(self.limits.memory / 4)
    }

    /// A file became dirty.
    pub(crate) fn list(&self, contents: Arc<Contents<B>>, since: u64) {
        self.dirty_files.local().1.lock().push(Listed { contents, since });
    }

    /// Takes all dirty files out of the lists.
    pub(crate) fn take_listed(&self) -> Vec<Listed<B>> {
        self.dirty_files.iter().flat_map(|files| std::mem::take(&mut *files.lock())).collect()
    }

    /// Puts a file back that a pass did not look at.
    pub(crate) fn put_listed(&self, listed: Listed<B>) {
        self.dirty_files.local().1.lock().push(listed);
    }

    /// A folio was made: it may be dropped some day. What is gone by then is forgotten on the way.
    pub(crate) fn remember(&self, folio: &Arc<Folio<B>>) {
        let mut folios = self.folios.local().1.lock();
        folios.push_back(Arc::downgrade(folio));
        for _ in 0..2 {
            match folios.pop_front() {
                Some(oldest) if oldest.strong_count() > 0 => folios.push_back(oldest),
                _ => {}
            }
        }
    }

    /// What it did so far.
    pub fn statistics(&self) -> Statistics {
        let counters = &self.counters;
        Statistics {
            memory_bytes: self.memory.exact(),
            dirty_bytes: self.dirty.exact(),
            misses: counters.misses.get(),
            reads: counters.reads.get(),
            passes: counters.passes.get(),
            finishes: counters.finishes.get(),
            finished_files: counters.finished_files.get(),
            dropped: counters.dropped.get(),
            looked: counters.looked.get(),
            dirty_met: counters.dirty_met.get(),
            paused: counters.paused.get(),
            paused_us: counters.paused_us.get(),
            plug: self.plug.counts(),
        }
    }
}
