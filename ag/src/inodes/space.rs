//! Allocating and freeing blocks for inodes and the inode trees.
//!
//! | blocks of | come from | go to |
//! |---|---|---|
//! | chunks | the change's reservation | free space |
//! | the inobt | the change's reservation, set aside before the change begins | free space |
//! | the finobt | the per-AG reservation; beyond that, as for the inobt, or any free block of the AG | the per-AG reservation |
//!
//! # Invariants
//! Before an inode tree changes, blocks for its growth are ensured: running out of them in the middle of a change would
//! shut the volume down.

use std::cell::Cell;

use base::AgBlock;
use error::{Error, Result};
use journal::engine::Transaction;

use super::agi::Agi;
use crate::group::Group;
use crate::space::alloc::AgAllocArgs;
use crate::space::contribution::Payer;
use crate::{BlockReservation, ExtentOwner, Groups};

/// Blocks of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InodeBlocks {
    pub block: AgBlock,
    pub blocks: u32,
}

/// A request for the blocks of a chunk in one AG.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeBlocksRequest {
    pub blocks: u32,
    pub align: u32,
    pub near: AgBlock,
    /// Range of AG blocks that must contain it.
    pub within: (u32, u32),
}

/// Blocks set aside for the inode trees, to be allocated as needed.
#[derive(Debug, Default)]
pub(super) struct TreeBlockReserve {
    blocks: Cell<u32>,
}

impl TreeBlockReserve {
    /// Sets blocks aside; `None` if the reservation cannot cover them.
    pub fn take(reservation: &mut BlockReservation<'_>, blocks: u32) -> Option<Self> {
        reservation.cover(blocks).ok()?;
        reservation.spend(blocks);
        Some(Self { blocks: Cell::new(blocks) })
    }

    /// Returns the unused blocks to the reservation.
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
    /// Allocates the blocks of a chunk; `None` if the AG has none.
    pub(super) fn alloc_inode_blocks(
        &self,
        tx: &mut Transaction,
        reservation: &mut BlockReservation<'_>,
        agi: Agi,
        request: InodeBlocksRequest,
    ) -> Result<Option<InodeBlocks>> {
        let group = self.group_of(agi)?;
        let locked = group.lock(tx)?;
        reservation.note_locked(agi.ag);
        // The trees grow after the inodes were initialized: they must not run out of blocks then.
        if locked.allocatable(tx, Payer::Reservation) < request.blocks + self.blocks_for_trees() {
            return Ok(None);
        }
        let args = AgAllocArgs {
            near: Some(request.near.get()),
            exact: false,
            min: request.blocks,
            max: request.blocks,
            align: request.align,
            within: Some(request.within),
            reuse_busy: true,
        };
        if reservation.cover(request.blocks).is_err() {
            return Ok(None);
        }
        let Some((block, blocks)) = locked.alloc(tx, &args, ExtentOwner::Inodes, Payer::Reservation)? else {
            return Ok(None);
        };
        reservation.spend(blocks);
        Ok(Some(InodeBlocks { block, blocks }))
    }

    /// Allocates a block for an inode tree. `reserved` says that the tree has a per-AG reservation.
    pub(super) fn alloc_inode_tree_block(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        near: AgBlock,
        (reserved, spare): (bool, Option<&TreeBlockReserve>),
    ) -> Result<AgBlock> {
        let group = self.group_of(agi)?;
        let locked = group.lock(tx)?;
        let is_paid = (!reserved || group.metadata_reservation.left() == 0)
            && spare.is_some_and(TreeBlockReserve::spend);
        if reserved && !is_paid {
            return locked.alloc_tree_block(tx, near, ExtentOwner::InodeTree);
        }
        let none = Error::NoSpace { what: "an inode tree" };
        if !is_paid {
            return Err(none);
        }
        if reserved {
            // Counts it as used, as its freeing will subtract it.
            group.metadata_reservation.draw(1);
        }
        let near = Some(near.get());
        let args =
            AgAllocArgs { near, exact: false, min: 1, max: 1, align: 1, within: None, reuse_busy: true };
        let block = locked.alloc(tx, &args, ExtentOwner::InodeTree, Payer::Reservation)?;
        block.map(|(block, _)| block).ok_or(none)
    }

    /// Frees a block of an inode tree after this transaction.
    pub(super) fn free_tree_block(
        &self,
        tx: &mut Transaction,
        agi: Agi,
        block: AgBlock,
        reserved: bool,
    ) -> Result<()> {
        self.group_of(agi)?.free_tree_block_later(tx, block, ExtentOwner::InodeTree, reserved);
        Ok(())
    }

    /// Frees the blocks of a chunk after this transaction.
    pub(super) fn free_inode_blocks(&self, tx: &mut Transaction, agi: Agi, run: InodeBlocks) -> Result<()> {
        self.free_extent_later(
            tx,
            self.geometry().fs_block(agi.ag, run.block),
            run.blocks,
            ExtentOwner::Inodes,
        )
    }

    /// The in-core state of an AG whose AGI is locked.
    pub(super) fn group_of(&self, agi: Agi) -> Result<&std::sync::Arc<Group>> {
        self.get(agi.ag).ok_or_else(|| {
            let most = format_args!("less than {}", self.count()).to_string();
            agi.damage(format::Damage::new("AGI", "seqno", most, agi.ag))
        })
    }
}
