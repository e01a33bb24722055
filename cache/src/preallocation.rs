//! Speculative preallocation beyond EOF.
//!
//! Files that are appended to in turns would get their blocks in short runs. So a write of a file's end claims more
//! than it needs; the rest stays here for the next write. It is a claim, in memory only: after a power cut there is
//! nothing to trim. It is released when the file is closed or rests, and when space runs out.

use std::sync::Weak;
use std::sync::atomic::Ordering::{Acquire, Release};

use backing::{Backing, ClaimedBlocks};

use crate::cache::Cache;
use crate::contents::Contents;
use crate::tuning::{PREALLOCATION_MAX_BYTES, PREALLOCATION_MIN_SIZE};

/// The preallocation of one file. As many blocks are reserved for it.
#[derive(Debug)]
pub(crate) struct Preallocation<B: Backing> {
    /// The block of the file for which the claim starts.
    pub offset: u64,
    pub claim: B::Claim,
}

impl<B: Backing> Contents<B> {
    /// Returns how many blocks a write of the file's end claims in addition.
    pub(crate) fn preallocation_size(&self) -> u64 {
        let size = self.size();
        if size < PREALLOCATION_MIN_SIZE { 0 } else { size.min(PREALLOCATION_MAX_BYTES) >> self.block_log() }
    }

    /// Takes up to `count` preallocated blocks for the file's block `offset`. The caller takes over their reservation.
    pub(crate) fn take_preallocated(&self, offset: u64, count: u64) -> Option<B::Claim> {
        let mut slot = self.preallocation.lock();
        let found = slot.as_mut().filter(|found| found.offset == offset)?;
        let front = found.claim.take_front(count);
        found.offset += front.count();
        let empty = if found.claim.count() == 0 { slot.take() } else { None };
        drop(slot);
        drop(empty);
        Some(front)
    }

    /// Keeps a reserved claim for the file's next write.
    pub(crate) fn keep_preallocated(&self, offset: u64, claim: B::Claim) {
        let mut slot = self.preallocation.lock();
        self.has_preallocation.store(true, Release);
        let old = slot.replace(Preallocation { offset, claim });
        drop(slot);
        self.release_one(old);
        self.cache.list_preallocation(Weak::clone(&self.me));
    }

    /// Releases the file's preallocation: it is closed, or rests.
    pub fn release_preallocation(&self) {
        // Without the lock: files without a preallocation are closed often.
        if !self.has_preallocation.load(Acquire) {
            return;
        }
        let mut slot = self.preallocation.lock();
        let preallocation = slot.take();
        self.has_preallocation.store(false, Release);
        drop(slot);
        self.release_one(preallocation);
    }

    /// Called without a spinlock: dropping a claim locks its AG's claims.
    fn release_one(&self, preallocation: Option<Preallocation<B>>) {
        if let Some(Preallocation { claim, .. }) = preallocation {
            let count = claim.count();
            drop(claim);
            self.cache.backing.unreserve(count);
        }
    }
}

impl<B: Backing> Cache<B> {
    /// Lists a file with a preallocation.
    fn list_preallocation(&self, contents: Weak<Contents<B>>) {
        let mut files = self.preallocated.lock();
        let is_new = !files.iter().any(|known| known.ptr_eq(&contents));
        if is_new {
            files.push(contents);
        }
    }

    /// Releases the preallocations of all files.
    pub fn release_preallocations(&self) {
        let files = std::mem::take(&mut *self.preallocated.lock());
        files.iter().filter_map(Weak::upgrade).for_each(|contents| contents.release_preallocation());
    }

    /// Releases the preallocations of clean files.
    pub(crate) fn trim_preallocations(&self) {
        let files = std::mem::take(&mut *self.preallocated.lock());
        for weak in files {
            let Some(contents) = weak.upgrade() else { continue };
            if contents.is_needed() {
                self.list_preallocation(weak);
            } else {
                contents.release_preallocation();
            }
        }
    }
}
