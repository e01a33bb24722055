//! Transactions: what one change reads, locks and modifies, and how it ends.
//!
//! # Invariants
//! - A buffer is locked from the moment it joins until the transaction ends (or rolls, unless it is held).
//! - Bytes change only through [`JoinedBuffer`], which records the chunks; nothing else of a buffer is logged.
//! - A transaction ends with a commit or, if it changed nothing, by being dropped. One that changed something and is
//!   dropped shuts the volume down.
//! - A transaction in which an operation failed after a modification is never committed ([`Transaction::settle`]).
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
use base::pooled::{Poolable, Pooled};
use format::damage::Damage;
use format::log::item::ItemType;

use super::buffer::{Buffer, BufferExtents, BufferGuard, DiskExtent, State};
use super::commit_target::{BusyExtent, LogReservation, Ticket, TransactionContext};
use super::defer::{self, DeferredOperation, PendingOperations, RecoveredIntent};
use super::item::{CommitPosition, LogItem, VectorGrowth};
use super::joined_buffer::JoinedBuffer;
use super::regions::LogRegions;
use super::transaction_items::{OneShotItem, TransactionItems};
use super::tuning::{MAX_RECYCLED_CAPACITY, USUAL_BUFFERS};
use error::Error;

/// A buffer within one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(u32);

/// A log item other than a buffer, whose lock the caller holds: an inode.
pub trait Loggable {
    /// The log item.
    fn item(&self) -> Arc<dyn LogItem>;
    /// Whether it changed since the last commit.
    fn is_dirty(&self) -> bool;
    /// Logs all its changes that are not written back, by
    /// [`ItemCore::log_regions`](super::item::ItemCore::log_regions).
    fn log(&mut self, at: CommitPosition) -> VectorGrowth;
    /// For downcasting: deferred operations look for their inode among the locked items.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

thread_local! {
    static SPARE: Cell<Option<Box<TransactionState>>> = const { Cell::new(None) };
}

/// One change of a volume. See the module.
pub struct Transaction {
    context: Arc<TransactionContext>,
    /// Recycled: the thread's next transaction reuses the memory.
    pub(super) work: Pooled<TransactionState>,
}

/// The state of a transaction.
#[derive(Default)]
pub(super) struct TransactionState {
    ticket: Option<Ticket>,
    /// `None` for a buffer that was released early.
    buffers: Vec<Option<JoinedBuffer>>,
    items: Vec<OneShotItem>,
    busy: Vec<BusyExtent>,
    pub(super) deferred: Vec<Box<dyn DeferredOperation>>,
    pub(super) resumed: Vec<PendingOperations>,
    /// Incremented when buffers are released that the caller has not named.
    epoch: u32,
    /// An earlier transaction of the chain was committed: the rest must be committed too.
    pub(super) rolled: bool,
    /// An operation failed after a modification: nothing may be committed.
    failed: bool,
}

impl Poolable for TransactionState {
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
    /// Begins a transaction; waits for log space.
    ///
    /// # Errors
    /// See [`CommitTarget::begin`](super::CommitTarget::begin).
    pub fn begin(context: &Arc<TransactionContext>, reservation: LogReservation) -> Result<Self, Error> {
        let ticket = context.target.begin(reservation)?;
        Ok(Self::with(Arc::clone(context), Some(ticket)))
    }

    /// A transaction whose log space is already reserved.
    pub(super) fn with(context: Arc<TransactionContext>, ticket: Option<Ticket>) -> Self {
        let mut work = Pooled::<TransactionState>::new();
        if work.buffers.capacity() == 0 {
            work.buffers.reserve(USUAL_BUFFERS);
        }
        work.ticket = ticket;
        Self { context, work }
    }

    /// A read-only transaction: it reserves no log space, and a modification shuts the volume down.
    pub fn reader(context: &Arc<TransactionContext>) -> Self {
        Self::with(Arc::clone(context), None)
    }

