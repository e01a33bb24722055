//! Inactivation: unlinked files are freed in the background, when their last reference is dropped.
//!
//! | part | subject |
//! |---|---|
//! | [`Queues`] | files that wait to be freed, one queue per CPU; files that could not be freed |
//! | [`Workers`] | background threads, one per queue |
//! | [`drain`] | waits until the queues are empty, and helps |
//! | [`throttle`] | limits the queues: threads that unlink files free some themselves |
//! | `inactivate` | frees files: first their forks, in steps, then the inodes, several of a chunk at once |
//!
//! Each step is a transaction. The file stays on its unlinked list until the last one, so that the next open of the
//! volume continues after a crash.
//!
//! An error in freeing a file is reported at unmount: [`Workers::end`] retries, and returns the error. Threads that
//! [`drain`] the queues for another reason, such as a write that needs space, do not get it.
//!
//! An inode whose references are counted on each CPU is queued when it is unlinked, and when it could be evicted. The
//! thread that takes it from the queue collects its count, and frees the file only if it is unlinked and has no
//! references. Only that thread collects it, so that a count is never collected twice.
//!
//! The file that was queued last can be [reused](crate::InodeCache::reuse_removed) as a new file without a name, if it
//! is empty. Then programs that create and close such files, as temporary ones, change neither an unlinked list nor an
//! inode btree.
//!
//! # Invariants
//! - A queue is first in, first out, and one thread at a time frees its files. So the number of freed files identifies
//!   them. Files that are reused are the last ones of a queue.
//! - A queue has at most [`BACKLOG_MAX`] files, plus one for each thread that unlinks, plus files that were unlinked
//!   while they were open.
//!
//! # Locking
//! A queue has rank `Cache`. Dropping the last reference to a file only adds it to a queue, so it is allowed with any
//! locks held.

mod fork_freeing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::lock::{Condvar, Mutex, MutexGuard, Rank};
use base::percpu::{self, PerCpu};
use base::thread::JoinHandle;
use base::{FileBlock, Ino};
use error::Error;
use fork_freeing::ForkFreeing;
use format::extent::MAX_FILE_BLOCKS;
use format::inode::{FileType, ForkKind, S_IFMT};
use journal::engine::Loggable;
use smallvec::SmallVec;

use crate::attr;
use crate::fork::Fork;
use crate::inode::{Inode, LockedInode};
use crate::shared::Shared;
use crate::unlinked;

/// Number of queued files that wakes a worker at once. A worker waits a moment for more, because a wakeup takes as long
/// as a transaction.
const BATCH: usize = 64;
/// How long a worker waits for a full batch. No thread waits for it then.
const BATCH_DELAY: Duration = Duration::from_millis(2);
/// Length of a queue at which threads that unlink files [help](throttle).
pub const BACKLOG_MAX: usize = 4096;
/// Number of files that a helping thread frees at a time.
const HELP: usize = 256;
/// Maximum number of inodes that one transaction frees. They are of one chunk, so that it changes few blocks.
pub(crate) const FREED_AT_ONCE: usize = 16;
/// Maximum number of extents that one step unmaps.
pub(crate) const STEP_EXTENTS: usize = 2;
/// Maximum number of metadata blocks that one step frees. Each is cancelled in the log.
pub(crate) const STEP_BUFFERS: u64 = 16;

#[derive(Debug, Default)]
struct QueueState {
    inodes: Vec<Arc<Inode>>,
    /// Number of files queued since the start, except those that were reused.
    queued: u64,
    /// Number of these files that were freed, or could not be freed.
    completed: u64,
    /// A thread is freeing files of this queue, or reuses one.
    busy: bool,
    /// The worker sleeps until it is notified.
    asleep: bool,
    /// Number of threads that wait for the queue. If there are any, the worker does not wait for more files.
    waiters: usize,
    stop: bool,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<QueueState>,
    /// Number of files in the queue, readable without the lock.
    backlog: AtomicUsize,
    /// Notifies the worker.
    wake: Condvar,
    /// Notifies threads that wait until files are freed.
    freed: Condvar,
}

/// Files that could not be freed. They stay on their unlinked lists and in memory, and cannot be referenced.
#[derive(Debug, Default)]
struct Failed {
    inodes: Vec<Arc<Inode>>,
    first: Option<Error>,
}

