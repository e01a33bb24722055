//! Inactivation: unlinked files are freed in the background, when their last reference is dropped.
//!
//! | part | does |
//! |---|---|
//! | [`Queues`] | files that wait, by CPU; files that could not be freed |
//! | [`Workers`] | a thread for each queue, from the first file on until unmounting |
//! | [`drain`] | waits for the queues, and helps |
//! | [`throttle`] | bounds the queues: threads that unlink files free some themselves |
//! | `inactivate` | frees files: their forks step by step, then the inodes, several of a chunk at once |
//!
//! Each step is a change of its own, and until the last one the file stays on its list of unlinked inodes: whenever the
//! machine stops, the next opening goes on from there.
//!
//! A file that cannot be freed concerns nobody but the owner of the volume: [`Workers::end`] tries it once more and
//! reports the error. Threads that [`drain`] the queues for other reasons, such as a write that needs space, do not see
//! it.
//!
//! # Invariants
//! - A queue is first in, first out, and one thread at a time frees files of it. So a count of freed files tells which.
//! - A queue holds no more than [`BACKLOG_MAX`] files and one for each thread that unlinks, plus files that were
//!   unlinked while they were open: those were in memory before.
//!
//! # Locking
//! A queue has rank `Cache`. Dropping the last reference to a file only puts it into a queue, whatever locks the thread
//! holds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::Ino;
use base::lock::{Condvar, Mutex, MutexGuard, Rank};
use base::percpu::{self, PerCpu};
use base::thread::JoinHandle;
use error::Error;
use format::extent::Extent;
use format::inode::{FileType, ForkKind, S_IFMT, flags2};
use journal::engine::{DiskExtent, Loggable, Transaction};
use smallvec::SmallVec;

use crate::attr;
use crate::fork::Fork;
use crate::inode::{Inode, LockedInode};
use crate::shared::Shared;
use crate::unlinked;

/// So many files wake a worker at once; fewer wait a moment for more, as waking costs as much as a change.
const BATCH: usize = 64;
/// That moment. It only delays work that nobody waits for.
const GATHERING: Duration = Duration::from_millis(2);
/// Files of one queue from which on threads that unlink files [help](throttle).
pub const BACKLOG_MAX: usize = 4096;
/// Files that such a thread frees before it looks at the queue again.
const HELP: usize = 256;
/// Most inodes that one change frees, all of one chunk: so it changes few blocks.
pub(crate) const FREED_AT_ONCE: usize = 16;
/// Most extents that one step unmaps.
pub(crate) const STEP_EXTENTS: usize = 2;
/// Most metadata blocks that one step frees: each is cancelled in the log.
pub(crate) const STEP_BUFFERS: u64 = 16;

#[derive(Debug, Default)]
struct QueueState {
    inodes: Vec<Arc<Inode>>,
    /// Files that were ever queued here, and files of them that were dealt with.
    queued: u64,
    done: u64,
    /// A thread frees files that it took from here.
    busy: bool,
    /// The worker sleeps until it is notified.
    asleep: bool,
    /// Threads that wait for the queue: the worker does not wait for more files.
    waiters: usize,
    stop: bool,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<QueueState>,
    /// Files that wait, to be looked at without the lock.
    backlog: AtomicUsize,
    /// Notifies the worker.
    wake: Condvar,
    /// Notifies threads that wait until files are freed.
    freed: Condvar,
}

/// Files that could not be freed. They stay on their lists, and in memory, where nobody gets a reference to them.
#[derive(Debug, Default)]
struct Failed {
    inodes: Vec<Arc<Inode>>,
    first: Option<Error>,
}

/// Files that wait to be freed. They stay in memory for that.
#[derive(Debug)]
pub struct Queues {
    queues: PerCpu<Queue>,
    failed: Mutex<Failed>,
    /// Starts the workers. Without any, files wait for a [`drain`].
    starter: OnceLock<Weak<Starter>>,
    /// The workers run, or have run.
    started: AtomicBool,
}

/// What workers are started with.
#[derive(Debug)]
struct Starter {
    shared: Arc<Shared>,
    /// Files of a queue with which they begin.
    from: usize,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// None begins any more.
    over: bool,
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

