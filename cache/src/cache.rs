//! What the contents of all files of a volume share.
//!
//! | part | subject |
//! |---|---|
//! | [`Cache`] | counters, limits, the lists of folios |
//! | [`DirtyTracking`] | the dirty files |
//! | `limits` | throttling of writers |
//! | `reclaim` | dropping folios |
//! | `writeback` | writeback of many files |
//! | [`Flusher`](crate::Flusher) | the threads that write back, each a stretch of AGs |
//! | `sync` | writing back everything |
//!
//! # Invariants
//! - A dirty file is tracked, or in a pass, which puts it back.
//!
//! # Locking
//! Lists are per CPU, each under a lock of rank `Cache` that is held for one push. One pass of a stretch runs
//! at a time (`Pass`).

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use backing::{Backing, TIMESTAMP_TICK_NANOS};
use base::lock::{Mutex, Rank};
use base::memory::{Share, Shrink};
use base::percpu::{self, Amount, PerCpu};
use block::{BufferPool, Device, PlugCounters};

use crate::contents::Contents;
use crate::counters::{Counters, Statistics};
use crate::dirty_files::{DirtyLists, DirtyTracking};
use crate::limits::Pace;
use crate::options::{Limits, Options};
use crate::reclaim::Generations;
use crate::stretch::Stretch;
use crate::sync::Syncs;
use crate::tuning::{READAHEAD_FRACTION, REUSE_FRACTION};

/// See the module.
#[derive(Debug)]
pub struct Cache<B: Backing> {
    pub(crate) backing: B,
    /// The device that data lies on.
    pub(crate) device: Arc<dyn Device>,
    pub(crate) block_log: u32,
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    /// Memory of folios.
    pub(crate) pools: PerCpu<BufferPool>,
    /// Bytes of all folios, and of what describes them.
    pub(crate) memory: Arc<Share>,
    /// Bytes of blocks that are dirty or in writeback.
    pub(crate) dirty: Amount,
    pub(crate) dirty_files: Box<dyn DirtyTracking<B>>,
    pub(crate) folios: PerCpu<Mutex<Generations<B>>>,
    /// Bytes of all folios made since the start, as if each was full: the time of reclaim.
    pub(crate) inserted: Amount,
    /// A folio that is used again after as many bytes were inserted becomes old.
    pub(crate) reuse_bytes: AtomicU64,
    /// Files with a preallocation.
    pub(crate) preallocated: Mutex<Vec<Weak<Contents<B>>>>,
    /// One for each flusher.
    pub(crate) stretches: Box<[Stretch]>,
    /// Groups of the volume when it was opened.
    pub(crate) groups: u64,
    pub(crate) syncs: Syncs,
    pub(crate) pace: Pace,
    pub(crate) counters: Counters,
    pub(crate) plug: PlugCounters,
}

impl<B: Backing> Shrink for Cache<B> {
    fn shrink(&self, bytes: u64) -> bool {
        // It looks at each folio twice, so there is more only if it stopped early.
        self.drop_unused(bytes) == 0
    }

    fn write_back(&self) {
        self.wake_flushers();
    }
}

impl<B: Backing> Cache<B> {
    /// Returns an empty cache of the files of `backing`, whose data lies on `device`, with a share of a memory budget.
    pub fn new(backing: B, device: Arc<dyn Device>, memory: Arc<Share>, options: Options) -> Arc<Self> {
        let lists = |stretches| Box::new(DirtyLists::new(percpu::available(), stretches)) as _;
        Self::with_tracking(backing, device, memory, options, lists)
    }

    /// Like [`new`](Self::new), with another implementation of the tracking of dirty files, for a number of stretches.
    pub fn with_tracking(
        backing: B,
        device: Arc<dyn Device>,
        memory: Arc<Share>,
        options: Options,
        tracking: impl FnOnce(usize) -> Box<dyn DirtyTracking<B>>,
    ) -> Arc<Self> {
        let groups = backing.groups().max(1);
        let stretches = Stretch::all(options.flushers, groups);
        let limits = Limits::of(&options, memory.part());
        let cpus = percpu::available();
        let cache = Arc::new(Self {
            block_log: backing.block_log(),
            pools: PerCpu::new(cpus, |_| BufferPool::of_share(&memory, cpus)),
            dirty: Amount::new(limits.background),
            dirty_files: tracking(stretches.len()),
            folios: PerCpu::new(cpus, |_| Mutex::new(Rank::Cache, Generations::default())),
            inserted: Amount::new(memory.part()),
            reuse_bytes: AtomicU64::new(memory.part() / REUSE_FRACTION),
            memory,
            preallocated: Mutex::new(Rank::Leaf, Vec::new()),
            pace: Pace::new(stretches.len(), cpus),
            stretches,
            groups,
            syncs: Syncs::default(),
            counters: Counters::default(),
            plug: PlugCounters::default(),
            backing,
            device,
            options,
            limits,
        });
        let weak = Arc::downgrade(&cache);
        cache.memory.set_cache(weak);
        cache
    }

    /// Data device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// Current time in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        let now = self.options.clock.now();
        u64::try_from(now.seconds).unwrap_or(0).saturating_mul(1_000_000_000) + u64::from(now.nanos)
    }

    /// Current clock tick. Never 0, so that the first write of a file updates its timestamps.
    pub(crate) fn tick(&self) -> u64 {
        self.now() / TIMESTAMP_TICK_NANOS + 1
    }

    /// Largest readahead in bytes.
    pub(crate) fn readahead_max(&self) -> u64 {
        self.options.readahead_bytes.min(self.memory.part() / READAHEAD_FRACTION)
    }

    /// Counters since the start.
    pub fn statistics(&self) -> Statistics {
        let counters = &self.counters;
        let spare: usize = self.pools.iter().map(BufferPool::spare).sum();
        Statistics {
            memory_bytes: self.memory.exact().saturating_sub(spare as u64),
            dirty_bytes: self.dirty.exact(),
            misses: counters.misses.get(),
            reads: counters.reads.get(),
            passes: counters.passes.get(),
            finishes: counters.finishes.get(),
            finished_files: counters.finished_files.get(),
            dropped: counters.dropped.get(),
            looked: counters.looked.get(),
            dropped_when_clean: counters.dropped_when_clean.get(),
            written_by_reclaim: counters.written_by_reclaim.get(),
            dirty_met: counters.dirty_met.get(),
            throttled: counters.throttled.get(),
            throttled_us: counters.throttled_us.get(),
            throttled_us_p50: counters.pauses.percentile(500),
            throttled_us_p99: counters.pauses.percentile(990),
            throttled_us_p999: counters.pauses.percentile(999),
            plug: self.plug.counts(),
        }
    }
}
