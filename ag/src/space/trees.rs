//! The trees below an AGF, as the btree cursor uses them.
//!
//! Blocks of the free-space trees and the rmapbt come from the AGFL and go back there: allocating them from free space
//! would change the tree that is being changed. Blocks of the refcountbt come from free space.

use std::marker::PhantomData;

use base::{AgBlock, AgNumber};
use error::Result;
use format::Geometry;
use format::btree::{BnoBt, CntBt, RefcountBt, RmapBt};
use journal::engine::Transaction;

use crate::btree::{BtreeCursor, BtreeOps, BtreeOwner, BtreeRoot, BtreeType};
use crate::group::{LockedAg, agf};
use crate::owner::ExtentOwner;

/// A btree type whose root is in the AGF.
pub trait AgfBtreeType: BtreeType {
    /// Offset of the root in the AGF.
    const ROOT: usize;
    /// Offset of the number of levels.
    const LEVELS: usize;
    /// Offset of the tree's block count, if it has its own.
    const BLOCKS: Option<usize>;
    /// Whether its blocks come from the AGFL and count as free.
    const FROM_LIST: bool;
}

impl AgfBtreeType for BnoBt {
    const ROOT: usize = agf!(bnoroot);
    const LEVELS: usize = agf!(bnolevel);
    const BLOCKS: Option<usize> = None;
    const FROM_LIST: bool = true;
}

impl AgfBtreeType for CntBt {
    const ROOT: usize = agf!(cntroot);
    const LEVELS: usize = agf!(cntlevel);
    const BLOCKS: Option<usize> = None;
    const FROM_LIST: bool = true;
}

impl AgfBtreeType for RmapBt {
    const ROOT: usize = agf!(rmaproot);
    const LEVELS: usize = agf!(rmaplevel);
    const BLOCKS: Option<usize> = Some(agf!(rmapblocks));
    const FROM_LIST: bool = true;
}

impl AgfBtreeType for RefcountBt {
    const ROOT: usize = agf!(refcntroot);
    const LEVELS: usize = agf!(refcntlevel);
    const BLOCKS: Option<usize> = Some(agf!(refcntblocks));
    const FROM_LIST: bool = false;
}

/// A tree below a locked AGF.
#[derive(Clone, Copy, Debug)]
pub struct AgfTree<'g, K> {
    locked: LockedAg<'g>,
    btree: PhantomData<K>,
}

impl<'g> LockedAg<'g> {
    /// A cursor for one of the trees.
    pub fn cursor<K: AgfBtreeType>(&self) -> BtreeCursor<AgfTree<'g, K>> {
        BtreeCursor::new(AgfTree { locked: *self, btree: PhantomData })
    }
}

impl<K: AgfBtreeType> BtreeOps for AgfTree<'_, K> {
    type Type = K;

    fn geometry(&self) -> &Geometry {
        &self.locked.group.geometry
    }

    fn owner(&self) -> BtreeOwner {
        let ag: AgNumber = self.locked.group.ag;
        BtreeOwner::Ag(ag)
    }

    fn root(&self, tx: &Transaction) -> BtreeRoot {
        BtreeRoot::Block {
            block: self.locked.get(tx, K::ROOT).into(),
            levels: self.locked.get(tx, K::LEVELS),
        }
    }

    fn set_root(&mut self, tx: &mut Transaction, block: u64, levels: u32) {
        self.locked.set(tx, K::ROOT, block as u32);
        self.locked.set(tx, K::LEVELS, levels);
    }

    fn alloc_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64> {
        let block = if K::FROM_LIST {
            let block = self.locked.get_freelist_block(tx)?;
            self.locked.adjust_counter(tx, agf!(btreeblks), 1);
            block
        } else {
            self.locked.alloc_tree_block(tx, AgBlock(near as u32), ExtentOwner::RefcountTree)?
        };
        if let Some(blocks) = K::BLOCKS {
            self.locked.adjust_counter(tx, blocks, 1);
        }
        if K::FROM_LIST && K::BLOCKS.is_some() {
            self.locked.group.rmap_reservation.draw(1);
        }
        Ok(block.get().into())
    }

    fn free_block(&mut self, tx: &mut Transaction, block: u64) -> Result<()> {
        let block = AgBlock(block as u32);
        if K::FROM_LIST {
            self.locked.put_freelist_block(tx, block)?;
            self.locked.adjust_counter(tx, agf!(btreeblks), -1);
            self.locked.group.mark_busy(tx, block, 1);
        } else {
            self.locked.group.free_tree_block_later(tx, block, ExtentOwner::RefcountTree, true);
        }
        if let Some(blocks) = K::BLOCKS {
            self.locked.adjust_counter(tx, blocks, -1);
        }
        if K::FROM_LIST && K::BLOCKS.is_some() {
            self.locked.group.rmap_reservation.restore(1);
        }
        Ok(())
    }
}