/// Files that wait to be freed.
#[derive(Debug)]
pub struct Queues {
    queues: PerCpu<Queue>,
    failed: Mutex<Failed>,
    /// Starts the workers, when a queue has so many files. Without it, files wait for a [`drain`].
    starter: OnceLock<(usize, Weak<Starter>)>,
    /// The workers were started.
    started: AtomicBool,
}

/// The state to start the workers.
#[derive(Debug)]
struct Starter {
    shared: Arc<Shared>,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// No more threads are started.
    stopped: bool,
}

impl Queue {
    fn new() -> Self {
        Self {
            waiting: Mutex::new(Rank::Cache, QueueState::default()),
            backlog: AtomicUsize::new(0),
            wake: Condvar::new(),
            freed: Condvar::new(),
        }
    }

    /// Frees the first `max` files. If another thread is freeing files of this queue, waits for it instead.
    fn help(&self, mut waiting: MutexGuard<'_, QueueState>, shared: &Shared, max: usize) {
        if waiting.busy {
            waiting.waiters += 1;
            self.wake.notify_one();
            self.freed.wait(&mut waiting);
            waiting.waiters -= 1;
            return;
        }
        let count = waiting.inodes.len().min(max);
        let rest = waiting.inodes.split_off(count);
        let inodes = std::mem::replace(&mut waiting.inodes, rest);
        self.backlog.store(waiting.inodes.len(), Ordering::Relaxed);
        waiting.busy = true;
        drop(waiting);
        shared.inactive.free(shared, inodes);
        let mut waiting = self.waiting.lock();
        waiting.busy = false;
        waiting.completed += count as u64;
        drop(waiting);
        self.freed.notify_all();
    }

    /// The loop of a worker. Ends when the worker is stopped and the queue is empty.
    fn work(&self, shared: &Shared) {
        loop {
            let mut waiting = self.waiting.lock();
            while waiting.inodes.is_empty() {
                if waiting.stop {
                    return;
                }
                waiting.asleep = true;
                self.wake.wait(&mut waiting);
            }
            waiting.asleep = false;
            if waiting.inodes.len() < BATCH && !waiting.stop && waiting.waiters == 0 {
                self.wake.wait_for(&mut waiting, BATCH_DELAY);
            }
            if !waiting.inodes.is_empty() {
                self.help(waiting, shared, usize::MAX);
            }
        }
    }
}

impl Queues {
    pub(crate) fn new() -> Self {
        Self {
            queues: PerCpu::new(percpu::available(), |_| Queue::new()),
            failed: Mutex::new(Rank::Leaf, Failed::default()),
            starter: OnceLock::new(),
            started: AtomicBool::new(false),
        }
    }

    /// Queues a file. After the workers have ended, the file stays on its unlinked list until the next open.
    pub(crate) fn push(&self, inode: Arc<Inode>) {
        let (_, queue) = self.queues.local();
        let mut waiting = queue.waiting.lock();
        if waiting.stop {
            return;
        }
        waiting.inodes.push(inode);
        waiting.queued += 1;
        let count = waiting.inodes.len();
        queue.backlog.store(count, Ordering::Relaxed);
        let wakes = waiting.asleep || count == BATCH;
        waiting.asleep = false;
        drop(waiting);
        if wakes {
            queue.wake.notify_one();
        }
        if !self.started.load(Ordering::Acquire) {
            self.start(count);
        }
    }

    /// Number of files that wait to be freed.
    pub fn backlog(&self) -> usize {
        self.queues.iter().map(|queue| queue.backlog.load(Ordering::Relaxed)).sum()
    }

    /// Whether files of this CPU are queued.
    pub fn has_queued(&self) -> bool {
        self.queues.local().1.backlog.load(Ordering::Relaxed) > 0
    }

