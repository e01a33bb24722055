//! One inode in memory: its state under its lock, and its life as a log item.
//!
//! | part | is |
//! |---|---|
//! | [`Inode`] | the inode, shared by the table, users, the log and the active item list |
//! | [`InodeRef`] | a user's hold on it: while one exists, an unlinked file keeps its contents |
//! | [`LockedInode`] | the proof that a thread holds its lock, and what it hands to a commit |
//! | [`Attached`] | what an upper layer keeps with an inode: contents in memory |
//!
//! # Invariants
//! - One object per inode number: the table sees to that, and drops only what nobody else holds.
//! - What changed (`fields`) grows until a write home takes it (`in_flight`); until that has ended well, each new
//!   checkpoint's record covers both, because it may let the log pass the records before it.
//! - The unlinked link of the disk is not the inode's: it belongs to the cluster's buffer, and a write home keeps it.
//!
//! # Locking
//! The state has rank `Inode`. The pusher of the active item list only tries it. The slot for what is attached has rank
//! `Leaf`, and what was taken out of it is dropped without a lock.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use base::lock::{Mutex, MutexGuard, OwnedMutexGuard, Rank, SpinLock};
use base::{Ino, Lsn};
use format::checksum::{self, ZeroRun};
use format::inode::{CRC_OFFSET, MAGIC, RawInode};
use format::ondisk::{OnDisk, U64};
use journal::engine::{
    CommitPosition, DelwriQueue, Error, ItemCore, LogItem, Loggable, PushResult, VectorGrowth,
};
use zerocopy::IntoBytes;

use crate::cluster::{self, InodeLocation};
use crate::log_item;
use crate::shared::Local;
use crate::state::InodeState;

/// Bits of [`Inode::life`] above the number of users.
const UNLINKED: u32 = 1 << 31;
const QUEUED: u32 = 1 << 30;
const FREE: u32 = 1 << 29;
const CHUNK_REMOVED: u32 = 1 << 28;
const USERS: u32 = CHUNK_REMOVED - 1;

/// What an upper layer keeps with an inode. It must not hold the inode itself, or nobody would ever drop either.
pub trait Attached: Any + Send + Sync {
    /// The file is about to be freed, and nobody uses it: whatever is to be written is not, and what was reserved for
    /// it goes back. Called without a lock, before the file's blocks are freed; the slot is emptied later.
    fn forget(&self);

    /// Whether the inode must stay in memory for it: it holds what is not written yet. Called with a lock of rank
    /// `Cache` held: it looks at a number, and waits for nothing.
    fn is_needed(&self) -> bool;
}

/// See the module.
pub struct Inode {
    ino: Ino,
    place: InodeLocation,
    local: Arc<Local>,
    core: ItemCore,
    /// What a write home carries at this moment.
    in_flight: AtomicU32,
    /// What a write home failed to carry: to be taken up again.
    failed: AtomicU32,
    /// How many users there are, and above: on the list of unlinked inodes; handed to inactivation; free; its chunk was
    /// removed.
    life: AtomicU32,
    /// Used since the table last looked for what it can drop.
    used: AtomicBool,
    attached: SpinLock<Option<Arc<dyn Attached>>>,
    state: Mutex<InodeState>,
}

impl Inode {
    /// An inode that nobody uses yet.
    #[inline]
    pub(crate) fn new(local: Arc<Local>, place: InodeLocation, state: InodeState) -> Arc<Self> {
        let life = if state.mode() == 0 { FREE } else { 0 };
        Arc::new(Self {
            ino: state.ino(),
            place,
            local,
            core: ItemCore::default(),
            in_flight: AtomicU32::new(0),
            failed: AtomicU32::new(0),
            life: AtomicU32::new(life),
            used: AtomicBool::new(true),
            attached: SpinLock::new(Rank::Leaf, None),
            state: Mutex::new(Rank::Inode, state),
        })
    }

