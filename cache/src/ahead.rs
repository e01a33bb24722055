//! Blocks that are claimed for a file before it needs them.
//!
//! A file that is appended to would get its blocks in small runs, in turns with other files that are appended to. So a
//! write of its end claims more than it needs; what is left is kept here for the next one. It is a claim, in memory
//! alone: after a power cut there is nothing to trim. It is given back when the file is closed or rests, and when space
//! runs short.

use std::sync::Weak;

use crate::backing::{Backing, Claimed};
use crate::cache::Cache;
use crate::contents::Contents;

/// Files below this size get nothing ahead: most files are written once, and small.
const LEAST_BYTES: u64 = 256 << 10;
/// The most that a file gets ahead.
const MOST_BYTES: u64 = 32 << 20;

/// See the module. As many blocks of the volume are set aside for it.
#[derive(Debug)]
pub(crate) struct Ahead<B: Backing> {
    /// The block of the file for which the claim's first is.
    pub at: u64,
    pub claim: B::Claim,
}

impl<B: Backing> Contents<B> {
    /// How many blocks more than it needs a write of the file's end should claim.
    pub(crate) fn want_ahead(&self) -> u64 {
        let size = self.size();
        if size < LEAST_BYTES { 0 } else { size.min(MOST_BYTES) >> self.block_log() }
    }

    /// Up to `count` blocks that were claimed for the file's block `at`. What was reserved for this claim is the
    /// caller's.
    pub(crate) fn take_ahead(&self, at: u64, count: u64) -> Option<B::Claim> {
        let mut slot = self.ahead.lock();
        let ahead = slot.as_mut().filter(|ahead| ahead.at == at)?;
        let front = ahead.claim.take_front(count);
        ahead.at += front.count();
        let empty = if ahead.claim.count() == 0 { slot.take() } else { None };
        drop(slot);
        drop(empty);
        Some(front)
    }

    /// Keeps what was claimed and set aside beyond the need of a write.
    pub(crate) fn keep_ahead(&self, at: u64, claim: B::Claim) {
        let old = self.ahead.lock().replace(Ahead { at, claim });
        self.give_back_one(old);
        self.cache.has_ahead(Weak::clone(&self.me));
    }

    /// Gives back what was claimed ahead: the file is closed, or rests.
    pub fn give_back_claim(&self) {
        let ahead = self.ahead.lock().take();
        self.give_back_one(ahead);
    }

    /// Called without a lock: dropping a claim waits for one of the group's.
    fn give_back_one(&self, ahead: Option<Ahead<B>>) {
        if let Some(ahead) = ahead {
            let count = ahead.claim.count();
            drop(ahead);
            self.cache.below.unreserve(count);
        }
    }
}

impl<B: Backing> Cache<B> {
    /// A file has blocks ahead.
    fn has_ahead(&self, contents: Weak<Contents<B>>) {
        let mut files = self.ahead.lock();
        let is_new = !files.iter().any(|there| there.ptr_eq(&contents));
        if is_new {
            files.push(contents);
        }
    }

    /// Gives back all that was claimed ahead.
    pub fn give_back_ahead(&self) {
        let files = std::mem::take(&mut *self.ahead.lock());
        files.iter().filter_map(Weak::upgrade).for_each(|contents| contents.give_back_claim());
    }

    /// Gives back what was claimed ahead for files that have nothing to write.
    pub(crate) fn trim_ahead(&self) {
        let files = std::mem::take(&mut *self.ahead.lock());
        for weak in files {
            let Some(contents) = weak.upgrade() else { continue };
            if contents.is_needed() {
                self.has_ahead(weak);
            } else {
                contents.give_back_claim();
            }
        }
    }
}
