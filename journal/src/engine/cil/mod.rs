//! The committed item list: what transactions have changed since the last checkpoint was pushed to the log.
//!
//! | part | does |
//! |---|---|
//! | [`Cil`] | commits into the list |
//! | `context` | what the CPUs' parts share: what is still owed for headers, how large the checkpoint is |
//! | [`progress`] | which checkpoint is being built, was pushed, is stable; and who waits for it |
//! | [`push`] | swaps the list out and writes it to the log |
//!
//! Each CPU has a *shard* of its own: a list of items, one of busy extents, the space they need and the reservation
//! they brought. A commit takes the shard of its CPU and nothing else that is shared, but a number from one counter:
//! the order of commits, which the item keeps beside its snapshot. An item that is logged again within a checkpoint
//! stays in the shard where it is and only gets a new number; the push sorts by it.
//!
//! # The space of headers
//! A checkpoint needs more of the log than its items' bytes ([`LogSizes`]): a frame, and headers for each record. How
//! many records the largest checkpoint takes is known beforehand. Each commit leaves the checkpoint the headers that
//! its own bytes could need, until it has enough for the largest; then no more. A checkpoint may grow beyond the
//! largest while commits are being held back: every commit that sees this pays for itself. Nobody ever sums up the
//! shards for it.
//!
//! # Invariants
//! - A commit lies in one checkpoint as a whole. Of two commits to one item the later lies in the same checkpoint or a
//!   later one.
//! - An item is pinned once for each checkpoint that holds a snapshot of it and is not stable.
//! - What a checkpoint was left is at least what it takes of the log: compared at every push.
//!
//! # Locking
//! `CilShard`, then `ItemSlot`. A push takes all shards, ascending, for as long as it takes to swap their lists.
//! [`Cil::push`] itself is one at a time, under `Push`; commits never take that.

mod context;
pub mod progress;
pub mod push;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::lock::{Mutex, Rank};
use base::percpu;
use crossbeam_utils::CachePadded;

use self::context::{CilContext, CilSpace};
use self::progress::CheckpointProgress;
use super::commit_target::{BusyExtent, Ticket};
use super::item::{CommitPosition, LogItem};
use super::shutdown::Shutdown;
use super::sizes::LogSizes;
use super::transaction_items::TransactionItems;

/// Items of a commit are ordered by their place in it, which stands below the commit's number.
const ITEM_BITS: u32 = 16;

/// The list.
pub struct Cil {
    sizes: LogSizes,
    shards: Box<[CachePadded<Mutex<CilShard>>]>,
    /// The number of the next commit.
    order: CachePadded<AtomicU64>,
    space: CilSpace,
    pushing: Mutex<()>,
    /// Which checkpoint is where.
    pub progress: CheckpointProgress,
}

/// One CPU's part.
struct CilShard {
    context: Arc<CilContext>,
    items: Vec<Arc<dyn LogItem>>,
    busy: Vec<BusyExtent>,
    /// Bytes not yet reported.
    unreported: i64,
    /// Bytes of items.
    bytes: i64,
    /// What commits left to the checkpoint.
    reserved: u64,
    commits: u64,
}

/// A checkpoint on its way: what is to be done when it is stable.
pub struct Checkpoint {
    /// Its number.
    pub sequence: u64,
    /// Its items, in the order of the log.
    pub items: Vec<Arc<dyn LogItem>>,
    /// What was freed in it.
    pub busy: Vec<BusyExtent>,
    /// Position of its first record, once that has one.
    pub start: Option<u64>,
    /// Position of its last record, likewise.
    pub commit: u64,
}

impl Checkpoint {
    /// With the place of its last record.
    #[must_use]
    pub fn placed(self, commit: u64) -> Self {
        Self { start: self.start.or(Some(commit)), commit, ..self }
    }
}

/// What a commit leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitResult {
    /// The checkpoint that it lies in.
    pub sequence: u64,
    /// The checkpoint is large enough to be pushed, and nobody has asked for it yet.
    pub push: bool,
}

impl Cil {
    /// An empty list of so many shards, at least one.
    pub fn new(sizes: LogSizes, shards: usize) -> Self {
        let shards = shards.max(1);
        let batch = (sizes.push_limit() / (4 * shards as u64)).max(4096) as i64; // at most 8 MiB
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
            pushing: Mutex::new(Rank::Push, ()),
            progress: CheckpointProgress::new(1),
        }
    }

    /// Lets all items go. Nothing is pushed any more.
    pub fn forget(&self) {
        for shard in &self.shards {
            let items = std::mem::take(&mut shard.lock().items);
            // The last of them may take locks as it goes.
            drop(items);
        }
    }

    /// Commits: formats the items, which the caller has locked, into this CPU's shard. The busy extents are taken.
    ///
    /// # Errors
    /// Those of `Ticket::charge`; the volume must then be shut down.
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
        let (mut order, mut grown) = (first, 0);
        commits.for_each(|commit| {
            // The item is locked by the caller, and no push can pass this shard.
            let growth = commit.log(CommitPosition { checkpoint: sequence, order });
            order = last.min(order + 1);
            grown += growth.bytes;
            if growth.is_first {
                let item = commit.item();
                item.core().pin();
                shard.items.push(item);
            }
        });
        shard.busy.append(commits.busy);
        shard.commits += 1;
        shard.bytes += grown;
        shard.unreported += grown;
        let space = self.space.with(&mut shard.unreported);
        let is_over = space >= self.sizes.hard_limit() as i64; // at most 64 MiB
        let charged = shard.context.charge_overhead(&self.sizes, ticket.account.records, is_over)
            + u64::try_from(grown).unwrap_or(0);
        ticket.charge(charged)?;
        shard.reserved += charged;
        let is_large = space >= self.sizes.push_limit() as i64;
        let push = is_large && shard.context.request_push();
        Ok(CommitResult { sequence, push })
    }

    /// The checkpoint that is being built, where it is so large that new changes should wait until it is pushed.
    #[inline]
    pub fn too_large(&self) -> Option<u64> {
        if self.space.reported() < self.sizes.hard_limit() as i64 {
            return None;
        }
        // The number first: the size of an older checkpoint must not be taken for that of a newer one.
        let checkpoint = self.progress.current();
        (self.space.reported() >= self.sizes.hard_limit() as i64).then_some(checkpoint)
    }

    /// How many commits there were.
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