    /// Takes the file that was queued last on this CPU, if it may be [reused](Inode::reuse) and no thread frees files
    /// of the queue.
    pub(crate) fn take_newest(&self) -> Option<TakenFile<'_>> {
        let (_, queue) = self.queues.local();
        let mut waiting = queue.waiting.lock();
        if waiting.busy {
            return None;
        }
        let inode = waiting.inodes.pop_if(|inode| inode.may_be_reused())?;
        waiting.busy = true;
        queue.backlog.store(waiting.inodes.len(), Ordering::Relaxed);
        Some(TakenFile { queue, inode, is_reused: false })
    }

    #[cold]
    fn start(&self, waiting: usize) {
        if let Some((threshold, starter)) = self.starter.get()
            && waiting >= *threshold
            && let Some(starter) = starter.upgrade()
        {
            // If no thread can be started, the files wait until a thread drains the queues.
            let _ = starter.start();
        }
    }

    fn free(&self, shared: &Shared, mut inodes: Vec<Arc<Inode>>) {
        let fail = |inode: &Arc<Inode>, error| {
            let mut failed = self.failed.lock();
            failed.inodes.push(Arc::clone(inode));
            failed.first.get_or_insert(error);
        };
        let free = || {
            Inode::collect_counts(&mut inodes);
            inactivate(shared, inodes, fail);
        };
        // After a panic, unmount must not wait forever.
        if catch_unwind(AssertUnwindSafe(free)).is_err() {
            shared.target.shut_down("freeing an unlinked file panicked");
        }
    }

    /// Number of files that could not be freed. They stay on their unlinked lists.
    pub fn unfreed(&self) -> usize {
        self.failed.lock().inodes.len()
    }

    /// Queues the files that could not be freed again.
    fn retry(&self) {
        let failed = std::mem::take(&mut *self.failed.lock());
        failed.inodes.into_iter().for_each(|inode| self.push(inode));
    }

    fn stop(&self) {
        for queue in self.queues.iter() {
            queue.waiting.lock().stop = true;
            queue.wake.notify_one();
        }
    }
}

/// A file that a thread has taken out of its queue to reuse it. It is put back, unless it was reused. Until then the
/// queue is busy, so that threads that wait for its files wait for this one, too.
#[derive(Debug)]
pub(crate) struct TakenFile<'q> {
    queue: &'q Queue,
    inode: Arc<Inode>,
    is_reused: bool,
}

impl TakenFile<'_> {
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// The file is another one now.
    pub fn set_reused(mut self) {
        self.is_reused = true;
    }
}

impl Drop for TakenFile<'_> {
    fn drop(&mut self) {
        let queue = self.queue;
        let mut waiting = queue.waiting.lock();
        waiting.busy = false;
        match self.is_reused {
            true => waiting.queued -= 1,
            false => waiting.inodes.push(Arc::clone(&self.inode)),
        }
        queue.backlog.store(waiting.inodes.len(), Ordering::Relaxed);
        let (has_waiters, wakes) = (waiting.waiters > 0, waiting.asleep && !waiting.inodes.is_empty());
        waiting.asleep &= !wakes;
        drop(waiting);
        if has_waiters {
            queue.freed.notify_all();
        }
        if wakes {
            queue.wake.notify_one();
        }
    }
}

/// Waits until all files that were queued before are freed, or could not be freed. Frees files itself if no other
/// thread does. The caller must hold no lock of an inode or an AG.
pub fn drain(shared: &Shared) {
    for queue in shared.inactive.queues.iter() {
        let mut waiting = queue.waiting.lock();
        let queued = waiting.queued;
        // The last ones may be reused meanwhile.
        while waiting.completed < queued.min(waiting.queued) {
            queue.help(waiting, shared, usize::MAX);
            waiting = queue.waiting.lock();
        }
    }
}

/// Limits the queue of this CPU: while it is too long, frees some of its files, or waits for the thread that does. It
/// is shorter while inodes exceed their memory. To be called before a file is unlinked, without locks.
#[inline]
pub fn throttle(shared: &Shared) {
    let (_, queue) = shared.inactive.queues.local();
    // They are inodes in memory, which cannot be evicted.
    let max = if shared.index.is_exceeded() { HELP } else { BACKLOG_MAX };
    if queue.backlog.load(Ordering::Relaxed) >= max {
        help_until_short(shared, queue, max);
    }
}

#[cold]
fn help_until_short(shared: &Shared, queue: &Queue, max: usize) {
    loop {
        let waiting = queue.waiting.lock();
        if waiting.inodes.len() < max {
            return;
        }
        queue.help(waiting, shared, HELP);
    }
}

