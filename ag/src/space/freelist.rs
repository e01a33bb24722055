//! The AGFL: a ring of blocks for the free-space trees and the rmapbt.
//!
//! # Invariants
//! Every change of free space begins with `LockedAg::fix_freelist`: afterwards the list holds the blocks that all three
//! trees need if each of them splits at every level for that change, and again for refilling the list.

use std::sync::atomic::Ordering::Relaxed;

use base::AgBlock;
use error::{Error, Result};
use format::agfl::RawAgfl;
use format::btree::MAX_LEVELS;
use format::ondisk::OnDisk;
use journal::engine::Transaction;

use super::alloc::AgAllocArgs;
use crate::group::{LockedAg, agf};
use crate::owner::ExtentOwner;

/// Number of blocks that the list may keep beyond its minimum, so that trees that grow and shrink in turn do not move
/// blocks each time.
pub(super) const SLACK: u32 = 8;
/// Maximum number of blocks that leave the list in one transaction.
const TRIM_MAX: u32 = 4;

/// Minimum length of the list for trees of these heights.
///
/// A change may split every level and add one; refilling the list may then split every level below the root again.
pub fn min_freelist_for(levels: impl IntoIterator<Item = u32>) -> u32 {
    levels.into_iter().map(|levels| 2 * (levels + 1).min(MAX_LEVELS) - 2).sum()
}

impl LockedAg<'_> {
    /// Minimum length of the list before free space changes.
    pub(crate) fn min_freelist(&self, tx: &Transaction) -> u32 {
        let rmap = self.group.geometry.features.rmapbt();
        let trees = [agf!(bnolevel), agf!(cntlevel)].into_iter().chain(rmap.then_some(agf!(rmaplevel)));
        min_freelist_for(trees.map(|field| self.get(tx, field)))
    }

    /// Removes the first block from the list.
    ///
    /// # Errors
    /// No space: the list is empty, which `fix_freelist` prevents. Damage: the block is not in the AG.
    pub(crate) fn get_freelist_block(&self, tx: &mut Transaction) -> Result<AgBlock> {
        let (first, count) = (self.get(tx, agf!(flfirst)), self.get(tx, agf!(flcount)));
        if count == 0 {
            return Err(Error::NoSpace { what: "the trees of an allocation group" });
        }
        let block = AgBlock(self.slot(tx, first));
        if !self.group.holds(block, 1) {
            let found = format_args!("{block:#x}");
            return Err(self.group.damage(block, (RawAgfl::NAME, "bno"), "a block of the AG", found));
        }
        self.set(tx, agf!(flfirst), (first + 1) % self.slots());
        self.adjust_counter(tx, agf!(flcount), -1);
        Ok(block)
    }

    /// Appends a block to the list.
    ///
    /// # Errors
    /// Damage: the list is full, which `fix_freelist` prevents.
    pub(crate) fn put_freelist_block(&self, tx: &mut Transaction, block: AgBlock) -> Result<()> {
        let (last, count) = (self.get(tx, agf!(fllast)), self.get(tx, agf!(flcount)));
        if count >= self.slots() {
            let at = (RawAgfl::NAME, "flcount");
            return Err(self.group.damage(block, at, "space for another block", "a full list"));
        }
        let last = (last + 1) % self.slots();
        self.set_slot(tx, last, block.get());
        self.set(tx, agf!(fllast), last);
        self.adjust_counter(tx, agf!(flcount), 1);
        Ok(())
    }

    /// Refills the list to its minimum length. Excess blocks return to free space in later transactions. Returns
    /// whether it changed trees: then cursors are no longer valid.
    ///
    /// # Errors
    /// Damage; I/O errors. A lack of free space is no error: the list then holds what there is.
    pub(crate) fn fix_freelist(&self, tx: &mut Transaction) -> Result<bool> {
        let need = self.min_freelist(tx);
        let refilled = self.refill(tx, need)?;
        let extra = self.get(tx, agf!(flcount)).saturating_sub(need);
        if extra > SLACK {
            for _ in 0..(extra - SLACK / 2).min(TRIM_MAX) {
                let block = self.get_freelist_block(tx)?;
                self.group.trimmed.fetch_add(1, Relaxed);
                self.group.free_from_list_later(tx, block);
            }
        }
        Ok(refilled)
    }

    fn refill(&self, tx: &mut Transaction, need: u32) -> Result<bool> {
        let mut refilled = false;
        loop {
            let missing = need.saturating_sub(self.get(tx, agf!(flcount)));
            if missing == 0 {
                return Ok(refilled);
            }
            // Best fit: the smallest extents keep long ones whole.
            let want = AgAllocArgs {
                near: None,
                exact: false,
                min: 1,
                max: missing,
                align: 1,
                within: None,
                reuse_busy: true,
            };
            let Some(found) = self.find(tx, &want)? else { return Ok(refilled) };
            refilled = true;
            self.remove_free(tx, found.free, found.at, found.count)?;
            for block in found.at..found.at + found.count {
                self.put_freelist_block(tx, AgBlock(block))?;
            }
            self.map_owner(tx, AgBlock(found.at), found.count, ExtentOwner::Ag)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_grows_with_the_trees() {
        assert_eq!(min_freelist_for([1, 1]), 4);
        assert_eq!(min_freelist_for([1, 1, 1]), 6);
        assert_eq!(min_freelist_for([2, 3]), 4 + 6);
        assert_eq!(min_freelist_for([MAX_LEVELS, MAX_LEVELS]), 2 * (2 * MAX_LEVELS - 2));
        assert_eq!(min_freelist_for([u32::MAX - 1]), 2 * MAX_LEVELS - 2);
    }
}
