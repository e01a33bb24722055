//! One in-core inode: its state under its lock, its references, and its role as a log item.
//!
//! | type | purpose |
//! |---|---|
//! | [`Inode`] | the inode, shared by the inode cache, its users, the log and the AIL |
//! | [`InodeRef`] | a user's reference: while one exists, the inode is in memory, and an unlinked file keeps its contents |
//! | [`LockedInode`] | the inode's lock, held; what a commit takes |
//! | [`Attached`] | what an upper layer attaches to an inode: cached contents |
//!
//! # Invariants
//! - There is one object for each inode number. The inode cache ensures that, and evicts only objects that nobody else
//!   references.
//! - Changed fields (`fields`) accumulate until a metadata write takes them (`in_flight`). Until that write has
//!   succeeded, each checkpoint logs both, because its record may move the log tail past the earlier ones.
//! - `di_next_unlinked` on disk belongs to the cluster buffer, not to the inode. Metadata writeback of the inode keeps
//!   it.
//!
//! # Locking
//! The state has rank `Inode`; an AIL push only tries the lock. The attached object and the metadata that `stat`
//! returns are read without a lock, and so is a state that is often read ([`Inode::peek`]).

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{self, AtomicBool, AtomicU32, Ordering};

use base::Ino;
use base::lock::{Mutex, OwnedMutexGuard, Rank, UntilLocked};
use base::percpu::CpuRef;
use base::rcu::{self, Section};
use base::refs::{self, Counted, Ref, RefCount, Reused, Stale};
use error::Error;
use format::extent::Extent;
use format::inode::FileType;
use journal::engine::{CommitPosition, DelwriQueue, ItemCore, LogItem, Loggable, PushResult, VectorGrowth};

use crate::cluster::{self, InodeLocation};
use crate::log_item;
use crate::new_inode::NewInode;
use crate::shared::Shared;
use crate::stat::{InodeStat, PublishedStat};
use crate::state::InodeState;
use crate::summary::Summary;

/// What an upper layer attaches to an inode. It must not reference the inode: neither would ever be dropped.
pub trait Attached: Any + Send + Sync {
    /// The file is about to be freed and has no users: drops data that is to be written, and returns what is reserved
    /// for it. Called without locks, before the file's blocks are freed; the object is detached later.
    fn forget(&self);

    /// Does the same, unless it would have to wait for another thread. Returns whether it has.
    fn try_forget(&self) -> bool;

    /// Whether the inode must stay in memory, because the object holds data that is not written yet. Called with a lock
    /// of rank `Cache` held, so it must not wait.
    fn is_needed(&self) -> bool;
}

/// An in-core inode.
pub struct Inode {
    ino: Ino,
    summary: Summary,
    location: InodeLocation,
    shared: Arc<CpuRef<Shared>>,
    core: ItemCore,
    /// Fields in a metadata write that is under way.
    in_flight: AtomicU32,
    /// Fields whose metadata write failed. They are written again.
    failed: AtomicU32,
    /// Extents in memory that the cache's share of the memory budget has counted.
    counted_extents: AtomicU32,
    refs: RefCount<Arc<dyn Attached>>,
    chunk_removed: AtomicBool,
    /// Used since the inode cache last considered it for eviction.
    used: AtomicBool,
    stat: PublishedStat,
    state: Mutex<InodeState, UntilLocked>,
}

impl Inode {
    /// An inode without references.
    #[inline]
    pub(crate) fn new(shared: Arc<CpuRef<Shared>>, location: InodeLocation, state: InodeState) -> Arc<Self> {
        Arc::new(Self {
            ino: state.ino(),
            summary: Summary::new(&state),
            location,
            shared,
            core: ItemCore::default(),
            in_flight: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            counted_extents: AtomicU32::new(0),
            refs: RefCount::new(state.mode() == 0),
            chunk_removed: AtomicBool::new(false),
            used: AtomicBool::new(true),
            stat: PublishedStat::default(),
            state: Mutex::new_peeked(Rank::Inode, state),
        })
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Locks the inode for reading.
    #[track_caller]
    pub fn read(&self) -> impl Deref<Target = InodeState> + '_ {
        let state = self.state.lock_to_read();
        self.expect_published(&state);
        state
    }

