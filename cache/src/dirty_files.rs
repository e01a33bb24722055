//! The dirty files of a volume, and since when they are dirty.
//!
//! | part | is |
//! |---|---|
//! | `impl Contents` | how a file becomes one of them |
//! | [`DirtyTracking`] | the interface, for [`Cache::with_tracking`](crate::Cache::with_tracking) |
//! | [`DirtyLists`] | its implementation: lists in the order of time, for each CPU |
//!
//! # Invariants
//! - A dirty file is tracked, or in a pass, which returns it. It is never tracked twice.
//! - A file that becomes dirty during a pass is tracked anew, and the pass does not find it: so a pass ends although
//!   writers continue.
//!
//! # Locking
//! A list has a lock of rank `Cache`. It is held to add one file or to take a limited number.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use backing::Backing;
use base::Ino;
use base::lock::{Mutex, MutexGuard, Rank};
use base::percpu::PerCpu;

use crate::contents::Contents;
use crate::tuning::TAKEN_AT_ONCE;

/// A dirty file.
#[derive(Debug)]
pub struct DirtyFile<B: Backing> {
    pub(crate) contents: Arc<Contents<B>>,
    pub(crate) since: u64,
}

impl<B: Backing> DirtyFile<B> {
    /// Time since when it is dirty, in nanoseconds. Kept after a failed write. A file that is dirty again after its
    /// writeback is dirty since this writeback began.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.contents.cache.backing.ino(&self.contents.file)
    }
}

impl<B: Backing> Contents<B> {
    /// Counts blocks that became dirty, and lists the file.
    pub(crate) fn dirtied(&self, blocks: u64) {
        if blocks == 0 {
            return;
        }
        self.newer_blocks.fetch_add(blocks as i64, SeqCst);
        self.dirty_blocks.fetch_add(blocks as i64, SeqCst);
        self.cache.dirty.add(blocks << self.block_log());
        self.list(self.cache.now());
    }

    /// Adds the file to the dirty files, unless it is one of them. Afterwards a sync finds it.
    pub(crate) fn list(&self, since: u64) {
        if !self.listed.load(SeqCst) {
            self.adding.fetch_add(1, SeqCst);
            if !self.listed.swap(true, SeqCst)
                && let Some(me) = self.me.upgrade()
            {
                self.cache.add_dirty(me, since);
            }
            self.adding.fetch_sub(1, SeqCst);
        }
        self.wait_until_listed();
    }

    /// Waits until a thread that has marked the file as listed has added it. It waits for nobody meanwhile.
    pub(crate) fn wait_until_listed(&self) {
        while self.adding.load(SeqCst) > 0 {
            base::thread::yield_now();
        }
    }

    /// Raises the size after a write. The caller holds `io`.
    pub(crate) fn raise_size(&self, size: u64) {
        self.size.store(size, SeqCst);
        // Writeback may have written and finished the block between the write and this, and saw the old size. A block
        // that is dirty now is written later.
        if self.dirty_blocks.load(SeqCst) <= 0 {
            self.list(self.cache.now());
        }
    }
}

/// The ages at which files are written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Files that are dirty since this time or longer.
    pub until: u64,
    /// Files that are dirty since this time or later: the clock was set back.
    pub from: u64,
}

impl Due {
    /// Files that are dirty since `age` nanoseconds.
    pub fn at(now: u64, age: u64) -> Self {
        Self { until: now.saturating_sub(age), from: now.saturating_add(age.max(1)) }
    }

    /// Returns whether a file that is dirty since then is written back.
    pub fn includes(&self, since: u64) -> bool {
        since <= self.until || since >= self.from
    }
}

/// Keeps the dirty files of a volume, in stretches: each is written by one flusher.
///
/// # Locking
/// Calls take no lock of a rank before `Cache`. [`add`](Self::add) is called with a folio locked.
pub trait DirtyTracking<B: Backing>: Send + Sync + Debug {
    /// Adds a file that became dirty just now.
    fn add(&self, stretch: usize, file: DirtyFile<B>);