    /// Frees the first `most` files, or waits for the thread that frees files of this queue.
    fn help(&self, mut waiting: MutexGuard<'_, QueueState>, shared: &Shared, most: usize) {
        if waiting.busy {
            waiting.waiters += 1;
            self.wake.notify_one();
            self.freed.wait(&mut waiting);
            waiting.waiters -= 1;
            return;
        }
        let count = waiting.inodes.len().min(most);
        let rest = waiting.inodes.split_off(count);
        let inodes = std::mem::replace(&mut waiting.inodes, rest);
        self.backlog.store(waiting.inodes.len(), Ordering::Relaxed);
        waiting.busy = true;
        drop(waiting);
        shared.inactive.free(shared, inodes);
        let mut waiting = self.waiting.lock();
        waiting.busy = false;
        waiting.done += count as u64;
        drop(waiting);
        self.freed.notify_all();
    }

    /// What the worker does until it is stopped and nothing is left.
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
                self.wake.wait_for(&mut waiting, GATHERING);
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

    /// Hands a file over. Where the workers have ended, the file stays on its list until the next opening.
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

    #[cold]
    fn start(&self, waiting: usize) {
        if let Some(starter) = self.starter.get().and_then(Weak::upgrade)
            && waiting >= starter.from
        {
            // Without threads, the files wait until a thread drains the queues.
            let _ = starter.start();
        }
    }

    fn free(&self, shared: &Shared, inodes: Vec<Arc<Inode>>) {
        let fail = |inode: &Arc<Inode>, error| {
            let mut failed = self.failed.lock();
            failed.inodes.push(Arc::clone(inode));
            failed.first.get_or_insert(error);
        };
        // A bug must not leave unmounting waiting for ever.
        if catch_unwind(AssertUnwindSafe(|| inactivate(shared, inodes, fail))).is_err() {
            shared.target.shut_down("freeing an unlinked file met a bug of the program");
        }
    }

    /// How many files could not be freed. They stay on their lists of unlinked inodes.
    pub fn unfreed(&self) -> usize {
        self.failed.lock().inodes.len()
    }

    /// Queues files again that could not be freed.
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

/// Returns when every file is dealt with that was queued before: freed, or kept as one that cannot be. This thread
/// frees files, too, where no other does. It holds no lock of a file or of an allocation group.
pub fn drain(shared: &Shared) {
    for queue in shared.inactive.queues.iter() {
        let mut waiting = queue.waiting.lock();
        let queued = waiting.queued;
        while waiting.done < queued {
            queue.help(waiting, shared, usize::MAX);
            waiting = queue.waiting.lock();
        }
    }
}

/// To be called before a file is unlinked, with no lock held: while too many files wait in this CPU's queue, the thread
/// frees some of them, or waits for the thread that does. So the backlog is bounded by a count, and threads that unlink
/// files pay for freeing them where the workers cannot keep up.
#[inline]
pub fn throttle(shared: &Shared) {
    let (_, queue) = shared.inactive.queues.local();
    if queue.backlog.load(Ordering::Relaxed) >= BACKLOG_MAX {
        hold_back(shared, queue);
    }
}

#[cold]
fn hold_back(shared: &Shared, queue: &Queue) {
    loop {
        let waiting = queue.waiting.lock();
        if waiting.inodes.len() < BACKLOG_MAX {
            return;
        }
        queue.help(waiting, shared, HELP);
    }
}

/// The threads that free files: one for each CPU. Dropping them ends them, when all that waits is dealt with.
#[derive(Debug)]
pub struct Workers(Arc<Starter>);

impl Workers {
    /// Starts them, unless `later`: then they begin when so many files wait that it is worth it, and until then files
    /// are freed by threads that [`drain`] the queues.
    ///
    /// # Errors
    /// The machine has no thread left.
    pub fn start(shared: &Arc<Shared>, later: bool) -> std::io::Result<Self> {
        let from = if later { BATCH } else { 1 };
        let threads = Mutex::new(Rank::Leaf, Threads::default());
        let starter = Arc::new(Starter { shared: Arc::clone(shared), from, threads });
        // Nobody else sets it.
        let _ = shared.inactive.starter.set(Arc::downgrade(&starter));
        if !later {
            starter.start()?;
        }
        Ok(Self(starter))
    }

    /// Frees what waits, tries once more what could not be freed, and ends the threads: from then on no file is freed,
    /// and no transaction begun for that.
    ///
    /// # Errors
    /// The first that freeing met: a file that could not be freed stays on its list, for the next opening.
    pub fn end(&self) -> Result<(), Error> {
        let shared = &self.0.shared;
        drain(shared);
        shared.inactive.retry();
        self.stop();
        shared.inactive.failed.lock().first.clone().map_or(Ok(()), Err)
    }

