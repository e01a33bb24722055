//! The committed item list (CIL): what transactions changed since the last checkpoint was pushed to the log.
//!
//! | part | does |
//! |---|---|
//! | [`Cil`] | commits into the list |
//! | `context` | state that the shards share: reserved header space, size of the checkpoint |
//! | `memory` | memory of log vectors and intents |
//! | [`progress`] | which checkpoint is being built, pushed, stable; waiting for it |
//! | [`push`] | detaches the list and writes it to the log |
//!
//! Each CPU has a *shard*: a list of items, a list of busy extents, the space that they need and the reservation that
//! they brought. A commit takes the lock of its CPU's shard and nothing else that is shared, except a number from one
//! counter: the order of commits, which the item stores with its log vector. An item that is logged again within a
//! checkpoint stays in its shard and only gets a new number; the push sorts by it.
//!
//! # Space of record headers
//! A checkpoint needs more log space than its items' bytes ([`LogSizes`]): a frame, and headers of each record. The
//! number of records of the largest checkpoint is known beforehand. Each commit gives the checkpoint the headers that
//! its own bytes could need, until there is enough for the largest one. A checkpoint may grow beyond that while commits
//! are throttled: then every commit pays for itself. The shards are never summed up for this.
//!
//! # Invariants
//! - A commit is part of one checkpoint as a whole. Of two commits to one item, the later is in the same or a later
//!   checkpoint.
//! - An item is pinned once for each checkpoint that contains a log vector of it and is not stable.
//! - A checkpoint reserves at least the log space that it takes: checked at every push.
//!
//! # Locking
//! `CilShard`, then `ItemSlot`. A push takes all shards, ascending, while it detaches their lists. One [`Cil::push`]
//! runs at a time, under `Push`; commits never take that.

mod context;
mod memory;
pub mod progress;
pub mod push;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::lock::{Mutex, Rank};
use base::memory::Share;
use base::percpu;
use crossbeam_utils::CachePadded;

use self::context::{CilContext, CilSpace};
use self::memory::{BUSY_BYTES, CilMemory, ShardMemory};
use self::progress::CheckpointProgress;
use super::commit_target::{BusyExtent, Ticket};
use super::item::{CommitPosition, LogItem};
use super::shutdown::Shutdown;
use super::sizes::LogSizes;
use super::transaction_items::TransactionItems;

/// The low bits of an order number: the item's index within its commit.
const ITEM_BITS: u32 = 16;

/// The committed item list.
pub struct Cil {
    sizes: LogSizes,
    shards: Box<[CachePadded<Mutex<CilShard>>]>,
    /// Order number of the next commit.
    order: CachePadded<AtomicU64>,
    space: CilSpace,
    memory: CilMemory,
    pushing: Mutex<()>,
    /// State of all checkpoints.
    pub progress: CheckpointProgress,
}

/// One CPU's part of the list.
struct CilShard {
    context: Arc<CilContext>,
    items: Vec<Arc<dyn LogItem>>,
    busy: Vec<BusyExtent>,
    /// Bytes not reported to `CilSpace`.
    unreported: i64,
    /// Bytes of items.
    bytes: i64,
    memory: ShardMemory,
    /// Log space reserved for the checkpoint.
    reserved: u64,
    commits: u64,
}

/// A pushed checkpoint: what must be done when it is stable.
pub struct Checkpoint {
    /// Sequence number.
    pub sequence: u64,
    /// Items in log order.
    pub items: Vec<Arc<dyn LogItem>>,
    /// Blocks freed in it.
    pub busy: Vec<BusyExtent>,
    /// Position of the first record, once it is known.
    pub start: Option<u64>,
    /// Position of the last record, once it is known.
    pub commit: u64,
    /// Bytes of its items that no cache counts.
    pub memory: i64,
}

impl Checkpoint {
    /// Sets the position of the last record.
    #[must_use]
    pub fn placed(self, commit: u64) -> Self {
        Self { start: self.start.or(Some(commit)), commit, ..self }
    }
}

/// Result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitResult {
    /// The checkpoint that contains it.
    pub sequence: u64,
    /// The checkpoint is large enough to be pushed, and no push was requested yet.
    pub push: bool,
}

impl Cil {
    /// An empty list with this many shards, at least one. Its vectors are a part of the memory of metadata buffers.
    pub fn new(sizes: LogSizes, shards: usize, memory: &Arc<Share>) -> Self {
        let shards = shards.max(1);
        let batch = (sizes.push_limit / (4 * shards as u64)).max(4096) as i64; // at most 8 MiB
        let context = Arc::new(CilContext::new(&sizes, shards, batch, 1));
        let shard = |n| {
            let rank = Rank::CilShard(u32::try_from(n).unwrap_or(u32::MAX));
            CachePadded::new(Mutex::new(rank, CilShard::new(Arc::clone(&context))))
        };
        Self {
            sizes,
            shards: (0..shards).map(shard).collect(),
            order: CachePadded::new(AtomicU64::new(1)),
            space: CilSpace::new(batch),
            memory: CilMemory::new(memory, shards),
            pushing: Mutex::new(Rank::Push, ()),
            progress: CheckpointProgress::new(1),
        }
    }

