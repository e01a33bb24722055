//! Where a record stands, to come back to it without a search.
//!
//! # Invariants
//! A spot is a hint, and believed for what its leaf says: an equal record of a tree exists but once, so a leaf of this
//! tree that has it at that slot is where it stands. A leaf that left the tree is no valid buffer any more.

use std::sync::{Arc, Weak};

use format::btree::{Btree, BtreeHeader};
use format::ondisk::OnDisk;
use journal::engine::{Buffer, Transaction};
use zerocopy::IntoBytes;

use super::block::BlockLayout;
use super::cursor::RecordOf;
use super::{BtreeCursor, BtreeOps, BtreeOwner, BtreeType};

/// See the module. Keeps no buffer in memory.
#[derive(Clone, Debug, Default)]
pub struct RecordHint {
    leaf: Weak<Buffer>,
    slot: usize,
}

impl<T: BtreeOps> BtreeCursor<T> {
    /// Where the record at the position stands; `None` in a gap.
    pub fn spot(&self, tx: &mut Transaction) -> Option<RecordHint> {
        let step = self.step(0);
        let leaf = step.id.filter(|_| self.levels > 0 && !self.gap)?;
        Some(RecordHint { leaf: Arc::downgrade(tx.buffer_mut(leaf).buffer()), slot: step.slot })
    }
}

impl RecordHint {
    /// Replaces a record by one with the same place in the order, and is its spot then. `false`, with nothing changed,
    /// where it does not stand in this leaf: then it has to be looked up.
    pub fn update<T: BtreeOps>(
        &mut self,
        tree: &T,
        tx: &mut Transaction,
        (old, new): (&RecordOf<T>, &RecordOf<T>),
    ) -> bool {
        debug_assert!(!T::Type::OVERLAPPING && T::Type::of_record(old) == T::Type::of_record(new));
        let Some(id) = self.leaf.upgrade().and_then(|leaf| tx.rejoin(leaf)) else { return false };
        let (bytes, shape) = (tx.bytes(id), BlockLayout::leaf::<T::Type>(tree.geometry()));
        let owner = match tree.owner() {
            BtreeOwner::Ag(ag) => ag.get().into(),
            BtreeOwner::Inode(ino) => ino.get(),
        };
        let header = <T::Type as Btree>::Header::view(bytes);
        let is_leaf = header.is_some_and(|header| {
            (header.magic(), header.level(), header.owner()) == (T::Type::MAGIC, 0, owner)
        });
        let records = shape.view::<RecordOf<T>>(bytes);
        let is_it = |slot: &usize| records.get(*slot).is_some_and(|found| found.as_bytes() == old.as_bytes());
        let at = T::Type::of_record(old);
        let in_order = || records.partition_point(|record| T::Type::of_record(record) < at);
        let found = Some(self.slot).filter(is_it).or_else(|| Some(in_order()).filter(is_it));
        let Some(slot) = found.filter(|_| is_leaf) else {
            tx.release(id);
            return false;
        };
        self.slot = slot;
        tx.bytes_mut(id, shape.entries(slot..slot + 1)).copy_from_slice(new.as_bytes());
        true
    }
}
