//! State that the shards share about the checkpoint being built: reserved header space, and its size.
//!
//! # Locking
//! None: these are counters, each of which may be read late. Nevertheless the checkpoint must get at least the log
//! space that it takes; `proof/races` tries all orders.

use base::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use crossbeam_utils::CachePadded;

use crate::engine::sizes::LogSizes;

/// State of the checkpoint being built. Written only until its header space is covered.
pub struct CilContext {
    /// Sequence number of the checkpoint.
    pub sequence: u64,
    /// Some commit has paid for the frame.
    frame_charged: AtomicBool,
    /// Records of the largest checkpoint whose headers are not paid for yet.
    headers_left: AtomicI64,
    /// A background push was requested.
    push_requested: AtomicBool,
}

impl CilContext {
    /// The next checkpoint, for which nothing is reserved yet.
    pub fn new(sizes: &LogSizes, shards: usize, batch: i64, sequence: u64) -> Self {
        // Until all shards have reported, a checkpoint can exceed the limit by one batch per shard.
        let largest = sizes.hard_limit() + shards as u64 * batch.unsigned_abs();
        Self {
            sequence,
            frame_charged: AtomicBool::new(false),
            headers_left: AtomicI64::new(sizes.records(largest) as i64), // a few thousand
            push_requested: AtomicBool::new(false),
        }
    }

    /// The log space that a commit gives to the checkpoint beside its own bytes, which may need `records` records.
    pub fn charge_overhead(&self, sizes: &LogSizes, records: u64, is_over: bool) -> u64 {
        let mut charged = 0;
        if !self.frame_charged.load(Relaxed) && !self.frame_charged.swap(true, Relaxed) {
            charged += sizes.fixed();
        }
        // Beyond the size of the largest checkpoint, a commit pays only for its own bytes: another commit that was not
        // throttled may still be on its way here.
        if is_over {
            charged += records * sizes.per_record();
        } else if self.headers_left.load(Relaxed) > 0 {
            self.headers_left.fetch_sub(records as i64, Relaxed);
            charged += records * sizes.per_record();
        }
        charged
    }

    /// Requests a background push; returns whether this is the first request.
    pub fn request_push(&self) -> bool {
        !self.push_requested.load(Relaxed) && !self.push_requested.swap(true, Relaxed)
    }
}

/// Size of the current checkpoint, as far as shards have reported it.
pub struct CilSpace {
    reported: CachePadded<AtomicI64>,
    /// A shard reports its bytes when it has this many.
    pub batch: i64,
}

impl CilSpace {
    /// The size of an empty checkpoint.
    pub fn new(batch: i64) -> Self {
        Self { reported: CachePadded::new(AtomicI64::new(0)), batch }
    }

    /// The size as seen by a shard with this many unreported bytes, which are reported if necessary.
    pub fn with(&self, unreported: &mut i64) -> i64 {
        if unreported.abs() < self.batch {
            return self.reported.load(Relaxed) + *unreported;
        }
        let more = std::mem::take(unreported);
        self.reported.fetch_add(more, Relaxed) + more
    }

    /// The reported size.
    pub fn reported(&self) -> i64 {
        self.reported.load(Relaxed)
    }

    /// Begins a new checkpoint. The caller holds all shards.
    pub fn restart(&self) {
        self.reported.store(0, Relaxed);
    }
}