/// The threads that free files, one per CPU. Dropping this ends them, after the queues are empty.
#[derive(Debug)]
pub struct Workers(Arc<Starter>);

impl Workers {
    /// Starts the threads. With `later`, they are started when a queue has a full batch; until then, threads that
    /// [`drain`] the queues free files.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(shared: &Arc<Shared>, later: bool) -> std::io::Result<Self> {
        let threshold = if later { BATCH } else { 1 };
        let threads = Mutex::new(Rank::Leaf, Threads::default());
        let starter = Arc::new(Starter { shared: Arc::clone(shared), threads });
        // It is set only here.
        let _ = shared.inactive.starter.set((threshold, Arc::downgrade(&starter)));
        if !later {
            starter.start()?;
        }
        Ok(Self(starter))
    }

    /// Frees all queued files, retries those that could not be freed, and ends the threads. Afterwards no file is
    /// freed.
    ///
    /// # Errors
    /// The first error of freeing a file. The file stays on its unlinked list until the next open.
    pub fn end(&self) -> Result<(), Error> {
        let shared = &self.0.shared;
        drain(shared);
        shared.inactive.retry();
        self.stop();
        shared.inactive.failed.lock().first.clone().map_or(Ok(()), Err)
    }

    fn stop(&self) {
        let mut threads = self.0.threads.lock();
        threads.stopped = true;
        let handles = std::mem::take(&mut threads.handles);
        drop(threads);
        self.0.shared.inactive.stop();
        drain(&self.0.shared);
        for thread in handles {
            // A panic was reported by the thread itself; its files stay on the unlinked lists.
            let _ = thread.join();
        }
    }
}

impl Starter {
    fn start(&self) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        if threads.stopped || self.shared.inactive.started.load(Ordering::Acquire) {
            return Ok(());
        }
        for slot in 0..self.shared.inactive.queues.slots() {
            let shared = Arc::clone(&self.shared);
            let thread = base::thread::spawn(&format!("xebec-inactive-{slot}"), move || {
                if let Some(queue) = shared.inactive.queues.iter().nth(slot) {
                    queue.work(&shared);
                }
            })?;
            threads.handles.push(thread);
        }
        self.shared.inactive.started.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
        // Breaks a reference cycle: these inodes reference the shared state.
        let failed = std::mem::take(&mut *self.0.shared.inactive.failed.lock());
        drop(failed);
    }
}

/// Frees files without links and references. Files with links are only removed from their list. Calls `fail` for each
/// file that cannot be freed, because of damage, an I/O error or a shutdown: it stays on its list, and the others are
/// freed.
///
/// # Locking
/// Reserves log space before it locks inodes: a locked inode cannot be written back, and the log's tail may wait for
/// that. The inodes have no references, so they do not change between the steps. Several are locked in ascending order.
fn inactivate(shared: &Shared, mut inodes: Vec<Arc<Inode>>, mut fail: impl FnMut(&Arc<Inode>, Error)) {
    inodes.retain(|inode| {
        free_blocks(shared, inode).unwrap_or_else(|error| {
            fail(inode, error);
            false
        })
    });
    inodes.sort_unstable_by_key(|inode| inode.ino());
    let mut rest = &inodes[..];
    while let Some(first) = rest.first() {
        let batch = rest.get(..FREED_AT_ONCE).unwrap_or(rest);
        // After an error, retry the first one alone, so that a bad inode does not keep the others.
        let alone = |_| free_first(shared, std::slice::from_ref(first));
        let freed = free_first(shared, batch).or_else(alone).unwrap_or_else(|error| {
            fail(first, error);
            1
        });
        rest = rest.get(freed.max(1)..).unwrap_or_default();
    }
}

