//! The AGFL: a ring of blocks from which the trees of free space and reverse mappings grow.
//!
//! # Invariants
//! Every change of free space begins with `LockedAg::fix_list`: the list then holds what all three trees need if each
//! of them splits at every level for that change, and again for refilling the list.

use std::sync::atomic::Ordering::Relaxed;

use base::AgBlock;
use format::agfl::RawAgfl;
use format::btree::MAX_LEVELS;
use format::ondisk::OnDisk;
use journal::engine::{Error, Transaction};

use super::alloc::AgAllocArgs;
use crate::group::{LockedAg, agf};
use crate::owner::ExtentOwner;

/// How many blocks above the need the list may keep: trees that grow and shrink by turns do not move blocks each time.
pub(super) const SLACK: u32 = 8;
/// How many blocks leave the list in one transaction at most.
const TRIM_MAX: u32 = 4;

/// What the list must hold for trees of these heights.
///
/// A change may split every level and add one; refilling the list may then split every level below the root again.
pub fn needed(levels: impl IntoIterator<Item = u32>) -> u32 {
    levels.into_iter().map(|levels| 2 * (levels + 1).min(MAX_LEVELS) - 2).sum()
}

impl LockedAg<'_> {
    /// What the list must hold before free space changes.
    pub(crate) fn list_need(&self, tx: &Transaction) -> u32 {
        let rmap = self.group.geometry.features.rmapbt();
        let trees = [agf!(bnolevel), agf!(cntlevel)].into_iter().chain(rmap.then_some(agf!(rmaplevel)));
        needed(trees.map(|field| self.get(tx, field)))
    }

    /// Takes the first block off the list.
    ///
    /// # Errors
    /// No space: the list is empty, which its upkeep prevents. Damage: the list names a block that cannot be.
    pub(crate) fn take_from_list(&self, tx: &mut Transaction) -> Result<AgBlock, Error> {
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
        self.count(tx, agf!(flcount), -1);
        Ok(block)
    }

    /// Puts a block on the list.
    ///
    /// # Errors
    /// Damage: the list is full, which its upkeep prevents.
    pub(crate) fn give_to_list(&self, tx: &mut Transaction, block: AgBlock) -> Result<(), Error> {
        let (last, count) = (self.get(tx, agf!(fllast)), self.get(tx, agf!(flcount)));
        if count >= self.slots() {
            let at = (RawAgfl::NAME, "flcount");
            return Err(self.group.damage(block, at, "room for another block", "a full list"));
        }
        let last = (last + 1) % self.slots();
        self.set_slot(tx, last, block.get());
        self.set(tx, agf!(fllast), last);
        self.count(tx, agf!(flcount), 1);
        Ok(())
    }

    /// Brings the list to what the trees may need. What is far too much goes back to free space in later transactions.
    ///
    /// # Errors
    /// What changing the trees meets. That there is no space for all of it is none: the list then holds what it can.
    pub(crate) fn fix_list(&self, tx: &mut Transaction) -> Result<(), Error> {
        let need = self.list_need(tx);
        self.refill(tx, need)?;
        let extra = self.get(tx, agf!(flcount)).saturating_sub(need);
        if extra > SLACK {
            for _ in 0..(extra - SLACK / 2).min(TRIM_MAX) {
                let block = self.take_from_list(tx)?;
                self.group.trimmed.fetch_add(1, Relaxed);
                self.group.free_from_list_later(tx, block);
            }
        }
        Ok(())
    }

    fn refill(&self, tx: &mut Transaction, need: u32) -> Result<(), Error> {
        loop {
            let missing = need.saturating_sub(self.get(tx, agf!(flcount)));
            if missing == 0 {
                return Ok(());
            }
            // The smallest extents will do: best fit keeps long ones whole.
            let want = AgAllocArgs {
                near: None,
                exact: false,
                min: 1,
                max: missing,
                align: 1,
                within: None,
                reuse_busy: true,
            };
            let Some(found) = self.find(tx, &want)? else { return Ok(()) };
            self.take_out(tx, found.free, found.at, found.count)?;
            for block in found.at..found.at + found.count {
                self.give_to_list(tx, AgBlock(block))?;
            }
            self.map_owner(tx, AgBlock(found.at), found.count, ExtentOwner::Ag)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_need_grows_with_the_trees_up_to_the_highest() {
        assert_eq!(needed([1, 1]), 4);
        assert_eq!(needed([1, 1, 1]), 6);
        assert_eq!(needed([2, 3]), 4 + 6);
        assert_eq!(needed([MAX_LEVELS, MAX_LEVELS]), 2 * (2 * MAX_LEVELS - 2));
        assert_eq!(needed([u32::MAX - 1]), 2 * MAX_LEVELS - 2);
    }
}
