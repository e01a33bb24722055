//! What the shards share of the checkpoint that is being built: what commits still owe it, and how large it is.
//!
//! # Locking
//! None: these are counters of which each may be read late. What must hold all the same is that the checkpoint is left
//! at least what it takes of the log; `proof/races` tries all orders.

use base::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use crossbeam_utils::CachePadded;

use crate::engine::sizes::LogSizes;

/// What the shards share of the checkpoint that is being built. Written only until the checkpoint is covered.
pub struct CilContext {
    /// The checkpoint's number.
    pub sequence: u64,
    /// The frame is charged.
    frame_charged: AtomicBool,
    /// Records whose headers are not yet charged, up to those of the largest checkpoint.
    headers_left: AtomicI64,
    /// A push in the background was push_requested for.
    push_requested: AtomicBool,
}

impl CilContext {
    /// Of the next checkpoint, to which nobody has left anything yet.
    pub fn new(sizes: &LogSizes, shards: usize, batch: i64, sequence: u64) -> Self {
        // Until all shards have reported of it, a checkpoint can be larger than the limit by a batch for each.
        let largest = sizes.hard_limit() + shards as u64 * batch.unsigned_abs();
        Self {
            sequence,
            frame_charged: AtomicBool::new(false),
            headers_left: AtomicI64::new(sizes.records(largest) as i64), // a few thousand
            push_requested: AtomicBool::new(false),
        }
    }

    /// What a commit, whose bytes may need so many records, leaves to the checkpoint beside its bytes.
    pub fn charge_overhead(&self, sizes: &LogSizes, records: u64, is_over: bool) -> u64 {
        let mut charged = 0;
        if !self.frame_charged.load(Relaxed) && !self.frame_charged.swap(true, Relaxed) {
            charged += sizes.fixed();
        }
        // What commits charge_overhead beyond the largest checkpoint covers their own bytes alone: one that was not
        // held back may still be on its way here.
        if is_over {
            charged += records * sizes.per_record();
        } else if self.headers_left.load(Relaxed) > 0 {
            self.headers_left.fetch_sub(records as i64, Relaxed);
            charged += records * sizes.per_record();
        }
        charged
    }

    /// Asks for a push in the background: whether nobody did so before.
    pub fn request_push(&self) -> bool {
        !self.push_requested.load(Relaxed) && !self.push_requested.swap(true, Relaxed)
    }
}

/// Bytes of the current checkpoint, as far as shards have reported.
pub struct CilSpace {
    reported: CachePadded<AtomicI64>,
    /// A shard tells its bytes when they are so many.
    pub batch: i64,
}

impl CilSpace {
    /// Of an empty checkpoint.
    pub fn new(batch: i64) -> Self {
        Self { reported: CachePadded::new(AtomicI64::new(0)), batch }
    }

    /// How large the checkpoint is, as far as a shard can know that has not reported of `unreported` bytes; tells if it
    /// must.
    pub fn with(&self, unreported: &mut i64) -> i64 {
        if unreported.abs() < self.batch {
            return self.reported.load(Relaxed) + *unreported;
        }
        let more = std::mem::take(unreported);
        self.reported.fetch_add(more, Relaxed) + more
    }

    /// How large the checkpoint is, but for what shards have not reported.
    pub fn reported(&self) -> i64 {
        self.reported.load(Relaxed)
    }

    /// A new checkpoint begins. The caller holds all shards.
    pub fn restart(&self) {
        self.reported.store(0, Relaxed);
    }
}
