//! One change of a volume: what it reads, locks and modifies, and how it ends.
//!
//! # Invariants
//! - A buffer is locked from the moment it joins until the transaction ends (or rolls, unless it is held).
//! - Bytes change only through [`JoinedBuffer::bytes_mut`], which notes the chunks; nothing else of a buffer is logged.
//! - A transaction ends by a commit; or, if it changed nothing, by being dropped. One that changed something and is
//!   dropped shuts the volume down.
//! - One of which a part failed after something had been changed is never committed ([`Transaction::settle`]).
//!
//! # Locking
//! See `docs/locking.md`. Buffers are unlocked when their changes are in the committed item list, not when they are
//! stable.

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::thread::LocalKey;

use base::Lsn;
use base::lock::Rank;
use base::recycled::{Recycle, Recycled};
use format::damage::Damage;
use format::log::item::ItemType;

use super::buffer::{Buffer, BufferExtents, BufferGuard, DiskExtent, State};
use super::cache::BufferCache;
use super::commit_target::{BusyExtent, CommitTarget, LogReservation, Ticket, TransactionContext};
use super::defer::{self, DeferredOperation, PendingOperations, RecoveredIntent};
use super::error::Error;
use super::item::{CommitPosition, LogItem, VectorGrowth};
use super::joined_buffer::JoinedBuffer;
use super::regions::Regions;
use super::transaction_items::{OneShotItem, TransactionItems};
use super::tuning::{MAX_RECYCLED_CAPACITY, USUAL_BUFFERS};

/// A buffer within one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(u32);

/// Something else than a buffer that a transaction logs and whose lock the caller holds: an inode.
pub trait Loggable {
    /// The item.
    fn item(&self) -> Arc<dyn LogItem>;
    /// Whether it changed since the last commit.
    fn is_dirty(&self) -> bool;
    /// Logs everything of it that changed and is not stable at home, by
    /// [`ItemCore::log_regions`](super::item::ItemCore::log_regions).
    fn log(&mut self, at: CommitPosition) -> VectorGrowth;
    /// The same as what it is: deferred operations find what they work on among all that is locked.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

thread_local! {
    static SPARE: Cell<Option<Box<TransactionState>>> = const { Cell::new(None) };
}

/// One change of a volume. See the module.
pub struct Transaction {
    base: Arc<TransactionContext>,
    /// In memory that the thread's next transaction begins with.
    pub(super) work: Recycled<TransactionState>,
}

/// What a transaction has done so far.
#[derive(Default)]
pub(super) struct TransactionState {
    ticket: Option<Ticket>,
    /// One that was unlocked early leaves its place empty.
    buffers: Vec<Option<JoinedBuffer>>,
    items: Vec<OneShotItem>,
    busy: Vec<BusyExtent>,
    pub(super) deferred: Vec<Box<dyn DeferredOperation>>,
    pub(super) resumed: Vec<PendingOperations>,
    /// How often buffers were let go that the caller has not named.
    epoch: u32,
    /// An earlier transaction of the chain was committed: what follows must be committed too.
    pub(super) rolled: bool,
    /// A part of the change failed half way: nothing of it may be committed.
    failed: bool,
}

impl Recycle for TransactionState {
    fn spare() -> &'static LocalKey<Cell<Option<Box<Self>>>> {
        &SPARE
    }

    fn recycle(&mut self) -> bool {
        self.ticket = None;
        self.buffers.clear();
        self.items.clear();
        self.busy.clear();
        self.deferred.clear();
        self.resumed.clear();
        (self.epoch, self.rolled, self.failed) = (0, false, false);
        let lists = [
            self.buffers.capacity(),
            self.items.capacity(),
            self.busy.capacity(),
            self.deferred.capacity(),
            self.resumed.capacity(),
        ];
        lists.iter().all(|capacity| *capacity <= MAX_RECYCLED_CAPACITY)
    }
}

impl Transaction {
    /// Begins a change: waits for log space.
    ///
    /// # Errors
    /// As [`CommitTarget::begin`].
    pub fn begin(
        target: &Arc<dyn CommitTarget>,
        cache: &Arc<BufferCache>,
        reservation: LogReservation,
    ) -> Result<Self, Error> {
        Self::begin_on(&TransactionContext::new(target, cache), reservation)
    }