    /// Its number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Where it lies.
    pub fn place(&self) -> &InodeLocation {
        &self.place
    }

    /// Locks it for reading alone: nothing that is changed here could be committed.
    #[track_caller]
    pub fn read(&self) -> impl Deref<Target = InodeState> + '_ {
        ReadGuard(self.state.lock())
    }

    /// Locks it for a change.
    #[track_caller]
    pub fn lock(self: &Arc<Self>) -> LockedInode {
        let state = OwnedMutexGuard::lock(Arc::clone(self), |inode| &inode.state);
        LockedInode { state }
    }

    /// The same for a free inode, though the thread holds the AGI that it was taken from, behind which no inode is
    /// waited for. A thread that holds the lock of a free inode waits for no AGI: it has just freed the inode, or tries
    /// to write it back.
    pub(crate) fn lock_free(self: Arc<Self>) -> LockedInode {
        LockedInode { state: OwnedMutexGuard::lock_out_of_order(self, |inode| &inode.state) }
    }

    /// The same if nobody holds the lock.
    pub fn try_lock(self: &Arc<Self>) -> Option<LockedInode> {
        let state = OwnedMutexGuard::try_lock(Arc::clone(self), |inode| &inode.state)?;
        Some(LockedInode { state })
    }

    /// What is attached to it.
    pub fn attachment(&self) -> Option<Arc<dyn Attached>> {
        self.attached.lock().clone()
    }

    /// Attaches something, unless something is attached already; gives what is. The caller has a hold on the inode.
    pub fn attach(&self, new: Arc<dyn Attached>) -> Arc<dyn Attached> {
        let mut slot = self.attached.lock();
        if let Some(there) = &*slot {
            let there = Arc::clone(there);
            drop(slot);
            return there;
        }
        *slot = Some(Arc::clone(&new));
        new
    }

    /// Empties the slot.
    pub(crate) fn detach(&self) -> Option<Arc<dyn Attached>> {
        self.attached.lock().take()
    }

    /// The last checkpoint of the log that has a change of it: when that is stable, all changes of it are. 0 where none
    /// was made since it came to memory.
    pub fn logged_in(&self) -> u64 {
        self.core.logged_in()
    }

    /// A reference to it; `None` where it is free, or about to be.
    pub fn acquire(self: Arc<Self>) -> Option<InodeRef> {
        let (before, reference) = self.count();
        (before & (QUEUED | FREE) == 0).then_some(reference)
    }

    /// Counts one more user, and tells what the life was before. Even of a free inode the count is given back by a
    /// drop: until then the inode may have begun another life, as an unlinked file whose own users have gone.
    fn count(self: Arc<Self>) -> (u32, InodeRef) {
        let before = self.life.fetch_add(1, Ordering::AcqRel);
        (before, InodeRef(self))
    }

    /// Whether it is free. While the AGI is locked it stays so.
    pub(crate) fn is_free(&self) -> bool {
        self.life.load(Ordering::Acquire) & FREE != 0
    }

    /// It was just taken from the free ones.
    pub(crate) fn mark_allocated(&self) {
        self.life.fetch_and(!(UNLINKED | QUEUED | FREE | CHUNK_REMOVED), Ordering::AcqRel);
    }

    /// It is free from now on.
    pub(crate) fn mark_free(&self) {
        drop(self.detach());
        self.life.fetch_or(FREE, Ordering::AcqRel);
        self.life.fetch_and(!(UNLINKED | QUEUED), Ordering::AcqRel);
    }

    /// Its chunk is being removed by a transaction that holds the cluster's buffer: it must never be written again.
    pub(crate) fn mark_chunk_removed(&self) {
        self.life.fetch_or(CHUNK_REMOVED, Ordering::AcqRel);
    }

    /// Whether its chunk was removed, or is being removed.
    fn is_chunk_removed(&self) -> bool {
        self.life.load(Ordering::Acquire) & CHUNK_REMOVED != 0
    }

    /// What becomes of it in the active item list when its chunk was removed. Until the log says so, recovery would go
    /// by what the log has of this inode.
    fn flush_without_chunk(&self) -> PushResult {
        let Some(buffer) = self.local.buffers.peek(self.place.cluster.daddr) else {
            return PushResult::Clean;
        };
        match buffer.try_lock() {
            None => PushResult::Locked,
            Some(_) if buffer.core().is_pinned() => PushResult::Pinned,
            Some(_) => PushResult::Clean,
        }
    }

    /// It is on the list of unlinked inodes, or not: when its last user goes, it must be freed.
    pub(crate) fn set_unlinked(&self, orphan: bool) {
        if orphan {
            self.life.fetch_or(UNLINKED, Ordering::AcqRel);
        } else {
            self.life.fetch_and(!UNLINKED, Ordering::AcqRel);
        }
    }

    /// Whether nobody but the table, which holds one reference, needs it in memory.
    pub(crate) fn is_idle(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
            && self.core.lsn().is_none()
            && !self.core.is_pinned()
            && self.failed.load(Ordering::Acquire) == 0
            && self.attached.lock().as_ref().is_none_or(|attached| !attached.is_needed())
    }

    /// Notes that it is in use; a store only if it was not noted yet.
    pub(crate) fn touch(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it was used since the last call.
    pub(crate) fn forget_use(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inode({})", self.ino)
    }
}