/// Frees the blocks of a file. Returns whether the inode is to be freed next. A file with links, which is damage, is
/// only removed from its list.
fn free_blocks(shared: &Shared, inode: &Arc<Inode>) -> Result<bool, Error> {
    if inode.read().nlink() != 0 {
        let mut tx = shared.begin(shared.reservations.free_inodes)?;
        let mut locked = inode.lock();
        unlinked::remove(shared, &mut tx, &mut locked)?;
        return tx.commit(&mut [&mut locked]).map(|()| false);
    }
    // Writeback of dirty data would write into blocks that are freed.
    if let Some(attached) = inode.attachment() {
        attached.forget();
    }
    attr::inactive::empty_root(shared, inode)?;
    for kind in [ForkKind::Data, ForkKind::Attr] {
        while free_step(shared, inode, kind)? {}
    }
    Ok(true)
}

/// Frees the first of several inodes without blocks, and the following ones of the same chunk. Returns their number.
fn free_first(shared: &Shared, inodes: &[Arc<Inode>]) -> Result<usize, Error> {
    let mut tx = shared.begin(shared.reservations.free_inodes)?;
    let mut locked: SmallVec<[LockedInode; FREED_AT_ONCE]> = inodes.iter().map(Inode::lock).collect();
    let numbers: SmallVec<[Ino; FREED_AT_ONCE]> = inodes.iter().map(|inode| inode.ino()).collect();
    // The inode btrees first: they lock the AGI, and perhaps the AGF. The unlinked lists then lock clusters.
    let freed = shared.groups.free_inodes(&mut tx, &numbers)?;
    locked.truncate(freed.count);
    if let Some(chunk) = freed.removed {
        shared.index.removed(chunk);
    }
    for inode in &mut locked {
        unlinked::remove_freed(shared, &mut tx, inode, freed.removed)?;
        inode.uninit();
        // Before the commit: after it, another thread may allocate the inode.
        inode.inode().mark_free();
    }
    let mut changed: SmallVec<[&mut dyn Loggable; FREED_AT_ONCE]> = SmallVec::new();
    changed.extend(locked.iter_mut().map(|inode| inode as &mut dyn Loggable));
    tx.commit(&mut changed)?;
    Ok(freed.count)
}

/// Type bits of a regular file.
const S_IFREG: u16 = 0o100_000;

/// Unmaps and frees the last extents of a fork. Returns whether there may be more.
fn free_step(shared: &Shared, inode: &Arc<Inode>, kind: ForkKind) -> Result<bool, Error> {
    let mut locked = inode.lock();
    if !maps_blocks(shared, &mut locked, kind)? {
        return Ok(false);
    }
    let may_share = ForkFreeing::of(shared, &locked, kind).may_share;
    drop(locked);
    let reservations = &shared.reservations;
    let mut tx = shared.begin(if may_share { reservations.unmap_shared } else { reservations.unmap })?;
    let mut locked = inode.lock();
    let freeing = ForkFreeing::of(shared, &locked, kind);
    let mut space = shared.groups.space(0)?;
    let mut has_freed = false;
    for _ in 0..STEP_EXTENTS {
        let mut fork = Fork::open(shared, &mut locked, kind)?;
        let Some(last) = fork.last_in(Some(&mut tx), FileBlock(0), FileBlock(MAX_FILE_BLOCKS))? else {
            break;
        };
        let part = freeing.step_part(&last);
        freeing.invalidate(shared, &mut tx, &part)?;
        let mut fork = Fork::open(shared, &mut locked, kind)?;
        fork.free(&mut tx, &mut *space, part.offset..part.end(), freeing.may_share)?;
        has_freed = true;
    }
    if kind == ForkKind::Data {
        // A symlink of size 0 is damage, even if unlinked. Like the kernel, makes it a regular file before its target
        // is freed.
        if locked.dinode().file_type() == Some(FileType::Symlink) {
            let permissions = locked.mode() & !S_IFMT;
            locked.set_mode(S_IFREG | permissions);
        }
        locked.set_size(0);
    }
    tx.commit(&mut [&mut locked])?;
    Ok(has_freed)
}

fn maps_blocks(shared: &Shared, locked: &mut LockedInode, kind: ForkKind) -> Result<bool, Error> {
    let mut fork = Fork::open(shared, locked, kind)?;
    if !fork.has_extents() || fork.extent_count() == 0 {
        return Ok(false);
    }
    // Before a transaction begins, so that damage ends nothing but this file's removal.
    fork.load(None, FileBlock(MAX_FILE_BLOCKS))?;
    Ok(true)
}