    /// Adds a file that a pass took and that is dirty nevertheless, perhaps since long.
    fn put_back(&self, stretch: usize, file: DirtyFile<B>);

    /// Takes all files of a stretch that were added before the call, or those that are due. Files that are not due need
    /// not be examined. Called by one thread for each stretch at a time, except when the volume is closed.
    fn take(&self, stretch: usize, due: Option<Due>) -> Vec<DirtyFile<B>>;
}

/// See the module. A file is in a list of the CPU on which it became dirty: the one of its stretch.
#[derive(Debug)]
pub(crate) struct DirtyLists<B: Backing>(PerCpu<Box<[Mutex<DirtyList<B>>]>>);

#[derive(Debug)]
struct DirtyList<B: Backing> {
    /// Files that became dirty, in the order of time: none is older than those before it, or counts as such.
    added: VecDeque<DirtyFile<B>>,
    /// Files that passes put back, by time, and by the number of the call.
    put_back: BTreeMap<(u64, u64), DirtyFile<B>>,
    /// Calls that put back a file.
    calls: u64,
}

impl<B: Backing> DirtyLists<B> {
    pub fn new(cpus: usize, stretches: usize) -> Self {
        let list = |_| Mutex::new(Rank::Cache, DirtyList::default());
        Self(PerCpu::new(cpus, |_| (0..stretches.max(1)).map(list).collect()))
    }

    /// Returns the list of this CPU.
    fn local(&self, stretch: usize) -> Option<MutexGuard<'_, DirtyList<B>>> {
        self.0.local().1.get(stretch).map(Mutex::lock)
    }
}

impl<B: Backing> Default for DirtyList<B> {
    fn default() -> Self {
        Self { added: VecDeque::new(), put_back: BTreeMap::new(), calls: 0 }
    }
}

impl<B: Backing> DirtyList<B> {
    /// Takes some files that are due. Examines no more files than it takes, and one.
    fn take_due(&mut self, due: Due, taken: &mut Vec<DirtyFile<B>>) {
        let added = self.added.iter().take(TAKEN_AT_ONCE).take_while(|file| due.includes(file.since)).count();
        taken.extend(self.added.drain(..added));
        let ends = [self.put_back.range(..=(due.until, u64::MAX)), self.put_back.range((due.from, 0)..)];
        let keys: Vec<_> = ends.into_iter().flatten().take(TAKEN_AT_ONCE).map(|(key, _)| *key).collect();
        taken.extend(keys.iter().filter_map(|key| self.put_back.remove(key)));
    }
}

impl<B: Backing> DirtyTracking<B> for DirtyLists<B> {
    fn add(&self, stretch: usize, mut file: DirtyFile<B>) {
        let Some(mut list) = self.local(stretch) else { return };
        // Threads read the clock before they take the lock, and it may be set back.
        file.since = list.added.back().map_or(file.since, |last| last.since.max(file.since));
        list.added.push_back(file);
    }

    fn put_back(&self, stretch: usize, file: DirtyFile<B>) {
        let Some(mut list) = self.local(stretch) else { return };
        list.calls += 1;
        let key = (file.since, list.calls);
        list.put_back.insert(key, file);
    }

    fn take(&self, stretch: usize, due: Option<Due>) -> Vec<DirtyFile<B>> {
        let mut taken = Vec::new();
        for list in self.0.iter().filter_map(|lists| lists.get(stretch)) {
            match due {
                None => {
                    let all = std::mem::take(&mut *list.lock());
                    taken.extend(all.put_back.into_values().chain(all.added));
                }
                Some(due) => loop {
                    let before = taken.len();
                    list.lock().take_due(due, &mut taken);
                    if taken.len() == before {
                        break;
                    }
                },
            }
        }
        taken
    }
}