    /// Locks a buffer and joins it; reads and verifies it if it is not in memory.
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
        let guard = self.context.cache.lock_read(&at, rank, verify)?;
        self.join(guard)
    }

    /// Like [`read`](Self::read), but returns `None` if another thread holds the lock.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
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
        let guard = self.context.cache.try_lock_read(&at, rank, verify)?;
        guard.map(|guard| self.join(guard)).transpose()
    }

    /// Locks and joins the buffer of a newly allocated block: all zeros, whatever the block contains.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the cache has a buffer of another length in use at this address.
    #[track_caller]
    pub fn fresh(&mut self, at: impl Into<BufferExtents>, rank: Rank) -> Result<BufferId, Error> {
        let at = at.into();
        let id = match self.joined(&at) {
            Some(id) => id,
            None => {
                self.drop_stale_buffer(&at)?;
                let guard = self.context.cache.lock(&at, rank)?;
                self.join(guard)?
            }
        };
        let edit = self.buffer_mut(id);
        edit.guard.change_rank(rank);
        edit.guard.reset(State::Valid);
        edit.guard.bytes_mut().fill(0);
        edit.forget_changes();
        Ok(id)
    }

    /// Drops a buffer of other extents whose block was freed and now gets a new owner.
    fn drop_stale_buffer(&self, at: &BufferExtents) -> Result<(), Error> {
        if !self.context.cache.drop_stale(at) {
            self.context.target.force()?;
            // If it is still pinned it is in use: locking it reports that.
            let _ = self.context.cache.drop_stale(at);
        }
        Ok(())
    }

    /// Locks and joins a buffer that the caller used before, without a cache lookup. Returns `None` if it is no longer
    /// the block's buffer, or has no contents: then call [`read`](Self::read).
    pub fn rejoin(&mut self, buffer: Arc<Buffer>) -> Option<BufferId> {
        buffer.touch();
        // If this transaction has joined it, it is locked; nearly all others are free.
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
        // A failed transaction shuts the volume down before it unlocks what it changed: its changes must not be
        // reported as damage.
        self.context.target.check()?;
        self.work.buffers.push(Some(JoinedBuffer::new(guard)));
        Ok(BufferId(self.work.buffers.len() as u32 - 1))
    }

    /// A joined buffer, for reading or changing.
    ///
    /// # Panics
    /// If the buffer was released: its handle must not be used after that.
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
    /// If the buffer was released.
    #[inline]
    #[track_caller]
    pub fn bytes(&self, id: BufferId) -> &[u8] {
        match self.work.buffers.get(id.0 as usize) {
            Some(Some(edit)) => edit.bytes(),
            _ => unreachable!("{id:?} is joined: its handle is not kept past a release or a roll"),
        }
    }

    /// The buffer itself.
    ///
    /// # Panics
    /// If it was released.
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
    /// If the buffer was released, or the range lies outside it.
    #[inline]
    #[track_caller]
    pub fn bytes_mut(&mut self, id: BufferId, range: Range<usize>) -> &mut [u8] {
        self.buffer_mut(id).bytes_mut(range)
    }

    /// Two joined buffers at once.
    ///
    /// # Panics
    /// If one was released, or both are the same.
    #[track_caller]
    pub fn pair(&mut self, first: BufferId, second: BufferId) -> (&mut JoinedBuffer, &mut JoinedBuffer) {
        match self.work.buffers.get_disjoint_mut([first.0 as usize, second.0 as usize]) {
            Ok([Some(first), Some(second)]) => (first, second),
            _ => unreachable!("{first:?} and {second:?} are joined, and not the same"),
        }
    }

    /// The block is freed: recovery must not replay earlier changes of it, and the buffer is not written back.
    pub fn invalidate(&mut self, id: BufferId) {
        self.buffer_mut(id).invalidate();
    }

    /// The buffer is not logged, but written back before the log's tail passes this transaction: for blocks that
    /// another log item can recreate.
    pub fn ordered(&mut self, id: BufferId) {
        self.buffer_mut(id).order();
    }

    /// The buffer contains inodes: only their unlinked-list pointers are logged.
    pub fn inode_buffer(&mut self, id: BufferId) {
        self.buffer_mut(id).guard.inodes = true;
    }

    /// Unlocks a buffer if this transaction did not change it.
    pub fn release(&mut self, id: BufferId) {
        if let Some(place) = self.work.buffers.get_mut(id.0 as usize)
            && place.as_ref().is_some_and(|edit| !edit.is_dirty())
        {
            *place = None;
        }
    }

    /// Unlocks the unchanged buffers that joined from `first` on, up to `end` if given. Their handles must not be used
    /// after that.
    pub fn release_joined(&mut self, first: BufferId, end: Option<BufferId>) {
        let joined = self.work.buffers.iter_mut().take(end.map_or(usize::MAX, |end| end.0 as usize));
        for place in joined.skip(first.0 as usize) {
            if place.as_ref().is_some_and(|edit| !edit.is_dirty()) {
                *place = None;
            }
        }
    }

    /// Unlocks all unchanged buffers, so that the thread may wait for locks of lower ranks.
    pub fn release_clean(&mut self) {
        self.work.epoch += 1;
        for place in &mut self.work.buffers {
            if place.as_ref().is_some_and(|edit| !edit.is_dirty()) {
                *place = None;
            }
        }
    }

    /// Changes when buffers are released that the caller has not named: by [`roll`](Self::roll) and
    /// [`release_clean`](Self::release_clean). Earlier handles must not be used after that.
    pub fn epoch(&self) -> u32 {
        self.work.epoch
    }

    /// Keeps the buffer locked and joined when the transaction rolls.
    pub fn hold(&mut self, id: BufferId) {
        self.buffer_mut(id).held = true;
    }

    /// Reverts [`hold`](Self::hold): the next roll unlocks the buffer.
    pub fn unhold(&mut self, id: BufferId) {
        self.buffer_mut(id).held = false;
    }

    /// Writes an unlogged block (an extended attribute's value) to its place at once; it is stable before this
    /// transaction. The block was allocated like a data block, and nothing refers to it yet.
    ///
    /// # Errors
    /// [`Error::Device`].
    #[track_caller]
    pub fn write_now(&mut self, at: DiskExtent, rank: Rank, bytes: &[u8]) -> Result<(), Error> {
        self.context.target.check()?;
        self.drop_stale_buffer(&at.into())?;
        self.context.cache.write_now(at, rank, bytes)?;
        self.context.target.note_unlogged_write();
        Ok(())
    }

    /// Number of joined buffers.
    pub fn buffers(&self) -> usize {
        self.work.buffers.iter().flatten().count()
    }

    /// Logs an item that has no lock and is logged once.
    pub fn log_item(&mut self, item: Arc<dyn LogItem>, regions: LogRegions) {
        self.work.items.push(OneShotItem { item, regions: Some(regions) });
    }

    /// Records freed blocks, which must not be reused before this transaction is stable.
    pub fn busy(&mut self, extent: BusyExtent) {
        self.work.busy.push(extent);
    }

    /// Adds an operation that is done in a later transaction of the chain, even if the machine stops in between.
    pub fn defer(&mut self, operation: Box<dyn DeferredOperation>) {
        self.work.deferred.push(operation);
    }

    /// Does the operations of a recovered intent at the commit, and logs its done item with them.
    pub fn finish_intent(&mut self, intent: RecoveredIntent, operations: Vec<Box<dyn DeferredOperation>>) {
        self.work.resumed.push(intent.group(operations));
    }

    /// Logs the done item of a recovered intent whose work is part of this transaction.
    pub fn log_done(&mut self, intent: RecoveredIntent, done: ItemType) {
        intent.done(self, done);
    }

    pub(super) fn next_intent_id(&self) -> u64 {
        self.context.target.intent_id()
    }

    /// Checks, for a transaction that only reads, that the volume is not shut down. A caller that has locked something
    /// else than a buffer calls it after that: what it reads may be a change that was given up.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    #[inline]
    pub fn expect_readable(&self) -> Result<(), Error> {
        match &self.work.ticket {
            Some(_) => Ok(()),
            None => self.context.target.check(),
        }
    }

    /// Whether something was changed.
    pub fn is_dirty(&self) -> bool {
        !self.work.items.is_empty() || self.work.buffers.iter().flatten().any(JoinedBuffer::is_dirty)
    }

    /// Passes on the result of an operation on `locked`. If it failed after a modification, the transaction is marked
    /// as failed: it cannot be committed, and shuts the volume down when it is dropped.
    ///
    /// # Errors
    /// The error of the operation.
    #[inline]
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

    /// Commits all changes and continues as the next transaction of the chain. Unlocks buffers that are not held.
    ///
    /// If the next transaction may have to wait for log space, what stays locked is relogged, so that it does not
    /// hold the log's tail back.
    ///
    /// # Errors
    /// [`Error::ShutDown`].
    pub fn roll(&mut self, locked: &mut [&mut dyn Loggable]) -> Result<(), Error> {
        let relog = self.reserves_next();
        self.commit_items(locked, relog)?;
        self.work.epoch += 1;
        for place in &mut self.work.buffers {
            match place {
                Some(edit) if edit.held => edit.forget_changes(),
                _ => *place = None,
            }
        }
        self.work.rolled = true;
        match &mut self.work.ticket {
            Some(ticket) => self.context.target.roll(ticket),
            None => Ok(()),
        }
    }

    /// Commits the transaction with all deferred operations. Changes of the `locked` items are part of it; the caller
    /// keeps these locks until this returns.
    ///
    /// # Errors
    /// [`Error::ShutDown`], and errors of deferred operations, after which the volume is shut down too.
    pub fn commit(mut self, locked: &mut [&mut dyn Loggable]) -> Result<(), Error> {
        let done = defer::finish(&mut self, locked).and_then(|()| self.commit_items(locked, false));
        match &done {
            Ok(()) => {
                self.work.buffers.clear();
                self.work.rolled = false;
            }
            Err(error) => self.context.target.shut_down(&error.to_string()),
        }
        done
    }

    /// Whether the next transaction of the chain has to reserve log space, and so may wait for it.
    pub(super) fn reserves_next(&self) -> bool {
        self.work.ticket.as_ref().is_some_and(|ticket| ticket.rolls_left == 0)
    }

    /// Whether `lsn` is so near to the tail that a transaction that may wait for log space should not depend on it.
    pub(super) fn is_near_tail(&self, lsn: Lsn) -> bool {
        self.context.target.is_near_tail(lsn)
    }

    /// Refuses to commit a failed transaction.
    fn expect_whole(&self) -> Result<(), Error> {
        debug_assert!(!self.work.failed, "a failed transaction must not be committed");
        if !self.work.failed {
            return Ok(());
        }
        Err(Error::ShutDown { cause: "a transaction failed after a modification".into() })
    }

    /// Commits. With `relog`, unchanged items that stay locked are logged too if the log still needs their older
    /// record.
    fn commit_items(&mut self, locked: &mut [&mut dyn Loggable], relog: bool) -> Result<(), Error> {
        self.expect_whole()?;
        let TransactionState { ticket, items, buffers, busy, .. } = &mut *self.work;
        let Some(ticket) = ticket else {
            debug_assert!(!self.is_dirty(), "a reader changed something");
            return Ok(());
        };
        let commits = TransactionItems { items, buffers, locked, relog, busy };
        if commits.is_empty() {
            return Ok(());
        }
        self.context.target.commit(ticket, commits)?;
        self.work.items.clear();
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if (self.work.rolled && !self.work.deferred.is_empty()) || self.is_dirty() {
            self.context.target.shut_down("a transaction was dropped after a modification");
        }
        self.work.buffers.clear();
        if let Some(ticket) = self.work.ticket.take() {
            self.context.target.end(ticket);
        }
    }
}
