//! Memory of the log vectors of all checkpoints that are not pushed.
//!
//! A vector of a buffer takes the memory of the whole buffer, so it can be thirty times as large as what is logged of
//! it. It is a part of the memory of metadata buffers.
//!
//! # Locking
//! None. A shard adds up its changes under its own lock, and reports them in batches.

use std::sync::Arc;

use base::memory::Share;
use base::sync::atomic::{AtomicI64, Ordering::Relaxed};
use crossbeam_utils::CachePadded;

/// The least memory at which a checkpoint is pushed.
const LIMIT_LEAST: u64 = 256 << 10;

/// Memory of the current checkpoint and of those being pushed.
pub struct CilMemory {
    share: Arc<Share>,
    /// What shards have reported for the current checkpoint.
    current: CachePadded<AtomicI64>,
    /// A shard reports when it has this much.
    batch: i64,
    /// The memory at which a checkpoint is pushed.
    limit: i64,
}

/// A shard's part of it.
#[derive(Debug, Default)]
pub struct ShardMemory {
    /// Bytes of vectors in the shard.
    bytes: i64,
    /// Bytes that are not reported.
    unreported: i64,
}

impl CilMemory {
    /// A checkpoint is pushed when its vectors take a quarter of the part of metadata buffers.
    pub fn new(share: &Arc<Share>, shards: usize) -> Self {
        let limit = (share.part() / 4).max(LIMIT_LEAST);
        let batch = (limit / (4 * shards as u64)).clamp(4096, 1 << 20) as i64;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX / 4);
        Self { share: Arc::clone(share), current: CachePadded::new(AtomicI64::new(0)), batch, limit }
    }

    /// A commit has changed the memory of a shard.
    #[inline]
    pub fn change(&self, shard: &mut ShardMemory, by: i64) {
        shard.bytes += by;
        shard.unreported += by;
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

    /// A shard is detached. Returns the bytes of its vectors, to be [freed](Self::freed) when they are.
    pub fn detach(&self, shard: ShardMemory) -> i64 {
        self.count(shard.unreported);
        shard.bytes
    }

    /// Begins a new checkpoint. The caller holds all shards.
    pub fn restart(&self) {
        self.current.store(0, Relaxed);
    }

    /// Detached vectors were freed.
    pub fn freed(&self, bytes: i64) {
        self.count(-bytes);
    }
}