    /// Drops all items. Nothing is pushed after this.
    pub fn forget(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let items = std::mem::take(&mut shard.items);
            let memory = self.memory.detach(std::mem::take(&mut shard.memory));
            self.memory.freed(memory.vectors + memory.items);
            drop(shard);
            // Dropping the last reference to an item may take locks.
            drop(items);
        }
    }

    /// Commits: formats the items, which the caller has locked, into this CPU's shard. Takes the busy extents.
    ///
    /// # Errors
    /// Those of `Ticket::charge`; the caller must then shut the volume down.
    pub fn insert(
        &self,
        ticket: &mut Ticket,
        mut commits: TransactionItems<'_, '_>,
    ) -> Result<CommitResult, Shutdown> {
        let mut shard = self.local().lock();
        let shard = &mut *shard;
        let sequence = shard.context.sequence;
        let first = self.order.fetch_add(1, Relaxed) << ITEM_BITS;
        let last = first | ((1 << ITEM_BITS) - 1);
        let (mut order, mut grown, mut memory) = (first, 0, 0);
        let (mut items, mut uncounted) = (0, commits.busy.len() * BUSY_BYTES);
        commits.for_each(|commit| {
            // The caller holds the item's lock, and no push can pass this shard.
            let growth = commit.log(CommitPosition { checkpoint: sequence, order });
            order = last.min(order + 1);
            grown += growth.bytes;
            memory += growth.memory;
            if growth.is_first {
                let item = commit.item();
                item.core().pin();
                (items, uncounted) = (items + 1, uncounted + item.uncounted());
                shard.items.push(item);
            }
        });
        shard.busy.append(commits.busy);
        shard.commits += 1;
        shard.bytes += grown;
        shard.unreported += grown;
        self.memory.change(&mut shard.memory, memory, items, uncounted);
        let space = self.space.with(&mut shard.unreported);
        let is_over = space >= self.sizes.hard_limit() as i64; // at most 64 MiB
        let charged = shard.context.charge_overhead(&self.sizes, ticket.account.records, is_over)
            + u64::try_from(grown).unwrap_or(0);
        ticket.charge(charged)?;
        shard.reserved += charged;
        let is_large = space >= self.sizes.push_limit as i64 || self.memory.is_large();
        let push = is_large && shard.context.request_push();
        Ok(CommitResult { sequence, push })
    }

    /// A pushed checkpoint is complete: its items that no cache counts are freed, or in the AIL until they are done.
    pub fn completed(&self, checkpoint: &Checkpoint) {
        self.memory.completed(checkpoint.memory);
    }

    /// The checkpoint being built, if it is so large that new changes must wait for its push.
    #[inline]
    pub fn too_large(&self) -> Option<u64> {
        if !self.is_too_large() {
            return None;
        }
        // Read the number first: the size of an older checkpoint must not be taken for that of a newer one.
        let checkpoint = self.progress.current();
        self.is_too_large().then_some(checkpoint)
    }

    /// The next checkpoint to become stable, if those in flight take so much memory that new changes must wait for it.
    #[inline]
    pub fn too_large_in_flight(&self) -> Option<u64> {
        if !self.memory.is_too_large_in_flight() {
            return None;
        }
        let next = self.progress.stable() + 1;
        (next < self.progress.current()).then_some(next)
    }

    #[inline]
    fn is_too_large(&self) -> bool {
        self.space.reported() >= self.sizes.hard_limit() as i64 || self.memory.is_too_large()
    }

    /// Number of commits.
    pub fn commits(&self) -> u64 {
        self.order.load(Relaxed) - 1
    }

    #[expect(clippy::indexing_slicing, reason = "a remainder of the length, which is not zero")]
    fn local(&self) -> &Mutex<CilShard> {
        match &*self.shards {
            [only] => only,
            shards => &shards[percpu::current() % shards.len()],
        }
    }
}

impl CilShard {
    fn new(context: Arc<CilContext>) -> Self {
        Self {
            context,
            items: Vec::new(),
            busy: Vec::new(),
            unreported: 0,
            bytes: 0,
            memory: ShardMemory::default(),
            reserved: 0,
            commits: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.commits == 0
    }
}

impl std::fmt::Debug for Cil {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cil")
            .field("shards", &self.shards.len())
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}
