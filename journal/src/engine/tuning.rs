//! Batch sizes, prefetch distances and intervals of the running journal, each with its reason.

use std::time::Duration;

/// Items that one metadata writeback pass takes from the AIL: enough for long sequential writes, few enough that their
/// buffers fit in the cache.
pub const PUSH_ITEMS: usize = 1024;
/// The fewest such items, however little memory there is.
pub const PUSH_ITEMS_LEAST: usize = 32;
/// Bytes of memory of metadata buffers for each such item: a pass copies at most one buffer, usually of 4 KiB, for
/// each.
pub const PUSH_BYTES: u64 = 64 << 10;
/// Memory that an item of the AIL usually keeps from being dropped: a buffer, or the inode and its part of one.
pub const ITEM_BYTES: u64 = 4096;
/// Pause after a writeback pass that could write nothing. It doubles with each further pass of that kind, up to
/// [`MAX_STUCK_PAUSE`]. A checkpoint that becomes stable while a thread waits for log space ends it.
pub const STUCK_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause of a writeback that can write nothing.
pub const MAX_STUCK_PAUSE: Duration = Duration::from_millis(128);
/// Timeout of the writeback thread while there is nothing to do: it waits for a notification.
pub const IDLE_PAUSE: Duration = Duration::from_secs(3600);

/// How often a metadata write is tried before the volume is shut down.
pub const WRITE_ATTEMPTS: u32 = 5;
/// Pause after the first failed attempt; doubled after each further one.
pub const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Superblocks that are logged to cover an idle log: two, see `log::background`.
pub const COVER_RECORDS: u32 = 2;
/// The longest wait between two steps of covering, each of which needs the previous one to be stable.
pub const COVER_STEP: Duration = Duration::from_millis(100);
/// Age at which committed changes are pushed, as in Linux.
pub const PUSH_INTERVAL: Duration = Duration::from_secs(30);

/// Checkpoints in flight above which a log force waits, so that several forces share one push: another checkpoint would
/// not be stable any sooner.
pub const MAX_CHECKPOINTS_IN_FLIGHT: u64 = 2;

/// Prefetch distance where only the common part of a log item is read: a few cache lines each.
pub const PREFETCH_ITEMS: usize = 8;
/// Prefetch distance where all of an item or of a log vector is copied: an inode, a vector.
pub const PREFETCH_COPIES: usize = 4;

/// Buffers that a thread looks at, to drop some, before it adds one: some microseconds, as it may hold the locks of an
/// AG.
pub const SCAN: usize = 128;

/// Buffers for which a transaction reserves memory: most join no more.
pub const USUAL_BUFFERS: usize = 8;
/// Largest capacity of a transaction's lists that the thread's next transaction reuses.
pub const MAX_RECYCLED_CAPACITY: usize = 64;

/// Log blocks that are zeroed or stamped by one write when interrupted formatting is completed: 1 MiB.
pub const STAMP_BLOCKS: u32 = 2048;
