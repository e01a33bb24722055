//! Constants of caching and writeback, with their reasons. What users may choose is in [`Options`](crate::Options).

use std::time::Duration;

/// Files smaller than this get no preallocation: most files are written once, and are small.
pub(crate) const PREALLOCATION_MIN_SIZE: u64 = 256 << 10;
/// Largest preallocation of a file: long runs gain nothing beyond it, and it is not free for others.
pub(crate) const PREALLOCATION_MAX_BYTES: u64 = 32 << 20;

/// Flushers by default: more gain nothing on one device, as they share the log and the free blocks.
pub(crate) const FLUSHERS_MAX: usize = 4;
/// Files taken out of a list of dirty files under its lock: threads that dirty files wait for it.
pub(crate) const TAKEN_AT_ONCE: usize = 256;
/// Files of one batch: each holds two locks.
pub(crate) const BATCH_FILES_MAX: usize = 2048;
/// Files handed to the backing to be finished at once. Their reservations are out of their accounts meanwhile, and
/// writers reserve anew: so few, but a multiple of what shares a transaction (`inode::contents`).
pub(crate) const FINISH_FILES_MAX: usize = 16;
/// Written ranges of a file that is finished together with others; more are finished alone.
pub(crate) const FINISH_RANGES_MAX: usize = 2;
/// Bytes whose folios are read-locked during one plugged write: writers of these folios wait for it.
pub(crate) const PLUG_BYTES: usize = 4 << 20;
/// Pieces of one plugged write: a bound for many small files.
pub(crate) const PLUG_PIECES_MAX: usize = 1024;

/// Readahead of a file that is read from its start, or on from the last miss. It doubles with each further miss.
pub(crate) const READAHEAD_FIRST_BYTES: u64 = 128 << 10;

/// Longest pause between the background and the hard limit.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Bytes that the threads of a CPU write between two pauses.
pub(crate) const TURN_BYTES: u64 = 64 << 10;
/// Assumed write rate in bytes per second until one is measured.
pub(crate) const INITIAL_RATE: u64 = 256 << 20;
/// Folios examined by one reclaim before it gives up: a bound for the latency of the call that needs memory.
pub(crate) const RECLAIM_FOLIOS_MAX: usize = 256;
/// Dirty folios of one list that it meets before it looks at the next list.
pub(crate) const RECLAIM_DIRTY_MAX: usize = 32;
/// Smallest allocation of a folio: a page.
pub(crate) const FOLIO_MIN_BYTES: usize = 4096;
/// A use of a folio counts as a new one if this fraction of the cache's memory was inserted since the first: as much as
/// a stream may read ahead, and some.
pub(crate) const REUSE_FRACTION: u64 = 8;
/// An old folio that was not used for so many times that fraction becomes young: twice the cache's memory.
pub(crate) const OLD_PERIODS: u64 = 2 * REUSE_FRACTION;
/// The part of the cache's memory that one stream may read ahead: less than half of what [`REUSE_FRACTION`] allows.
pub(crate) const READAHEAD_FRACTION: u64 = 2 * REUSE_FRACTION;
