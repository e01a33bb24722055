//! What all inodes of a volume share.

use std::ops::Deref;
use std::sync::Arc;

use base::random::Random;
use base::time::Clock;
use format::Geometry;
use format::checksum::ZeroRun;
use format::inode::RawInode;
use format::ondisk::OnDisk;
use format::timestamp::Timestamp;
use journal::engine::{BufferCache, CommitTarget, Error, LogReservation, Transaction, TransactionContexts};

use crate::inactive::Queues;
use crate::inode_cache::CacheIndex;
use crate::reservation::Reservations;
use crate::space::GroupOperations;
use crate::state::Features;
use crate::unlinked::UnlinkedLists;

/// See the module.
#[derive(Debug)]
pub struct Shared {
    /// The volume's shape.
    pub geometry: Geometry,
    /// What its features mean for inodes.
    pub features: Features,
    /// What the zeros behind the core of an inode without contents make of its checksum.
    pub no_contents: ZeroRun,
    /// Where changes are committed to.
    pub target: Arc<dyn CommitTarget>,
    /// Metadata blocks in memory.
    pub buffers: Arc<BufferCache>,
    /// Where changes begin.
    pub bases: TransactionContexts,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Generations of new inodes.
    pub random: Random,
    /// The allocation groups.
    pub groups: Arc<dyn GroupOperations>,
    /// How much log space changes of inodes need.
    pub reservations: Reservations,
    /// Lists of unlinked inodes.
    pub unlinked: UnlinkedLists,
    /// Inodes in memory, by number.
    pub(crate) index: CacheIndex,
    /// Inodes that wait to be freed.
    pub inactive: Queues,
}

impl Shared {
    /// Of a volume whose log is clean or replayed.
    pub fn new(
        geometry: Geometry,
        (target, buffers): (Arc<dyn CommitTarget>, Arc<BufferCache>),
        groups: Arc<dyn GroupOperations>,
        clock: Arc<dyn Clock>,
        random: Random,
    ) -> Self {
        Self {
            features: Features::of(&geometry),
            no_contents: ZeroRun::new((geometry.inode_size as usize).saturating_sub(RawInode::SIZE)),
            reservations: Reservations::of(&geometry),
            unlinked: UnlinkedLists::new(&geometry),
            index: CacheIndex::default(),
            inactive: Queues::new(),
            bases: TransactionContexts::new(&target, &buffers),
            geometry,
            target,
            buffers,
            clock,
            random,
            groups,
        }
    }

    /// Begins a change.
    ///
    /// # Errors
    /// As [`Transaction::begin`].
    pub fn begin(&self, reservation: LogReservation) -> Result<Transaction, Error> {
        Transaction::begin_on(self.bases.local(), reservation)
    }

    /// Begins to look at buffers: nothing can be changed.
    pub fn reader(&self) -> Transaction {
        Transaction::reader(&self.target, &self.buffers)
    }

    /// Now, as inodes keep it.
    pub fn now(&self) -> Timestamp {
        let now = self.clock.now();
        Timestamp { seconds: now.seconds, nanoseconds: now.nanos }
    }
}

/// A CPU's own way to [`Shared`], so that CPUs that make inodes do not meet on its reference count.
#[derive(Debug)]
pub struct Local(pub(crate) Arc<Shared>);

impl Deref for Local {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.0
    }
}
