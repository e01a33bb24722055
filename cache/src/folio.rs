//! Folios: 64 KiB of a file in memory, with the state of each block.
//!
//! # Invariants
//! - A dirty block is valid; a reserved block is dirty or in writeback; a block in writeback is valid.
//! - The bytes of a block that is not valid are undefined. They are set before it becomes valid.
//! - Beyond the end of the file, the bytes of valid blocks are zero whenever the lock is free, except for bytes just
//!   appended, which the size follows.
//! - A folio that is `gone` is in no index: a thread that finds it looks it up again.
//! - A folio with a block that is dirty or in writeback is marked in its file's index.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use base::lock::{OwnedReadGuard, OwnedWriteGuard, Rank, RwLock};
use base::percpu::PerCpu;
use block::{BufferPool, PooledBuf};

use crate::contents::Contents;
use crate::tuning::FOLIO_MIN_BYTES;
use backing::Backing;

/// Base-2 logarithm of the bytes of a file that one folio covers. No block is larger.
pub const FOLIO_LOG: u32 = 16;
/// Memory of a folio beside its bytes: with its places in the index and in the list for reclaim.
pub(crate) const FOLIO_BESIDE: u64 = 256;
/// Bytes of a file that one folio covers.
pub const FOLIO_BYTES: usize = 1 << FOLIO_LOG;

/// See the module.
#[derive(Debug)]
pub(crate) struct Folio<B: Backing> {
    /// Contents that it belongs to, for reclaim.
    pub owner: Weak<Contents<B>>,
    /// Position in the file, in folios.
    pub index: u64,
    /// Used again since reclaim last examined it.
    used: AtomicBool,
    /// Time of reclaim, in bytes, when it was made or last examined.
    examined: AtomicU64,
    /// Marked in the index. Set under the write lock; cleared under the read lock by the holder of the file's
    /// `flushing`.
    marked: AtomicBool,
    pub state: RwLock<State>,
}

/// A read-locked folio.
pub(crate) type FolioRead<B> = OwnedReadGuard<Folio<B>, State>;
/// A write-locked folio.
pub(crate) type FolioWrite<B> = OwnedWriteGuard<Folio<B>, State>;

/// What the lock of a folio protects. Masks have a bit for each block.
#[derive(Debug, Default)]
pub(crate) struct State {
    bytes: Option<PooledBuf>,
    /// Blocks whose bytes are those of the file.
    pub valid: u64,
    /// Blocks newer than the disk and not in writeback.
    pub dirty: u64,
    /// Blocks for which a free block of the volume is reserved.
    pub reserved: u64,
    /// Blocks in writeback.
    pub writeback: u64,
    /// Reclaim found it dirty, and drops it when it is clean.
    pub drop_when_clean: bool,
    /// Dropped from the index.
    pub gone: bool,
}

/// Returns the mask of blocks `from..to`.
pub(crate) fn bits(from: u64, to: u64) -> u64 {
    let below = |n: u64| if n >= 64 { u64::MAX } else { (1 << n) - 1 };
    below(to) & !below(from)
}

/// Returns the mask of the blocks that contain bytes `from..to`.
pub(crate) fn touched(from: usize, to: usize, block_log: u32) -> u64 {
    let size = 1usize << block_log;
    bits((from >> block_log) as u64, (to.max(from).next_multiple_of(size) >> block_log) as u64)
}

/// Returns the runs of set bits: first, and one past the last.
pub(crate) fn runs(mut mask: u64) -> impl Iterator<Item = (u64, u64)> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let from = u64::from(mask.trailing_zeros());
        let to = from + u64::from((mask >> from).trailing_ones());
        mask &= !bits(from, to);
        Some((from, to))
    })
}

impl<B: Backing> Folio<B> {
    pub fn new(owner: Weak<Contents<B>>, index: u64) -> Self {
        let state = RwLock::new(Rank::Folio, State::default());
        Self {
            owner,
            index,
            used: AtomicBool::new(false),
            examined: AtomicU64::new(0),
            marked: AtomicBool::new(false),
            state,
        }
    }

    /// Marks it as used, if more than `reuse_bytes` of the time of reclaim passed since it was made or examined. Stores
    /// only if it was not marked.
    #[inline]
    pub fn touch(&self, now: u64, reuse_bytes: u64) {
        if !self.used.load(Relaxed) && now.saturating_sub(self.examined.load(Relaxed)) > reuse_bytes {
            self.used.store(true, Relaxed);
        }
    }

    /// Sets the time of its examination.
    pub fn set_examined(&self, now: u64) {
        self.examined.store(now, Relaxed);
    }

