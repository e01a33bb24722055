//! Where a record stands, to come back to it without a search.
//!
//! # Invariants
//! A spot is a hint, and believed for what its leaf says: an equal record of a tree exists but once, so a leaf of this
//! tree that has it at that slot is where it stands. A leaf that left the tree is no valid buffer any more.

use std::sync::{Arc, Weak};

use format::btree::{Btree, Header};
use format::ondisk::OnDisk;
use log::engine::{Buffer, Transaction};
use zerocopy::IntoBytes;

use super::cursor::Record;
use super::page::Shape;
use super::{Cursor, Home, Kind, Tree};

/// See the module. Keeps no buffer in memory.
#[derive(Clone, Debug)]
pub struct Spot {
    leaf: Weak<Buffer>,
    slot: usize,
}

impl<T: Tree> Cursor<T> {
    /// Where the record at the position stands; `None` in a gap.
    pub fn spot(&self, tx: &mut Transaction) -> Option<Spot> {
        let step = self.step(0);
        let leaf = step.id.filter(|_| self.levels > 0 && !self.gap)?;
        Some(Spot { leaf: Arc::downgrade(tx.edit(leaf).buffer()), slot: step.slot })
    }
}

impl Spot {
    /// Replaces a record by one with the same place in the order. `false`, with nothing changed, where it does not
    /// stand here any more: then it has to be looked up.
    pub fn update<T: Tree>(
        &self,
        tree: &T,
        tx: &mut Transaction,
        (old, new): (&Record<T>, &Record<T>),
    ) -> bool {
        debug_assert!(!T::Kind::OVERLAPPING && T::Kind::of_record(old) == T::Kind::of_record(new));
        let Some(id) = self.leaf.upgrade().and_then(|leaf| tx.rejoin(leaf)) else { return false };
        let (bytes, shape) = (tx.bytes(id), Shape::leaf::<T::Kind>(tree.geometry()));
        let owner = match tree.home() {
            Home::Ag(ag) => ag.get().into(),
            Home::Inode(ino) => ino.get(),
        };
        let header = <T::Kind as Btree>::Header::view(bytes);
        let is_leaf = header.is_some_and(|header| {
            (header.magic(), header.level(), header.owner()) == (T::Kind::MAGIC, 0, owner)
        });
        let found = shape.view::<Record<T>>(bytes).get(self.slot);
        if !is_leaf || found.is_none_or(|found| found.as_bytes() != old.as_bytes()) {
            tx.release(id);
            return false;
        }
        tx.bytes_mut(id, shape.entries(self.slot..self.slot + 1)).copy_from_slice(new.as_bytes());
        true
    }
}