    /// The same without an allocation, and without a reference count that all CPUs share: see
    /// [`TransactionContexts`](super::commit_target::Bases).
    ///
    /// # Errors
    /// As [`CommitTarget::begin`].
    pub fn begin_on(base: &Arc<TransactionContext>, reservation: LogReservation) -> Result<Self, Error> {
        let ticket = base.target.begin(reservation)?;
        Ok(Self::with(Arc::clone(base), Some(ticket)))
    }

    /// A change whose log space is reserved already.
    pub(super) fn with(base: Arc<TransactionContext>, ticket: Option<Ticket>) -> Self {
        let mut work = Recycled::<TransactionState>::new();
        if work.buffers.capacity() == 0 {
            work.buffers.reserve(USUAL_BUFFERS);
        }
        work.ticket = ticket;
        Self { base, work }
    }

    /// A context for looking only: it holds no log space, and what is changed in it shuts the volume down.
    pub fn reader(target: &Arc<dyn CommitTarget>, cache: &Arc<BufferCache>) -> Self {
        Self::reader_on(&TransactionContext::new(target, cache))
    }

    /// The same on a CPU's base.
    pub fn reader_on(base: &Arc<TransactionContext>) -> Self {
        Self::with(Arc::clone(base), None)
    }

    /// Locks and joins a buffer; reads it if it was not in memory, and verifies what was read.
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::Damaged`].
    #[track_caller]
    pub fn read(
        &mut self,
        at: impl Into<BufferExtents>,
        rank: Rank,
        verify: impl FnOnce(&[u8]) -> Result<(), Damage>,
    ) -> Result<BufferId, Error> {
        let at = at.into();
        if let Some(id) = self.joined(&at) {
            return Ok(id);
        }
        let guard = self.base.cache.lock_read(&at, rank, verify)?;
        self.join(guard)
    }

    /// The same if nobody else holds the lock.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn try_read(
        &mut self,
        at: impl Into<BufferExtents>,
        rank: Rank,
        verify: impl FnOnce(&[u8]) -> Result<(), Damage>,
    ) -> Result<Option<BufferId>, Error> {
        let at = at.into();
        if let Some(id) = self.joined(&at) {
            return Ok(Some(id));
        }
        let guard = self.base.cache.try_lock_read(&at, rank, verify)?;
        guard.map(|guard| self.join(guard)).transpose()
    }

    /// Locks and joins the buffer of a block that was just allocated: all zeros, whatever lay there.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the cache has a buffer of another length at this address that is in use.
    #[track_caller]
    pub fn fresh(&mut self, at: impl Into<BufferExtents>, rank: Rank) -> Result<BufferId, Error> {
        let at = at.into();
        let id = match self.joined(&at) {
            Some(id) => id,
            None => {
                self.drop_stale_buffer(&at)?;
                let guard = self.base.cache.lock(&at, rank)?;
                self.join(guard)?
            }
        };
        let edit = self.buffer_mut(id);
        let zeros = edit.guard.state() == State::Empty;
        edit.guard.change_rank(rank);
        edit.guard.reset(State::Valid);
        if !zeros {
            edit.guard.bytes_mut().fill(0);
        }
        edit.forget_changes();
        Ok(id)
    }

    /// Makes the cache forget a buffer of another shape whose block was freed, and is about to be another's.
    fn drop_stale_buffer(&self, at: &BufferExtents) -> Result<(), Error> {
        if !self.base.cache.drop_stale(at) {
            self.base.target.force()?;
            // It is in use where it is still pinned: locking it says so.
            let _ = self.base.cache.drop_stale(at);
        }
        Ok(())
    }

    /// Locks and joins a buffer that the caller has had before, without a look into the cache. `None` where it is not
    /// the block's any more, or holds nothing: then [`read`](Self::read) finds what does.
    pub fn rejoin(&mut self, buffer: Arc<Buffer>) -> Option<BufferId> {
        buffer.touch();
        // One that this transaction has joined is locked, and nearly all others are free.
        let guard = match buffer.try_into_lock() {
            Ok(guard) => guard,
            Err(buffer) => {
                let is = |edit: &Option<JoinedBuffer>| {
                    edit.as_ref().is_some_and(|edit| Arc::ptr_eq(edit.buffer(), &buffer))
                };
                if let Some(at) = self.work.buffers.iter().position(is) {
                    let id = BufferId(at as u32); // a transaction has some dozens
                    return (self.buffer_mut(id).guard.state() == State::Valid).then_some(id);
                }
                buffer.into_lock()
            }
        };
        if guard.state() != State::Valid {
            return None;
        }
        self.join(guard).ok()
    }

    fn joined(&self, at: &BufferExtents) -> Option<BufferId> {
        let daddr = at.daddr();
        let is =
            |edit: &Option<JoinedBuffer>| edit.as_ref().is_some_and(|edit| edit.buffer().daddr() == daddr);
        self.work.buffers.iter().position(is).map(|at| BufferId(at as u32)) // a transaction has some dozens
    }

    fn join(&mut self, guard: BufferGuard) -> Result<BufferId, Error> {
        // A change that was given up half way has shut the volume down before it let go of what it had changed: nobody
        // must take that for damage.
        self.base.target.check()?;
        self.work.buffers.push(Some(JoinedBuffer::new(guard)));
        Ok(BufferId(self.work.buffers.len() as u32 - 1))
    }

    /// A joined buffer, to look at or to change.
    ///
    /// # Panics
    /// Where it was released: a handle must not be kept past that.
    #[inline]
    #[track_caller]
    pub fn buffer_mut(&mut self, id: BufferId) -> &mut JoinedBuffer {
        match self.work.buffers.get_mut(id.0 as usize) {
            Some(Some(edit)) => edit,
            _ => unreachable!("{id:?} is joined: its handle is not kept past a release or a roll"),
        }
    }

    /// The bytes of a joined buffer.
    ///
    /// # Panics
    /// As [`edit`](Self::edit).
    #[inline]
    #[track_caller]
    pub fn bytes(&self, id: BufferId) -> &[u8] {
        match self.work.buffers.get(id.0 as usize) {
            Some(Some(edit)) => edit.bytes(),
            _ => unreachable!("{id:?} is joined: its handle is not kept past a release or a roll"),
        }
    }

    /// A joined buffer itself.
    ///
    /// # Panics
    /// As [`edit`](Self::edit).
    #[inline]
    #[track_caller]
    pub fn buffer(&self, id: BufferId) -> &Arc<Buffer> {
        match self.work.buffers.get(id.0 as usize) {
            Some(Some(edit)) => edit.buffer(),
            _ => unreachable!("{id:?} is joined: its handle is not kept past a release or a roll"),
        }
    }

    /// The bytes of `range` in a joined buffer, to be changed and logged.
    ///
    /// # Panics
    /// As [`edit`](Self::edit) and [`JoinedBuffer::bytes_mut`].
    #[inline]
    #[track_caller]
    pub fn bytes_mut(&mut self, id: BufferId, range: Range<usize>) -> &mut [u8] {
        self.buffer_mut(id).bytes_mut(range)
    }

    /// Two joined buffers at once.
    ///
    /// # Panics
    /// As [`edit`](Self::edit), and where both are the same.
    #[track_caller]
    pub fn pair(&mut self, first: BufferId, second: BufferId) -> (&mut JoinedBuffer, &mut JoinedBuffer) {
        match self.work.buffers.get_disjoint_mut([first.0 as usize, second.0 as usize]) {
            Ok([Some(first), Some(second)]) => (first, second),
            _ => unreachable!("{first:?} and {second:?} are joined, and not the same"),
        }
    }

    /// The block was freed: the log tells recovery to replay nothing into it, and the buffer is not written.
    pub fn invalidate(&mut self, id: BufferId) {
        self.buffer_mut(id).invalidate();
    }

    /// The buffer's bytes are not logged, but written home before the log passes this transaction: for blocks that
    /// another item can make again.
    pub fn ordered(&mut self, id: BufferId) {
        self.buffer_mut(id).order();
    }

    /// The buffer holds inodes: only their unlinked links are logged.
    pub fn inode_buffer(&mut self, id: BufferId) {
        self.buffer_mut(id).guard.inodes = true;
    }

    /// Unlocks a buffer that this transaction did not change; otherwise nothing happens.
    pub fn release(&mut self, id: BufferId) {
        if let Some(place) = self.work.buffers.get_mut(id.0 as usize)
            && place.as_ref().is_some_and(|edit| !edit.is_dirty())
        {
            *place = None;
        }
    }

    /// The same for every buffer that was joined from `first` on, up to `end` where it is given. Their handles must
    /// then not be used.
    pub fn release_joined(&mut self, first: BufferId, end: Option<BufferId>) {
        let joined = self.work.buffers.iter_mut().take(end.map_or(usize::MAX, |end| end.0 as usize));
        for place in joined.skip(first.0 as usize) {
            if place.as_ref().is_some_and(|edit| !edit.is_dirty()) {
                *place = None;
            }
        }
    }

    /// Unlocks every buffer that this transaction did not change, so that locks of lower ranks may be waited for.
    pub fn release_clean(&mut self) {
        self.work.epoch += 1;
        for place in &mut self.work.buffers {
            if place.as_ref().is_some_and(|edit| !edit.is_dirty()) {
                *place = None;
            }
        }
    }

    /// Changes when buffers were let go that the caller has not named: by [`roll`](Self::roll) and
    /// [`release_clean`](Self::release_clean). Handles from before must then not be used.
    pub fn epoch(&self) -> u32 {
        self.work.epoch
    }

    /// The buffer stays locked and joined when the transaction rolls.
    pub fn hold(&mut self, id: BufferId) {
        self.buffer_mut(id).held = true;
    }

    /// Ends [`hold`](Self::hold): the next roll unlocks the buffer.
    pub fn unhold(&mut self, id: BufferId) {
        self.buffer_mut(id).held = false;
    }

    /// Writes a block that is not logged (a value of an extended attribute) to its place at once: it is stable before
    /// this transaction is. The block was allocated as one for data, and nothing refers to it yet.
    ///
    /// # Errors
    /// [`Error::Device`].
    #[track_caller]
    pub fn write_now(&mut self, at: DiskExtent, rank: Rank, bytes: &[u8]) -> Result<(), Error> {
        self.base.target.check()?;
        self.drop_stale_buffer(&at.into())?;
        self.base.cache.write_now(at, rank, bytes)?;
        self.base.target.note_unlogged_write();
        Ok(())
    }

    /// How many buffers are joined: what the change has touched so far.
    pub fn buffers(&self) -> usize {
        self.work.buffers.iter().flatten().count()
    }

    /// Logs an item that has no lock of its own, once.
    pub fn log_item(&mut self, item: Arc<dyn LogItem>, regions: Regions) {
        self.work.items.push(OneShotItem { item, regions: Some(regions) });
    }

    /// Blocks were freed that must not be used again before this is stable.
    pub fn busy(&mut self, extent: BusyExtent) {
        self.work.busy.push(extent);
    }

    /// To be done after this transaction, in one of its own, even if the machine stops in between.
    pub fn defer(&mut self, operation: Box<dyn DeferredOperation>) {
        self.work.deferred.push(operation);
    }

    /// To be done at the commit, as an intent asks that is in the log already; its done item goes with it.
    pub fn finish_intent(&mut self, intent: RecoveredIntent, operations: Vec<Box<dyn DeferredOperation>>) {
        self.work.resumed.push(intent.group(operations));
    }

    /// What an intent asks for that is in the log already was done in this transaction: its done item goes with it.
    pub fn log_done(&mut self, intent: RecoveredIntent, done: ItemType) {
        intent.done(self, done);
    }

    pub(super) fn next_intent_id(&self) -> u64 {
        self.base.target.intent_id()
    }

    /// Whether something was changed.
    pub fn is_dirty(&self) -> bool {
        !self.work.items.is_empty() || self.work.buffers.iter().flatten().any(JoinedBuffer::is_dirty)
    }

    /// Ends a part of the change that worked on what is `locked`, and passes its outcome on. Where it failed and
    /// something has been changed, the change is over: no commit takes it any more, and it shuts the volume down when
    /// it is dropped.
    ///
    /// # Errors
    /// That of the part.
    pub fn settle<T, E>(&mut self, part: Result<T, E>, locked: &dyn Loggable) -> Result<T, E> {
        if part.is_err() && (self.is_dirty() || locked.is_dirty() || !self.work.deferred.is_empty()) {
            self.work.failed = true;
        }
        part
    }

    /// Whether there is anything to commit.
    pub(super) fn has_changes(&self, locked: &[&mut dyn Loggable]) -> bool {
        self.is_dirty() || !self.work.busy.is_empty() || locked.iter().any(|locked| locked.is_dirty())
    }

    /// Commits what there is and goes on as the next transaction of the chain. Buffers that are not held are unlocked.
    ///
    /// What stays locked is logged again where the next transaction may have to wait for log space: so that it is not
    /// what keeps the log's tail where it is.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn roll(&mut self, locked: &mut [&mut dyn Loggable]) -> Result<(), Error> {
        let again = self.reserves_next();
        self.write_out(locked, again)?;
        self.work.epoch += 1;
        for place in &mut self.work.buffers {
            match place {
                Some(edit) if edit.held => edit.forget_changes(),
                _ => *place = None,
            }
        }
        self.work.rolled = true;
        match &mut self.work.ticket {
            Some(ticket) => self.base.target.roll(ticket),
            None => Ok(()),
        }
    }

    /// Commits the change, with everything that was deferred. What `locked` changed is part of it; the caller keeps
    /// these locks until this returns.
    ///
    /// # Errors
    /// [`Error::ShutDown`], and what deferred operations met: the volume is then shut down, too.
    pub fn commit(mut self, locked: &mut [&mut dyn Loggable]) -> Result<(), Error> {
        let done = defer::finish(&mut self, locked).and_then(|()| self.write_out(locked, false));
        match &done {
            Ok(()) => {
                self.work.buffers.clear();
                self.work.rolled = false;
            }
            Err(error) => self.base.target.shut_down(&error.to_string()),
        }
        done
    }

    /// Whether the next transaction of the chain has to reserve log space, and so may wait for it.
    pub(super) fn reserves_next(&self) -> bool {
        self.work.ticket.as_ref().is_some_and(|ticket| ticket.rolls_left == 0)
    }

    /// Whether a record at `lsn` lies so near to the tail that whoever may wait for log space should not need it.
    pub(super) fn is_near_tail(&self, lsn: Lsn) -> bool {
        self.base.target.is_near_tail(lsn)
    }

    /// Refuses to commit what failed half way.
    fn expect_whole(&self) -> Result<(), Error> {
        debug_assert!(!self.work.failed, "a change that failed half way was to be committed");
        if !self.work.failed {
            return Ok(());
        }
        Err(Error::ShutDown { cause: "a change failed half way".into() })
    }

    /// Commits; `again`: what stays locked too, though it did not change, if the log still needs an older record of it.
    fn write_out(&mut self, locked: &mut [&mut dyn Loggable], again: bool) -> Result<(), Error> {
        self.expect_whole()?;
        let TransactionState { ticket, items, buffers, busy, .. } = &mut *self.work;
        let Some(ticket) = ticket else {
            debug_assert!(!self.is_dirty(), "a reader changed something");
            return Ok(());
        };
        let commits = TransactionItems { items, buffers, locked, again, busy };
        if commits.is_empty() {
            return Ok(());
        }
        self.base.target.commit(ticket, commits)?;
        self.work.items.clear();
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if (self.work.rolled && !self.work.deferred.is_empty()) || self.is_dirty() {
            self.base.target.shut_down("a change was given up half way");
        }
        self.work.buffers.clear();
        if let Some(ticket) = self.work.ticket.take() {
            self.base.target.end(ticket);
        }
    }
}