    fn stop(&self) {
        let mut threads = self.0.threads.lock();
        threads.over = true;
        let handles = std::mem::take(&mut threads.handles);
        drop(threads);
        self.0.shared.inactive.stop();
        drain(&self.0.shared);
        for thread in handles {
            // A panic of a worker has been reported by its thread; what it left is on the unlinked lists.
            let _ = thread.join();
        }
    }
}

impl Starter {
    fn start(&self) -> std::io::Result<()> {
        let mut threads = self.threads.lock();
        if threads.over || self.shared.inactive.started.load(Ordering::Acquire) {
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
        // They refer to what holds them.
        let failed = std::mem::take(&mut *self.0.shared.inactive.failed.lock());
        drop(failed);
    }
}

/// Frees files that have no links and no users; those that have links are only taken off their list. Calls `fail` for
/// each that cannot be freed, because of damage, I/O errors, or a volume that was shut down: it stays on its list, and
/// the others are freed.
///
/// # Locking
/// Log space before the inodes' locks: an inode that is locked cannot be written back, and the log's tail may wait for
/// just that. Nobody else uses the inodes, so they stay as they are between the steps. Several are locked in the order
/// of their numbers.
fn inactivate(shared: &Shared, mut inodes: Vec<Arc<Inode>>, mut fail: impl FnMut(&Arc<Inode>, Error)) {
    inodes.retain(|inode| {
        empty(shared, inode).unwrap_or_else(|error| {
            fail(inode, error);
            false
        })
    });
    inodes.sort_unstable_by_key(|inode| inode.ino());
    let mut rest = &inodes[..];
    while let Some(first) = rest.first() {
        let some = rest.get(..FREED_AT_ONCE).unwrap_or(rest);
        // Where something is wrong with one of them, the others are not kept by it.
        let alone = |_| free_first(shared, std::slice::from_ref(first));
        let freed = free_first(shared, some).or_else(alone).unwrap_or_else(|error| {
            fail(first, error);
            1
        });
        rest = rest.get(freed.max(1)..).unwrap_or_default();
    }
}

/// Frees what a file holds; whether it is to be freed then. One that has links, as only damage can bring here, is taken
/// off its list.
fn empty(shared: &Shared, inode: &Arc<Inode>) -> Result<bool, Error> {
    if inode.read().nlink() != 0 {
        let mut tx = shared.begin(shared.reservations.free_inodes)?;
        let mut locked = inode.lock();
        unlinked::remove(shared, &mut tx, &mut locked)?;
        return tx.commit(&mut [&mut locked]).map(|()| false);
    }
    // Contents that are still to be written would be written into blocks of others.
    if let Some(attached) = inode.attachment() {
        attached.forget();
    }
    attr::inactive::empty_root(shared, inode)?;
    for kind in [ForkKind::Data, ForkKind::Attr] {
        while free_step(shared, inode, kind)? {}
    }
    Ok(true)
}

/// Frees the first of some inodes that hold nothing, and those behind it that are of its chunk; how many.
fn free_first(shared: &Shared, inodes: &[Arc<Inode>]) -> Result<usize, Error> {
    let mut tx = shared.begin(shared.reservations.free_inodes)?;
    let mut locked: SmallVec<[LockedInode; FREED_AT_ONCE]> = inodes.iter().map(Inode::lock).collect();
    let numbers: SmallVec<[Ino; FREED_AT_ONCE]> = inodes.iter().map(|inode| inode.ino()).collect();
    // The inode trees first: they lock the AGI, and perhaps the AGF, before the lists lock clusters.
    let freed = shared.groups.free_inodes(&mut tx, &numbers)?;
    locked.truncate(freed.count);
    if let Some(chunk) = freed.removed {
        shared.index.removed(chunk);
    }
    for inode in &mut locked {
        unlinked::remove_freed(shared, &mut tx, inode, freed.removed)?;
        inode.end();
        // From the commit on, somebody may take the inode again: so this comes before.
        inode.inode().mark_free();
    }
    let mut changed: SmallVec<[&mut dyn Loggable; FREED_AT_ONCE]> = SmallVec::new();
    changed.extend(locked.iter_mut().map(|inode| inode as &mut dyn Loggable));
    tx.commit(&mut changed)?;
    Ok(freed.count)
}

/// Type bits of a regular file.
const S_IFREG: u16 = 0o100_000;

/// Unmaps and frees the last extents of a fork; whether there may be more.
fn free_step(shared: &Shared, inode: &Arc<Inode>, kind: ForkKind) -> Result<bool, Error> {
    let mut locked = inode.lock();
    if !maps_something(shared, &mut locked, kind)? {
        return Ok(false);
    }
    let may_share = ForkFreeing::of(shared, &locked, kind).may_share;
    drop(locked);
    let reservations = &shared.reservations;
    let mut tx = shared.begin(if may_share { reservations.unmap_shared } else { reservations.unmap })?;
    let mut locked = inode.lock();
    let shape = ForkFreeing::of(shared, &locked, kind);
    let mut space = shared.groups.space(0)?;
    for _ in 0..STEP_EXTENTS {
        let Some(last) = Fork::open(shared, &mut locked, kind)?.list().last() else { break };
        let piece = shape.piece(&last);
        shape.invalidate(shared, &mut tx, &piece)?;
        let mut fork = Fork::open(shared, &mut locked, kind)?;
        fork.free(&mut tx, &mut *space, (piece.offset, piece.end()), shape.may_share)?;
    }
    if kind == ForkKind::Data {
        // A symlink of no bytes is damage, even without a name: the kernel makes a file of it, too, before it frees
        // the target.
        if locked.dinode().file_type() == Some(FileType::Symlink) {
            let permissions = locked.mode() & !S_IFMT;
            locked.set_mode(S_IFREG | permissions);
        }
        locked.set_size(0);
    }
    tx.commit(&mut [&mut locked])?;
    Ok(true)
}

fn maps_something(shared: &Shared, locked: &mut LockedInode, kind: ForkKind) -> Result<bool, Error> {
    let fork = Fork::open(shared, locked, kind)?;
    Ok(fork.has_extents() && !fork.list().is_empty())
}

/// How the blocks of a fork are freed.
struct ForkFreeing {
    /// Blocks of one buffer, where they hold metadata; `u64::MAX` for a buffer over a whole extent.
    buffer_blocks: Option<u64>,
    may_share: bool,
}

impl ForkFreeing {
    fn of(shared: &Shared, state: &LockedInode, kind: ForkKind) -> Self {
        let buffer_blocks = match (kind, state.dinode().file_type()) {
            (ForkKind::Attr, _) => Some(1),
            (ForkKind::Data, Some(FileType::Directory)) => Some(1 << shared.geometry.dir_block_log),
            (ForkKind::Data, Some(FileType::Symlink)) => Some(u64::MAX),
            (ForkKind::Data, _) => None,
        };
        let reflink = state.core().flags2.get() & flags2::REFLINK != 0;
        Self { buffer_blocks, may_share: reflink && kind == ForkKind::Data }
    }