    /// Calls `read` with the state. Takes no lock, and stores to no memory that other threads use, if that was read
    /// often since the inode was last locked for changes. Otherwise waits for the lock. `read` must not wait, nor take
    /// long. Must not be called in a read section.
    #[track_caller]
    pub fn peek<T>(&self, read: impl FnOnce(&InodeState) -> T) -> T {
        self.state.peek(read)
    }

    /// The state, to be read in a section; `None` if a thread has it locked. Does not wait.
    pub fn peek_in<'s>(&'s self, section: &'s Section) -> Option<impl Deref<Target = InodeState>> {
        self.state.peek_in(section)
    }

    /// Locks the inode for changes.
    #[track_caller]
    pub fn lock(self: &Arc<Self>) -> LockedInode {
        let state = OwnedMutexGuard::lock(Arc::clone(self), |inode| &inode.state);
        self.expect_published(&state);
        LockedInode { state }
    }

    /// Locks a free inode, while the thread holds the AGI that the inode was allocated from. The lock order normally
    /// forbids that. A thread that holds the lock of a free inode never waits for an AGI: it has just freed the inode,
    /// or tries to write it back.
    pub(crate) fn lock_free_inode(self: Arc<Self>) -> LockedInode {
        LockedInode { state: OwnedMutexGuard::lock_out_of_order(self, |inode| &inode.state) }
    }

    /// Locks the inode for changes if the lock is free.
    pub fn try_lock(self: &Arc<Self>) -> Option<LockedInode> {
        let state = OwnedMutexGuard::try_lock(Arc::clone(self), |inode| &inode.state)?;
        self.expect_published(&state);
        Some(LockedInode { state })
    }

    /// The attached object.
    pub fn attachment(&self) -> Option<Arc<dyn Attached>> {
        rcu::read(|section| self.attached(section).cloned())
    }

    /// The attached object, without a reference to it of its own. It may have been detached by the time of the call's
    /// return.
    #[inline]
    pub fn attached<'s>(&'s self, section: &'s Section) -> Option<&'s Arc<dyn Attached>> {
        self.refs.attached(section)
    }

    /// Attaches an object unless there is one; returns the attached object. The caller has a reference to the inode.
    pub fn attach(&self, new: Arc<dyn Attached>) -> Arc<dyn Attached> {
        self.refs.attach(Arc::clone(&new));
        self.attachment().unwrap_or(new)
    }

    /// The metadata, without a lock; `None` if it changed since the last [`stat`](Self::stat).
    #[inline]
    pub fn published_stat(&self) -> Option<InodeStat> {
        self.stat.read(self.ino)
    }

    /// The metadata. Locks the inode if it changed since the last call.
    #[track_caller]
    pub fn stat(&self) -> InodeStat {
        self.published_stat().unwrap_or_else(|| self.publish(&self.state.lock_to_read()))
    }

    /// The metadata; `None` if it changed since the last [`stat`](Self::stat) and the inode is locked.
    pub fn try_stat(&self) -> Option<InodeStat> {
        self.published_stat().or_else(|| Some(self.publish(&*self.state.try_lock_to_read()?)))
    }

    /// Checks in debug builds that the published metadata are those of the inode, which was just locked. A change that
    /// was given up half way is never published.
    #[inline]
    fn expect_published(&self, state: &InodeState) {
        debug_assert!(
            // Freeing a symbolic link makes it a regular file.
            state.nlink() == 0 || state.is_changed() || self.summary.is_of(state),
            "not the generation, flags and type of {self:?}"
        );
        debug_assert!(
            state.is_changed()
                || self.published_stat().is_none_or(|stat| stat == InodeStat::of(&state.dinode())),
            "the published metadata of {self:?} are not those of the inode"
        );
    }

    fn publish(&self, state: &InodeState) -> InodeStat {
        let stat = InodeStat::of(&state.dinode());
        self.stat.publish(&stat);
        stat
    }

    /// The last checkpoint that contains a change of the inode: when that is stable, all changes are. 0 if it has not
    /// changed since it was loaded.
    pub fn logged_in(&self) -> u64 {
        self.core.logged_in()
    }

    /// Inode generation. Needs a reference: it changes when the inode is freed and allocated again.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.summary.generation()
    }

    /// File type; `None` if the mode has no valid one. Needs a reference, as the generation does.
    #[inline]
    pub fn file_type(&self) -> Option<FileType> {
        self.summary.file_type()
    }

    /// Whether it is a file of the metadata directory. Takes no lock.
    pub fn is_internal(&self) -> bool {
        self.summary.is_internal()
    }

    /// Inode flags (`format::inode::flags`), as of the last commit.
    #[inline]
    pub fn flags(&self) -> u16 {
        self.summary.flags()
    }

    /// A reference to the inode.
    ///
    /// # Errors
    /// The inode is free, or about to be freed.
    #[inline]
    pub fn acquire(self: &Arc<Self>) -> Result<InodeRef, StaleInode> {
        Ref::acquire(self)
    }

    /// Whether the inode is neither free nor about to be freed.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.refs.is_valid()
    }

    /// Whether the inode is free. Does not change while the AGI is locked.
    pub(crate) fn is_free(&self) -> bool {
        self.refs.is_free()
    }

    /// The inode, whose state is `state`, was allocated.
    pub(crate) fn mark_allocated(&self, state: &InodeState) {
        // Before a thread can acquire a reference.
        self.summary.set(state);
        self.chunk_removed.store(false, Ordering::Release);
        self.refs.set_allocated();
    }

    /// The inode, which was queued for inactivation, was freed.
    pub(crate) fn mark_free(&self) {
        // A thread that found the inode before its names were removed may be reading the size of its contents.
        if let Some(attached) = self.refs.set_free() {
            self.shared.detached.push(attached);
        }
    }

    /// Whether a file that is queued for inactivation may be [reused](Self::reuse), as far as that is known without its
    /// lock.
    pub(crate) fn may_be_reused(&self) -> bool {
        // Otherwise its count is still to be collected.
        !self.is_counted_per_cpu()
            && self.file_type() == Some(FileType::Regular)
            && self.published_stat().is_none_or(|stat| stat.blocks == 0)
    }

    /// Makes a file that was queued for inactivation a new one, without names and on the same unlinked list, if it is
    /// regular, has no blocks and no attributes, and no thread uses it. The caller has taken it out of the queue. Does
    /// not wait.
    pub(crate) fn reuse(self: &Arc<Self>, new: &NewInode<'_>) -> Option<(LockedInode, InodeRef)> {
        if !self.try_lock()?.is_empty_and_unnamed() {
            return None;
        }
        if self.attachment().is_some_and(|attached| !attached.try_forget()) {
            return None;
        }
        // Checked again: before its data was dropped, writeback may have allocated blocks for it.
        let mut locked = self.try_lock().filter(|locked| locked.is_empty_and_unnamed())?;
        // It becomes valid when the inode shows the new file to other threads.
        let stale = self.acquire().err()?;
        // From here on the inode is changed, and must be committed.
        locked.uninit();
        new.begin(&mut locked, &self.shared);
        self.stat.invalidate();
        self.summary.set(&locked);
        let Reused { reference, detached } = stale.reuse()?;
        if let Some(detached) = detached {
            self.shared.detached.push(detached);
        }
        Some((locked, reference))
    }

    /// The inode's chunk is being removed, by a transaction that holds the cluster buffer. The inode must never be
    /// written again.
    pub(crate) fn mark_chunk_removed(&self) {
        self.chunk_removed.store(true, Ordering::Release);
    }

    /// Whether the inode's chunk was removed, or is being removed.
    fn is_chunk_removed(&self) -> bool {
        self.chunk_removed.load(Ordering::Acquire)
    }

    /// An AIL push of an inode whose chunk was removed. The item stays until the removal is in the log: until then,
    /// recovery would replay the inode.
    fn flush_without_chunk(&self) -> PushResult {
        let Some(buffer) = self.shared.buffers.peek(self.location.cluster.daddr) else {
            return PushResult::Clean;
        };
        match buffer.try_lock() {
            None => PushResult::Locked,
            Some(_) if buffer.core().is_pinned() => PushResult::Pinned,
            Some(_) => PushResult::Clean,
        }
    }

    /// The inode was added to, or removed from, an unlinked list. An inode on a list is freed when its last reference
    /// is dropped.
    pub(crate) fn set_unlinked(self: &Arc<Self>, is_unlinked: bool) {
        if !is_unlinked {
            self.refs.clear_unlinked();
        } else if self.refs.set_unlinked() {
            // The thread that takes the inode from the queue collects its count. A count that left per-CPU mode
            // before belongs to an inode that is in a queue already.
            self.shared.inactive.push(Arc::clone(self));
        }
    }

    /// Whether references are counted on each CPU, so that the inode cannot become idle.
    pub(crate) fn is_counted_per_cpu(&self) -> bool {
        self.refs.is_per_cpu() || self.refs.is_collecting()
    }

    /// Ends that references are counted on each CPU, so that the inode can become idle when its count is collected.
    pub(crate) fn end_counting_per_cpu(self: &Arc<Self>) {
        if self.refs.begin_collecting() {
            self.shared.inactive.push(Arc::clone(self));
        }
    }

    /// Collects the counts of inodes in a queue that were counted on each CPU, and removes these inodes from it, except
    /// those that are unlinked and have no references: they are to be freed. Waits for a grace period.
    pub(crate) fn collect_counts(queued: &mut Vec<Arc<Self>>) {
        let counted: Vec<_> = queued.extract_if(.., |inode| inode.refs.is_collecting()).collect();
        queued.extend(refs::collect(counted));
    }

    /// Collects the counts of all these inodes, which no other thread uses any more. Unlinked ones stay on their lists.
    pub(crate) fn collect_remaining_counts(inodes: Vec<Arc<Self>>) {
        for inode in &inodes {
            // Others were taken out of a queue by a thread that ended.
            let _ = inode.refs.begin_collecting();
        }
        drop(refs::collect(inodes));
    }

    /// Whether the inode can be evicted: only the inode cache references it, and it has nothing to write. Called with
    /// the shard of the cache locked.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        let is_alone = || Arc::strong_count(self) == 1;
        if !is_alone() {
            return false;
        }
        // From here on only writeback gets a reference.
        atomic::fence(Ordering::Acquire);
        let is_needed =
            rcu::read(|section| self.attached(section).is_some_and(|attached| attached.is_needed()));
        // After that, as the log references the inode until the changes of writeback that ended are written back.
        !is_needed
            && is_alone()
            && self.core.lsn().is_none()
            && !self.core.is_pinned()
            && self.failed.load(Ordering::Acquire) == 0
    }

    /// Counts the memory of the inode's extents, which is now that of `extents` extents. Called with the inode locked.
    #[inline]
    fn count_extents(&self, extents: usize) {
        let extents = u32::try_from(extents).unwrap_or(u32::MAX);
        let before = self.counted_extents.load(Ordering::Relaxed);
        if extents != before {
            self.counted_extents.store(extents, Ordering::Relaxed);
            let bytes = |extents: u32| u64::from(extents) * size_of::<Extent>() as u64;
            self.shared.index.memory_changed(bytes(before), bytes(extents));
        }
    }

    /// Whether the inode has more than a few extents in memory.
    pub(crate) fn has_counted_extents(&self) -> bool {
        self.counted_extents.load(Ordering::Relaxed) > 0
    }

    /// Drops the inode's extents from memory, unless the inode is locked. They are read again when they are needed.
    pub(crate) fn drop_extents(self: &Arc<Self>) {
        if let Some(mut locked) = self.try_lock() {
            locked.drop_extents();
        }
    }

    /// Whether the inode is one of the volume with this shared state.
    #[inline]
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(self.shared.object(), shared)
    }

    /// Marks the inode as used. Stores only if it is not marked yet.
    pub(crate) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the inode was used since the mark was cleared. If `clears`, clears it.
    pub(crate) fn was_used(&self, clears: bool) -> bool {
        if clears { self.used.swap(false, Ordering::Relaxed) } else { self.used.load(Ordering::Relaxed) }
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.count_extents(0);
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inode({})", self.ino)
    }
}

