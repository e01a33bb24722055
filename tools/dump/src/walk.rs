//! A walk over all records of a btree of an AG.
//!
//! # Invariants
//! Each block must be one level below its parent, and the records of each leaf must be greater than those of the
//! previous one. So no leaf is visited twice, and a walk always ends.

use base::{AgBlock, AgNumber};
use format::btree::{Btree, BtreeBlock, BtreeBlockBody, BtreeBlockIdentity, BtreePointer};
use format::{Damage, Place};
use read::{Error, Result, Volume};

/// The root of a btree.
#[derive(Clone, Copy, Debug)]
pub struct TreeRoot {
    /// AG.
    pub ag: AgNumber,
    /// Root block.
    pub block: AgBlock,
    /// Level of the root: 0 for a leaf.
    pub level: u16,
}

/// A walk over one btree.
pub struct Walk<'v, T: Btree> {
    volume: &'v Volume,
    root: TreeRoot,
    /// The previous leaf.
    last: Vec<u8>,
    visit: &'v mut dyn FnMut(&T::Record),
}

impl<'v, T: Btree> Walk<'v, T> {
    /// Calls `visit` with each record in order, up to the first error.
    pub fn run(volume: &'v Volume, root: TreeRoot, visit: &'v mut dyn FnMut(&T::Record)) -> Result<()> {
        Self { volume, root, last: Vec::new(), visit }.block(root.block, root.level)
    }

    fn block(&mut self, block: AgBlock, level: u16) -> Result<()> {
        let geometry = self.volume.geometry();
        let mut bytes = vec![0; geometry.block_size as usize];
        self.volume.read_ag_block(self.root.ag, block, &mut bytes)?;
        let damaged = |damage| Error::damaged(Place::block(self.root.ag, block), damage);
        let identity = BtreeBlockIdentity { ag: self.root.ag, block, ino: None };
        let verified = BtreeBlock::<T>::verify(&bytes, geometry, identity, level).map_err(damaged)?;
        match verified.body {
            BtreeBlockBody::Leaf(records) => {
                self.check_leaf(records, block).map_err(damaged)?;
                records.iter().for_each(&mut *self.visit);
                self.last = bytes;
                Ok(())
            }
            BtreeBlockBody::Node(_, pointers) => {
                let child = |pointer: &T::Pointer| {
                    pointer.locate(geometry, Some(self.root.ag)).map(|(_, block)| block).ok_or_else(|| {
                        damaged(Damage::new(T::NAME, "ptrs", "a block of this AG", "a block outside of it"))
                    })
                };
                let children = pointers.iter().map(child).collect::<Result<Vec<_>>>()?;
                children.into_iter().try_for_each(|child| self.block(child, level.saturating_sub(1)))
            }
        }
    }

    /// Checks the order of the records, also with the previous leaf. Only the root may be empty.
    fn check_leaf(&self, records: &[T::Record], block: AgBlock) -> std::result::Result<(), Damage> {
        let disorder = || Damage::new(T::NAME, "recs", "ascending order", "not in order");
        if records.is_empty() && block != self.root.block {
            return Err(Damage::new(T::NAME, "numrecs", "at least 1", 0));
        }
        if records.windows(2).any(|pair| matches!(pair, [left, right] if !T::in_order(left, right))) {
            return Err(disorder());
        }
        let geometry = self.volume.geometry();
        let previous = <T::Header as format::ondisk::OnDisk>::view(&self.last)
            .and_then(|header| BtreeBlock::<T>::body(&self.last, geometry, header).ok());
        match (previous, records.first()) {
            (Some(BtreeBlockBody::Leaf([.., last])), Some(first)) if !T::in_order(last, first) => {
                Err(disorder())
            }
            _ => Ok(()),
        }
    }
}
