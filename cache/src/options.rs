//! Options of the cache.

use std::sync::Arc;
use std::time::Duration;

use base::time::{Clock, SystemClock};

use crate::order::{ByInode, WritebackOrder};
use crate::reclaim::ReclaimPolicy;

/// Options of caching and writeback.
#[derive(Clone, Debug)]
pub struct Options {
    /// Hard limit of dirty data: writers wait above it. By default half of what the cache may always hold, at most 1
    /// GiB.
    pub dirty: Option<DirtyLimit>,
    /// Dirty data above which the flusher writes everything. By default half of [`dirty`](Self::dirty).
    pub dirty_background: Option<DirtyLimit>,
    /// What reclaim does with dirty folios.
    pub reclaim: ReclaimPolicy,
    /// Age in seconds at which dirty files are written back.
    pub expire_s: u64,
    /// Interval in milliseconds at which the flusher looks for old dirty files; 0 for never.
    pub interval_ms: u64,
    /// Age in seconds at which changes are on the device, those of metadata included; replaces
    /// [`expire_s`](Self::expire_s) and [`interval_ms`](Self::interval_ms). The flusher writes files that have been
    /// dirty for half of it. It looks for them after half of it, or after all of it if there is no dirty file. So
    /// changes become little older, unless the device is slow, and files that soon disappear are not written. At least
    /// 1.
    pub commit_s: Option<u32>,
    /// Number of flushers, at most that of the AGs: each writes back the files of a stretch of AGs. `None`: one for
    /// each CPU, at most 4.
    pub flushers: Option<usize>,
    /// Order in which a pass writes files back.
    pub order: Arc<dyn WritebackOrder>,
    /// Bytes of a batch: a pass writes and finishes so many at once.
    pub pass_bytes: u64,
    /// Whether files of a pass share plugs; otherwise each file has its own (for comparison).
    pub plug_over_pass: bool,
    /// Largest readahead of a sequential reader in bytes.
    pub readahead_bytes: u64,
    /// Size in bytes from which reads bypass folios, for files larger than half of what the cache may always hold: such
    /// a file would not stay in memory, and would evict others.
    pub bypass_bytes: u64,
    /// Whether files that are appended to get speculative preallocation beyond EOF.
    pub preallocate: bool,
    /// Clock for the age of dirty files.
    pub clock: Arc<dyn Clock>,
}

/// A limit of dirty data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyLimit {
    /// So many bytes.
    Bytes(u64),
    /// So many percent of what the cache may always hold (like `vm.dirty_ratio`).
    Percent(u32),
}

impl DirtyLimit {
    fn bytes(self, memory: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (u128::from(memory) * u128::from(percent.min(100)) / 100) as u64,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dirty: None,
            dirty_background: None,
            reclaim: ReclaimPolicy::default(),
            expire_s: 30,
            interval_ms: 5000,
            commit_s: None,
            flushers: None,
            order: Arc::new(ByInode),
            pass_bytes: 64 << 20,
            plug_over_pass: true,
            readahead_bytes: 2 << 20,
            bypass_bytes: 256 << 10,
            preallocate: true,
            clock: Arc::new(SystemClock),
        }
    }
}

impl Options {
    /// Age in nanoseconds at which dirty files are written back.
    pub(crate) fn expire_nanos(&self) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        self.commit_s.map_or(self.expire_s.saturating_mul(SECOND), |age| u64::from(age) * (SECOND / 2))
    }

    /// How long the flusher waits before it looks for old files; zero: until it is notified.
    pub(crate) fn pause(&self, is_dirty: bool) -> Duration {
        match self.commit_s {
            Some(age) if is_dirty => Duration::from_secs(age.into()) / 2,
            Some(age) => Duration::from_secs(age.into()),
            None => Duration::from_millis(self.interval_ms),
        }
    }
}

/// The most dirty data of a volume by default: a sync has to write it, and a process that is killed loses it.
const DIRTY_MAX: u64 = 1 << 30;

/// Limits derived from the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Hard limit of dirty bytes.
    pub hard: u64,
    /// Dirty bytes above which the flusher writes everything.
    pub background: u64,
}

impl Limits {
    /// `memory`: what the cache may always hold.
    pub fn of(options: &Options, memory: u64) -> Self {
        let memory = memory.max(1);
        let bytes = |limit: Option<DirtyLimit>| limit.map(|limit| limit.bytes(memory));
        let hard = bytes(options.dirty).unwrap_or((memory / 2).min(DIRTY_MAX)).min(memory).max(1);
        let background = bytes(options.dirty_background).unwrap_or(hard / 2).min(hard);
        Self { hard, background }
    }
}