    /// The end of an extent that one step frees.
    fn piece(&self, extent: &Extent) -> Extent {
        let most = match self.buffer_blocks {
            Some(blocks) => blocks.saturating_mul(STEP_BUFFERS / STEP_EXTENTS as u64),
            None => u64::MAX,
        };
        let skip = extent.count.saturating_sub(most);
        Extent {
            offset: (extent.offset.get() + skip).into(),
            start: (extent.start.get() + skip).into(),
            count: extent.count - skip,
            unwritten: extent.unwritten,
        }
    }

    /// Cancels the metadata blocks of an extent in the log, so that recovery never replays them into their successors.
    fn invalidate(&self, shared: &Shared, tx: &mut Transaction, extent: &Extent) -> Result<(), Error> {
        let Some(blocks) = self.buffer_blocks else { return Ok(()) };
        let geometry = &shared.geometry;
        let step = blocks.min(extent.count);
        for skip in (0..extent.count).step_by(step as usize) {
            let count = step.min(extent.count - skip);
            // The extent was verified when it was loaded.
            let at = geometry.fs_block_offset((extent.start.get() + skip).into()).unwrap_or(0);
            let bytes = (count << geometry.block_log) as u32;
            let id = tx.read(DiskExtent { daddr: (at >> 9).into(), bytes }, Rank::Fork, |_| Ok(()))?;
            tx.invalidate(id);
        }
        Ok(())
    }
}
