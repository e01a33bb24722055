//! What the shards share of the checkpoint that is being built: what commits still owe it, and how large it is.
//!
//! # Locking
//! None: these are counters of which each may be read late. What must hold all the same is that the checkpoint is left
//! at least what it takes of the log; `proof/races` tries all orders.

use base::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use crossbeam_utils::CachePadded;

use crate::engine::sizes::Sizes;

/// What the shards share of the checkpoint that is being built. Written only until the checkpoint is covered.
pub struct Context {
    /// The checkpoint's number.
    pub sequence: u64,
    /// The frame is paid.
    framed: AtomicBool,
    /// Records whose headers are not yet paid, up to those of the largest checkpoint.
    unpaid: AtomicI64,
    /// A push in the background was asked for.
    asked: AtomicBool,
}

impl Context {
    /// Of the next checkpoint, to which nobody has left anything yet.
    pub fn new(sizes: &Sizes, shards: usize, batch: i64, sequence: u64) -> Self {
        // Until all shards have told of it, a checkpoint can be larger than the limit by a batch for each.
        let largest = sizes.hard_limit() + shards as u64 * batch.unsigned_abs();
        Self {
            sequence,
            framed: AtomicBool::new(false),
            unpaid: AtomicI64::new(sizes.records(largest) as i64), // a few thousand
            asked: AtomicBool::new(false),
        }
    }

    /// What a commit, whose bytes may need so many records, leaves to the checkpoint beside its bytes.
    pub fn pay(&self, sizes: &Sizes, records: u64, is_over: bool) -> u64 {
        let mut paid = 0;
        if !self.framed.load(Relaxed) && !self.framed.swap(true, Relaxed) {
            paid += sizes.fixed();
        }
        // What commits pay beyond the largest checkpoint covers their own bytes alone: one that was not held back may
        // still be on its way here.
        if is_over {
            paid += records * sizes.per_record();
        } else if self.unpaid.load(Relaxed) > 0 {
            self.unpaid.fetch_sub(records as i64, Relaxed);
            paid += records * sizes.per_record();
        }
        paid
    }

    /// Asks for a push in the background: whether nobody did so before.
    pub fn ask(&self) -> bool {
        !self.asked.load(Relaxed) && !self.asked.swap(true, Relaxed)
    }
}

/// Bytes of the current checkpoint, as far as shards have told.
pub struct Space {
    told: CachePadded<AtomicI64>,
    /// A shard tells its bytes when they are so many.
    pub batch: i64,
}

impl Space {
    /// Of an empty checkpoint.
    pub fn new(batch: i64) -> Self {
        Self { told: CachePadded::new(AtomicI64::new(0)), batch }
    }

    /// How large the checkpoint is, as far as a shard can know that has not told of `untold` bytes; tells if it must.
    pub fn with(&self, untold: &mut i64) -> i64 {
        if untold.abs() < self.batch {
            return self.told.load(Relaxed) + *untold;
        }
        let more = std::mem::take(untold);
        self.told.fetch_add(more, Relaxed) + more
    }

    /// How large the checkpoint is, but for what shards have not told.
    pub fn told(&self) -> i64 {
        self.told.load(Relaxed)
    }

    /// A new checkpoint begins. The caller holds all shards.
    pub fn restart(&self) {
        self.told.store(0, Relaxed);
    }
}