/// A reference to an inode. When the last reference to an unlinked file is dropped, the file is freed in the
/// background.
pub type InodeRef = Ref<Inode>;

/// A reference to an inode that is free, or about to be freed: only to be dropped, not with a lock of rank `Cache`
/// held.
pub type StaleInode = Stale<Inode>;

impl Counted for Inode {
    type Attached = Arc<dyn Attached>;

    #[inline]
    fn count(&self) -> &RefCount<Arc<dyn Attached>> {
        &self.refs
    }

    fn unreferenced(self: Arc<Self>) {
        let shared = Arc::clone(&self.shared);
        shared.inactive.push(self);
    }
}

/// A locked inode: access to its state, and what a commit takes.
pub struct LockedInode {
    state: OwnedMutexGuard<Inode, InodeState, UntilLocked>,
}

impl LockedInode {
    /// The inode.
    pub fn inode(&self) -> &Arc<Inode> {
        self.state.owner()
    }

    /// A reference to the inode, which must not be free.
    pub fn reference(&self) -> InodeRef {
        Ref::new(self.inode())
    }

    /// The inode with this number, if it is among the locked items of a commit.
    pub fn among<'l>(locked: &'l mut [&mut dyn Loggable], ino: Ino) -> Option<&'l mut Self> {
        let mut inodes = locked.iter_mut().filter_map(|held| held.as_any_mut().downcast_mut::<Self>());
        inodes.find(|inode| inode.inode().ino() == ino)
    }
}