    /// Returns whether it was used since the last call.
    pub fn forget_use(&self) -> bool {
        self.used.swap(false, Relaxed)
    }

    /// Returns whether it was used since the last [`forget_use`](Self::forget_use).
    pub fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// Sets whether it is marked in the index. Returns whether it was.
    pub fn set_marked(&self, marked: bool) -> bool {
        // Ordered by the folio's lock.
        let before = self.marked.load(Relaxed);
        self.marked.store(marked, Relaxed);
        before
    }

    /// Returns whether it is marked in the index.
    #[cfg(debug_assertions)]
    pub fn is_marked(&self) -> bool {
        self.marked.load(Relaxed)
    }

    /// Offset of its first byte in the file.
    pub fn offset(&self) -> u64 {
        self.index << FOLIO_LOG
    }
}

impl State {
    /// Allocated memory in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.as_ref().map_or(0, |bytes| bytes.len())
    }

    /// Allocates memory for the first `bytes` bytes. Returns by how much it grew.
    pub fn grow(&mut self, pools: &PerCpu<BufferPool>, bytes: usize) -> usize {
        let before = self.capacity();
        if bytes <= before {
            return 0;
        }
        let size = bytes.next_power_of_two().clamp(FOLIO_MIN_BYTES, FOLIO_BYTES);
        let mut larger = pools.local().1.take(size);
        if let (Some(old), Some(target)) = (&self.bytes, larger.get_mut(..before)) {
            target.copy_from_slice(old);
        }
        self.bytes = Some(larger);
        size - before
    }

    /// Returns bytes; none if they have no memory.
    #[inline]
    pub fn bytes(&self, from: usize, to: usize) -> &[u8] {
        self.bytes.as_ref().and_then(|bytes| bytes.get(from..to)).unwrap_or(&[])
    }

    /// Returns bytes for writing; none if they have no memory.
    #[inline]
    pub fn bytes_mut(&mut self, from: usize, to: usize) -> &mut [u8] {
        self.bytes.as_mut().and_then(|bytes| bytes.get_mut(from..to)).unwrap_or(&mut [])
    }

    /// Returns all bytes.
    pub fn all_mut(&mut self) -> &mut [u8] {
        self.bytes.as_deref_mut().unwrap_or(&mut [])
    }

    /// Fills blocks that are not valid with zeros, and makes them valid.
    pub fn validate_with_zeros(&mut self, mask: u64, block_log: u32) {
        for (from, to) in runs(mask & !self.valid) {
            self.bytes_mut((from as usize) << block_log, (to as usize) << block_log).fill(0);
        }
        self.valid |= mask;
    }

    /// Returns the blocks that are dirty or in writeback.
    pub fn newer(&self) -> u64 {
        self.dirty | self.writeback
    }

    /// Returns whether it may be dropped.
    pub fn is_clean(&self) -> bool {
        self.newer() | self.reserved == 0
    }

    #[cfg(debug_assertions)]
    pub fn check(&self) {
        assert_eq!(self.dirty & !self.valid, 0, "a dirty block is valid");
        assert_eq!(self.writeback & !self.valid, 0, "a block in writeback is valid");
        assert_eq!(self.reserved & !self.newer(), 0, "a reserved block is dirty or in writeback");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_ranges_and_their_runs() {
        assert_eq!(bits(0, 64), u64::MAX);
        assert_eq!(bits(3, 5), 0b11000);
        assert_eq!(bits(63, 64), 1 << 63);
        assert_eq!(touched(0, 1, 12), 1);
        assert_eq!(touched(4095, 4097, 12), 3);
        assert_eq!(touched(0, FOLIO_BYTES, 16), 1);
        assert_eq!(touched(1024, 2048, 10), 2);
        assert_eq!(runs(0b1101_1000_0001).collect::<Vec<_>>(), [(0, 1), (7, 9), (10, 12)]);
        assert_eq!(runs(u64::MAX).collect::<Vec<_>>(), [(0, 64)]);
        assert_eq!(runs(0).count(), 0);
    }

    #[test]
    fn memory_grows_with_use_and_keeps_its_bytes() {
        let pools = PerCpu::new(1, |_| BufferPool::default());
        let mut state = State::default();
        assert_eq!(state.grow(&pools, 1), 4096);
        state.bytes_mut(0, 3).copy_from_slice(b"abc");
        assert_eq!(state.grow(&pools, 4096), 0);
        assert_eq!(state.grow(&pools, 4097), 4096);
        assert_eq!(state.grow(&pools, FOLIO_BYTES), FOLIO_BYTES - 8192);
        assert_eq!(state.bytes(0, 3), b"abc");
    }
}
