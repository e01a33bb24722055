//! Claims for the files of one batch of writeback or one bulk write: cut from one claim, so that the files lie
//! together.
//!
//! # Invariants
//! All claimed blocks are reserved, at every moment: other transactions may have reserved the rest of the free blocks,
//! and must find them. So the pool claims at most as many blocks as its files have reserved and not placed yet.

use backing::{Backing, ClaimedBlocks, no_space};
use base::FsBlock;
use error::Error;

use crate::cache::Cache;

/// Memory of a claim in its AG: an entry of a tree whose nodes may be half empty.
pub(crate) const CLAIM_BYTES: usize = 2 * size_of::<(u32, u32)>();

/// See the module.
pub(crate) struct ClaimPool<B: Backing> {
    claim: Option<B::Claim>,
    /// Placement group of the files.
    group: Option<u64>,
    /// Reserved blocks of these files that are not placed yet.
    expected: u64,
    near: Option<FsBlock>,
}

impl<B: Backing> Default for ClaimPool<B> {
    fn default() -> Self {
        Self { claim: None, group: None, expected: 0, near: None }
    }
}

impl<B: Backing> ClaimPool<B> {
    /// Serves the files of `group` from now on, which have reserved `expected` blocks.
    pub fn serve(&mut self, group: u64, expected: u64) {
        *self = Self { claim: None, group: Some(group), expected, near: None };
    }

    /// Returns whether it serves this group.
    pub fn serves(&self, group: u64) -> bool {
        self.group == Some(group)
    }

    /// Takes up to `count` blocks for a file.
    pub fn take(&mut self, cache: &Cache<B>, file: &B::File, count: u64) -> Result<B::Claim, Error> {
        let mut claim = match self.claim.take().filter(|claim| claim.count() > 0) {
            Some(claim) => claim,
            None => self.claim(cache, file, self.near, self.expected.max(count))?,
        };
        let front = claim.take_front(count);
        self.claim = Some(claim);
        self.near = Some(FsBlock(front.start().get() + front.count()));
        self.placed(front.count());
        Ok(front)
    }

    /// Claims up to `max` blocks. Where space is short, spare claims are released first.
    pub fn claim(
        &mut self,
        cache: &Cache<B>,
        file: &B::File,
        near: Option<FsBlock>,
        max: u64,
    ) -> Result<B::Claim, Error> {
        no_space::retry(
            || cache.backing.claim(file, near, max),
            || {
                self.claim = None;
                cache.release_preallocations();
                Ok(true)
            },
        )
    }

    /// Drops the spare claim: a file's blocks come from elsewhere, and the claim may be of blocks reserved for these.
    pub fn release(&mut self) {
        self.claim = None;
    }

    /// `count` blocks of the files were placed.
    pub fn placed(&mut self, count: u64) {
        self.expected = self.expected.saturating_sub(count);
    }
}