impl Drop for LockedInode {
    /// Shuts the volume down if a change of the inode was abandoned, before the change can be seen or written back.
    fn drop(&mut self) {
        self.inode().count_extents(self.state.counted_extents());
        if self.state.is_changed() {
            self.inode().shared.target.shut_down("a change of an inode was given up half way");
        }
    }
}

impl fmt::Debug for LockedInode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locked{:?}", self.inode())
    }
}

impl Deref for LockedInode {
    type Target = InodeState;
    #[inline]
    fn deref(&self) -> &InodeState {
        &self.state
    }
}

impl DerefMut for LockedInode {
    #[inline]
    fn deref_mut(&mut self) -> &mut InodeState {
        &mut self.state
    }
}

impl Loggable for LockedInode {
    fn item(&self) -> Arc<dyn LogItem> {
        self.state.owner().clone()
    }

    fn is_dirty(&self) -> bool {
        self.state.is_changed()
    }

    fn log(&mut self, at: CommitPosition) -> VectorGrowth {
        let inode = self.state.owner();
        let unwritten = inode.in_flight.load(Ordering::Acquire) | inode.failed.load(Ordering::Acquire);
        let fields = self.state.commit_fields(unwritten);
        let inode = self.state.owner();
        inode.stat.invalidate();
        inode.summary.set(&self.state);
        inode.core.log_regions(at, |regions| log_item::write(&self.state, &inode.location, fields, regions))
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl LogItem for Inode {
    fn core(&self) -> &ItemCore {
        &self.core
    }

    fn push(self: Arc<Self>, batch: &mut DelwriQueue<'_>) -> PushResult {
        let Some(mut state) = self.state.try_lock() else { return PushResult::Locked };
        // It cannot be pinned while the lock is held.
        if self.core.is_pinned() {
            return PushResult::Pinned;
        }
        if self.in_flight.load(Ordering::Acquire) != 0 {
            return PushResult::Locked;
        }
        if self.is_chunk_removed() {
            return self.flush_without_chunk();
        }
        state.restore_fields(self.failed.swap(0, Ordering::AcqRel));
        if state.fields() == 0 {
            return PushResult::Clean;
        }
        let lsn = self.core.lsn().unwrap_or_default();
        let write = |bytes: &mut [u8]| {
            cluster::write_back(bytes, &state, &self.location, lsn, &self.shared.zero_literal_area)
        };
        let item = || -> Arc<dyn LogItem> { self.clone() };
        // Inodes of one cluster usually come together.
        let flush = batch.add_to_queued(self.location.cluster.daddr, item, write).unwrap_or_else(|| {
            let segments = self.location.cluster.into();
            let buffer = self.shared.buffers.get(&segments, Rank::Buffer);
            batch.edit(&buffer, item(), write)
        });
        if flush == PushResult::Queued {
            self.in_flight.store(state.fields(), Ordering::Release);
            state.clear_fields();
        }
        flush
    }

    /// Only tries the lock of the buffer: its holder may be waiting for log space that this push frees.
    fn read_buffer(&self) -> Result<bool, Error> {
        let segments = self.location.cluster.into();
        let verify = |bytes: &[u8]| cluster::verify(bytes, &self.shared.geometry);
        self.shared.buffers.read_buffer(&segments, Rank::Buffer, || self.is_chunk_removed(), verify)
    }

    fn write_done(&self, ok: bool) {
        let fields = self.in_flight.swap(0, Ordering::AcqRel);
        if !ok {
            self.failed.fetch_or(fields, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests;
