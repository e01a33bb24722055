//! The shared state of all inodes of a volume.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock, Weak};

use base::lock::Locks;
use base::memory::{Share, Shrink};
use base::random::Random;
use base::rcu::{self, Retired, Section};
use base::time::Clock;
use error::Result;
use format::Geometry;
use format::checksum::ZeroRun;
use format::inode::RawInode;
use format::ondisk::OnDisk;
use format::timestamp::Timestamp;
use journal::engine::{
    BufferCache, CommitTarget, LogReservation, PeekedBuffers, Transaction, TransactionContexts,
};

use crate::extents::ExtentLimits;
use crate::inactive::Queues;
use crate::inode::{Attached, Inode};
use crate::inode_cache::{CacheIndex, inode_bytes};
use crate::reservation::Reservations;
use crate::space::GroupOperations;
use crate::state::{Features, InodeState};
use crate::unlinked::UnlinkedLists;

/// The shared state of a volume's inodes.
#[derive(Debug)]
pub struct Shared {
    /// Geometry of the volume.
    pub geometry: Geometry,
    /// Features of the volume that concern inodes.
    pub features: Features,
    /// The checksum of a literal area of zeros.
    pub zero_literal_area: ZeroRun,
    /// Target of commits.
    pub target: Arc<dyn CommitTarget>,
    /// Cache of metadata buffers.
    pub buffers: Arc<BufferCache>,
    /// Contexts of new transactions.
    pub contexts: TransactionContexts,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Source of inode generations.
    pub random: Random,
    /// Allocation groups.
    pub groups: Arc<dyn GroupOperations>,
    /// Log and block reservations.
    pub reservations: Reservations,
    /// How many extents of a fork are in memory.
    pub extent_limits: ExtentLimits,
    /// Lists of unlinked inodes.
    pub unlinked: UnlinkedLists,
    /// Index of the inode cache.
    pub(crate) index: CacheIndex,
    /// Inodes that wait for inactivation.
    pub inactive: Queues,
    /// Names in memory, which keep inodes there.
    names: OnceLock<Weak<dyn Names>>,
    /// Objects that were attached to freed inodes.
    pub(crate) detached: Retired<Arc<dyn Attached>>,
}

/// Memory of the inode cache if it has no share of a budget.
const CACHE_BYTES: u64 = 64 << 20;

/// Names in memory, which have references to inodes.
pub trait Names: Send + Sync + Debug {
    /// Looks at about this number of names, and drops those that were not used since they were last looked at. Their
    /// inodes can be evicted some time later. Returns whether another call may drop more. Called without locks.
    fn drop_unused(&self, names: usize) -> bool;
}

/// The most names that are looked at when inodes shrink.
const NAMES_MAX: u64 = 256;

impl Shrink for Shared {
    fn shrink(&self, bytes: u64) -> bool {
        let names = self.index.excess(bytes).min(NAMES_MAX);
        let holder = self.names.get().and_then(Weak::upgrade).filter(|_| names > 0);
        let has_names = holder.is_some_and(|holder| holder.drop_unused(names as usize));
        self.index.shrink(bytes) | has_names
    }

    fn write_back(&self) {
        self.target.request_writeback();
    }
}

impl Shared {
    /// The shared state of a volume whose log is clean or replayed.
    pub fn new(
        geometry: Geometry,
        target: Arc<dyn CommitTarget>,
        buffers: Arc<BufferCache>,
        groups: Arc<dyn GroupOperations>,
        clock: Arc<dyn Clock>,
        random: Random,
    ) -> Self {
        Self {
            features: Features::of(&geometry),
            zero_literal_area: ZeroRun::new((geometry.inode_size as usize).saturating_sub(RawInode::SIZE)),
            reservations: Reservations::of(&geometry),
            extent_limits: ExtentLimits::USUAL,
            unlinked: UnlinkedLists::new(&geometry),
            index: CacheIndex::new(Locks::default(), Share::alone(CACHE_BYTES), inode_bytes(&geometry)),
            inactive: Queues::new(),
            contexts: TransactionContexts::new(&target, &buffers),
            names: OnceLock::new(),
            detached: Retired::default(),
            geometry,
            target,
            buffers,
            clock,
            random,
            groups,
        }
    }

    /// Sets how many locks guard the inode cache, which must be empty, and its share of a memory budget.
    #[must_use]
    pub fn with_cache(self, locks: Locks, memory: Arc<Share>) -> Self {
        let index = CacheIndex::new(locks, memory, inode_bytes(&self.geometry));
        Self { index, ..self }
    }

    /// Sets the names that are dropped when inodes exceed their memory. They are set once.
    pub fn set_names(&self, names: Weak<dyn Names>) {
        let _ = self.names.set(names);
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Those of [`Transaction::begin`].
    pub fn begin(&self, reservation: LogReservation) -> Result<Transaction> {
        Transaction::begin(self.contexts.local(), reservation)
    }

    /// Begins a transaction that only reads buffers.
    pub fn reader(&self) -> Transaction {
        Transaction::reader(self.contexts.local())
    }

    /// Calls `read` with the state of an inode and the blocks of its forks, in a read section. If they are read often,
    /// no lock is taken and nothing is stored in memory that other threads use. `read` returns `None` if something is
    /// not in memory, or is locked: then the caller locks the inode, which may also load it. So it does if the volume
    /// was shut down. `read` must not wait, nor take long.
    #[track_caller]
    pub fn peek<T>(
        &self,
        inode: &Inode,
        read: impl FnOnce(&InodeState, &PeekedBuffers<'_>) -> Option<T>,
    ) -> Option<T> {
        let read = |state: &InodeState| {
            rcu::read(|section| read(state, &PeekedBuffers::new(&self.buffers, section)))
        };
        let found = inode.peek(read)?;
        // A failed transaction shuts the volume down before it unlocks what it changed: its changes must not be seen.
        self.target.check().ok().map(|()| found)
    }

    /// Like [`peek`](Self::peek), for a caller in a read section. Does not wait.
    pub fn peek_in<T>(
        &self,
        section: &Section,
        inode: &Inode,
        read: impl FnOnce(&InodeState, &PeekedBuffers<'_>) -> Option<T>,
    ) -> Option<T> {
        let found = read(&*inode.peek_in(section)?, &PeekedBuffers::new(&self.buffers, section))?;
        self.target.check().ok().map(|()| found)
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        let now = self.clock.now();
        Timestamp { seconds: now.seconds, nanoseconds: now.nanos }
    }
}
