//! Where blocks for inodes and for their trees come from, and where they go.
//!
//! | blocks of | come from | go to |
//! |---|---|---|
//! | chunks | the change's reservation | free space |
//! | the inode tree | the same, put aside before the change begins | free space |
//! | the free inode tree | what the AG has set aside; beyond that, as the inode tree's, or any that is free there | what is set aside |
//!
//! # Invariants
//! Once an inode tree begins to change, blocks for it are at hand: a change that ran out of them half way would shut
//! the volume down.

use std::cell::Cell;

use base::AgBlock;
use journal::engine::{Error, Transaction};

use super::agi::Agi;
use crate::group::Group;
use crate::space::alloc::AgAllocArgs;
use crate::space::contribution::Payer;
use crate::{BlockReservation, ExtentOwner, Groups};

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InodeBlocks {
    pub block: AgBlock,
    pub blocks: u32,
}

/// A run of blocks that is wanted, in one AG.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeBlocksRequest {
    pub blocks: u32,
    pub align: u32,
    pub near: AgBlock,
    /// It lies between these blocks.
    pub within: (u32, u32),
}

/// Blocks that were put aside for trees, to be allocated when they are needed.
#[derive(Debug, Default)]
pub(super) struct TreeBlockReserve {
    blocks: Cell<u32>,
}

impl TreeBlockReserve {
    /// Puts blocks aside; `None` where there are none to be had.
    pub fn take(reservation: &mut BlockReservation<'_>, blocks: u32) -> Option<Self> {
        reservation.cover(blocks).ok()?;
        reservation.spend(blocks);
        Some(Self { blocks: Cell::new(blocks) })
    }

    /// Gives back what was not used.
    pub fn give_back(self, reservation: &mut BlockReservation<'_>) {
        reservation.refund(self.blocks.get());
    }

    fn spend(&self) -> bool {
        let left = self.blocks.get().checked_sub(1);
        if let Some(left) = left {
            self.blocks.set(left);
        }
        left.is_some()
    }
}

impl Groups {
    /// Takes a run of blocks for inodes; `None` where the AG has none.
    pub(super) fn take_run(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        agi: Agi,
        place: InodeBlocksRequest,
    ) -> Result<Option<InodeBlocks>, Error> {
        let group = self.group_of(agi)?;
        let open = group.lock(tx)?;
        reservation.hold(agi.ag);
        // The trees grow after the inodes were made: nothing may run out then.
        if open.room(tx, Payer::Reservation) < place.blocks + self.blocks_for_trees() {
            return Ok(None);
        }
        let want = AgAllocArgs {
            near: Some(place.near.get()),
            exact: false,
            min: place.blocks,
            max: place.blocks,
            align: place.align,
            within: Some(place.within),
            reuse_busy: true,
        };
        if reservation.cover(place.blocks).is_err() {
            return Ok(None);
        }
        let Some((block, blocks)) = open.alloc(tx, &want, ExtentOwner::Inodes, Payer::Reservation)? else {
            return Ok(None);
        };
        reservation.spend(blocks);
        Ok(Some(InodeBlocks { block, blocks }))
    }

    /// Takes a block for an inode tree. `reserved` says that the AG sets blocks aside for it.
    pub(super) fn take_tree_block(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        near: AgBlock,
        (reserved, spare): (bool, Option<&TreeBlockReserve>),
    ) -> Result<AgBlock, Error> {
        let group = self.group_of(agi)?;
        let open = group.lock(tx)?;
        let is_paid = (!reserved || group.metadata.left() == 0) && spare.is_some_and(TreeBlockReserve::spend);
        if reserved && !is_paid {
            return open.alloc_tree_block(tx, near, ExtentOwner::InodeTree);
        }
        let none = Error::NoSpace { what: "an inode tree" };
        if !is_paid {
            return Err(none);
        }
        if reserved {
            // So that its freeing finds it where it counts.
            group.metadata.draw(1);
        }
        let near = Some(near.get());
        let want =
            AgAllocArgs { near, exact: false, min: 1, max: 1, align: 1, within: None, reuse_busy: true };
        let block = open.alloc(tx, &want, ExtentOwner::InodeTree, Payer::Reservation)?;
        block.map(|(block, _)| block).ok_or(none)
    }

    /// Gives a block of an inode tree back, after this transaction.
    pub(super) fn free_tree_block(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        block: AgBlock,
        reserved: bool,
    ) -> Result<(), Error> {
        self.group_of(agi)?.free_tree_block_later(tx, block, ExtentOwner::InodeTree, reserved);
        Ok(())
    }

    /// Gives a run of blocks that held inodes back, after this transaction.
    pub(super) fn free_run(&self, tx: &mut Transaction, agi: Agi, run: InodeBlocks) -> Result<(), Error> {
        self.free_extent_later(
            tx,
            self.geometry().fs_block(agi.ag, run.block),
            run.blocks,
            ExtentOwner::Inodes,
        )
    }

    /// The in-core state of an AG whose AGI is at hand.
    pub(super) fn group_of(&self, agi: Agi) -> Result<&std::sync::Arc<Group>, Error> {
        self.get(agi.ag).ok_or_else(|| {
            let most = format_args!("less than {}", self.count()).to_string();
            agi.damage(format::Damage::new("AGI", "seqno", most, agi.ag))
        })
    }
}
