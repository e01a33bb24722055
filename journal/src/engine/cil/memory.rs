//! Memory of all checkpoints that are not stable. It is a part of the memory of metadata buffers.
//!
//! | memory | until |
//! |---|---|
//! | log vectors | the checkpoint is pushed |
//! | places of items in lists | the checkpoint is pushed |
//! | items that no cache counts: intents and done items | the checkpoint is stable |
//! | busy extents | the checkpoint is stable |
//!
//! A vector of a buffer takes the memory of the whole buffer, so it can be thirty times as large as what is logged of
//! it. An extent that is freed takes four items of some 500 bytes each, of which 44 are logged.
//!
//! # Locking
//! None. A shard adds up its changes under its own lock, and reports them in batches.

use std::sync::Arc;

use base::memory::Share;
use base::sync::atomic::{AtomicI64, Ordering::Relaxed};
use crossbeam_utils::CachePadded;

use crate::engine::commit_target::BusyExtent;
use crate::engine::item::{LogItem, LogVector};

/// The least memory at which a checkpoint is pushed.
const LIMIT_LEAST: u64 = 256 << 10;

/// Memory of an item in the lists of a checkpoint: in that of the shard, which grows by doubling, and in those of the
/// push.
const PLACES: usize = 4 * size_of::<Arc<dyn LogItem>>() + 2 * size_of::<LogVector>() + 4 * size_of::<u64>();

/// Memory of a busy extent: in the list of the shard, which grows by doubling, in that of the checkpoint, and in the
/// tree of its AG, whose nodes have some space left.
pub const BUSY_BYTES: usize = 3 * size_of::<BusyExtent>() + 24;

/// Memory of the current checkpoint and of those being pushed.
pub struct CilMemory {
    share: Arc<Share>,
    /// What shards have reported for the current checkpoint.
    current: CachePadded<AtomicI64>,
    /// Items and busy extents of checkpoints that are pushed and not stable.
    in_flight: CachePadded<AtomicI64>,
    /// A shard reports when it has this much.
    batch: i64,
    /// The memory at which a checkpoint is pushed.
    limit: i64,
}

/// Memory of a checkpoint that is pushed.
#[derive(Clone, Copy, Debug, Default)]
pub struct DetachedMemory {
    /// Bytes of vectors, and of lists of the push.
    pub vectors: i64,
    /// Bytes of items that no cache counts, and of busy extents.
    pub items: i64,
}

/// A shard's part of it.
#[derive(Debug, Default)]
pub struct ShardMemory {
    /// Bytes of vectors and lists in the shard.
    bytes: i64,
    /// Bytes of items that no cache counts, and of busy extents.
    items: i64,
    /// Bytes that are not reported.
    unreported: i64,
}

impl CilMemory {
    /// A checkpoint is pushed when its vectors take a quarter of the part of metadata buffers.
    pub fn new(share: &Arc<Share>, shards: usize) -> Self {
        let limit = (share.part() / 4).max(LIMIT_LEAST);
        let batch = (limit / (4 * shards as u64)).clamp(4096, 1 << 20) as i64;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX / 4);
        let [current, in_flight] = [0, 0].map(|bytes| CachePadded::new(AtomicI64::new(bytes)));
        Self { share: Arc::clone(share), current, in_flight, batch, limit }
    }

    /// A commit has changed the memory of vectors, and added `items` items. No cache counts `uncounted` bytes of
    /// these and of busy extents.
    #[inline]
    pub fn change(&self, shard: &mut ShardMemory, vectors: i64, items: usize, uncounted: usize) {
        // Far below 2^63.
        let bytes = vectors + (items * PLACES) as i64;
        shard.bytes += bytes;
        shard.items += uncounted as i64;
        shard.unreported += bytes + uncounted as i64;
        if shard.unreported.abs() >= self.batch {
            self.report(shard);
        }
    }

    #[cold]
    fn report(&self, shard: &mut ShardMemory) {
        let more = std::mem::take(&mut shard.unreported);
        self.current.fetch_add(more, Relaxed);
        self.count(more);
    }

    fn count(&self, more: i64) {
        match more >= 0 {
            true => self.share.add(more.unsigned_abs()),
            false => self.share.sub(more.unsigned_abs()),
        }
    }

    /// The current checkpoint is large enough to be pushed.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.current.load(Relaxed) >= self.limit
    }

    /// New changes must wait until the current checkpoint is pushed.
    #[inline]
    pub fn is_too_large(&self) -> bool {
        self.current.load(Relaxed) >= 2 * self.limit
    }

    /// New changes must wait until a checkpoint in flight is stable. Checkpoints are pushed faster than they become
    /// stable if the device is slow.
    #[inline]
    pub fn is_too_large_in_flight(&self) -> bool {
        self.in_flight.load(Relaxed) >= 2 * self.limit
    }

    /// A shard is detached. Returns the bytes of its vectors and of its items, to be [freed](Self::freed) when they
    /// are.
    pub fn detach(&self, shard: ShardMemory) -> DetachedMemory {
        self.count(shard.unreported);
        DetachedMemory { vectors: shard.bytes, items: shard.items }
    }

    /// Begins a new checkpoint. The caller holds all shards.
    pub fn restart(&self) {
        self.current.store(0, Relaxed);
    }

    /// A checkpoint whose items take so many bytes is pushed.
    pub fn pushed(&self, items: i64) {
        self.in_flight.fetch_add(items, Relaxed);
    }

    /// It is stable, or never will be: its items were freed.
    pub fn completed(&self, items: i64) {
        self.in_flight.fetch_sub(items, Relaxed);
        self.freed(items);
    }

    /// Detached vectors were freed, or items that were not pushed.
    pub fn freed(&self, bytes: i64) {
        self.count(-bytes);
    }
}
