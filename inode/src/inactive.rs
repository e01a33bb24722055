//! Freeing unlinked files in the background, when their last user has gone.
//!
//! | part | does |
//! |---|---|
//! | [`Queues`] | files that wait, by CPU |
//! | [`Workers`] | a thread for each queue, from the first file on until unmounting |
//! | [`inactivate`] | frees files: their forks step by step, then the inodes, several of a chunk at once |
//!
//! Each step is a change of its own, and until the last one the file stays on its list of unlinked inodes: whenever the
//! machine stops, the next opening goes on from there.
//!
//! # Locking
//! A queue has rank `Cache`. Whoever drops the last hold on a file only puts it into a queue, whatever locks it has.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::Ino;
use base::lock::{Condvar, Mutex, Rank};
use base::percpu::{self, Pending, PerCpu};
use base::thread::JoinHandle;
use format::extent::Extent;
use format::inode::{FileType, ForkKind, S_IFMT, flags2};
use log::engine::{Error, Extent as DiskExtent, Loggable, Transaction};
use smallvec::SmallVec;

use crate::attr;
use crate::fork::Fork;
use crate::inode::{Inode, LockedInode};
use crate::shared::Shared;
use crate::unlinked;

/// So many files wake a worker at once; fewer wait a moment for more, as waking costs as much as a change.
const BATCH: usize = 64;
/// That moment.
const GATHERING: Duration = Duration::from_millis(2);
/// Most inodes that one change frees, all of one chunk: so it changes few blocks.
pub(crate) const FREED_AT_ONCE: usize = 16;
/// Most extents that one step unmaps.
pub(crate) const STEP_EXTENTS: usize = 2;
/// Most metadata blocks that one step frees: each is cancelled in the log.
pub(crate) const STEP_BUFFERS: u64 = 16;

#[derive(Debug, Default)]
struct Waiting {
    inodes: Vec<Arc<Inode>>,
    /// The worker sleeps until somebody wakes it.
    asleep: bool,
    stop: bool,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<Waiting>,
    wake: Condvar,
}

/// Files that wait to be freed. They stay in memory for that.
#[derive(Debug)]
pub struct Queues {
    queues: PerCpu<Queue>,
    /// Files that wait or are being freed.
    pending: Pending,
    first_error: Mutex<Option<Error>>,
    idle: Condvar,
    idle_lock: Mutex<()>,
    draining: AtomicBool,
    /// Starts the workers. Without any, files wait for a [`drain`](Self::drain).
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

impl Queues {
    pub(crate) fn new() -> Self {
        let slots = percpu::available();
        let queue = |_| Queue { waiting: Mutex::new(Rank::Cache, Waiting::default()), wake: Condvar::new() };
        Self {
            queues: PerCpu::new(slots, queue),
            pending: Pending::new(),
            first_error: Mutex::new(Rank::Leaf, None),
            idle: Condvar::new(),
            idle_lock: Mutex::new(Rank::Leaf, ()),
            draining: AtomicBool::new(false),
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
        self.pending.begin();
        waiting.inodes.push(inode);
        let wakes = waiting.asleep || waiting.inodes.len() == BATCH;
        waiting.asleep = false;
        let count = waiting.inodes.len();
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
            // Without threads, the files wait for who drains.
            let _ = starter.start();
        }
    }

    /// Frees what waits, where no worker does.
    fn free_alone(&self) {
        let Some(starter) = self.starter.get().and_then(Weak::upgrade) else { return };
        while !self.started.load(Ordering::Acquire) {
            let mut files = Vec::new();
            for queue in self.queues.iter() {
                files.append(&mut queue.waiting.lock().inodes);
            }
            if files.is_empty() {
                return;
            }
            for some in files.chunks(BATCH) {
                self.free(&starter.shared, some.to_vec());
            }
        }
    }

    fn free(&self, shared: &Shared, inodes: Vec<Arc<Inode>>) {
        let count = inodes.len();
        // A bug must not leave unmounting waiting for ever.
        let result = catch_unwind(AssertUnwindSafe(|| inactivate(shared, inodes))).unwrap_or_else(|_| {
            shared.target.shut_down("freeing an unlinked file met a bug of the program");
            shared.target.check()
        });
        if let Err(error) = result {
            self.first_error.lock().get_or_insert(error);
        }
        self.pending.end(count);
        if self.draining.load(Ordering::Acquire) && self.pending.is_none() {
            let _held = self.idle_lock.lock();
            self.idle.notify_all();
        }
    }