struct ReadGuard<'a>(MutexGuard<'a, InodeState>);

impl Deref for ReadGuard<'_> {
    type Target = InodeState;
    fn deref(&self) -> &InodeState {
        &self.0
    }
}

/// A user's hold on an inode. When the last one of an unlinked file goes, the file is freed in the background.
#[derive(Debug)]
pub struct InodeRef(Arc<Inode>);

impl Deref for InodeRef {
    type Target = Arc<Inode>;
    fn deref(&self) -> &Arc<Inode> {
        &self.0
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> Self {
        self.0.life.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        let life = &self.0.life;
        let before = life.fetch_sub(1, Ordering::AcqRel);
        let last_of_orphan = before & USERS == 1 && before & (UNLINKED | QUEUED) == UNLINKED;
        // Where somebody took a new hold meanwhile, the drop of that one comes here.
        let taken =
            || life.compare_exchange(UNLINKED, UNLINKED | QUEUED, Ordering::AcqRel, Ordering::Acquire);
        if last_of_orphan && taken().is_ok() {
            self.0.local.inactive.push(Arc::clone(&self.0));
        }
    }
}

/// The proof that a thread holds an inode's lock: its state, and what a commit takes of it.
pub struct LockedInode {
    state: OwnedMutexGuard<Inode, InodeState>,
}

impl LockedInode {
    /// The inode.
    pub fn inode(&self) -> &Arc<Inode> {
        self.state.owner()
    }

    /// A hold on it, which is not free and has not been since it was locked.
    pub fn reference(&self) -> InodeRef {
        let inode = Arc::clone(self.inode());
        inode.life.fetch_add(1, Ordering::AcqRel);
        InodeRef(inode)
    }

    /// The inode of this number, where it is among what a change has locked.
    pub fn among<'l>(locked: &'l mut [&mut dyn Loggable], ino: Ino) -> Option<&'l mut Self> {
        let mut inodes = locked.iter_mut().filter_map(|held| held.as_any_mut().downcast_mut::<Self>());
        inodes.find(|inode| inode.inode().ino() == ino)
    }
}

impl Drop for LockedInode {
    /// A change that was given up half way shuts the volume down before anybody can see it, or write it home.
    fn drop(&mut self) {
        if self.state.is_changed() {
            self.inode().local.target.shut_down("a change of an inode was given up half way");
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
        inode.core.log_regions(at, |regions| log_item::write(&self.state, &inode.place, fields, regions))
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
        // Under the lock nobody can pin it.
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
        let write = |bytes: &mut [u8]| write_back(bytes, &state, &self.place, lsn, &self.local.no_contents);
        let item = || -> Arc<dyn LogItem> { self.clone() };
        // Inodes of one cluster mostly come together.
        let flush = batch.add_to_queued(self.place.cluster.daddr, item, write).unwrap_or_else(|| {
            let segments = self.place.cluster.into();
            let buffer = self.local.buffers.get(&segments, Rank::Buffer);
            batch.edit(&buffer, item(), write)
        });
        if flush == PushResult::Queued {
            self.in_flight.store(state.fields(), Ordering::Release);
            state.clear_fields();
        }
        flush
    }

    /// Its lock is only tried: whoever has it reads it, or waits for log space that comes when this goes on.
    fn read_buffer(&self) -> Result<bool, Error> {
        let segments = self.place.cluster.into();
        let verify = |bytes: &[u8]| cluster::verify(bytes, &self.local.geometry);
        self.local.buffers.read_buffer(&segments, Rank::Buffer, || self.is_chunk_removed(), verify)
    }

    fn write_done(&self, ok: bool) {
        let fields = self.in_flight.swap(0, Ordering::AcqRel);
        if !ok {
            self.failed.fetch_or(fields, Ordering::AcqRel);
        }
    }
}

/// Copies an inode into its cluster and seals it. `false` where another structure lies there: the cluster was freed,
/// and the inode with it.
fn write_back(
    bytes: &mut [u8],
    state: &InodeState,
    place: &InodeLocation,
    lsn: Lsn,
    no_contents: &ZeroRun,
) -> bool {
    let (core, literal) = state.parts();
    let start = place.offset as usize;
    let end = start + RawInode::SIZE + literal.len();
    let is_cluster = bytes.len() == place.cluster.bytes as usize;
    let Some(slot) = bytes.get_mut(start..end).filter(|_| is_cluster) else { return false };
    let Some(old) = RawInode::view(slot) else { return false };
    if old.magic.get() != MAGIC || old.ino != core.ino {
        return false;
    }
    let core = RawInode { next_unlinked: old.next_unlinked, lsn: U64::new(lsn.get()), ..*core };
    let (head, tail) = slot.split_at_mut(RawInode::SIZE);
    head.copy_from_slice(core.as_bytes());
    tail.copy_from_slice(literal);
    if state.has_literal_data() {
        checksum::store(slot, CRC_OFFSET)
    } else {
        // Behind the core there is nothing but zeros.
        checksum::store_before(head, CRC_OFFSET, no_contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use crate::unlinked;

    /// A thread that looked for a free inode counted itself as a user, and took the count back without a look. Where
    /// the inode had become an unlinked file meanwhile, and the last of its own users went before, nobody queued the
    /// file: it took its space until the next mount.
    #[test]
    fn a_count_of_a_past_life_frees_the_file_of_the_next() {
        let bench = Bench::new();
        let (inode, locked) = bench.create(0o100_600);
        drop(locked);
        let ino = inode.ino();
        inode.mark_free();
        drop(inode);
        let (life, late) = bench.table.peek(ino).unwrap().count();
        assert_ne!(life & FREE, 0);
        let (inode, mut locked) = {
            late.mark_allocated();
            let locked = late.lock();
            (locked.reference(), locked)
        };
        let mut tx = bench.begin();
        locked.set_nlink(0);
        unlinked::insert(bench.shared(), &mut tx, &mut locked).unwrap();
        tx.commit(&mut [&mut locked as &mut dyn Loggable]).unwrap();
        drop(locked);
        drop(inode);
        assert!(!bench.groups.is_free(ino));
        drop(late);
        crate::inactive::drain(bench.shared());
        assert!(bench.groups.is_free(ino));
    }
}