    /// Waits until nothing is left to be freed. Needs [`Workers`].
    ///
    /// # Errors
    /// The first that freeing met since the last call: a file that could not be freed stays on its list.
    pub fn drain(&self) -> Result<(), Error> {
        self.free_alone();
        self.draining.store(true, Ordering::Release);
        self.queues.iter().for_each(|queue| queue.wake.notify_one());
        let mut held = self.idle_lock.lock();
        while !self.pending.is_none() {
            // The time only bounds a wake that was missed.
            self.idle.wait_for(&mut held, GATHERING);
        }
        drop(held);
        self.draining.store(false, Ordering::Release);
        self.first_error.lock().take().map_or(Ok(()), Err)
    }

    /// Takes what waits in a queue; waits for it. `None` when the worker shall end and nothing is left.
    fn take(&self, slot: usize) -> Option<Vec<Arc<Inode>>> {
        let queue = self.queues.iter().nth(slot)?;
        let mut waiting = queue.waiting.lock();
        while waiting.inodes.is_empty() {
            if waiting.stop {
                return None;
            }
            waiting.asleep = true;
            queue.wake.wait(&mut waiting);
        }
        waiting.asleep = false;
        if waiting.inodes.len() < BATCH && !waiting.stop && !self.draining.load(Ordering::Acquire) {
            queue.wake.wait_for(&mut waiting, GATHERING);
        }
        Some(std::mem::take(&mut waiting.inodes))
    }

    fn stop(&self) {
        for queue in self.queues.iter() {
            queue.waiting.lock().stop = true;
            queue.wake.notify_one();
        }
    }
}

/// The threads that free files: one for each CPU. Dropping them ends them, when all that waits is freed.
#[derive(Debug)]
pub struct Workers(Arc<Starter>);

impl Workers {
    /// Starts them, unless `later`: then they begin when so many files wait that it is worth it, and until then files
    /// are freed by who [drains](Queues::drain).
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
                while let Some(inodes) = shared.inactive.take(slot) {
                    shared.inactive.free(&shared, inodes);
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
        let mut threads = self.0.threads.lock();
        threads.over = true;
        let handles = std::mem::take(&mut threads.handles);
        drop(threads);
        self.0.shared.inactive.free_alone();
        self.0.shared.inactive.stop();
        for thread in handles {
            // A panic of a worker has been reported by its thread; what it left is on the unlinked lists.
            let _ = thread.join();
        }
    }
}

/// Frees files that have no links and no users; those that have links are only taken off their list.
///
/// # Errors
/// The first of: damage, I/O errors, a volume that was shut down. The file then stays on its list; the others are
/// freed.
///
/// # Locking
/// Log space before the inodes' locks: an inode that is locked cannot be written home, and the log's tail may wait for
/// just that. Nobody else uses the inodes, so they stay as they are between the steps. Several are locked in the order
/// of their numbers.
pub fn inactivate(shared: &Shared, mut inodes: Vec<Arc<Inode>>) -> Result<(), Error> {
    let mut result = Ok(());
    let mut note = |error| {
        if result.is_ok() {
            result = Err(error);
        }
    };
    inodes.retain(|inode| {
        empty(shared, inode).unwrap_or_else(|error| {
            note(error);
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
            note(error);
            1
        });
        rest = rest.get(freed.max(1)..).unwrap_or_default();
    }
    result
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
    attr::inactive::cut_off(shared, inode)?;
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
        inode.inode().end_life();
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
    let may_share = Freeing::of(shared, &locked, kind).may_share;
    drop(locked);
    let reservations = &shared.reservations;
    let mut tx = shared.begin(if may_share { reservations.unmap_shared } else { reservations.unmap })?;
    let mut locked = inode.lock();
    let shape = Freeing::of(shared, &locked, kind);
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
struct Freeing {
    /// Blocks of one buffer, where they hold metadata; `u64::MAX` for a buffer over a whole extent.
    buffer_blocks: Option<u64>,
    may_share: bool,
}

impl Freeing {
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
